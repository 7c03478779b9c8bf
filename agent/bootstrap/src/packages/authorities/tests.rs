#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use anyhow::anyhow;
use firstlight_api::authorities::{PrivateKey, with_data};

use super::*;
use crate::packages::CommandOutput;

const ROTATION: &str = "0123456789abcdef";

/// A node in memory, whose kubelet and kubeadm do what is asked of them; its power may be cut before any change.
#[derive(Clone)]
struct Memory {
    files: BTreeMap<String, String>,
    ran: Vec<String>,
    /// Changes until then.
    power: usize,
}

impl Memory {
    fn spend(&mut self) -> Result<()> {
        self.power = self.power.checked_sub(1).ok_or_else(|| anyhow!("dark"))?;
        Ok(())
    }

    fn put(&mut self, path: &str, content: impl Into<String>) {
        self.files.insert(path.to_owned(), content.into());
    }

    /// Its kubelet, which has a certificate of who signs now.
    fn restart_kubelet(&mut self) {
        if !self.files.contains_key(KUBELET)
            && let Some(text) = self.files.get(BOOTSTRAP).cloned()
        {
            self.put(KUBELET, text.replace(BEFORE, CURRENT));
            self.put(CURRENT, "by new");
        }
    }
}

impl Server for Memory {
    type Lock = ();

    fn run(&mut self, program: &str, arguments: &[&str]) -> Result<CommandOutput> {
        let line = format!("{program} {}", arguments.join(" "));
        let mut is_success = true;
        let mut text = String::new();
        match program {
            "kubectl" => "True".clone_into(&mut text),
            "openssl" => is_success = self.files[CURRENT] == "by new",
            "kubeadm" => {
                self.spend()?;
                assert_eq!(arguments, ["certs", "renew", "all"]);
                let first = self.files[&format!("{PKI}/ca.crt")].clone();
                let key = self.files[&format!("{PKI}/ca.key")].clone();
                assert!(first.starts_with(&pem("new")) && key == key_of("new"));
                let path = "/etc/kubernetes/admin.conf";
                let renewed = with_data(&self.files[path], AUTHORITY, &pem("new")).unwrap();
                self.put(path, renewed);
                self.put("/etc/kubernetes/pki/apiserver.crt", "by new");
            }
            "systemctl" => {
                self.spend()?;
                if arguments == ["restart", "kubelet"] {
                    self.restart_kubelet();
                }
            }
            _ => panic!("{line}"),
        }
        self.ran.push(line);
        Ok(CommandOutput { is_success, text })
    }

    fn lock(&mut self) -> Result<()> {
        Ok(())
    }

    fn write(&mut self, files: &[NewFile]) -> Result<()> {
        for file in files {
            let path = file.path.to_str().unwrap();
            let content = String::from_utf8(file.content.clone()).unwrap();
            if self.files.get(path) != Some(&content) {
                self.spend()?;
                self.put(path, content);
            }
        }
        Ok(())
    }

    fn is_there(&mut self, path: &str) -> bool {
        self.files.contains_key(path)
    }

    fn read(&mut self, path: &str) -> Result<Option<String>> {
        Ok(self.files.get(path).cloned())
    }

    fn remove(&mut self, path: &str) -> Result<()> {
        if self.files.contains_key(path) {
            self.spend()?;
            self.files.remove(path);
        }
        Ok(())
    }

    fn boot_id(&mut self) -> Result<String> {
        Ok("boot".to_owned())
    }

    fn reboot_needed(&mut self) -> bool {
        false
    }

    fn restart(&mut self) -> Result<()> {
        panic!("nothing restarts a server here")
    }
}

fn pem(name: &str) -> String {
    format!("-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----\n")
}

fn key_of(name: &str) -> String {
    format!("-----BEGIN PRIVATE KEY-----\n{name}\n-----END PRIVATE KEY-----\n")
}

fn kubeconfig(rest: &str) -> String {
    format!("clusters:\n- cluster:\n    {AUTHORITY}: b2xk\n  name: lab\n{rest}")
}

fn worker() -> Memory {
    let files = [
        (format!("{PKI}/ca.crt"), pem("old")),
        (
            KUBELET.to_owned(),
            kubeconfig(&format!(
                "    client-certificate: {CURRENT}\n    client-key: {CURRENT}\n"
            )),
        ),
        (CURRENT.to_owned(), "by old".to_owned()),
    ];
    Memory {
        files: files.into(),
        ran: Vec::new(),
        power: usize::MAX,
    }
}

fn control_plane() -> Memory {
    let mut node = worker();
    for name in ["ca", "etcd/ca", "front-proxy-ca"] {
        node.put(&format!("{PKI}/{name}.crt"), pem("old"));
        node.put(&format!("{PKI}/{name}.key"), key_of("old"));
    }
    node.put("/etc/kubernetes/admin.conf", kubeconfig(""));
    for name in PODS.concat() {
        let flags = match name {
            MANAGER => format!(
                "    - --cluster-signing-cert-file={PKI}/ca.crt\n    - --cluster-signing-key-file={PKI}/ca.key\n"
            ),
            _ => String::new(),
        };
        let manifest = format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  labels:\n    component: {name}\nspec:\n  containers:\n{flags}"
        );
        node.put(&format!("{MANIFESTS}/{name}.yaml"), manifest);
    }
    node
}

