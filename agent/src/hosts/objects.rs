//! Keeps the `BareMetalHost` objects equal to what the controller wants, and tells it what people wrote into them.

mod events;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Result, bail};
use firstlight_api::bmh::{BareMetalHost, FINALIZER, HardwareData, Image, annotations};
use firstlight_netboot::MacAddr;
use futures_util::{StreamExt, stream::FuturesOrdered};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, error::Elapsed},
};

use super::{
    account::{self, Named},
    made::{self, is_as_made},
    store::{Amendment, HostStore, SpecBmc},
};
use crate::{
    objects::{Key, Listed},
    reconcile::{self, Applied, Reason, Reconciler, Teller},
    status::Failing,
};

/// Changes within this time become one write.
const COALESCE: Duration = Duration::from_millis(300);
/// Hosts whose objects are written side by side.
const AT_ONCE: usize = 8;

/// May the object go?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    No,
    /// Nobody would miss it: it is deleted, unless somebody has changed it.
    Unmissed,
    /// It was deleted, and nothing holds it any more.
    Deleted,
}

/// How one object shall be.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectTarget {
    /// The spec counts only while there is no object: afterwards it is other people's.
    pub host: BareMetalHost,
    /// Written into a spec that has none: the site's rule installs without a word.
    pub image: Option<Image>,
    /// It is to be made anew, unless somebody has written into it.
    pub overdue: Option<Box<BareMetalHost>>,
    pub forget: Vec<String>,
    /// Annotations that go, too, each with the reason why it was not acted on.
    pub refused: BTreeMap<&'static str, String>,
    /// The box's own `spec.bmc` goes.
    pub bmc_goes: bool,
    pub leave: Leave,
    /// Somebody asked for hands off.
    pub paused: bool,
    /// It is no host: it is told why, and never made.
    pub stray: bool,
}

impl ObjectTarget {
    /// Nothing is wanted of it.
    pub fn stray() -> Self {
        Self {
            host: BareMetalHost::default(),
            image: None,
            overdue: None,
            forget: Vec::new(),
            refused: BTreeMap::new(),
            bmc_goes: false,
            leave: Leave::No,
            paused: false,
            stray: true,
        }
    }
}

/// All objects that are to be some way. A copy shares what is in it.
#[derive(Clone, Debug, Default)]
pub struct Targets {
    pub hosts: BTreeMap<MacAddr, Arc<ObjectTarget>>,
    pub strays: Vec<Arc<ObjectTarget>>,
}

impl Targets {
    fn all(&self) -> impl Iterator<Item = &ObjectTarget> {
        self.hosts.values().chain(&self.strays).map(|one| &**one)
    }
}

/// Runs for ever. What people change and what we want is looked at once; without either, objects are looked at after `look`. Without a store it
/// waits; an error is tried again, and told if it stays.
pub async fn run<S: HostStore>(
    store: watch::Receiver<Option<S>>,
    wanted: watch::Receiver<Arc<Targets>>,
    seen: mpsc::Sender<Vec<Arc<BareMetalHost>>>,
    look: Duration,
    failing: Failing,
) -> Result<()> {
    let teller = Teller {
        name: "hosts",
        status: failing.status().clone(),
        rounds: failing.beside("hosts-loop"),
        objects: failing,
    };
    let (changed, edits) = mpsc::channel(1);
    let keeper = Keeper {
        store,
        wanted,
        seen,
        look,
        told: false,
        changed,
        edits,
        watching: JoinSet::new(),
        budgets: Budgets::default(),
        ended: Instant::now(),
    };
    reconcile::run(keeper, teller).await
}

struct Keeper<S> {
    store: watch::Receiver<Option<S>>,
    wanted: watch::Receiver<Arc<Targets>>,
    seen: mpsc::Sender<Vec<Arc<BareMetalHost>>>,
    look: Duration,
    /// What is wanted before the objects are known knows nothing of their history: first they are told, then written.
    told: bool,
    changed: mpsc::Sender<()>,
    edits: mpsc::Receiver<()>,
    watching: JoinSet<()>,
    budgets: Budgets,
    /// The last round.
    ended: Instant,
}

