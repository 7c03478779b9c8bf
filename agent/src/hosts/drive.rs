//! The config drive: what cloud-init of the installed system is told.

use firstlight_api::site::SshKey;
use firstlight_ironic::ConfigDrive;
use firstlight_netboot::MacAddr;
use serde_json::json;

/// Everything a host learns at its first boot. No secret is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveSpec<'a> {
    pub name: &'a str,
    /// The NIC with the site's network; the DHCP server gives it its planned address.
    pub mac: MacAddr,
    pub ssh_keys: &'a [SshKey],
}

/// Metadata as `OpenStack` defines it, user data as cloud-config, network data as `network_data.json`.
pub fn config_drive(spec: &DriveSpec) -> ConfigDrive {
    let keys: Vec<&str> = spec.ssh_keys.iter().map(SshKey::as_str).collect();
    let named: serde_json::Map<String, serde_json::Value> = keys
        .iter()
        .enumerate()
        .map(|(index, key)| (format!("key-{index}"), json!(key)))
        .collect();
    let cloud_config = json!({
        "hostname": spec.name,
        "fqdn": spec.name,
        "prefer_fqdn_over_hostname": false,
        "users": [{
            "name": "admin",
            "gecos": "Site operator",
            "groups": ["sudo"],
            "shell": "/bin/bash",
            "sudo": "ALL=(ALL) NOPASSWD:ALL",
            "lock_passwd": true,
            "ssh_authorized_keys": keys,
        }],
    });
    ConfigDrive {
        meta_data: json!({
            "name": spec.name,
            "hostname": spec.name,
            "local-hostname": spec.name,
            "public_keys": named,
        }),
        // JSON is YAML, and needs no thought about what a key's comment may contain.
        user_data: format!("#cloud-config\n{cloud_config:#}\n"),
        network_data: json!({
            "links": [{"id": "boot", "type": "phy", "ethernet_mac_address": spec.mac.to_string()}],
            "networks": [{"id": "boot", "link": "boot", "type": "ipv4_dhcp"}],
            "services": [],
        }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_host_gets_its_name_its_operator_and_dhcp_on_its_boot_nic() {
        let keys = [SshKey::parse(
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0iVdvSbJ4m7y7C5jzUVzQ9c0GvYqFo0x9r6b5mN3pZ me: \"home\" #1",
        )
        .unwrap()];
        let spec = DriveSpec {
            name: "n1",
            mac: "52:54:00:00:00:01".parse().unwrap(),
            ssh_keys: &keys,
        };
        let drive = config_drive(&spec);
        assert_eq!(drive.meta_data["local-hostname"], "n1");
        assert_eq!(drive.meta_data["public_keys"]["key-0"], keys[0].as_str());
        assert_eq!(
            drive.network_data["links"][0]["ethernet_mac_address"],
            "52:54:00:00:00:01"
        );
        let (head, body) = drive.user_data.split_once('\n').unwrap();
        assert_eq!(head, "#cloud-config");
        let parsed: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(
            parsed["users"][0]["ssh_authorized_keys"][0],
            keys[0].as_str()
        );
        assert_eq!(
            (&parsed["hostname"], &parsed["users"][0]["name"]),
            (&json!("n1"), &json!("admin"))
        );
    }
}
