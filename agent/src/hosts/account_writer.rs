//! Writes what has become of the account in a host's BMC: the Secret first, then the spec that names it, and the other way round.
//! Broken off anywhere, it is done again.

use std::sync::Arc;

use firstlight_api::{bmh::BareMetalHost, status::Problem};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
};

use super::{
    account::{self, AccountError, Change},
    made, rmcp,
    store::{Amendment, HostStore, SpecBmc},
};

/// One change, with its way back.
pub struct Writing {
    pub object: Arc<BareMetalHost>,
    pub change: Change,
    pub written: oneshot::Sender<Result<(), AccountError>>,
}

/// What came of it.
pub async fn ask(
    writings: &mpsc::Sender<Writing>,
    object: Arc<BareMetalHost>,
    change: Change,
) -> Result<(), AccountError> {
    let (written, answer) = oneshot::channel();
    let writing = Writing {
        object,
        change,
        written,
    };
    let stopping = || unwritten("the controller is stopping");
    writings.send(writing).await.map_err(|_| stopping())?;
    answer.await.map_err(|_| stopping())?
}

/// Until nobody wants anything written any more.
pub async fn run<S: HostStore>(
    store: watch::Receiver<Option<S>>,
    mut writings: mpsc::Receiver<Writing>,
) -> anyhow::Result<()> {
    let mut tasks = JoinSet::new();
    while let Some(writing) = writings.recv().await {
        while tasks.try_join_next().is_some() {}
        let store = store.borrow().clone();
        tasks.spawn(async move {
            let result = one(store, &writing).await;
            // The controller may have ended.
            drop(writing.written.send(result));
        });
    }
    Ok(())
}

async fn one<S: HostStore>(store: Option<S>, writing: &Writing) -> Result<(), AccountError> {
    if let Change::Keep { address, .. } = &writing.change
        && rmcp::answers(&address.to_string(), rmcp::PORT)
            .await
            .is_err()
    {
        return Err(AccountError::Silent);
    }
    let store = store.ok_or_else(|| unwritten("Kubernetes has not come up yet"))?;
    write(&store, &writing.object, &writing.change).await
}

fn unwritten(what: &str) -> AccountError {
    AccountError::Unwritten(Problem {
        what: format!("the account in its BMC was not written down: {what}"),
        next: "nothing: the box tries again".to_owned(),
    })
}

/// `object` as it was seen; one that has changed since is left for the next time.
pub async fn write<S: HostStore>(
    store: &S,
    object: &BareMetalHost,
    change: &Change,
) -> Result<(), AccountError> {
    let secret = account::secret_key(object);
    let bmc = match change {
        Change::Keep { address, password } => {
            let data = account::secret(password);
            let kept = store.keep_secret(object, &secret.name, &data).await;
            kept.map_err(|error| unwritten(&format!("{error:#}")))?;
            let address = account::address(*address);
            SpecBmc::Named {
                details: account::details(object, &address),
                // Whom nobody could switch on again stays on; that is over, unless somebody has said so himself.
                may_be_off: made::is_as_made(object),
            }
        }
        Change::Forget => {
            let gone = store.forget_secret(object, &secret.name).await;
            gone.map_err(|error| unwritten(&format!("{error:#}")))?;
            SpecBmc::Forgotten
        }
    };
    let amendment = Amendment {
        bmc: Some(bmc),
        ..Amendment::default()
    };
    let amended = store.amend(object, &amendment).await;
    amended.map_err(|error| unwritten(&format!("{error:#}")))
}
