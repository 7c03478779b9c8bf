//! From the first sign of life to the system on the disk.

use firstlight_api::{
    bmh::{INSTALL_ANNOTATION, OperationalStatus, ProvisioningState},
    order::DiskPolicy,
};

use super::{server::its_disk, *};

fn shows(state: HostState) -> impl Fn(&Site) -> bool {
    move |site| site.state() == Some(state)
}

#[tokio::test]
async fn a_blank_server_is_installed_without_a_word_from_anybody() {
    let mut site = Site::start(SitePolicy::Plain).await;
    let mut server = Server::new(site.ironic.client());
    assert!(!server.step(&mut site).await);
    let shown = site.host().expect("before Ironic and Kubernetes");
    assert_eq!(
        (shown.state, shown.name.as_str()),
        (HostState::Discovered, NAME)
    );

    site.is_ironic_up = true;
    server
        .until_ironic(&mut site, ProvisionState::DeployWait)
        .await;
    let half = Phase::Writing {
        bytes: 410,
        total: 1000,
    };
    assert!(server.tell(&mut site, half).await);
    let writing = site.host().unwrap();
    assert_eq!(
        (writing.state, writing.step.as_str(), writing.percent),
        (
            HostState::Provisioning,
            "writing node.raw.zst, 41 %",
            Some(41)
        )
    );
    assert_eq!(site.boot_target(), BootTarget::Ramdisk);

    // The API comes up in the middle, as late as that.
    site.is_kubernetes_up = true;
    server.tell(&mut site, Phase::REBOOTING).await;
    assert_eq!(site.host().unwrap().step, "restarting from its disk");
    assert_eq!(
        site.boot_target(),
        BootTarget::Disk,
        "before Ironic says so"
    );
    site.ironic.finish_deploy(&node());
    site.wait_for("provisioned", shows(HostState::Provisioned))
        .await;

    let answers = true;
    site.take(Event::Ssh {
        mac: mac(),
        answers,
    })
    .await;
    assert_eq!(site.state(), Some(HostState::Running));
    let history = site.host().unwrap().history;
    let history: Vec<HostState> = history.iter().map(|event| event.state).collect();
    for passed in [
        HostState::Registering,
        HostState::Inspecting,
        HostState::Provisioning,
        HostState::Provisioned,
    ] {
        assert!(
            history.contains(&passed),
            "{passed:?} is missing in {history:?}"
        );
    }
    assert_eq!(site.ironic.deploys(&node()), 1);
    let drive = site.ironic.config_drive(&node()).unwrap();
    assert_eq!(drive["meta_data"]["local-hostname"], NAME);
    site.pass(ROUND).await;
    let object = site.store.only().unwrap();
    assert_eq!(object.spec.boot_mac_address, MAC);
    let status = object.status.unwrap();
    assert_eq!(
        (status.provisioning.state, status.provisioning.id),
        (ProvisioningState::Provisioned, node())
    );
    assert_eq!(status.hardware.unwrap().storage[0].name, "/dev/vda");
    // Two minutes without an answer.
    site.wait_for("silent", shows(HostState::Provisioned)).await;
}

/// Installs a server while the controller is restarted after every `every` of the server's reports.
async fn install_with_restarts(every: usize) {
    let mut site = Site::up(SitePolicy::Plain).await;
    let mut server = Server::new(site.ironic.client());
    let (mut rounds, mut met) = (0, vec![]);
    while site.ironic.state(&node()) != Some(ProvisionState::DeployWait) {
        server.step(&mut site).await;
        site.pass(ROUND).await;
        rounds += 1;
        assert!(rounds < ROUNDS, "{}", site.told());
        if rounds % every == 0 {
            met.push(site.ironic.state(&node()));
            site.restart_controller();
        }
    }
    assert!(
        !met.is_empty(),
        "the installation was over before the first restart"
    );
    site.restart_controller();
    server.step(&mut site).await;
    server.finish(&mut site).await;
    site.restart_controller();
    // It comes back to the ramdisk, as a server whose firmware prefers the network does.
    server.power_cycle();
    server.signatures = vec!["gpt".into()];
    server.until_told_to_boot_disk(&mut site).await;
    assert_eq!(site.boot_target(), BootTarget::Disk);
    site.restart_controller();
    server.until_told_to_boot_disk(&mut site).await;
    assert_eq!(
        site.ironic.deploys(&node()),
        1,
        "installed once; restarted in {met:?}"
    );
    site.wait_for("active", |site| {
        site.ironic.state(&node()) == Some(ProvisionState::Active)
    })
    .await;
}

