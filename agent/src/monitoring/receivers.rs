//! Whom Alertmanager tells, as `alarms` of site.yaml says; nobody without it. Pure.

use firstlight_api::site::{SiteConfig, alarms::Email};
use serde_json::{Value, json};

/// Alertmanager's configuration. The receiver has the name of the site, which a webhook gets with each alarm.
pub fn config(site: &SiteConfig) -> Value {
    let name = site.name.to_string();
    let mut receiver = json!({"name": name});
    let alarms = site.alarms.clone().unwrap_or_default();
    if let Some(webhook) = &alarms.webhook {
        let mut config = json!({"url": webhook.as_str(), "send_resolved": true, "max_alerts": 100});
        let scheme = webhook.as_str().split(':').next();
        let proxy = site.proxy.as_ref().and_then(|proxy| match scheme {
            Some("https") => proxy.https.as_ref(),
            _ => proxy.http.as_ref(),
        });
        if let Some(proxy) = proxy {
            config["http_config"] = json!({"proxy_url": proxy.to_string()});
        }
        receiver["webhook_configs"] = json!([config]);
    }
    if let Some(Email { server, from, to }) = &alarms.email {
        let to: Vec<String> = to.iter().map(ToString::to_string).collect();
        receiver["email_configs"] = json!([{
            "to": to.join(", "), "from": from.to_string(), "smarthost": server.to_string(),
            // Where the server offers it: one that does not must be told, too.
            "require_tls": false,
            "hello": name, "send_resolved": true,
            "headers": {"Subject": format!("[{name}] {{{{ .Status }}}}: {{{{ .GroupLabels.alertname }}}}")},
            "html": "",
            "text": "{{ range .Alerts }}{{ .Status }}: {{ .Annotations.summary }}\n{{ .Annotations.description }}\nsince {{ .StartsAt }}\n\n{{ end }}",
        }]);
    }
    json!({
        "route": {
            "receiver": name,
            "group_by": ["alertname"],
            "group_wait": "30s", "group_interval": "5m", "repeat_interval": "24h",
        },
        "receivers": [receiver],
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use firstlight_api::site::parse_site;

    use super::*;

    fn of(site: &str) -> Value {
        config(&parse_site(site).unwrap())
    }

    #[test]
    fn whom_the_site_names_is_told_by_its_way_out() {
        let none = of("name: lab");
        assert_eq!(none["receivers"], json!([{"name": "lab"}]));
        let both = of("name: lab
alarms:
  webhook: https://hooks.example/T0/secret?x=1
  email: {server: mail.example, from: box@lab.example, to: [ada@lab.example, bob@lab.example]}
proxy: {https: 'http://proxy.example:3128'}
");
        let told = &both["receivers"][0];
        let hook = &told["webhook_configs"][0];
        assert_eq!(hook["url"], "https://hooks.example/T0/secret?x=1");
        assert_eq!(
            hook["http_config"]["proxy_url"],
            "http://proxy.example:3128"
        );
        let mail = &told["email_configs"][0];
        assert_eq!(mail["smarthost"], "mail.example:25");
        assert_eq!(mail["to"], "ada@lab.example, bob@lab.example");
        assert_eq!(
            mail["headers"]["Subject"],
            "[lab] {{ .Status }}: {{ .GroupLabels.alertname }}"
        );
        assert_eq!(both["route"]["receiver"], "lab");
    }
}
