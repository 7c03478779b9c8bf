//! The key `firstlight_proxy` of a config drive's `meta_data.json`: variables of the environment for logins, containerd and apt.

use firstlight_api::site::proxy::METADATA_KEY;
use serde_json::{Map, Value};

use crate::files::NewFile;

/// Read by PAM for logins, and by containerd's unit (overlays/node).
const ENVIRONMENT: &str = "etc/environment";
const APT: &str = "etc/apt/apt.conf.d/60firstlight-proxy";
const NAMES: [&str; 3] = ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"];

/// Files below `/`; none where the metadata name no proxy. `host`: the box, which apt reaches by itself.
pub fn plan_proxy(meta_data: &Map<String, Value>, host: Option<&str>) -> Vec<NewFile> {
    let Some(block) = meta_data.get(METADATA_KEY) else {
        return Vec::new();
    };
    let value = |name: &str| block[name].as_str().filter(|value| is_plain(value));
    let mut environment = String::new();
    for (name, value) in NAMES.iter().filter_map(|name| Some((name, value(name)?))) {
        // Half of all programs read one, half the other.
        environment += &[name, "=", value, "\n"].concat();
        environment += &[&name.to_lowercase(), "=", value, "\n"].concat();
    }
    let mut apt = String::new();
    for (scheme, name) in [("http", NAMES[0]), ("https", NAMES[1])] {
        if let Some(url) = value(name) {
            apt += &["Acquire::", scheme, "::Proxy \"", url, "\";\n"].concat();
        }
        if let Some(host) = host.filter(|host| is_plain(host)) {
            apt += &["Acquire::", scheme, "::Proxy::", host, " \"DIRECT\";\n"].concat();
        }
    }
    vec![
        NewFile::new(ENVIRONMENT, 0o644, environment),
        NewFile::new(APT, 0o644, apt),
    ]
}

/// Nothing that ends a line or a word of these files.
fn is_plain(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b":/.,-_".contains(&byte);
    !text.is_empty() && text.bytes().all(good)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn logins_containerd_and_apt_are_told_of_the_proxy() {
        let data = json!({METADATA_KEY: {
            "HTTP_PROXY": "http://proxy.example:3128", "HTTPS_PROXY": "http://other.example:3129", "NO_PROXY": "localhost,172.22.0.0/24",
        }});
        let files = plan_proxy(data.as_object().unwrap(), Some("172.22.0.1"));
        let environment = "HTTP_PROXY=http://proxy.example:3128\nhttp_proxy=http://proxy.example:3128\nHTTPS_PROXY=http://other.example:3129\n\
                           https_proxy=http://other.example:3129\nNO_PROXY=localhost,172.22.0.0/24\nno_proxy=localhost,172.22.0.0/24\n";
        let apt = "Acquire::http::Proxy \"http://proxy.example:3128\";\nAcquire::http::Proxy::172.22.0.1 \"DIRECT\";\n\
                   Acquire::https::Proxy \"http://other.example:3129\";\nAcquire::https::Proxy::172.22.0.1 \"DIRECT\";\n";
        assert_eq!(
            files,
            [
                NewFile::new(ENVIRONMENT, 0o644, environment),
                NewFile::new(APT, 0o644, apt)
            ]
        );
        assert_eq!(plan_proxy(json!({}).as_object().unwrap(), None), []);
    }

    proptest! {
        #[test]
        fn no_value_becomes_another_line(value in "(http://[a-z.]{1,9}:[0-9]{1,4}|[ -~\n\"é]{0,20}){0,2}", host in "[ -~\n]{0,12}") {
            let data = json!({METADATA_KEY: {"HTTP_PROXY": value, "NO_PROXY": value, "PATH": value}});
            let files = plan_proxy(data.as_object().unwrap(), Some(&host));
            for line in files.iter().flat_map(|file| std::str::from_utf8(&file.content).unwrap().lines()) {
                let name = line.split('=').next().unwrap();
                let is_variable = NAMES.iter().any(|known| known.eq_ignore_ascii_case(name));
                prop_assert!(is_variable || (line.starts_with("Acquire::http") && line.matches('"').count() == 2), "{}", line);
            }
        }
    }
}
