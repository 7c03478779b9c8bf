//! Where `BareMetalHost` objects live: the API server of the box, or memory in tests.

use std::future::Future;

use firstlight_api::bmh::BareMetalHost;

/// Operations on the objects of one namespace. An error means: later.
pub trait HostStore: Clone + Send + Sync + 'static {
    fn list(&self) -> impl Future<Output = anyhow::Result<Vec<BareMetalHost>>> + Send;
    /// Creates it, or changes the fields of `spec` that `host` has.
    fn apply(&self, host: &BareMetalHost) -> impl Future<Output = anyhow::Result<()>> + Send;
    fn apply_status(&self, host: &BareMetalHost)
    -> impl Future<Output = anyhow::Result<()>> + Send;
}
