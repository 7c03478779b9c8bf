//! A route and an Ingress are reached from outside by their names, with TLS by a certificate that is in a Secret as the box keeps it. Another
//! certificate is served at once, and routes change after Contour and Envoy got new ones for each other.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use qemu_tests::nodes::{Cluster, wait};
use qemu_tests::pods::curl;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};

use crate::pods::{delete, serve};

const NAMESPACE: &str = "projectcontour";
const DOMAIN: &str = "apps.lab.internal";
const LIMIT: Duration = Duration::from_mins(2);
/// A node looks every minute or so whether a Secret is another one.
const RELOAD: Duration = Duration::from_mins(4);

pub fn try_out(cluster: &mut Cluster) -> Result<()> {
    let place = tempfile::tempdir()?;
    let first = certify(cluster, place.path(), "first")?;
    serve(cluster, "web", "served")?;
    cluster.kubectl("expose pod web --port=80 --target-port=8080")?;
    cluster.apply(&route("shop").to_string())?;
    cluster.apply(&ingress("desk").to_string())?;
    let address = wait("Envoy has an address", LIMIT, || {
        let service = cluster.get(&format!("service envoy -n {NAMESPACE}"))?;
        let address = service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str();
        address.map(str::to_owned).context("no address yet")
    })?;
    let visit = |url: &str, trust: &Path| {
        let name = url.split("://").nth(1).context("a scheme")?;
        let places = ["80", "443"].map(|port| format!("{name}:{port}:{address}"));
        let trust = trust.to_str().context("a plain path")?;
        curl(&[
            "--resolve",
            &places[0],
            "--resolve",
            &places[1],
            "--cacert",
            trust,
            url,
        ])
    };
    for name in ["shop", "desk"] {
        for scheme in ["http", "https"] {
            let url = format!("{scheme}://{name}.{DOMAIN}");
            let said = wait("it is served", LIMIT, || visit(&url, &first))?;
            ensure!(said == "served", "{url}: {said}");
        }
    }
    let nobody = visit(&format!("http://nobody.{DOMAIN}"), &first);
    let refused = nobody.err().context("a name without a route is served")?;
    ensure!(format!("{refused:#}").contains("404"), "{refused:#}");

    let shop = format!("https://shop.{DOMAIN}");
    let second = certify(cluster, place.path(), "second")?;
    wait("the other certificate is served", LIMIT, || {
        visit(&shop, &second)
    })?;
    let old = visit(&shop, &first);
    ensure!(old.is_err(), "whoever trusts another CA was served");

    // As the first of a month does.
    let job = format!("-n {NAMESPACE} create job monthly --from=cronjob/certificates");
    cluster.kubectl(&job)?;
    cluster.kubectl(&format!(
        "-n {NAMESPACE} wait --for=condition=Complete job/monthly --timeout=90s"
    ))?;
    cluster.kubectl(&format!(
        "-n {NAMESPACE} rollout restart deployment/contour"
    ))?;
    cluster.kubectl(&format!(
        "-n {NAMESPACE} rollout status deployment/contour --timeout=120s"
    ))?;
    cluster.apply(&route("later").to_string())?;
    let later = format!("https://later.{DOMAIN}");
    wait("a route that came afterwards is served", RELOAD, || {
        visit(&later, &second)
    })?;
    delete(
        cluster,
        "httproute/shop httproute/later ingress/desk service/web pod/web",
    )
}

/// The file of the CA whose certificate is in the Secret now.
fn certify(cluster: &Cluster, place: &Path, name: &str) -> Result<PathBuf> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let authority = params.self_signed(&key)?;
    let issuer = Issuer::from_params(&params, &key);
    let own = KeyPair::generate()?;
    let certificate = CertificateParams::new([format!("*.{DOMAIN}")])?.signed_by(&own, &issuer)?;
    let [certificate, own] =
        [certificate.pem(), own.serialize_pem()].map(|pem| STANDARD.encode(pem));
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": "site", "namespace": NAMESPACE},
        "data": {"tls.crt": certificate, "tls.key": own},
    });
    cluster.apply(&secret.to_string())?;
    let file = place.join(name);
    fs::write(&file, authority.pem()).context("writing a CA")?;
    Ok(file)
}

fn route(name: &str) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": name},
        "spec": {
            "parentRefs": [{"name": "site", "namespace": NAMESPACE}],
            "hostnames": [format!("{name}.{DOMAIN}")],
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}],
        },
    })
}

fn ingress(name: &str) -> Value {
    let host = format!("{name}.{DOMAIN}");
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {
            "name": name,
            "annotations": {
                "projectcontour.io/tls-cert-namespace": NAMESPACE,
                "ingress.kubernetes.io/force-ssl-redirect": "false",
            },
        },
        "spec": {
            "tls": [{"hosts": [host], "secretName": "site"}],
            "rules": [{"host": host, "http": {"paths": [{
                "path": "/", "pathType": "Prefix", "backend": {"service": {"name": "web", "port": {"number": 80}}},
            }]}}],
        },
    })
}
