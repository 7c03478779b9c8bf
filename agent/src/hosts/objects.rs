//! Keeps the `BareMetalHost` objects equal to what the controller wants, and tells it what people wrote into them.

use std::{sync::Arc, time::Duration};

use firstlight_api::bmh::BareMetalHost;
use tokio::sync::{mpsc, watch};

use super::store::HostStore;

/// Changes within this time become one write.
const SETTLE: Duration = Duration::from_millis(500);

/// Runs for ever. Objects are looked at again after `look`; changes of ours are written at once. Without a store it
/// waits; an error is tried again.
pub async fn run<S: HostStore>(
    mut store: watch::Receiver<Option<S>>,
    mut wanted: watch::Receiver<Arc<Vec<BareMetalHost>>>,
    seen: mpsc::Sender<Vec<BareMetalHost>>,
    look: Duration,
) -> anyhow::Result<()> {
    loop {
        let Some(api) = store.wait_for(Option::is_some).await?.clone() else {
            continue;
        };
        let hosts = wanted.borrow_and_update().clone();
        match sync(&api, &hosts).await {
            Ok(objects) => {
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
async fn sync<S: HostStore>(
    api: &S,
    wanted: &[BareMetalHost],
) -> anyhow::Result<Vec<BareMetalHost>> {
    let objects = api.list().await?;
    let mut changed = false;
    for host in wanted {
        let object = objects
            .iter()
            .find(|object| object.metadata.name == host.metadata.name);
        if object.is_none_or(|object| !covers(&object.spec, &host.spec)) {
            api.apply(host).await?;
            changed = true;
        }
        if object.is_none_or(|object| object.status != host.status) {
            api.apply_status(host).await?;
            changed = true;
        }
    }
    if changed {
        api.list().await
    } else {
        Ok(objects)
    }
}

/// The object has every field that we want; others may have added some.
fn covers<T: serde::Serialize>(object: &T, wanted: &T) -> bool {
    let value = |spec: &T| serde_json::to_value(spec).unwrap_or_default();
    let (object, wanted) = (value(object), value(wanted));
    wanted.as_object().is_some_and(|wanted| {
        wanted
            .iter()
            .all(|(key, value)| object.get(key) == Some(value))
    })
}
