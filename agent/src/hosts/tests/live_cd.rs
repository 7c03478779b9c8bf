//! The controller, a live Ironic, and sushy-tools as a BMC with a virtual drive. `scripts/test-ironic` runs it.

use super::{
    live::{live, remove},
    live_bmc::{Drives, Rack, Redfish},
    node,
    power::credentials,
};
use firstlight_api::bmh::ErrorType;
use firstlight_ironic::fake::settled;

#[tokio::test]
#[ignore = "needs FIRSTLIGHT_IRONIC_URL and FIRSTLIGHT_SUSHY: scripts/test-ironic"]
async fn a_live_ironic_starts_a_server_from_a_virtual_cd_and_takes_it_out_again() {
    let client = live();
    remove(&client).await;
    let state = tempfile::tempdir().unwrap();
    let dir = state.path().join("redfish");
    std::fs::create_dir(&dir).unwrap();
    let redfish = Redfish::new(&dir, 8000).with(Drives::None);
    let bmc = redfish.start();
    let address = format!("redfish-virtualmedia+http://{}", redfish.path());
    let mut rack = Rack::start(client.clone(), state.path(), &address).await;
    credentials(&rack.store, "hunter2");
    let refused = |rack: &Rack| rack.is_wrong(ErrorType::PowerManagement, "no virtual CD drive");
    let what = "a BMC without a drive is told";
    rack.until(what, || false, refused).await;
    drop(bmc);

    let redfish = redfish.with(Drives::Usual);
    let _bmc = redfish.start();
    let on = || redfish.is_on();
    let from_cd = r#""BootSourceOverrideTarget": "Cd""#;
    let summoned = |_: &Rack| redfish.is_on() && redfish.says(from_cd) && redfish.has_cd();
    let what = "its BMC starts it from the CD";
    rack.until(what, || false, summoned).await;
    // Until its restart has ended, Ironic hears no ramdisk of it.
    settled(&client, &node()).await.unwrap();
    let free = |rack: &Rack| rack.is_free() && rack.status().powered_on;
    rack.until("it is free", on, free).await;
    assert!(redfish.has_cd(), "its ramdisk may be started from it again");

    // What its owner starts on it is started from its disk.
    rack.change(|object| object.spec.externally_provisioned = true);
    let empty = |_: &Rack| !redfish.has_cd();
    rack.until("the drive is empty", on, empty).await;
    rack.remove(on).await;
    rack.running.task.abort();
}
