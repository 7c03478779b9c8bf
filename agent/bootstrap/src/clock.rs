//! The site's time servers, which the network data name beside those for DNS. cloud-init reads the latter only.

use std::net::IpAddr;

use serde_json::Value;

use crate::files::NewFile;

/// Files below `/`; none where nobody names a server.
pub fn plan_clock(network_data: Option<&Value>) -> Vec<NewFile> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let networks = network_data.map(|data| list(&data["networks"]));
    let services = networks.unwrap_or_default().into_iter();
    let services = services.flat_map(|network| list(&network["services"]));
    let servers = services.filter(|service| service["type"] == "ntp");
    let lines = servers.filter_map(|service| {
        let name = service["address"].as_str().filter(|it| is_server(it))?;
        Some(format!("server {name} iburst\n"))
    });
    let mut lines: Vec<String> = lines.collect();
    lines.dedup();
    if lines.is_empty() {
        return Vec::new();
    }
    let path = "etc/chrony/sources.d/site.sources";
    vec![NewFile::new(path, 0o644, lines.concat())]
}

/// One word for chrony, which takes options behind it.
fn is_server(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
    text.parse::<IpAddr>().is_ok() || (!text.is_empty() && text.bytes().all(good))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn time_servers_are_asked_and_nothing_else_is_written() {
        let service = |kind: &str, address: &str| json!({"type": kind, "address": address});
        let data = json!({"networks": [
            {"id": "a", "services": [service("dns", "10.0.0.1"), service("ntp", "10.0.0.2")]},
            {"id": "b", "services": [service("ntp", "ntp.example"), service("ntp", "x\nallow all"), service("ntp", "fd00::1")]},
            {"id": "c"},
        ]});
        assert_eq!(
            plan_clock(Some(&data)),
            [NewFile::new(
                "etc/chrony/sources.d/site.sources",
                0o644,
                "server 10.0.0.2 iburst\nserver ntp.example iburst\nserver fd00::1 iburst\n"
            )]
        );
        for nothing in [
            None,
            Some(json!({})),
            Some(json!({"networks": [{"services": "x"}]})),
        ] {
            assert_eq!(plan_clock(nothing.as_ref()), []);
        }
    }
}
