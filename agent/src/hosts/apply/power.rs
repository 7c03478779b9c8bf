//! What is done by way of the BMC. Ironic's own sentence about it becomes a problem with a next step: it seldom ends by itself.

use firstlight_api::status::Problem;
use firstlight_ironic::{Client, ClientError, Driver, NodePatch, PowerTarget};
use serde_json::json;
use tokio::net::TcpStream;

use super::{ANSWER_TIME, ActionError, Hands};
use crate::hosts::{bmc, delivery, event::Act, plan::EXTRA_BMC};

/// Ironic is told of the BMC, which has to answer before that counts.
pub async fn connect(
    client: &Client,
    hands: &Hands,
    act: &Act,
    node: &str,
) -> Result<(), ActionError> {
    let driver = driver(hands, act).await?;
    client.set_driver(node, &driver).await?;
    client.ask_bmc(node).await.map_err(explained)?;
    mark(client, act, node).await
}

pub async fn disconnect(client: &Client, act: &Act, node: &str) -> Result<(), ActionError> {
    client.set_driver(node, &Driver::Manual).await?;
    mark(client, act, node).await
}

pub async fn switch(client: &Client, node: &str, target: PowerTarget) -> Result<(), ActionError> {
    client.set_power(node, target).await.map_err(explained)
}

/// A node that Ironic does not manage yet: it asks the BMC itself when it begins to.
pub async fn tell(
    client: &Client,
    hands: &Hands,
    act: &Act,
    node: &str,
) -> Result<(), ActionError> {
    if act.bmc.is_none() {
        // It may know one that is named no more.
        if client.node(node).await?.has_bmc() {
            disconnect(client, act, node).await?;
        }
        return Ok(());
    }
    let driver = driver(hands, act).await?;
    client.set_driver(node, &driver).await?;
    mark(client, act, node).await
}

/// Ironic restarts a server that is to come into the ramdisk, and leaves it to the firmware what that starts.
pub async fn before_ramdisk(client: &Client, act: &Act, node: &str) -> Result<(), ActionError> {
    if act.bmc.is_none() {
        return Ok(());
    }
    client.boot_from_network_once(node).await.map_err(explained)
}

async fn mark(client: &Client, act: &Act, node: &str) -> Result<(), ActionError> {
    let mark = json!(act.bmc.as_deref().unwrap_or_default());
    let patch = NodePatch::Extra(EXTRA_BMC.to_owned(), mark);
    client.patch_node(node, &[patch]).await?;
    Ok(())
}

async fn driver(hands: &Hands, act: &Act) -> Result<Driver, ActionError> {
    let object = act.object.as_ref();
    let Some((object, details)) =
        object.and_then(|object| Some((object, object.spec.bmc.as_ref()?)))
    else {
        return Ok(Driver::Manual);
    };
    let bmc = bmc::read(details).map_err(ActionError::Other)?;
    if let Some(door) = bmc.listens() {
        answers(door).await?;
    }
    let secret = delivery::credentials(&hands.secrets, object.clone()).await;
    let secret = secret.map_err(ActionError::Other)?;
    let off = bmc::power_off(&object.spec);
    let driver = bmc.driver(&details.credentials_name, &secret, off);
    driver.map_err(ActionError::Other)
}

/// Ironic takes a minute to say that nobody is there.
async fn answers((host, port): (&str, u16)) -> Result<(), ActionError> {
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

fn explained(error: ClientError) -> ActionError {
    let ClientError::Refused { message, .. } = &error else {
        return error.into();
    };
    if error.is_conflict() {
        return error.into();
    }
    ActionError::Other(bmc::explained(message))
}
