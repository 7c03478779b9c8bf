//! `BareMetalHost` objects in Kubernetes, by server-side apply: fields that others wrote stay theirs.

use anyhow::{Context, Result};
use firstlight_api::bmh::{self, BareMetalHost};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{object::NAMESPACE, store::HostStore};

const MANAGER: &str = "firstlight-hosts";

#[derive(Clone)]
pub struct KubeStore {
    api: Api<DynamicObject>,
}

impl KubeStore {
    pub fn new(client: Client) -> Self {
        let kind = GroupVersionKind::gvk(bmh::GROUP, bmh::VERSION, bmh::KIND);
        let resource = ApiResource::from_gvk_with_plural(&kind, bmh::PLURAL);
        Self {
            api: Api::namespaced_with(client, NAMESPACE, &resource),
        }
    }
}

/// The part that is applied: identity, and one of `spec` and `status`.
fn part(host: &BareMetalHost, key: &str, value: &Value) -> Value {
    json!({
        "apiVersion": bmh::API_VERSION,
        "kind": bmh::KIND,
        "metadata": {"name": host.metadata.name, "namespace": NAMESPACE},
        key: value,
    })
}

impl HostStore for KubeStore {
    async fn list(&self) -> Result<Vec<BareMetalHost>> {
        let list = self
            .api
            .list(&ListParams::default())
            .await
            .context("listing BareMetalHosts")?;
        let read = |object: DynamicObject| {
            let name = object.metadata.name.clone().unwrap_or_default();
            let value = serde_json::to_value(object)?;
            serde_json::from_value(value)
                .with_context(|| format!("reading the BareMetalHost {name}"))
        };
        list.items.into_iter().map(read).collect()
    }

    async fn apply(&self, host: &BareMetalHost) -> Result<()> {
        let name = &host.metadata.name;
        let patch = part(host, "spec", &serde_json::to_value(&host.spec)?);
        let parameters = PatchParams::apply(MANAGER).force();
        let applied = self
            .api
            .patch(name, &parameters, &Patch::Apply(&patch))
            .await;
        applied
            .map(drop)
            .with_context(|| format!("writing the BareMetalHost {name}"))
    }

    async fn apply_status(&self, host: &BareMetalHost) -> Result<()> {
        let name = &host.metadata.name;
        let patch = part(host, "status", &serde_json::to_value(&host.status)?);
        let parameters = PatchParams::apply(MANAGER).force();
        let applied = self
            .api
            .patch_status(name, &parameters, &Patch::Apply(&patch))
            .await;
        applied
            .map(drop)
            .with_context(|| format!("writing the status of the BareMetalHost {name}"))
    }
}

#[cfg(test)]
mod tests {
    //! The CRD and the calls, against a live API server:
    //! `FIRSTLIGHT_KUBECONFIG=admin.conf cargo test -p firstlight-agent --lib kube_store`. It applies the CRD of the
    //! box, and makes and removes one object.
    #![allow(clippy::unwrap_used)]

    use std::{path::Path, time::Duration};

    use firstlight_api::{
        bmh::{
            BareMetalHostSpec, BareMetalHostStatus, BootMode, ChecksumType, ErrorType,
            HardwareDetails, Image, OperationalStatus, ProvisionStatus, ProvisioningState,
        },
        report::{LookupState, Report},
    };
    use kube::config::{Config, KubeConfigOptions, Kubeconfig};

    use super::*;

    const CRD: &str =
        include_str!("../../../overlays/box/usr/share/firstlight/manifests/crd-baremetalhost.yaml");
    const NAME: &str = "host-525400c0ffee";

    async fn client() -> Option<Client> {
        let path = std::env::var("FIRSTLIGHT_KUBECONFIG").ok()?;
        drop(rustls::crypto::ring::default_provider().install_default());
        let file = Kubeconfig::read_from(Path::new(&path)).unwrap();
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(file, &options)
            .await
            .unwrap();
        Some(Client::try_from(config).unwrap())
    }

    async fn apply_crd(client: &Client) {
        let crd: Value = serde_json::to_value(crd()).unwrap();
        let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
        let parameters = PatchParams::apply(MANAGER).force();
        api.patch("baremetalhosts.metal3.io", &parameters, &Patch::Apply(&crd))
            .await
            .expect("the API server takes the CRD");
        let established = async {
            let store = KubeStore::new(client.clone());
            while store.list().await.is_err() {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), established)
            .await
            .expect("the CRD is served");
    }

