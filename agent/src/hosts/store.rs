//! Where `BareMetalHost` objects live: the API server of the box, or memory in tests.

use std::{collections::BTreeMap, future::Future, sync::Arc};

use firstlight_api::bmh::{BareMetalHost, BmcDetails, HardwareData, Image};
use tokio::sync::mpsc;

use crate::objects::{Key, Listed};

/// A change of an object that people may write to as well: only what is here.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Amendment {
    pub image: Option<Image>,
    /// Labels, annotations and spec become those of this one.
    pub anew: Option<Box<BareMetalHost>>,
    /// The whole list, if it changes.
    pub finalizers: Option<Vec<String>>,
    /// Annotations that go away.
    pub forget: Vec<String>,
    pub bmc: Option<SpecBmc>,
}

/// What becomes of the box's own `spec.bmc`.
#[derive(Clone, Debug, PartialEq)]
pub enum SpecBmc {
    /// It is written, with the annotation that says so. `may_be_off`: `disablePowerOff` goes.
    Named {
        details: BmcDetails,
        may_be_off: bool,
    },
    /// It goes; the annotation stays, for the account is still there. `stays_on`: `disablePowerOff` comes back.
    Gone { stays_on: bool },
    /// The annotation goes, too.
    Forgotten,
}

/// Something that happened to a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostEvent {
    pub is_warning: bool,
    /// One word in `CamelCase`.
    pub reason: &'static str,
    pub note: String,
}

/// Of each Secret that is known, its version.
pub type Versions = Arc<BTreeMap<Key, String>>;

/// The decoded `data` of a Secret.
pub type Secret = BTreeMap<String, Vec<u8>>;

/// Operations on the objects of all namespaces. An error means: later.
pub trait HostStore: Clone + Send + Sync + 'static {
    /// Says each time that somebody may have changed an object, for ever.
    fn follow(&self, changed: mpsc::Sender<()>) -> impl Future<Output = ()> + Send {
        let _ = changed;
        std::future::pending()
    }
    /// Tells the versions of Secrets that may be credentials of BMCs, each time that one changes, for ever.
    fn follow_secrets(&self, changed: mpsc::Sender<Versions>) -> impl Future<Output = ()> + Send {
        let _ = changed;
        std::future::pending()
    }
    /// Also hosts that cannot be read, as far as they can: paused, so that nothing happens to their servers.
    fn list(&self) -> impl Future<Output = anyhow::Result<Listed<Arc<BareMetalHost>>>> + Send;
    /// Of an object that is there already nothing is changed.
    fn create(&self, host: &BareMetalHost) -> impl Future<Output = anyhow::Result<()>> + Send;
    /// Refused if `object` has changed since it was read.
    fn amend(
        &self,
        object: &BareMetalHost,
        amendment: &Amendment,
    ) -> impl Future<Output = anyhow::Result<()>> + Send;
    /// Refused if `object` has changed since it was read.
    fn delete(&self, object: &BareMetalHost) -> impl Future<Output = anyhow::Result<()>> + Send;
    /// What was found in the host goes with it.
    fn forget_hardware(
        &self,
        object: &BareMetalHost,
    ) -> impl Future<Output = anyhow::Result<()>> + Send;
    fn apply_status(&self, host: &BareMetalHost)
    -> impl Future<Output = anyhow::Result<()>> + Send;
    fn apply_hardware(
        &self,
        data: &HardwareData,
    ) -> impl Future<Output = anyhow::Result<()>> + Send;
    /// In Events, which last an hour; one that is lost is no trouble.
    fn tell(
        &self,
        host: &BareMetalHost,
        events: Vec<HostEvent>,
    ) -> impl Future<Output = ()> + Send {
        let _ = (host, events);
        std::future::ready(())
    }
    /// Makes the Secret of an account in the BMC of `host`, or writes it anew; one that somebody else has made is refused.
    fn keep_secret(
        &self,
        host: &BareMetalHost,
        name: &str,
        data: &Secret,
    ) -> impl Future<Output = anyhow::Result<()>> + Send;
    /// The Secret of an account goes, if there is one; one that somebody else has made stays.
    fn forget_secret(
        &self,
        host: &BareMetalHost,
        name: &str,
    ) -> impl Future<Output = anyhow::Result<()>> + Send;
    /// `None` if there is none of that name.
    fn secret(
        &self,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = anyhow::Result<Option<Secret>>> + Send;
}
