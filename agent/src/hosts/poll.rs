//! Asks Ironic for its nodes, again and again, so that the owner of the hosts never waits for it. Of many, those where something goes on
//! are asked for by themselves: a list of a thousand takes Ironic a second.

use std::time::Duration;

use firstlight_ironic::Client;
use firstlight_netboot::MacAddr;
use tokio::sync::{
    mpsc::{self, error::SendError},
    watch,
};

use super::{
    event::{Event, Look},
    node_uuid::node_uuid,
};
use crate::clock;

/// Ironic, as the controller uses it.
#[derive(Clone, Debug)]
pub struct IronicEnd {
    pub client: Client,
    /// Where hosts get images: `http://172.22.0.1`.
    pub box_http: String,
    /// Where installed systems ask for bootstrap data: `https://172.22.0.1:8443/bootstrap/v1`.
    pub bootstrap: String,
    /// The site's CA, PEM.
    pub ca: String,
}

/// Nodes in an answer that takes Ironic little.
const LITTLE: usize = 100;
/// The longest that it rests because Ironic was slow.
const LONGEST: Duration = Duration::from_secs(30);

/// The last look of one kind.
#[derive(Default)]
struct Turn {
    ended: Duration,
    took: Duration,
    of_many: bool,
}

impl Turn {
    /// Ironic has something to do beside answering. `is_asked`: something is known to have happened.
    fn next(&self, is_asked: bool, pause: Duration) -> Duration {
        let share = match (self.of_many, is_asked) {
            (true, _) => 19,
            (false, true) => 1,
            (false, false) => 4,
        };
        let pause = if is_asked { Duration::ZERO } else { pause };
        self.ended + (self.took * share).min(LONGEST).max(pause)
    }
}

/// All nodes are looked at each time that somebody wishes that, and after `idle` in any case: what is seen of few may be wrong or late, and
/// nothing depends on it. A change of the wish, even to the same value, asks as soon as Ironic has had its time.
pub async fn run(
    mut ironic: watch::Receiver<Option<IronicEnd>>,
    mut wish: watch::Receiver<Look>,
    idle: Duration,
    seen: mpsc::Sender<Event>,
) -> anyhow::Result<()> {
    let (mut all, mut few) = (Turn::default(), Turn::default());
    let mut is_asked = false;
    loop {
        let Some(end) = ironic.wait_for(Option::is_some).await?.clone() else {
            continue;
        };
        let client = end.client.apart();
        let look = wish.borrow_and_update().clone();
        let some = look.few.as_ref().filter(|macs| !macs.is_empty());
        let of_all = match look.few {
            Some(_) => all.next(false, idle),
            None => all.next(is_asked, look.pause),
        };
        let of_few = some.map(|_| few.next(is_asked, look.pause));
        let due = of_few.map_or(of_all, |of_few| of_few.min(of_all));
        let now = clock::uptime();
        if now < due {
            tokio::select! {
                () = tokio::time::sleep(due.saturating_sub(now)) => {}
                changed = wish.changed() => {
                    changed?;
                    is_asked = true;
                }
            }
            continue;
        }
        let some = some.filter(|_| now < of_all);
        let mut count = 0;
        let told = if let Some(macs) = some {
            look_at(&client, macs, &seen).await
        } else {
            let event = look_at_all(&client).await;
            if let Event::Nodes { nodes, .. } = &event {
                count = nodes.len();
            }
            seen.send(event).await
        };
        if told.is_err() {
            return Ok(());
        }
        let ended = clock::uptime();
        *if some.is_some() { &mut few } else { &mut all } = Turn {
            ended,
            took: ended.saturating_sub(now),
            of_many: count > LITTLE,
        };
        // What was asked for meanwhile may have happened after it was looked at.
        is_asked = wish.has_changed()?;
    }
}

async fn look_at_all(client: &Client) -> Event {
    let asked = clock::uptime();
    match client.nodes().await {
        Ok(nodes) => Event::Nodes { nodes, asked },
        Err(error) => Event::IronicSilent(error.to_string()),
    }
}

/// One after the other, until Ironic does not answer.
async fn look_at(
    client: &Client,
    macs: &[MacAddr],
    seen: &mpsc::Sender<Event>,
) -> Result<(), SendError<Event>> {
    for mac in macs {
        let asked = clock::uptime();
        let node = match client.node(&node_uuid(*mac)).await {
            Ok(node) => Some(Box::new(node)),
            Err(error) if error.is_not_found() => None,
            Err(error) => return seen.send(Event::IronicSilent(error.to_string())).await,
        };
        let mac = *mac;
        seen.send(Event::Node { mac, node, asked }).await?;
    }
    Ok(())
}
