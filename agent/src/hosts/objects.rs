//! Keeps the `BareMetalHost` objects equal to what the controller wants, and tells it what people wrote into them.

use std::{sync::Arc, time::Duration};

use firstlight_api::bmh::{BareMetalHost, FINALIZER, HardwareData, Image};
use tokio::sync::{mpsc, watch};

use super::store::{Amendment, HostStore};

/// Changes within this time become one write.
const SETTLE: Duration = Duration::from_millis(500);

/// How one object shall be.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// The spec counts only while there is no object: afterwards it is other people's.
    pub host: BareMetalHost,
    /// Written into a spec that has none: the site's rule installs without a word.
    pub image: Option<Image>,
    pub forget: Vec<String>,
    /// The deleted object may go.
    pub release: bool,
    /// Somebody asked for hands off.
    pub paused: bool,
}

/// Runs for ever. Objects are looked at again after `look`; changes of ours are written at once. Without a store it
/// waits; an error is tried again.
pub async fn run<S: HostStore>(
    mut store: watch::Receiver<Option<S>>,
    mut wanted: watch::Receiver<Arc<Vec<Desired>>>,
    seen: mpsc::Sender<Vec<BareMetalHost>>,
    look: Duration,
) -> anyhow::Result<()> {
    // What is wanted before the objects are known knows nothing of their history: first they are told, then written.
    let mut told = false;
    loop {
        let Some(api) = store.wait_for(Option::is_some).await?.clone() else {
            continue;
        };
        let hosts = wanted.borrow_and_update().clone();
        let hosts = if told { hosts.as_slice() } else { &[] };
        match sync(&api, hosts).await {
            Ok(objects) => {
                told = true;
                if seen.send(objects).await.is_err() {
                    return Ok(());
                }
            }
            Err(error) => tracing::debug!(
                error = format!("{error:#}"),
                "BareMetalHosts were not written; trying again"
            ),
        }
        tokio::select! {
            changed = wanted.changed() => { changed?; tokio::time::sleep(SETTLE.min(look)).await }
            () = tokio::time::sleep(look) => {}
        }
    }
}

/// Writes what differs and returns the objects as they are then.
async fn sync<S: HostStore>(api: &S, wanted: &[Desired]) -> anyhow::Result<Vec<BareMetalHost>> {
    let objects = api.list().await?;
    let mut changed = false;
    for desired in wanted.iter().filter(|desired| !desired.paused) {
        let host = &desired.host;
        let Some(object) = objects.iter().find(|object| same_host(object, host)) else {
            if !desired.release {
                api.create(host).await?;
                write_status(api, None, host).await?;
                changed = true;
            }
            continue;
        };
        // A person made the object and chose the name: the controller learns it from the list.
        if object.metadata.name != host.metadata.name {
            continue;
        }
        let amendment = amendment(object, desired);
        if amendment != Amendment::default() {
            api.amend(object, &amendment).await?;
            changed = true;
        }
        if desired.release {
            continue;
        }
        if object.status != host.status {
            changed = true;
            write_status(api, Some(object), host).await?;
        }
    }
    if changed {
        api.list().await
    } else {
        Ok(objects)
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
        let data = HardwareData::new(&new.metadata.name, &new.metadata.namespace, found);
        api.apply_hardware(&data).await?;
    }
    api.apply_status(new).await
}

fn same_host(object: &BareMetalHost, host: &BareMetalHost) -> bool {
    let mac = |host: &BareMetalHost| host.spec.boot_mac_address.to_lowercase();
    mac(object) == mac(host)
}

fn amendment(object: &BareMetalHost, desired: &Desired) -> Amendment {
    let mut finalizers = object.metadata.finalizers.clone();
    if desired.release {
        finalizers.retain(|name| name != FINALIZER);
    } else if !object.is_deleted() && !finalizers.iter().any(|name| name == FINALIZER) {
        finalizers.push(FINALIZER.to_owned());
    }
    let forget = desired.forget.iter();
    Amendment {
        image: desired
            .image
            .clone()
            .filter(|_| object.spec.image.is_none() && !object.is_deleted()),
        finalizers: (finalizers != object.metadata.finalizers).then_some(finalizers),
        forget: forget
            .filter(|name| object.metadata.annotations.contains_key(*name))
            .cloned()
            .collect(),
    }
}