impl<S: HostStore> Reconciler for Keeper<S> {
    type Seen = (S, Arc<Targets>, Listed<Arc<BareMetalHost>>);

    async fn look(&mut self) -> Result<Self::Seen> {
        let Some(api) = self.store.wait_for(Option::is_some).await?.clone() else {
            bail!("there is no API server");
        };
        if self.watching.is_empty() {
            let (api, changed) = (api.clone(), self.changed.clone());
            self.watching
                .spawn(async move { api.follow(changed).await });
        }
        // Whatever was said until now is in the list that follows.
        while self.edits.try_recv().is_ok() {}
        let hosts = self.wanted.borrow_and_update().clone();
        let listed = api.list().await?;
        Ok((api, hosts, listed))
    }

    async fn apply(&mut self, (api, hosts, listed): Self::Seen) -> Result<Applied> {
        let nothing = Targets::default();
        let hosts = if self.told { &hosts } else { &nothing };
        let (objects, failures) = write_all(&api, listed, hosts, &mut self.budgets).await?;
        self.told = true;
        self.seen.send(objects).await?;
        self.ended = Instant::now();
        let rest = self.look;
        Ok(Applied { failures, rest })
    }

    async fn reason(&mut self) -> Result<Reason> {
        let reason = tokio::select! {
            changed = self.wanted.changed() => { changed?; Reason::News }
            Some(()) = self.edits.recv() => Reason::Change,
            Some(ended) = self.watching.join_next() => {
                ended?;
                bail!("a watch of the box's API server ended");
            }
        };
        // What is wanted follows from what was seen. A round before that would write what was wanted before, and so on for ever.
        drop(self.seen.reserve().await?);
        let coalesce = COALESCE.min(self.look);
        let pause = match reason {
            // What follows from an edit is written by another round: the one that reads it does not wait, unless there was one just now.
            Reason::Change => coalesce.saturating_sub(self.ended.elapsed()),
            _ => coalesce,
        };
        tokio::time::sleep(pause).await;
        Ok(reason)
    }

    fn again(&self) -> Duration {
        self.look
    }
}

/// Writes what differs and returns the objects as they are then, with a sentence for each that could not be read or
/// written: it holds up no other.
pub async fn write_all<S: HostStore>(
    api: &S,
    mut listed: Listed<Arc<BareMetalHost>>,
    wanted: &Targets,
    budgets: &mut Budgets,
) -> Result<(Vec<Arc<BareMetalHost>>, Vec<String>)> {
    let mut trouble = std::mem::take(&mut listed.unreadable);
    let mut changed = false;
    budgets.keep(wanted);
    let budgets = Mutex::new(budgets);
    let index = Index::of(&listed.objects);
    let mut writes = FuturesOrdered::new();
    let mut wanted = wanted.all();
    loop {
        while writes.len() < AT_ONCE
            && let Some(desired) = wanted.next()
        {
            if !desired.paused {
                let (index, budgets) = (&index, &budgets);
                writes
                    .push_back(async move { (desired, write(api, index, desired, budgets).await) });
            }
        }
        match writes.next().await {
            None => break,
            Some((_, Ok(wrote))) => changed |= wrote,
            Some((desired, Err(error))) => {
                let meta = &desired.host.metadata;
                let called = made::called(&meta.namespace, &meta.name);
                trouble.push(format!("{called}: {error:#}"));
                // Nobody answers: the others are asked for again in the next round, not one after the other in this.
                if error.is::<Elapsed>() {
                    break;
                }
            }
        }
    }
    drop(writes);
    if changed {
        listed.objects = api.list().await?.objects;
    }
    Ok((listed.objects, trouble))
}