fn order(step: AuthoritiesStep, is_control_plane: bool) -> AuthoritiesOrder {
    let (old, new) = (pem("old"), pem("new"));
    let certificates = match step {
        AuthoritiesStep::Trust => old + &new,
        AuthoritiesStep::Issue => new + &old,
        AuthoritiesStep::Kubelet | AuthoritiesStep::Forget => new,
    };
    let key = (step == AuthoritiesStep::Issue).then(|| PrivateKey::new(key_of("new")));
    let authority = Authority { certificates, key };
    let others = is_control_plane.then(|| authority.clone());
    AuthoritiesOrder {
        step,
        rotation: ROTATION.to_owned(),
        node: "node-1".to_owned(),
        hands_over: false,
        cluster: authority,
        etcd: others.clone(),
        front_proxy: others,
    }
}

fn go(node: &mut Memory, is_control_plane: bool) {
    for one in AuthoritiesStep::ALL {
        if is_control_plane || one != AuthoritiesStep::Issue {
            assert!(step(node, &order(one, is_control_plane)).unwrap().changed);
        }
    }
}

#[test]
fn a_control_plane_believes_both_then_signs_by_the_new_one_and_forgets_the_old() {
    let mut node = control_plane();
    let manager = format!("{MANIFESTS}/{MANAGER}.yaml");
    step(&mut node, &order(AuthoritiesStep::Trust, true)).unwrap();
    assert_eq!(
        node.files[&format!("{PKI}/ca.crt")],
        pem("old") + &pem("new")
    );
    assert_eq!(
        node.files[&format!("{SIGNING}.crt")],
        pem("old"),
        "and one alone"
    );
    assert!(node.files[&manager].contains("cert-file=/etc/kubernetes/pki/signing/ca.crt\n"));
    assert!(
        node.files[&manager]
            .contains("  labels:\n    firstlight.internal/authorities: trust-0123456789abcdef\n")
    );
    let asked: Vec<_> = node
        .ran
        .iter()
        .filter(|line| line.starts_with("kubectl"))
        .collect();
    for (name, line) in PODS.concat().iter().zip(&asked) {
        assert!(line.contains(&format!("component={name},")), "{asked:?}");
    }
    step(&mut node, &order(AuthoritiesStep::Issue, true)).unwrap();
    assert_eq!(node.files[&format!("{SIGNING}.key")], key_of("new"));
    assert_eq!(node.files["/etc/kubernetes/pki/apiserver.crt"], "by new");
    let both = with_data(&kubeconfig(""), AUTHORITY, &(pem("new") + &pem("old"))).unwrap();
    assert_eq!(node.files["/etc/kubernetes/admin.conf"], both);
    step(&mut node, &order(AuthoritiesStep::Kubelet, true)).unwrap();
    assert_eq!(node.files[CURRENT], "by new");
    step(&mut node, &order(AuthoritiesStep::Forget, true)).unwrap();
    assert!(node.files[&manager].contains("cert-file=/etc/kubernetes/pki/ca.crt\n"));
    for (path, text) in &node.files {
        assert!(!text.contains("\nold\n"), "{path}");
        assert!(
            !path.contains("signing") && path != BOOTSTRAP && path != BEFORE,
            "{path}"
        );
    }
    // Said again, at any time later.
    node.ran.clear();
    for one in AuthoritiesStep::ALL {
        assert!(!step(&mut node, &order(one, true)).unwrap().changed);
    }
    assert!(node.ran.is_empty());
}

#[test]
fn a_worker_gets_nobodys_key() {
    let mut node = worker();
    go(&mut node, false);
    assert_eq!(node.files[&format!("{PKI}/ca.crt")], pem("new"));
    assert_eq!(node.files[CURRENT], "by new");
    assert!(!node.files.values().any(|text| text.contains("PRIVATE KEY")));
    let mut again = worker();
    let refused = step(&mut again, &order(AuthoritiesStep::Issue, false)).unwrap_err();
    assert_eq!(refused.to_string(), "this node is no control plane");
    let mut lacks = order(AuthoritiesStep::Trust, true);
    lacks.etcd = None;
    assert!(step(&mut control_plane(), &lacks).is_err());
}

#[test]
fn a_node_that_was_cut_anywhere_ends_as_one_that_was_not() {
    for (node, is_control_plane) in [(control_plane(), true), (worker(), false)] {
        let mut whole = node.clone();
        go(&mut whole, is_control_plane);
        for one in AuthoritiesStep::ALL {
            for power in 0..60 {
                let mut cut = node.clone();
                for before in AuthoritiesStep::ALL {
                    if before < one && (is_control_plane || before != AuthoritiesStep::Issue) {
                        step(&mut cut, &order(before, is_control_plane)).unwrap();
                    }
                }
                if !is_control_plane && one == AuthoritiesStep::Issue {
                    continue;
                }
                cut.power = power;
                drop(step(&mut cut, &order(one, is_control_plane)));
                cut.power = usize::MAX;
                // Its kubelet starts with the power.
                cut.restart_kubelet();
                for rest in AuthoritiesStep::ALL {
                    if rest >= one && (is_control_plane || rest != AuthoritiesStep::Issue) {
                        step(&mut cut, &order(rest, is_control_plane)).unwrap();
                    }
                }
                assert_eq!(
                    cut.files, whole.files,
                    "cut at {one:?} after {power} changes"
                );
            }
        }
    }
}

#[test]
fn what_is_not_kubeadms_is_left_as_it_is() {
    assert_eq!(
        edit::with_label("kind: Pod\nspec:\n  labels:\n", LABEL, "x"),
        None
    );
    assert_eq!(edit::with_signer("spec:\n", "/pki/ca"), None);
    let mut own = worker();
    own.put(KUBELET, kubeconfig("    token: a\n"));
    let error = step(&mut own, &order(AuthoritiesStep::Kubelet, false)).unwrap_err();
    assert!(
        error.to_string().contains("does not renew its certificate"),
        "{error}"
    );
}