#[tokio::test]
async fn a_controller_that_restarts_again_and_again_ends_the_same_with_one_deployment() {
    for every in [2, 3, 4, 5, 6, 7] {
        install_with_restarts(every).await;
    }
}

#[tokio::test]
async fn kubernetes_that_comes_up_after_the_installation_takes_nothing_away() {
    let mut site = Site::start(SitePolicy::Plain).await;
    site.is_ironic_up = true;
    let mut server = Server::new(site.ironic.client());
    server
        .until_ironic(&mut site, ProvisionState::DeployWait)
        .await;
    server.finish(&mut site).await;
    site.wait_for("provisioned", shows(HostState::Provisioned))
        .await;
    site.is_kubernetes_up = true;
    let mut told = false;
    for _ in 0..20 {
        site.pass(ROUND).await;
        assert_eq!(site.state(), Some(HostState::Provisioned));
        let object = site.store.only().unwrap();
        let status = object.status.unwrap();
        told |= object.spec.image.is_some() && status.provisioning.image.is_some();
    }
    assert!(told);
}

#[tokio::test]
async fn a_server_with_data_is_listed_with_the_reason_until_a_person_says_wipe() {
    let mut site = Site::up(SitePolicy::Plain).await;
    let mut server = Server::new(site.ironic.client());
    server.signatures = vec!["dos".into(), "ntfs".into()];
    server
        .until("why it is left alone", &mut site, |site| {
            site.problem().contains("/dev/vda is not blank: dos, ntfs")
        })
        .await;
    assert_eq!(site.state(), Some(HostState::Discovered));
    site.wait_for("the reason on the object", |site| {
        let status = site.store.only().and_then(|object| object.status);
        status.is_some_and(|status| {
            status.operational_status == OperationalStatus::Discovered
                && status.error_message.contains("ntfs")
        })
    })
    .await;
    assert_eq!(site.ironic.state(&node()), None, "Ironic does not know it");

    site.store.change(NAME, |object| {
        object
            .metadata
            .annotations
            .insert(INSTALL_ANNOTATION.into(), "wipe".into());
    });
    server
        .until_ironic(&mut site, ProvisionState::DeployWait)
        .await;
    assert_eq!(site.ironic.deploys(&node()), 1);
}

#[tokio::test]
async fn a_power_cut_of_the_server_in_the_middle_starts_its_deployment_over() {
    let mut site = Site::up(SitePolicy::Plain).await;
    let mut server = Server::new(site.ironic.client());
    server
        .until_ironic(&mut site, ProvisionState::DeployWait)
        .await;
    let half = Phase::Writing {
        bytes: 500,
        total: 1000,
    };
    server.tell(&mut site, half).await;
    server.step(&mut site).await;
    server.power_cycle();
    // Half an image is on the disk.
    let first = ordered(&site).await.unwrap();
    let deployment = first.deployment.unwrap();
    server.signatures = vec!["firstlight-unfinished".into()];
    server.mark = Some(Mark::Unfinished { deployment });
    server
        .until("the lost token is noticed", &mut site, |site| {
            site.ironic.deploys(&node()) == 2
        })
        .await;
    server
        .until_ironic(&mut site, ProvisionState::DeployWait)
        .await;
    assert_eq!(ordered(&site).await, Some(first), "it is the same one");
    server.finish(&mut site).await;
    site.wait_for("provisioned", shows(HostState::Provisioned))
        .await;
    assert_eq!(site.ironic.deploys(&node()), 2);
}