/// The objects by what they are looked for: a round costs the same for each host, however many there are.
struct Index<'a> {
    by_name: HashMap<(&'a str, &'a str), &'a BareMetalHost>,
    /// The first of each.
    by_mac: HashMap<String, &'a BareMetalHost>,
}

impl<'a> Index<'a> {
    fn of(objects: &'a [Arc<BareMetalHost>]) -> Self {
        let objects = objects.iter().map(|object| &**object);
        let by_name = objects.clone().map(|object| (name_of(object), object));
        // Of two the one that comes first stays.
        let by_mac = objects.rev().map(|object| (mac_of(object), object));
        Self {
            by_name: by_name.collect(),
            by_mac: by_mac.collect(),
        }
    }

    fn find(&self, desired: &ObjectTarget) -> Option<&'a BareMetalHost> {
        let host = &desired.host;
        let named = self.by_name.get(&name_of(host));
        let found = named.or_else(|| self.by_mac.get(&mac_of(host)).filter(|_| !desired.stray));
        found.copied()
    }
}

/// Brings one object to what is wanted; true if it had to be changed.
async fn write<S: HostStore>(
    api: &S,
    index: &Index<'_>,
    desired: &ObjectTarget,
    budgets: &Mutex<&mut Budgets>,
) -> anyhow::Result<bool> {
    let host = &desired.host;
    let allow = || {
        let mut budgets = budgets.lock().unwrap_or_else(PoisonError::into_inner);
        budgets.allow(host)
    };
    let Some(object) = index.find(desired) else {
        if desired.leave != Leave::No || desired.stray {
            return Ok(false);
        }
        api.create(host).await?;
        write_status(api, None, host).await?;
        return Ok(true);
    };
    // A person made the object and chose the name, or has paused it since: the controller learns it from the list.
    let is_paused = annotations::paused_by(&object.metadata.annotations).is_some();
    if is_paused || !is_called(object, host) {
        return Ok(false);
    }
    if !desired.stray && !same_host(object, host) && !object.spec.boot_mac_address.is_empty() {
        bail!(
            "this name is taken by the BareMetalHost of another server, {}; delete that one, or give it another name",
            object.spec.boot_mac_address
        );
    }
    if desired.leave == Leave::Unmissed && !object.is_deleted() {
        let unchanged = is_as_made(object);
        if unchanged {
            api.delete(object).await?;
        }
        return Ok(unchanged);
    }
    let mut amendment = amendment(object, desired);
    amendment.anew = amendment.anew.filter(|_| allow());
    let amends = amendment != Amendment::default();
    if amends {
        if desired.leave == Leave::Deleted {
            api.forget_hardware(object).await?;
        }
        api.amend(object, &amendment).await?;
        let refused = events::refused(&amendment.forget, &desired.refused);
        if !refused.is_empty() {
            api.tell(object, refused).await;
        }
    }
    if desired.leave == Leave::Deleted || object.status == host.status || !allow() {
        return Ok(amends);
    }
    write_status(api, Some(object), host).await?;
    Ok(true)
}

/// How much is written about each host: what servers say of themselves is in its status, and strangers say what they like, as often as
/// they like. A write that has to wait is made in a later round, with what is true then.
#[derive(Debug, Default)]
pub struct Budgets(BTreeMap<Key, Budget>);

#[derive(Debug)]
struct Budget {
    bytes: u64,
    at: Instant,
}

impl Budgets {
    /// A second, for each host.
    const RATE: u64 = 1024;
    /// An installation of a large server.
    const BURST: u64 = 512 * 1024;

    fn keep(&mut self, wanted: &Targets) {
        let keys = wanted.all().map(|one| Key::of(&one.host.metadata));
        let keys: BTreeSet<_> = keys.collect();
        self.0.retain(|key, _| keys.contains(key));
    }

