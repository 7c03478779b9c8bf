//! What is done by way of the BMC. Ironic's own sentence about it becomes a problem with a next step: it seldom ends by itself.

use std::time::Duration;

use firstlight_api::status::Problem;
use firstlight_ironic::{BootDevice, Client, ClientError, Driver, Node, NodePatch, PowerTarget};
use firstlight_netboot::boot_files;
use serde_json::json;
use tokio::net::TcpStream;

use super::{ANSWER_TIME, ActionError, Hands};
use crate::{
    hosts::{
        bmc::{self, Start},
        delivery,
        event::Act,
        plan::{Action, EXTRA_BMC, EXTRA_CD},
        poll::IronicEnd,
    },
    network::firewall::Transport,
};

/// For a BMC to fetch the CD, or to let go of it: some fetch all of it before they answer, and Ironic tries three times.
const CD_TIME: Duration = Duration::from_mins(5);
const PAUSE: Duration = Duration::from_millis(500);

/// Ironic is told of the BMC, which has to answer before that counts.
pub async fn connect(
    client: &Client,
    hands: &Hands,
    act: &Act,
    node: &str,
) -> Result<(), ActionError> {
    let driver = driver(hands, act).await?;
    if !driver.speaks_redfish() {
        let_go(client, node).await?;
    }
    // Ironic has not heard of this one before it has answered.
    client.set_driver(node, &driver, &mark("")).await?;
    let asked = client.ask_bmc(node).await;
    asked.map_err(explained_of_heard)?;
    client.patch_node(node, &[mark_of(act)]).await?;
    Ok(())
}

pub async fn disconnect(client: &Client, node: &str) -> Result<(), ActionError> {
    let_go(client, node).await?;
    Ok(client.set_driver(node, &Driver::Manual, &mark("")).await?)
}

pub async fn switch(client: &Client, node: &str, target: PowerTarget) -> Result<(), ActionError> {
    client.set_power(node, target).await.map_err(explained)
}

/// A node that Ironic does not manage yet: it asks the BMC itself when it begins to.
pub async fn tell(
    client: &Client,
    hands: &Hands,
    act: &Act,
    known: &Node,
) -> Result<(), ActionError> {
    let node = &known.uuid;
    if act.bmc.is_none() {
        // It may know one that is named no more.
        if known.has_bmc() {
            disconnect(client, node).await?;
        }
        return Ok(());
    }
    let driver = driver(hands, act).await?;
    Ok(client.set_driver(node, &driver, &mark_of(act)).await?)
}

/// Ironic restarts a server that is to come into the ramdisk, and leaves it to the firmware what that starts.
pub async fn before_ramdisk(end: &IronicEnd, act: &Act, node: &str) -> Result<(), ActionError> {
    if act.bmc.is_none() {
        return Ok(());
    }
    let client = &end.client;
    let device = match start(act) {
        Start::Network => BootDevice::Network,
        Start::Cd => {
            // Who only may be restarted, if its ramdisk goes, has the CD still from which that was started.
            let may_have_it = matches!(act.action, Action::Deploy { .. } | Action::Provide { .. });
            if !may_have_it || !has_cd(&client.node(node).await?) {
                insert(end, act, node).await?;
            }
            BootDevice::Cd
        }
    };
    let told = client.boot_once(node, device).await;
    told.map_err(explained)
}

fn start(act: &Act) -> Start {
    let object = act.object.as_ref();
    let bmc = object.and_then(|object| bmc::read(object.spec.bmc.as_ref()?).ok());
    bmc.map_or(Start::Network, |bmc| bmc.start())
}

fn has_cd(node: &Node) -> bool {
    node.extra[EXTRA_CD] == true
}

/// Its BMC fetches the CD from the box. The mark comes first, so that what is in is taken out again, whatever happens.
async fn insert(end: &IronicEnd, act: &Act, node: &str) -> Result<(), ActionError> {
    mark_cd(&end.client, node, true).await?;
    let url = format!("{}{}", end.box_http, boot_files::medium(act.mac));
    let told = end.client.attach_cd(node, &url).await;
    told.map_err(explained)?;
    moved(&end.client, node).await
}

pub async fn eject(client: &Client, node: &str) -> Result<(), ActionError> {
    client.detach_cd(node).await.map_err(explained)?;
    moved(client, node).await?;
    Ok(mark_cd(client, node, false).await?)
}