#[tokio::test]
async fn a_server_that_somebody_installs_by_hand_after_its_deployment_failed_is_left_alone() {
    let mut site = Site::up(SitePolicy::Plain).await;
    let mut server = Server::new(site.ironic.client());
    server
        .until_ironic(&mut site, ProvisionState::DeployWait)
        .await;
    let order = ordered(&site).await.unwrap();
    assert_eq!(order.policy, DiskPolicy::Blank);
    assert_eq!(order.disks, [its_disk()]);
    let kept = site.disk[&mac()].deployment.as_ref().unwrap();
    assert_eq!(kept.id, order.deployment, "it is written down first");

    server.door = None;
    site.ironic.fail_deploy(&node(), "the disk is broken");
    site.pass(Duration::from_mins(10)).await;
    server.power_cycle();
    server.signatures = vec!["gpt".into(), "ntfs".into()];
    server
        .until("why it is left alone", &mut site, |site| {
            site.problem().contains("not blank: gpt, ntfs")
        })
        .await;
    assert_eq!(site.ironic.deploys(&node()), 1);
}

#[tokio::test]
async fn a_server_that_was_switched_off_a_moment_ago_costs_no_attempt() {
    let mut site = Site::up(SitePolicy::Plain).await;
    let mut server = Server::new(site.ironic.client());
    server.door = None;
    server
        .until("that it is silent", &mut site, |site| {
            site.problem().contains("does not answer")
        })
        .await;
    assert_eq!(site.ironic.deploys(&node()), 0);
    server.door = Some(std::net::TcpListener::bind(server.address).unwrap());
    server
        .until_ironic(&mut site, ProvisionState::DeployWait)
        .await;
    assert_eq!(site.ironic.deploys(&node()), 1);
}

#[tokio::test]
async fn a_restart_of_the_whole_box_while_the_image_is_written_does_not_begin_again() {
    let mut site = Site::up(SitePolicy::Plain).await;
    let mut server = Server::new(site.ironic.client());
    server
        .until_ironic(&mut site, ProvisionState::DeployWait)
        .await;
    site.ironic.restart();
    site.restart_controller();
    // The ramdisk kept its token and went on.
    for _ in 0..20 {
        server.step(&mut site).await;
        site.pass(ROUND).await;
    }
    assert_eq!(site.ironic.state(&node()), Some(ProvisionState::DeployWait));
    server.finish(&mut site).await;
    site.wait_for("provisioned", shows(HostState::Provisioned))
        .await;
    assert_eq!(site.ironic.deploys(&node()), 1);
}

#[tokio::test]
async fn a_box_that_was_away_when_the_image_was_whole_lets_ironic_end_the_installation() {
    for restarted in [false, true] {
        let mut site = Site::up(SitePolicy::Plain).await;
        let mut server = Server::new(site.ironic.client());
        server
            .until_ironic(&mut site, ProvisionState::DeployWait)
            .await;
        site.is_ironic_up = false;
        site.restart_controller();
        assert!(!server.step(&mut site).await);
        server.tell(&mut site, Phase::Written { wrote: None }).await;
        for _ in 0..10 {
            site.pass(ROUND).await;
            assert!(!server.step(&mut site).await, "Ironic has no end yet");
        }
        site.come_up();
        if restarted {
            // By somebody's hand, into the system on its disk.
            site.pass(Duration::from_mins(2)).await;
        } else {
            server.finish(&mut site).await;
        }
        site.wait_for("active", |site| {
            site.ironic.state(&node()) == Some(ProvisionState::Active)
        })
        .await;
        assert_eq!(site.ironic.deploys(&node()), 1);
    }
}

/// The same each time.
struct Always(Fate);

impl Luck for Always {
    fn next(&mut self) -> Fate {
        self.0
    }
}

#[tokio::test]
async fn nothing_is_begun_that_could_not_be_written_down_and_the_reason_is_told() {
    let mut site = Site::with(SitePolicy::Plain, Always(Fate::Good)).await;
    site.come_up();
    let mut server = Server::new(site.ironic.client());
    server
        .until_ironic(&mut site, ProvisionState::Manageable)
        .await;
    site.luck = Always(Fate::DiskFull);
    for _ in 0..20 {
        server.step(&mut site).await;
        site.pass(ROUND).await;
    }
    assert_eq!(site.ironic.state(&node()), Some(ProvisionState::Manageable));
    let problem = site.problem();
    assert!(problem.contains("no space left on device"), "{problem}");
    site.luck = Always(Fate::Good);
    server
        .until_ironic(&mut site, ProvisionState::DeployWait)
        .await;
    assert_eq!(site.problem(), "");
}