    fn allow(&mut self, host: &BareMetalHost) -> bool {
        let now = Instant::now();
        let size = serde_json::to_vec(&host.status).map_or(0, |text| text.len() as u64);
        let full = || Budget {
            bytes: Self::BURST,
            at: now,
        };
        let key = Key::of(&host.metadata);
        let budget = self.0.entry(key).or_insert_with(full);
        let seconds = now.duration_since(budget.at).as_secs();
        if seconds > 0 {
            budget.bytes = (budget.bytes + seconds * Self::RATE).min(Self::BURST);
            budget.at = now;
        }
        let left = budget.bytes.checked_sub(size);
        budget.bytes = left.unwrap_or(budget.bytes);
        left.is_some()
    }
}

/// The status, and the hardware a second time as an object of its own, where Metal3 keeps it.
async fn write_status<S: HostStore>(
    api: &S,
    old: Option<&BareMetalHost>,
    new: &BareMetalHost,
) -> anyhow::Result<()> {
    let hardware = |host: &BareMetalHost| host.status.as_ref()?.hardware.clone();
    if let Some(found) = hardware(new)
        && old.and_then(hardware).as_ref() != Some(&found)
    {
        let data = HardwareData::new(
            &new.metadata.name,
            &new.metadata.namespace,
            Arc::unwrap_or_clone(found),
        );
        api.apply_hardware(&data).await?;
    }
    api.apply_status(new).await?;
    if let (Some(object), Some(status)) = (old, &new.status) {
        let events = events::between(object.status.as_ref(), status);
        api.tell(object, events).await;
    }
    Ok(())
}

fn is_called(object: &BareMetalHost, host: &BareMetalHost) -> bool {
    name_of(object) == name_of(host)
}

fn same_host(object: &BareMetalHost, host: &BareMetalHost) -> bool {
    mac_of(object) == mac_of(host)
}

fn name_of(host: &BareMetalHost) -> (&str, &str) {
    (&host.metadata.namespace, &host.metadata.name)
}

fn mac_of(host: &BareMetalHost) -> String {
    host.spec.boot_mac_address.to_lowercase()
}

