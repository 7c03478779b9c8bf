//! Networks of site.yaml: a server gets its network data with its system, and not before they are whole.

use firstlight_api::{bmh::SecretReference, site::parse_site};

use serde_json::{Value, json};

use super::{life::Machine, *};
use crate::hosts::{bootstrap::network_data, delivery};

const RULES: &str = "
- match: any
  links: [{nic: boot, networks: [provisioning, storage]}]
networks: {storage: {subnet: 10.20.0.0/24, vlan: 20}}
";

fn made(vlan: u16) -> Value {
    let link = format!("link0-{vlan}");
    json!({
        "links": [
            {"id": "link0", "type": "phy", "ethernet_mac_address": MAC},
            {"id": link, "type": "vlan", "vlan_id": vlan, "vlan_link": "link0", "vlan_mac_address": MAC},
        ],
        "networks": [
            {"id": "provisioning", "link": "link0", "type": "ipv4_dhcp"},
            {
                "id": "storage", "link": link, "type": "ipv4", "ip_address": "10.20.0.9", "netmask": "255.255.255.0",
                "routes": [], "services": [], "dns_search": [],
            },
        ],
        "services": [],
    })
}

fn put(store: &MemoryStore, name: &str, data: &Value) {
    let secret = Secret::from([("networkData".to_owned(), data.to_string().into_bytes())]);
    store
        .secrets
        .lock()
        .unwrap()
        .insert(name.to_owned(), secret);
}

#[tokio::test]
async fn a_server_waits_for_its_addresses_and_is_installed_with_them() {
    let mut site = rules::site(RULES).await;
    let mut machine = Machine::new(&site);
    let waits = |site: &Site, _: &Machine| site.problem().contains("no addresses on its networks");
    machine.until("it waits", &mut site, waits).await;
    assert!(site.ironic.config_drive(&node()).is_none());
    put(&site.store, &format!("{NAME}-network-data"), &made(20));
    let written = |site: &Site, _: &Machine| site.ironic.config_drive(&node()).is_some();
    machine
        .until("its system is written", &mut site, written)
        .await;
    let drive = site.ironic.config_drive(&node()).unwrap();
    assert_eq!(drive["network_data"], made(20));
}

#[tokio::test]
async fn what_an_earlier_site_yaml_made_is_not_handed_over_and_a_persons_own_wins() {
    let site = parse_site(format!("rules:\n{RULES}")).unwrap();
    let store = MemoryStore::default();
    let secrets = reader(Arc::new(site), &store);
    let mut host: BareMetalHost = serde_json::from_value(json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {"name": "n1", "namespace": "default"},
        "spec": {"bootMACAddress": MAC},
        "status": {"hardware": {"nics": [{"name": "eth0", "mac": MAC, "ip": ""}]}},
    }))
    .unwrap();
    put(&store, "n1-network-data", &made(21));
    let refused = delivery::read(&secrets, Arc::new(host.clone())).await;
    assert_eq!(
        refused.err().unwrap().what,
        "it has no addresses on its networks yet"
    );
    put(&store, "n1-network-data", &made(20));
    let read = delivery::read(&secrets, Arc::new(host.clone()))
        .await
        .unwrap();
    assert_eq!(network_data(&read).unwrap(), Some(made(20)));

    host.spec.network_data = Some(SecretReference {
        name: "own".to_owned(),
        namespace: String::new(),
    });
    put(&store, "own", &json!({"links": []}));
    let read = delivery::read(&secrets, Arc::new(host)).await.unwrap();
    assert_eq!(network_data(&read).unwrap(), Some(json!({"links": []})));
}

#[tokio::test]
async fn a_server_without_the_nic_that_is_named_is_left_alone_and_told_so() {
    let rules = "
- match: any
  links: [{bond: active-backup, nics: [boot, eno9], networks: [provisioning]}]
";
    let mut site = rules::site(rules).await;
    let mut machine = Machine::new(&site);
    let told = |site: &Site, _: &Machine| site.problem().contains("name the NIC eno9");
    machine.until("it is told", &mut site, told).await;
    for _ in 0..20 {
        machine.step(&mut site).await;
        site.pass(ROUND).await;
    }
    assert!(told(&site, &machine) && site.ironic.config_drive(&node()).is_none());
}

#[tokio::test]
async fn an_address_on_a_network_that_no_nic_carries_is_not_passed_over() {
    let rules = format!(
        "
- match: any
networks: {{storage: {{subnet: 10.20.0.0/24, vlan: 20}}}}
hosts: [{{mac: '{MAC}', addresses: {{storage: 10.20.0.9}}}}]
"
    );
    let mut site = rules::site(&rules).await;
    let mut machine = Machine::new(&site);
    let told = |site: &Site, _: &Machine| {
        let problem = site.problem();
        problem.contains("an address for it on the network storage")
    };
    machine.until("it is told", &mut site, told).await;
    assert!(site.ironic.config_drive(&node()).is_none());
}