    fn crd() -> DynamicObject {
        crate::kubernetes::parse_manifest(CRD).unwrap().remove(0)
    }

    /// With something in every field that the agent writes.
    fn host() -> BareMetalHost {
        let image = Image {
            url: "http://172.22.0.1/images/node.raw.zst".into(),
            checksum: "ab".repeat(32),
            checksum_type: Some(ChecksumType::Sha256),
            format: Some("raw".into()),
            ..Image::default()
        };
        let spec = BareMetalHostSpec {
            online: true,
            boot_mac_address: "52:54:00:c0:ff:ee".into(),
            boot_mode: Some(BootMode::Uefi),
            image: Some(image.clone()),
            architecture: "x86_64".into(),
            disable_power_off: true,
            ..BareMetalHostSpec::default()
        };
        let mut host = BareMetalHost::new(NAME, NAMESPACE, spec);
        let report = Report {
            boot_mac: "52:54:00:c0:ff:ee".into(),
            boot_id: "1".into(),
            address: "172.22.0.9".into(),
            inventory: json!({
                "interfaces": [{"name": "eth0", "mac_address": "52:54:00:c0:ff:ee", "ipv4_address": "172.22.0.9"}],
                "disks": [{"name": "/dev/vda", "size": 8_589_934_592_u64, "rotational": true, "serial": "S1"}],
                "cpu": {"architecture": "x86_64", "count": 2, "frequency": "2904.5", "flags": ["aes"]},
                "memory": {"physical_mb": 512}, "system_vendor": {"product_name": "PC"},
            }),
            disks: vec![],
            lookup: LookupState::NotAsked,
        };
        let mut status = BareMetalHostStatus {
            operational_status: OperationalStatus::Error,
            error_type: Some(ErrorType::Provisioning),
            error_message: "the disk is broken; replace it".into(),
            error_count: 3,
            powered_on: true,
            provisioning: ProvisionStatus {
                state: ProvisioningState::Provisioning,
                id: "5f1a57e0-0000-4000-8000-525400c0ffee".into(),
                image: Some(image),
                boot_mode: Some(BootMode::Uefi),
                ..ProvisionStatus::default()
            },
            hardware: Some(HardwareDetails::from_inventory(&report.inventory)),
            last_updated: Some("2026-11-21T00:00:00Z".into()),
            ..BareMetalHostStatus::default()
        };
        status.operation_history.provision.start = Some("2026-11-21T00:00:00Z".into());
        host.status = Some(status);
        host
    }

    #[tokio::test]
    async fn a_live_api_server_keeps_every_field_that_we_write() {
        let Some(client) = client().await else {
            eprintln!("skipped: FIRSTLIGHT_KUBECONFIG is not set");
            return;
        };
        apply_crd(&client).await;
        let store = KubeStore::new(client);
        let host = host();
        store.apply(&host).await.unwrap();
        store.apply_status(&host).await.unwrap();
        store.apply(&host).await.unwrap();
        let found = store.list().await.unwrap();
        let found = found
            .iter()
            .find(|found| found.metadata.name == NAME)
            .unwrap();
        assert_eq!((&found.spec, &found.status), (&host.spec, &host.status));
        store
            .api
            .delete(NAME, &kube::api::DeleteParams::default())
            .await
            .unwrap();
    }

    /// The same without a server: each field of [`host`] is in the schema.
    #[test]
    fn the_schema_has_every_field_that_we_write() {
        let crd = serde_json::to_value(crd()).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        check("", &serde_json::to_value(host()).unwrap(), schema);
    }

    fn check(path: &str, value: &Value, schema: &Value) {
        assert!(
            !schema.is_null(),
            "{path} is not in the schema: the API server would drop it"
        );
        match value {
            Value::Object(fields) if path != ".metadata" => {
                for (key, value) in fields {
                    check(&format!("{path}.{key}"), value, &schema["properties"][key]);
                }
            }
            Value::Array(items) => {
                for item in items {
                    check(path, item, &schema["items"]);
                }
            }
            Value::String(text) => {
                let allowed = schema["enum"].as_array();
                assert!(
                    allowed.is_none_or(|allowed| allowed.iter().any(|one| one == text)),
                    "{path} may not be {text:?}"
                );
            }
            _ => {}
        }
    }
}