fn amendment(object: &BareMetalHost, desired: &ObjectTarget) -> Amendment {
    let mut finalizers = object.metadata.finalizers.clone();
    if desired.leave == Leave::Deleted {
        finalizers.retain(|name| name != FINALIZER);
    } else if !desired.stray
        && !object.is_deleted()
        && !finalizers.iter().any(|name| name == FINALIZER)
    {
        finalizers.push(FINALIZER.to_owned());
    }
    let said = &object.metadata.annotations;
    let has_status = object
        .status
        .as_ref()
        .is_some_and(|status| status.last_updated.is_some());
    // Once it is where it belongs.
    let status = matches!(annotations::status(said), Some(Ok(_)) if has_status && !desired.stray);
    let status = status.then_some(annotations::STATUS);
    let refused = desired.refused.keys().copied().chain(status);
    let forget = desired.forget.iter().map(String::as_str).chain(refused);
    Amendment {
        image: desired
            .image
            .clone()
            .filter(|_| object.spec.image.is_none() && !object.is_deleted()),
        anew: desired.overdue.clone().filter(|_| is_as_made(object)),
        bmc: (desired.bmc_goes && account::named(object) == Named::Ours).then(|| SpecBmc::Gone {
            stays_on: is_as_made(object),
        }),
        finalizers: (finalizers != object.metadata.finalizers).then_some(finalizers),
        forget: forget
            .filter(|name| said.contains_key(*name))
            .map(str::to_owned)
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use firstlight_api::bmh::{BareMetalHostSpec, BareMetalHostStatus};

    use super::{super::store::Secret, *};

    /// Refuses the status of one host, and cannot read another one's object.
    #[derive(Clone, Default)]
    struct Picky(Arc<Mutex<Vec<String>>>);

    impl HostStore for Picky {
        async fn list(&self) -> anyhow::Result<Listed<Arc<BareMetalHost>>> {
            Ok(Listed {
                objects: Vec::new(),
                unreadable: vec!["the BareMetalHost odd cannot be read: size".to_owned()],
            })
        }
        async fn create(&self, _: &BareMetalHost) -> anyhow::Result<()> {
            Ok(())
        }
        async fn amend(&self, _: &BareMetalHost, _: &Amendment) -> anyhow::Result<()> {
            Ok(())
        }
        async fn apply_status(&self, host: &BareMetalHost) -> anyhow::Result<()> {
            if host.metadata.name == "a" {
                anyhow::bail!("too large");
            }
            self.0.lock().unwrap().push(host.metadata.name.clone());
            Ok(())
        }
        async fn apply_hardware(&self, _: &HardwareData) -> anyhow::Result<()> {
            Ok(())
        }
        async fn delete(&self, _: &BareMetalHost) -> anyhow::Result<()> {
            Ok(())
        }
        async fn forget_hardware(&self, _: &BareMetalHost) -> anyhow::Result<()> {
            Ok(())
        }
        async fn keep_secret(&self, _: &BareMetalHost, _: &str, _: &Secret) -> anyhow::Result<()> {
            Ok(())
        }
        async fn forget_secret(&self, _: &BareMetalHost, _: &str) -> anyhow::Result<()> {
            Ok(())
        }
        async fn secret(&self, _: &str, _: &str) -> anyhow::Result<Option<Secret>> {
            Ok(None)
        }
    }

    /// Has one more object each time that somebody asks, and says so when told to.
    #[derive(Clone, Default)]
    struct Edited {
        news: Arc<tokio::sync::Notify>,
        lists: Arc<Mutex<usize>>,
    }

    impl HostStore for Edited {
        async fn follow(&self, changed: mpsc::Sender<()>) {
            loop {
                self.news.notified().await;
                let _ = changed.try_send(());
            }
        }
        async fn list(&self) -> anyhow::Result<Listed<Arc<BareMetalHost>>> {
            let mut lists = self.lists.lock().unwrap();
            *lists += 1;
            let host = BareMetalHost::new("a", "default", BareMetalHostSpec::default());
            let host = Arc::new(host);
            Ok(Listed {
                objects: std::iter::repeat_n(host, *lists).collect(),
                unreadable: Vec::new(),
            })
        }
        async fn create(&self, _: &BareMetalHost) -> anyhow::Result<()> {
            Ok(())
        }
        async fn amend(&self, _: &BareMetalHost, _: &Amendment) -> anyhow::Result<()> {
            Ok(())
        }
        async fn apply_status(&self, _: &BareMetalHost) -> anyhow::Result<()> {
            Ok(())
        }
        async fn apply_hardware(&self, _: &HardwareData) -> anyhow::Result<()> {
            Ok(())
        }
        async fn delete(&self, _: &BareMetalHost) -> anyhow::Result<()> {
            Ok(())
        }
        async fn forget_hardware(&self, _: &BareMetalHost) -> anyhow::Result<()> {
            Ok(())
        }
        async fn keep_secret(&self, _: &BareMetalHost, _: &str, _: &Secret) -> anyhow::Result<()> {
            Ok(())
        }
        async fn forget_secret(&self, _: &BareMetalHost, _: &str) -> anyhow::Result<()> {
            Ok(())
        }
        async fn secret(&self, _: &str, _: &str) -> anyhow::Result<Option<Secret>> {
            Ok(None)
        }
    }

    #[tokio::test]
    async fn an_edit_is_looked_at_without_waiting_for_the_next_look() {
        let edited = Edited::default();
        let (_store, store) = watch::channel(Some(edited.clone()));
        let (_wanted, wanted) = watch::channel(Arc::default());
        let (seen, mut objects) = mpsc::channel(1);
        let failing = Failing::new(crate::status::channel("tests").0, "a", "b");
        let hour = Duration::from_hours(1);
        let running = tokio::spawn(run(store, wanted, seen, hour, failing));
        assert_eq!(objects.recv().await.unwrap().len(), 1);
        edited.news.notify_one();
        let soon = tokio::time::timeout(Duration::from_secs(20), objects.recv());
        assert_eq!(soon.await.unwrap().unwrap().len(), 2);
        running.abort();
    }

    fn all_of(targets: impl IntoIterator<Item = ObjectTarget>) -> Targets {
        let macs = (1..).map(|last| MacAddr::new([2, 0, 0, 0, 0, last]).unwrap());
        let targets = targets.into_iter().map(Arc::new);
        Targets {
            hosts: macs.zip(targets).collect(),
            strays: Vec::new(),
        }
    }

    #[tokio::test]
    async fn an_object_that_is_refused_holds_up_no_other_and_is_told() {
        let store = Picky::default();
        let wanted = ["a", "b", "c"].into_iter().map(|name| ObjectTarget {
            host: BareMetalHost::new(name, "default", BareMetalHostSpec::default()),
            stray: false,
            ..ObjectTarget::stray()
        });
        let wanted = all_of(wanted);
        let listed = store.list().await.unwrap();
        let (_, trouble) = write_all(&store, listed, &wanted, &mut Budgets::default())
            .await
            .unwrap();
        assert_eq!(*store.0.lock().unwrap(), ["b", "c"]);
        assert_eq!(
            trouble,
            ["the BareMetalHost odd cannot be read: size", "a: too large"]
        );
    }

    #[tokio::test]
    async fn a_name_that_another_server_has_is_left_to_it_and_told() {
        let object = |mac: &str| {
            let spec = made::spec(mac.to_owned(), None);
            BareMetalHost::new("gateway", "default", spec)
        };
        let store = Picky::default();
        let listed = Listed {
            objects: vec![Arc::new(object("02:00:00:00:00:01"))],
            unreadable: Vec::new(),
        };
        let mut wanted = ObjectTarget::stray();
        (wanted.host, wanted.stray) = (object("02:00:00:00:00:02"), false);
        let budgets = &mut Budgets::default();
        let (_, told) = write_all(&store, listed, &all_of([wanted]), budgets)
            .await
            .unwrap();
        let taken = "taken by the BareMetalHost of another server, 02:00:00:00:00:01";
        assert!(told.iter().any(|told| told.contains(taken)), "{told:?}");
        assert!(store.0.lock().unwrap().is_empty(), "nothing was written");
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_something_else_each_time_does_not_fill_etcd() {
        let store = Picky::default();
        let mut budgets = Budgets::default();
        let target = |about: &str| ObjectTarget {
            host: BareMetalHost {
                status: Some(BareMetalHostStatus {
                    error_message: format!("{about}{}", "x".repeat(50_000)),
                    ..BareMetalHostStatus::default()
                }),
                ..BareMetalHost::new("b", "default", BareMetalHostSpec::default())
            },
            stray: false,
            ..ObjectTarget::stray()
        };
        let listed = || Listed {
            objects: vec![Arc::new(BareMetalHost::new(
                "b",
                "default",
                BareMetalHostSpec::default(),
            ))],
            unreadable: Vec::new(),
        };
        for round in 0..600 {
            let wanted = all_of([target(&round.to_string())]);
            write_all(&store, listed(), &wanted, &mut budgets)
                .await
                .unwrap();
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        let written = store.0.lock().unwrap().len();
        assert!((10..=17).contains(&written), "{written} in five minutes");
        tokio::time::sleep(Duration::from_mins(1)).await;
        write_all(&store, listed(), &all_of([target("last")]), &mut budgets)
            .await
            .unwrap();
        assert_eq!(
            store.0.lock().unwrap().len(),
            written + 1,
            "what waited comes"
        );
    }
}
