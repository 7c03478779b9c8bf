//! A service that goes on whatever becomes of the nodes.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use imagebuilder::build::nodes::Nodes;

use super::{Cluster, wait};
use crate::pods::{fetch, find_image, steady_web};

impl Cluster {
    /// Two pods behind an address of the site's, which is returned.
    pub fn serve_web(&self, parts: &Nodes, place: &Path) -> Result<String> {
        let values = place.join("values");
        fs::write(&values, r#"{"addresses": ["172.22.0.80-172.22.0.95"]}"#)?;
        let words = ["install", "loadbalancer", "--values"].map(OsStr::new);
        let chart = parts.charts.join("loadbalancer");
        let files = [values.as_os_str(), chart.as_os_str()];
        self.command("helm", words.into_iter().chain(files))?;
        let images = self.kubectl("get nodes -o jsonpath={.items[0].status.images[*].names[*]}")?;
        for object in steady_web(find_image(&images)?) {
            self.apply(&object.to_string())?;
        }
        self.kubectl("rollout status deployment/web --timeout=2m")?;
        let address = wait("the service has an address", Duration::from_mins(4), || {
            let service = self.get("service web")?;
            let address = service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str();
            address.map(str::to_owned).context("no address yet")
        })?;
        let page = format!("http://{address}/");
        wait("it answers", Duration::from_mins(1), || fetch(&page))?;
        Ok(address)
    }
}