/// As `eject`, for the last time: a BMC that does not do it any more keeps the CD.
pub async fn let_go(client: &Client, node: &str) -> Result<(), ActionError> {
    let known = match client.node(node).await {
        Err(error) if error.is_not_found() => return Ok(()),
        known => known?,
    };
    if !has_cd(&known) {
        return Ok(());
    }
    if known.speaks_redfish()
        && let Err(error) = eject(client, node).await
    {
        if matches!(&error, ActionError::Ironic(error) if error.is_conflict()) {
            return Err(error);
        }
        tracing::warn!(node, error = %error, "a BMC keeps the virtual CD");
    }
    Ok(mark_cd(client, node, false).await?)
}

async fn mark_cd(client: &Client, node: &str, is_in: bool) -> Result<(), ClientError> {
    let patch = NodePatch::Extra(EXTRA_CD.to_owned(), json!(is_in));
    client.patch_node(node, &[patch]).await?;
    Ok(())
}

/// The node is locked while its BMC is at work, and has Ironic's sentence then if that failed.
async fn moved(client: &Client, node: &str) -> Result<(), ActionError> {
    let done = async {
        loop {
            let seen = client.node(node).await?;
            if seen.reservation.is_none() {
                return Ok(seen.last_error);
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    let error = match tokio::time::timeout(CD_TIME, done).await {
        Ok(Ok(error)) => error,
        Ok(Err(error)) => return Err(ActionError::Ironic(error)),
        Err(_) => Some(format!("nothing for {} minutes", CD_TIME.as_secs() / 60)),
    };
    error.map_or(Ok(()), |error| {
        Err(ActionError::Other(bmc::explained(&error)))
    })
}

/// Of the BMC that the object of the host names.
fn mark_of(act: &Act) -> NodePatch {
    mark(act.bmc.as_deref().unwrap_or_default())
}

fn mark(known: &str) -> NodePatch {
    NodePatch::Extra(EXTRA_BMC.to_owned(), json!(known))
}

async fn driver(hands: &Hands, act: &Act) -> Result<Driver, ActionError> {
    let object = act.object.as_ref();
    let Some((object, details)) =
        object.and_then(|object| Some((object, object.spec.bmc.as_ref()?)))
    else {
        return Ok(Driver::Manual);
    };
    let bmc = bmc::read(details).map_err(ActionError::Other)?;
    match bmc.door() {
        (Transport::Tcp, host, port) => answers(host, port).await?,
        (Transport::Udp, host, port) => hears(hands, host, port).await?,
    }
    let secret = delivery::credentials(&hands.secrets, object.clone()).await;
    let secret = secret.map_err(ActionError::Other)?;
    let off = bmc::power_off(&object.spec);
    let driver = bmc.driver(&details.credentials_name, &secret, off);
    driver.map_err(ActionError::Other)
}

/// Ironic takes a minute to say that nobody is there.
async fn answers(host: &str, port: u16) -> Result<(), ActionError> {
    let connected = tokio::time::timeout(ANSWER_TIME, TcpStream::connect((host, port))).await;
    let why = match connected {
        Ok(Ok(_)) => return Ok(()),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "nobody answers".to_owned(),
    };
    Err(ActionError::Other(Problem {
        what: format!("its BMC cannot be reached at {host} port {port}: {why}"),
        next:
            "look whether the BMC has that address and is connected; the box tries again by itself"
                .to_owned(),
    }))
}

/// Ironic does not say whether nobody is there or the password is wrong.
async fn hears(hands: &Hands, host: &str, port: u16) -> Result<(), ActionError> {
    let heard = (hands.hail)(host.to_owned(), port).await;
    heard.map_err(|why| {
        ActionError::Other(Problem {
            what: format!("nothing answers IPMI at {host} port {port}: {why}"),
            next: "look whether the BMC has that address, is connected, and has IPMI over LAN switched on; the box tries again by itself".to_owned(),
        })
    })
}

/// Of a BMC that has just answered.
fn explained_of_heard(error: ClientError) -> ActionError {
    match &error {
        ClientError::Refused { message, .. } if !error.is_conflict() => {
            ActionError::Other(bmc::explained_of_heard(message))
        }
        _ => error.into(),
    }
}

fn explained(error: ClientError) -> ActionError {
    let ClientError::Refused { message, .. } = &error else {
        return error.into();
    };
    if error.is_conflict() {
        return error.into();
    }
    ActionError::Other(bmc::explained(message))
}
