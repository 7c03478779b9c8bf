//! What every node of the cluster is told through cloud-init, beyond what kubeadm makes: a way to services, and on control
//! planes the virtual address. Where images come from is the node image's own affair (`firstlight-bootstrap`).
//!
//! Files are jinja templates: `{{ ds.meta_data.KEY }}` is filled in on the node from the metadata that `machines` writes.

use firstlight_api::site::{ClusterConfig, SiteConfig};
use serde_json::{Value, json};

use crate::capi;

pub fn files(config: &ClusterConfig) -> Vec<Value> {
    // A site has no default route: without this, the kernel has no way to a service's address before kube-proxy's rules send
    // the packet elsewhere.
    let ipv6 = config.ipv6.map(|ipv6| {
        let services = ipv6.services;
        format!("\n[Route]\nDestination={services}\n")
    });
    let network = format!(
        "[Match]\nName=services0\n\n[Network]\nLinkLocalAddressing=no\nConfigureWithoutCarrier=yes\n\n[Link]\nRequiredForOnline=no\n\n[Route]\nDestination={}\nScope=link\n{}",
        config.service_cidr,
        ipv6.unwrap_or_default()
    );
    let mut files = vec![
        file(
            "/etc/systemd/network/05-services.netdev",
            "[NetDev]\nName=services0\nKind=dummy\n",
        ),
        file("/etc/systemd/network/05-services.network", &network),
    ];
    if config.ipv6.is_some() {
        files.push(file(
            FORWARDING,
            "net.ipv6.conf.all.forwarding = 1\nnet.ipv6.conf.default.forwarding = 1\n",
        ));
    }
    files
}

/// Between pods of IPv6; a node of IPv4 is nobody's router there.
const FORWARDING: &str = "/etc/sysctl.d/60-ipv6-forwarding.conf";

pub fn commands(config: &ClusterConfig) -> Vec<String> {
    let forward = config.ipv6.map(|_| format!("sysctl -q -p {FORWARDING}"));
    let reload = "networkctl reload".to_owned();
    forward.into_iter().chain([reload]).collect()
}

/// For control planes: keepalived holds the endpoint's address, also if there is only one.
pub fn endpoint_file(config: &ClusterConfig) -> Value {
    file("/etc/keepalived/keepalived.conf", &keepalived(config))
}

/// Where kubeadm looks for changes of what it makes.
pub const PATCHES: &str = "/etc/kubernetes/patches";
/// Further ones, for slow clocks (decision 0016).
const EMULATED: &str = "/etc/kubernetes/patches-emulated";

/// For control planes with a slow or busy processor. kubeadm has most of these asked every second, by a TLS connection of its
/// own, whether they are ready, and ends what was not alive for 80 s. And it gives etcd the smallest share of the processor,
/// though all others wait for etcd.
pub fn control_plane_files() -> Vec<Value> {
    let container = |name: &str, processor: &str, is_asked: bool| {
        let mut container = json!({
            "name": name,
            "resources": {"requests": {"cpu": processor}},
            "livenessProbe": {"failureThreshold": 30},
        });
        if is_asked {
            container["readinessProbe"] = json!({"periodSeconds": 5});
        }
        let patch = json!({"spec": {"containers": [container]}});
        file(
            &format!("{PATCHES}/{name}+strategic.json"),
            &patch.to_string(),
        )
    };
    // Laid beside the others on a machine whose processor is played by another one's program: it takes ten times as long for everything.
    let patient =
        |flag: &str| json!({"op": "add", "path": "/spec/containers/0/command/-", "value": flag});
    let patient = json!([
        patient("--election-timeout=5000"),
        patient("--heartbeat-interval=500"),
    ]);
    vec![
        file(&format!("{EMULATED}/etcd1+json.json"), &patient.to_string()),
        container("etcd", "500m", true),
        container("kube-apiserver", "500m", true),
        container("kube-controller-manager", "100m", false),
        container("kube-scheduler", "100m", true),
    ]
}

/// With what the API server encrypts Secrets in etcd: a folder of its own, which goes into its pod.
pub const ENCRYPTION: &str = "/etc/kubernetes/encryption";

