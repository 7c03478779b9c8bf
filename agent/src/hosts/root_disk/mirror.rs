//! Which two disks of a server become a mirror. Each is judged as the one disk of another server is, and both together: they have
//! sectors of one size, and two of equal size come before others.

use std::cmp::Reverse;

use firstlight_api::{
    disk::hints::{self, Hints},
    order::{DeploymentId, DiskPolicy, DiskScope, is_free},
    report::Report,
};

use super::{
    Candidate, Choice, Halves, MOST_NAMED, NoChoice, Rank, WantedDisks, candidates, choice, flaw,
    is_ambiguous, is_begun, rank, starts_from, unlike,
};

type Pair<'a, 'b> = [&'a Candidate<'b>; 2];

/// The smallest comes first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct PairRank {
    /// Whoever began on disks goes on there.
    begun: Reverse<usize>,
    is_uneven: bool,
    each: [Rank; 2],
}

pub(super) fn choose(
    report: &Report,
    policy: DiskPolicy,
    wanted: &WantedDisks,
    halves: &Halves,
    deployment: Option<DeploymentId>,
) -> Result<Choice, NoChoice> {
    let all = candidates(report);
    let meant = meant(&all, wanted, halves)?;
    let is_free = |one: &Candidate| policy == DiskPolicy::Wipe || is_free(one.found, deployment);
    let free = meant.each_ref().map(|from| {
        let free = from.iter().copied().filter(|one| is_free(one));
        free.collect::<Vec<_>>()
    });
    let Some(pair) = first(&free, deployment) else {
        return Err(match first(&meant, deployment) {
            Some(pair) => data(&pair, is_free),
            None => NoChoice::NoPair(missing(&all, &meant)),
        });
    };
    for one in pair {
        starts_from(report, one)?;
        if is_ambiguous(one, &all, deployment) {
            return Err(NoChoice::Unclear(one.named.to_string()));
        }
    }
    let [one, other] = pair;
    let scope = if wanted.names_disks() {
        DiskScope::Root
    } else {
        DiskScope::Server
    };
    let mut why = why(&pair, &all, &free[0], wanted, halves, deployment);
    let (small, large) = if one.disk.size <= other.disk.size {
        (one, other)
    } else {
        (other, one)
    };
    if small.disk.size < large.disk.size {
        let (small, large) = (&small.disk.name, &large.disk.name);
        why = format!("{why}; of {large} as much is used as {small} has");
    }
    let mut chosen = choice(one, scope, policy, deployment, why);
    if policy == DiskPolicy::Wipe && !firstlight_api::order::is_free(other.found, deployment) {
        let (name, kinds) = (&other.disk.name, other.found.signatures.join(", "));
        chosen.why = format!("{}; what {name} holds is given up ({kinds})", chosen.why);
    }
    chosen.mirror = Some(Box::new(other.named.clone()));
    Ok(chosen)
}

/// For each half the disks that it may be.
fn meant<'a, 'b>(
    all: &'a [Candidate<'b>],
    wanted: &WantedDisks,
    halves: &Halves,
) -> Result<[Vec<&'a Candidate<'b>>; 2], NoChoice> {
    let usual = |from: Vec<&'a Candidate<'b>>| {
        let usual = from.iter().copied().filter(|one| flaw(&one.disk).is_none());
        usual.collect::<Vec<_>>()
    };
    let Halves::Named(named) = halves else {
        let hints = wanted.hints.as_ref().and_then(hints::root_device);
        let hints = hints.map(|hints| Hints::parse(&hints)).transpose();
        let hints = hints.map_err(NoChoice::Hints)?;
        let fits = |one: &&Candidate| hints.as_ref().is_none_or(|hints| hints.matches(&one.disk));
        let meant: Vec<&Candidate> = all.iter().filter(fits).collect();
        if let (true, Some(hints)) = (meant.is_empty(), &hints) {
            return Err(unlike(all, hints));
        }
        let meant = usual(meant);
        return Ok([meant.clone(), meant]);
    };
    let mut each = Vec::new();
    for said in named.iter() {
        let hints = hints::root_device(said).ok_or_else(|| {
            NoChoice::Hints("an entry of `physicalDisks` says nothing".to_owned())
        })?;
        let hints = Hints::parse(&hints).map_err(NoChoice::Hints)?;
        let meant: Vec<&Candidate> = all.iter().filter(|one| hints.matches(&one.disk)).collect();
        if meant.is_empty() {
            return Err(unlike(all, &hints));
        }
        // Hints that fit many disks name none of those that nobody would choose.
        let fit = usual(meant.clone());
        each.push(if fit.is_empty() { meant } else { fit });
    }
    each.try_into()
        .map_err(|_| NoChoice::Hints("a mirror is of two disks".to_owned()))
}

