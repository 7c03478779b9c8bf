//! The config drive: what cloud-init of the installed system is told.

use firstlight_api::site::SshKey;
use firstlight_ironic::ConfigDrive;
use firstlight_netboot::MacAddr;
use serde_json::json;

use crate::ssh;

/// Everything a host learns at its first boot. No secret is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveSpec<'a> {
    pub name: &'a str,
    /// The NIC with the site's network; the DHCP server gives it its planned address.
    pub mac: MacAddr,
    /// Whose login is `admin`.
    pub ssh_keys: &'a [SshKey],
    /// Of the box, for this host: `firstlight-bootstrap` makes its user, with or without user data.
    pub box_key: Option<&'a SshKey>,
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
    let mut meta_data = json!({
        "name": spec.name,
        "hostname": spec.name,
        "local-hostname": spec.name,
        "public_keys": named,
    });
    if let Some(key) = spec.box_key {
        meta_data["firstlight_access"] = json!({
            "user": ssh::user(spec.mac),
            "mac": spec.mac.to_string(),
            "key": key.as_str(),
        });
    }
    ConfigDrive {
        meta_data,
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
        let own = SshKey::parse(
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1pLbFSTpHvJ0hSWRnUGMvKxQ2g1YMxPvvqj5vJXc0f firstlight-box",
        )
        .unwrap();
        let spec = DriveSpec {
            name: "n1",
            mac: "52:54:00:00:00:01".parse().unwrap(),
            ssh_keys: &keys,
            box_key: Some(&own),
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
        let access = &drive.meta_data["firstlight_access"];
        assert_eq!(
            *access,
            json!({"user": "box-525400000001", "mac": "52:54:00:00:00:01", "key": own.as_str()})
        );
        assert!(
            !drive.user_data.contains(own.as_str()),
            "the box is not the operator"
        );
        assert_eq!(
            (&parsed["hostname"], &parsed["users"][0]["name"]),
            (&json!("n1"), &json!("admin"))
        );
    }
}