pub fn encryption_config() -> String {
    format!("{ENCRYPTION}/secrets.json")
}

/// For control planes: Cluster API fills it in, so that the objects of the cluster do not hold it.
pub fn encryption_file(cluster: &str) -> Value {
    let secret = json!({"name": capi::secrets_key_of(cluster), "key": capi::SECRETS_KEY});
    json!({
        "path": encryption_config(), "owner": "root:root", "permissions": "0600",
        "contentFrom": {"secret": secret},
    })
}

/// On a machine that is emulated, which `kvm` would not be.
pub fn emulated_commands() -> Vec<String> {
    let copy = format!("cp {EMULATED}/* {PATCHES}/");
    vec![format!(
        "if [ \"$(systemd-detect-virt)\" = qemu ]; then {copy}; fi"
    )]
}

/// The interface is the one in the endpoint's network, which has its address by DHCP and so perhaps later than others. The secret is made of
/// a key that all control planes have and nobody else (decision 0026); `printf` is the shell's own, so no process shows it.
pub fn endpoint_commands(site: &SiteConfig) -> Vec<String> {
    let addresses = format!("ip -o -4 address show to {}", site.provisioning.network());
    vec![
        format!(
            "test -s {KEY} && (umask 077 && printf 'auth_pass %s\\n' \"$( (echo keepalived; cat {KEY}) | openssl dgst -sha256 -binary | base64 | tr '+/' '._' | cut -c1-8)\" >{SECRET})"
        ),
        format!("for second in $(seq 120); do {addresses} | grep -q . && break; sleep 1; done"),
        format!(
            "sed -i \"s/@INTERFACE@/$({addresses} | awk '{{print $2; exit}}')/\" /etc/keepalived/keepalived.conf"
        ),
        "systemctl enable --now keepalived".to_owned(),
    ]
}

/// Nearly as long as the authorities that Cluster API makes (3650 days), where it allows no more than 1095 itself. A server that
/// joins has no such file, and what was noted in the cluster.
pub fn long_certificates() -> String {
    "sed -i 's/^certificateValidityPeriod: .*/certificateValidityPeriod: 86400h0m0s/' /run/kubeadm/kubeadm.yaml || true".to_owned()
}

/// Of the cluster's service accounts: cloud-init writes it before it runs commands.
const KEY: &str = "/etc/kubernetes/pki/sa.key";
const SECRET: &str = "/etc/keepalived/endpoint.secret";

/// All nodes begin as backup with one priority; a running API server lifts it. So the first node gets the address before its
/// API server runs, and one that joins later does not take it away. What a stranger advertises is not authenticated and counts for
/// nothing, whatever its priority; without `lower_prio_no_advert` whatever is heard, that too, would put off what the holder says next.
fn keepalived(config: &ClusterConfig) -> String {
    let (router, endpoint) = (config.router_id(), config.endpoint);
    format!(
        "global_defs {{\n    enable_script_security\n}}\n\n\
         vrrp_track_process api {{\n    process kube-apiserver\n    weight 50\n    delay 3\n}}\n\n\
         vrrp_instance endpoint {{\n    state BACKUP\n    interface @INTERFACE@\n    virtual_router_id {router}\n    priority 100\n    \
         advert_int 1\n    lower_prio_no_advert\n    authentication {{\n        auth_type AH\n        include {SECRET}\n    }}\n    virtual_ipaddress {{\n        {endpoint}/32\n    }}\n    track_process {{\n        api\n    }}\n}}\n"
    )
}

/// The operator's login. The box has a user of its own, which no user data has to name.
pub fn users(site: &SiteConfig) -> Value {
    let keys = site
        .ssh_keys
        .iter()
        .map(firstlight_api::site::SshKey::as_str);
    let keys: Vec<&str> = keys.collect();
    json!([{
        "name": "admin",
        "gecos": "Site operator",
        "groups": "sudo",
        "shell": "/bin/bash",
        "sudo": "ALL=(ALL) NOPASSWD:ALL",
        "lockPassword": true,
        "sshAuthorizedKeys": keys,
    }])
}

fn file(path: &str, content: &str) -> Value {
    json!({"path": path, "owner": "root:root", "permissions": "0644", "content": content})
}
