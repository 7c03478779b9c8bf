//! Servers whose firmware knows no network boot: their BMC starts them from the box's virtual CD.

use firstlight_api::bmh::{BootMode, ErrorType, INSTALL_ANNOTATION, ProvisioningState};
use firstlight_ironic::fake::Switch;

use super::{
    power::{Firmware, HOST, Racked, bmc, credentials, image, is, manifest, off, on, status},
    *,
};

const NO_DRIVE: &str = "Could not attach device cdrom to node x: The attribute VirtualMedia/@odata.id is missing from the resource";
const KEEPS: &str = "Could not detach device(s) ['cdrom'] from node x: the drive is in use";

fn racked(site: &Site) -> Racked {
    let mut server = Racked::new(site);
    server.firmware = Firmware::Disk;
    credentials(&site.store, "hunter2");
    server
}

fn address(scheme: &str) -> String {
    format!("{scheme}://{}/redfish/v1/Systems/1", bmc())
}

/// Its owner writes it so, with an image.
fn named(site: &Site, scheme: &str) {
    manifest(site, |object| {
        image(object);
        object.spec.bmc.as_mut().unwrap().address = address(scheme);
    });
}

fn empty(site: &Site) -> bool {
    site.ironic.cd(&node()).is_none()
}

async fn provisioned(site: &mut Site) -> Racked {
    let mut server = racked(site);
    named(site, "redfish-virtualmedia");
    let provisioned = is(ProvisioningState::Provisioned);
    server.until("provisioned", site, provisioned).await;
    server
}

#[tokio::test]
async fn a_server_without_network_boot_goes_all_the_way_and_back() {
    let mut site = Site::up(SitePolicy::Cluster).await;
    let mut server = provisioned(&mut site).await;
    // Ironic starts whom it inspects from the network, where nothing is. The ramdisk that comes then writes the image.
    let by_cd = [Switch::Network, Switch::Off, Switch::Cd];
    assert_eq!((&server.done[..], server.machine.writes), (&by_cd[..], 1));
    server.until("the drive is empty", &mut site, empty).await;
    server.rounds(&mut site, 20).await;
    let said = status(&site);
    assert_eq!((said.error_type, said.error_message.as_str()), (None, ""));
    assert_eq!(server.done.len(), by_cd.len(), "{:?}", server.done);

    server.done.clear();
    site.store.change(HOST, |object| {
        let never = (INSTALL_ANNOTATION.to_owned(), "never".to_owned());
        object.metadata.annotations.extend([never]);
        object.spec.image = None;
    });
    let has_ours = |site: &Site| {
        let cd = site.ironic.cd(&node());
        cd.is_some_and(|url| url.ends_with("/boot/cd/52-54-00-00-00-01.iso"))
    };
    server.until("the CD is in", &mut site, has_ours).await;
    let available = is(ProvisioningState::Available);
    server.until("available", &mut site, available).await;
    assert_eq!(site.ironic.cleans(&node()), 1);
    assert!(server.done.contains(&Switch::Cd), "{:?}", server.done);
    assert!(!server.done.contains(&Switch::Network), "{:?}", server.done);

    // Nobody but the BMC that has it can let go of it.
    assert!(!empty(&site));
    site.store.change(HOST, |object| {
        object.spec.bmc.as_mut().unwrap().address = "ipmi://127.0.0.1:6230".to_owned();
    });
    let told = |site: &Site| site.ironic.driver(&node()).unwrap().0 == "ipmi";
    server.until("another BMC", &mut site, told).await;
    assert!(empty(&site));
}

#[tokio::test]
async fn a_bmc_without_a_virtual_drive_is_told_and_may_get_one() {
    let mut site = Site::up(SitePolicy::Cluster).await;
    let mut server = racked(&site);
    named(&site, "redfish-virtualmedia");
    let registered = |site: &Site| site.ironic.state(&node()).is_some();
    server.until("registered", &mut site, registered).await;
    site.ironic.set_cd_drive(&node(), Some(NO_DRIVE));
    let refused = |site: &Site| {
        let said = status(site);
        said.error_type == Some(ErrorType::PowerManagement)
            && said.error_message.contains("no virtual CD drive")
    };
    server.until("it is told", &mut site, refused).await;
    assert!(!server.done.contains(&Switch::Cd));
    site.ironic.set_cd_drive(&node(), None);
    let provisioned = is(ProvisioningState::Provisioned);
    server.until("provisioned", &mut site, provisioned).await;
    let said = status(&site);
    assert_eq!((said.error_type, said.error_message.as_str()), (None, ""));
}

#[tokio::test]
async fn a_cd_that_the_bmc_keeps_is_told_is_in_nobodys_way_and_is_asked_for_again() {
    let mut site = Site::up(SitePolicy::Cluster).await;
    let mut server = racked(&site);
    named(&site, "redfish-virtualmedia");
    let is_in = |site: &Site| !empty(site);
    server.until("the CD is in", &mut site, is_in).await;
    let waits = |site: &Site| site.ironic.state(&node()) == Some(ProvisionState::DeployWait);
    server.until("it is written", &mut site, waits).await;
    site.ironic.set_cd_drive(&node(), Some(KEEPS));
    let told = |site: &Site| {
        status(site)
            .error_message
            .contains("give the virtual CD back")
    };
    server.until("it is told", &mut site, told).await;
    assert_eq!(
        status(&site).provisioning.state,
        ProvisioningState::Provisioned
    );
    // What is wanted of it is done all the same, over a restart of the box, too.
    site.restart_controller();
    site.store.change(HOST, |object| object.spec.online = false);
    server.until("off", &mut site, off).await;
    site.store.change(HOST, |object| object.spec.online = true);
    server.until("on", &mut site, on).await;
    assert!(!empty(&site));
    site.ironic.set_cd_drive(&node(), None);
    server.until("the drive is empty", &mut site, empty).await;
    server.rounds(&mut site, 5).await;
    let said = status(&site);
    assert_eq!((said.error_type, said.error_message.as_str()), (None, ""));
    assert_eq!(server.machine.writes, 1);
}

#[tokio::test]
async fn a_firmware_that_the_cd_cannot_start_is_refused_before_it_is_tried() {
    let mut site = Site::up(SitePolicy::Cluster).await;
    let mut server = racked(&site);
    manifest(&site, |object| {
        image(object);
        object.spec.boot_mode = Some(BootMode::Legacy);
        object.spec.bmc.as_mut().unwrap().address = address("redfish-virtualmedia");
    });
    server.rounds(&mut site, 10).await;
    let said = status(&site);
    assert_eq!(said.error_type, Some(ErrorType::Registration));
    assert!(
        said.error_message.contains("starts UEFI firmware only"),
        "{}",
        said.error_message
    );
    assert_eq!(server.done, []);
}
