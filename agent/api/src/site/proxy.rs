//! `proxy`: through whom servers, and whoever builds the stick, reach the Web. Pure. The site's own networks are always excepted.

use std::{fmt, str::FromStr};

use serde_json::{Value, json};

use super::{Domain, Ipv4Network, SiteConfig, ValueError};

/// In the config drive's metadata: what [`SiteConfig::proxied`] says.
pub const METADATA_KEY: &str = "firstlight_proxy";

/// Who goes out for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// For what is asked for by `http://`.
    pub http: Option<ProxyUrl>,
    /// For what is asked for by `https://`.
    pub https: Option<ProxyUrl>,
    /// `noProxy`: what is reached without it, beside the site's own networks.
    pub except: Vec<Exception>,
}

/// Such as `http://proxy.example:3128`: without a password, which would be read by everybody on every server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyUrl(String);

impl FromStr for ProxyUrl {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let refuse = |why: &str| {
            Err(ValueError(format!(
                "`{text}` is no proxy{why}; write it like http://proxy.example:3128"
            )))
        };
        let Some((scheme @ ("http" | "https"), rest)) = text.split_once("://") else {
            return refuse("");
        };
        if rest.contains('@') {
            // Not repeated: it may hold a password.
            return Err(ValueError(
                "a proxy with a login is not possible: its password would be on every server for everybody to read; let the proxy know the site by its address"
                    .to_owned(),
            ));
        }
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let Some((host, port)) = rest.rsplit_once(':') else {
            return refuse(": its port is missing");
        };
        let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
        if !is_port || Domain::from_str(host).is_err() {
            return refuse("");
        }
        Ok(Self(format!("{scheme}://{host}:{port}")))
    }
}

impl fmt::Display for ProxyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One entry of `noProxy`: a network, or a machine or domain by name or address, with a dot in front for what is below a domain only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception(String);

impl FromStr for Exception {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let below = text.strip_prefix('.').unwrap_or(text);
        if text.parse::<Ipv4Network>().is_err() && Domain::from_str(below).is_err() {
            return Err(ValueError(format!(
                "`{text}` is nothing that is reached without a proxy; write a name such as site.example, an address, or a network such as 10.0.0.0/8"
            )));
        }
        Ok(Self(text.to_owned()))
    }
}

impl SiteConfig {
    /// Variables of the environment, in capitals, as programs have them; none without a proxy.
    pub fn proxied(&self) -> Vec<(&'static str, String)> {
        let Some(proxy) = &self.proxy else {
            return Vec::new();
        };
        let urls = [("HTTP_PROXY", &proxy.http), ("HTTPS_PROXY", &proxy.https)];
        let urls = urls
            .into_iter()
            .filter_map(|(name, url)| Some((name, url.as_ref()?.to_string())));
        let mut own: Vec<String> = [
            "localhost",
            "127.0.0.0/8",
            "100.64.0.0/22",
            ".svc",
            ".cluster.local",
        ]
        .map(str::to_owned)
        .into();
        own.extend(self.all_networks().iter().map(ToString::to_string));
        own.extend(self.ipv6_networks().map(|(_, network)| network.to_string()));
        for (_, cluster) in self.generated_clusters() {
            for network in [cluster.pod_networks(), cluster.service_networks()].concat() {
                if !own.contains(&network) {
                    own.push(network);
                }
            }
        }
        own.extend(proxy.except.iter().map(|it| it.0.clone()));
        urls.chain([("NO_PROXY", own.join(","))]).collect()
    }

    /// The same for a server; `None` without a proxy.
    pub fn proxied_server(&self) -> Option<Value> {
        let variables = self.proxied();
        (!variables.is_empty()).then(|| {
            variables
                .into_iter()
                .map(|(name, value)| (name.to_owned(), json!(value)))
                .collect()
        })
    }
}