fn first<'a, 'b>(
    from: &[Vec<&'a Candidate<'b>>; 2],
    deployment: Option<DeploymentId>,
) -> Option<Pair<'a, 'b>> {
    let [ones, others] = from;
    let pairs = ones
        .iter()
        .flat_map(|one| others.iter().map(|other| [*one, *other]));
    let can_be =
        |[one, other]: &Pair| one.disk.name != other.disk.name && sectors(one) == sectors(other);
    pairs
        .filter(can_be)
        .min_by_key(|pair| pair_rank(pair, deployment))
}

fn sectors(one: &Candidate) -> u64 {
    one.disk.logical_sectors.unwrap_or(super::SECTOR)
}

fn pair_rank(pair: &Pair, deployment: Option<DeploymentId>) -> PairRank {
    let begun = pair.iter().filter(|one| is_begun(one, deployment));
    PairRank {
        begun: Reverse(begun.count()),
        is_uneven: pair[0].disk.size != pair[1].disk.size,
        each: pair.map(|one| rank(one, deployment)),
    }
}

/// Why two disks that could be a mirror are not written.
fn data(pair: &Pair, is_free: impl Fn(&Candidate) -> bool) -> NoChoice {
    let held = pair.iter().find(|one| !is_free(one)).unwrap_or(&pair[0]);
    NoChoice::Data {
        disk: held.named.to_string(),
        kinds: held.found.signatures.join(", "),
    }
}

/// Why there are not two.
fn missing(all: &[Candidate], meant: &[Vec<&Candidate>; 2]) -> String {
    let mut fit: Vec<String> = Vec::new();
    let (mut others, mut sizes) = (Vec::new(), Vec::new());
    for one in all {
        let is_meant = meant
            .iter()
            .flatten()
            .any(|other| other.disk.name == one.disk.name);
        match flaw(&one.disk) {
            _ if is_meant => {
                fit.push(one.named.to_string());
                sizes.push(sectors(one));
            }
            Some(flaw) => others.push(format!("{} {flaw}", one.disk.name)),
            None => others.push(format!("{} is not meant", one.disk.name)),
        }
    }
    sizes.sort_unstable();
    sizes.dedup();
    let is_odd = sizes.len() > 1;
    for list in [&mut fit, &mut others] {
        if list.len() > MOST_NAMED {
            list.truncate(MOST_NAMED);
            list.push("others".to_owned());
        }
    }
    let others = if others.is_empty() {
        String::new()
    } else {
        format!(" ({})", others.join(", "))
    };
    match fit.as_slice() {
        [] => format!("none of its disks does{others}"),
        [one] => format!("only {one} does{others}"),
        _ if is_odd => format!(
            "{} have sectors of different sizes{others}",
            fit.join(" and ")
        ),
        _ => format!("both entries of `physicalDisks` mean the same one{others}"),
    }
}

/// What put them before others.
fn why(
    pair: &Pair,
    all: &[Candidate],
    from: &[&Candidate],
    wanted: &WantedDisks,
    halves: &Halves,
    deployment: Option<DeploymentId>,
) -> String {
    if pair.iter().any(|one| is_begun(one, deployment)) {
        return "the ones that this installation has begun to write".to_owned();
    }
    if matches!(halves, Halves::Named(_)) {
        return "the two that its `raid` names".to_owned();
    }
    let meant = if wanted.names_disks() {
        " that its `rootDeviceHints` mean"
    } else {
        ""
    };
    let alike = if pair[0].disk.size == pair[1].disk.size {
        " of equal size"
    } else {
        ""
    };
    match from.len() {
        2 if all.len() == 2 => "the only two disks".to_owned(),
        2 if meant.is_empty() => "the only two disks that may be chosen".to_owned(),
        2 => format!("the two{meant}"),
        many => format!("the smallest two{alike} of {many} disks{meant}"),
    }
}

#[cfg(test)]
mod tests;
