//! May these disks be written to? Asked beside a box in the moment before the first byte, with the box's order and what is
//! on the disks then: a report may be old, forged, or about disks that are not there any more.
//!
//! Pure, and errs on the side of data. Whatever it refuses the box judges anew with the next report.

use firstlight_api::disk::Disk;
use firstlight_api::order::{
    DiskId, DiskOrder, DiskPolicy, DiskScope, Missing, RootDisk, differences, is_free,
};

use super::facts::Judged;

/// Why nothing is written; ends up on the page.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Refusal {
    #[error(
        "nothing was written: the order does not say what the box has found on this server's disks (extra.{}); let the box \
         install and clean this server, through its BareMetalHost",
        firstlight_api::order::EXTRA
    )]
    NoOrder,
    #[error(
        "nothing was written: the box's order does not say which disk gets the image; the box judges the disks again by itself"
    )]
    NoRoot,
    #[error(
        "nothing was written: {0} is not where it was when the disks were judged, and nothing else tells it from other disks; the \
         box judges them again by itself"
    )]
    Unclear(RootDisk),
    #[error(
        "nothing was written: the box's order is for {0}, and something else was asked for; let the box install and clean \
         this server, through its BareMetalHost"
    )]
    OtherOrder(&'static str),
    #[error(
        "nothing was written: {0} was not in the server when its disks were judged; the box judges them again by itself"
    )]
    New(DiskId),
    #[error(
        "nothing was written: {0} is not in the server any more; put it back, or let the box judge the disks again"
    )]
    Gone(DiskId),
    #[error(
        "nothing was written: the disk {name} is not blank ({kinds} found); if its data does not matter, annotate the \
         server's BareMetalHost with firstlight.internal/install=wipe"
    )]
    Data { name: String, kinds: String },
    #[error(
        "nothing was erased: the disk {name} holds {kinds}, which this box did not install; if that does not matter, \
         annotate the server's BareMetalHost with firstlight.internal/install=wipe"
    )]
    NotOurs { name: String, kinds: String },
}

/// Before an image is written: the disk that gets it, or both halves of a mirror. Every disk that the order is about is as it was judged.
pub fn may_install(order: Option<&DiskOrder>, disks: Vec<Judged>) -> Result<Vec<Disk>, Refusal> {
    let order = order.ok_or(Refusal::NoOrder)?;
    if order.policy == DiskPolicy::GiveBack {
        return Err(Refusal::OtherOrder("giving this server back"));
    }
    let disks = judged(order, disks)?;
    let roots = roots(order, disks)?;
    Ok(roots.into_iter().map(|judged| judged.disk).collect())
}

/// Before disks are erased: which of them, in their order. What shows that they are ours goes last.
pub fn may_erase(order: Option<&DiskOrder>, disks: Vec<Judged>) -> Result<Vec<Judged>, Refusal> {
    let order = order.ok_or(Refusal::NoOrder)?;
    match order.policy {
        DiskPolicy::Wipe | DiskPolicy::Blank => judged(order, disks),
        DiskPolicy::GiveBack => given_back(order, disks),
    }
}

/// The disks that the order is about, which are as its policy has them.
fn judged(order: &DiskOrder, disks: Vec<Judged>) -> Result<Vec<Judged>, Refusal> {
    let disks = match order.scope {
        DiskScope::Server => {
            are_those(order, &disks)?;
            disks
        }
        DiskScope::Root => roots(order, disks)?,
    };
    if order.policy == DiskPolicy::Blank {
        all_free(order, &disks)?;
    }
    Ok(disks)
}

/// The one that gets the image comes first. Two that were chosen are two now.
fn roots(order: &DiskOrder, mut disks: Vec<Judged>) -> Result<Vec<Judged>, Refusal> {
    if order.root.is_none() {
        return Err(Refusal::NoRoot);
    }
    let names: Vec<String> = order
        .roots()
        .map(|root| {
            let found = root.find(disks.iter().collect(), |judged| judged.disk.named());
            let found = found.map_err(|missing| match missing {
                Missing::Gone => Refusal::Gone(root.disk.clone()),
                Missing::Unclear => Refusal::Unclear(root.clone()),
            })?;
            Ok(found.disk.name.clone())
        })
        .collect::<Result<_, Refusal>>()?;
    let place = |judged: &Judged| names.iter().position(|name| *name == judged.disk.name);
    disks.retain(|judged| place(judged).is_some());
    disks.sort_by_key(place);
    match &order.mirror {
        Some(mirror) if disks.len() < 2 => Err(Refusal::Unclear(mirror.as_ref().clone())),
        _ => Ok(disks),
    }
}

fn given_back(order: &DiskOrder, disks: Vec<Judged>) -> Result<Vec<Judged>, Refusal> {
    let ids: Vec<DiskId> = disks.iter().map(|disk| disk.disk.id()).collect();
    let (_, gone) = differences(&order.disks, &ids);
    if let Some(gone) = gone.first() {
        return Err(Refusal::Gone((*gone).clone()));
    }
    let is_marked = |disk: &Judged| {
        let mark = disk.found.mark;
        mark.is_some_and(|mark| mark.deployment() == order.deployment)
    };
    // Disks that nobody ordered to be erased are not looked at any further, and not touched. Nor are those that only look like them.
    let is_ordered = |disk: &Judged| {
        let id = disk.disk.id();
        order.disks.contains(&id) && (id.is_told_apart() || is_marked(disk) || is_root(order, disk))
    };
    let mut ours: Vec<Judged> = disks.into_iter().filter(is_ordered).collect();
    let holds = |disk: &&Judged| !disk.found.signatures.is_empty();
    if let Some(other) = ours.iter().find(holds)
        && !ours.iter().any(is_marked)
    {
        return Err(Refusal::NotOurs {
            name: other.disk.name.clone(),
            kinds: other.found.signatures.join(", "),
        });
    }
    ours.sort_by_key(is_marked);
    Ok(ours)
}

/// In its position, too.
fn is_root(order: &DiskOrder, disk: &Judged) -> bool {
    let mut roots = order.roots();
    roots.any(|root| root.find(vec![disk], |disk| disk.disk.named()).is_ok())
}

/// The disks of the server are those of the order, all of them and no other.
fn are_those(order: &DiskOrder, disks: &[Judged]) -> Result<(), Refusal> {
    let ids: Vec<DiskId> = disks.iter().map(|disk| disk.disk.id()).collect();
    match differences(&order.disks, &ids) {
        (new, _) if !new.is_empty() => Err(Refusal::New(new[0].clone())),
        (_, gone) if !gone.is_empty() => Err(Refusal::Gone(gone[0].clone())),
        _ => Ok(()),
    }
}

fn all_free(order: &DiskOrder, disks: &[Judged]) -> Result<(), Refusal> {
    let other = disks
        .iter()
        .find(|disk| !is_free(&disk.found, order.deployment));
    other.map_or(Ok(()), |disk| {
        Err(Refusal::Data {
            name: disk.disk.name.clone(),
            kinds: disk.found.signatures.join(", "),
        })
    })
}

#[cfg(test)]
mod tests;
