//! A node's way to other certificate authorities, a step an order: both are believed, the new one signs, the kubelet has its
//! certificate, and the old one is forgotten. Certificates are kubeadm's and the kubelet's own work.
//!
//! A static pod starts again because its manifest has a mark ([`LABEL`]): the kubelet waits for nothing then, as it does for a container that ends
//! often, and the pod that runs with it has read the new files.

mod edit;
#[cfg(test)]
mod tests;

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use firstlight_api::{
    authorities::{self, AuthoritiesOrder, AuthoritiesStep, Authority, LABEL},
    packages::Report,
};

use super::{
    Server,
    control_plane::{systemctl, while_another_answers},
    report,
};
use crate::files::NewFile;

const PKI: &str = "/etc/kubernetes/pki";
/// The manager signs by one certificate and no more; its files are below it while there are two.
const SIGNING: &str = "/etc/kubernetes/pki/signing/ca";
const MANIFESTS: &str = "/etc/kubernetes/manifests";
/// In the order in which they start again; those of a row at once.
const PODS: [&[&str]; 3] = [&["etcd"], &["kube-apiserver"], &[MANAGER, "kube-scheduler"]];
const MANAGER: &str = "kube-controller-manager";
const ADMIN: &str = "/etc/kubernetes/admin.conf";
/// Those that are there.
const KUBECONFIGS: [&str; 5] = [
    "admin.conf",
    "super-admin.conf",
    "controller-manager.conf",
    "scheduler.conf",
    "kubelet.conf",
];
/// Of a kubeconfig.
const AUTHORITY: &str = "certificate-authority-data";
const KUBELET: &str = "/etc/kubernetes/kubelet.conf";
/// With this and without a kubeconfig it asks for a certificate, as when it joined.
const BOOTSTRAP: &str = "/etc/kubernetes/bootstrap-kubelet.conf";
const CURRENT: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";
const BEFORE: &str = "/var/lib/kubelet/pki/kubelet-client-before.pem";
const WANTED_ISSUER: &str = "/run/firstlight-authority.crt";
/// What was done here last: the mark.
const DONE: &str = "/var/lib/firstlight/authorities";
/// For a pod of the control plane to run again, for the kubelet to have its certificate: slow disks, slow processors.
const PATIENCE: Duration = Duration::from_mins(10);
const AGAIN: Duration = Duration::from_secs(1);

pub fn step(server: &mut impl Server, order: &AuthoritiesOrder) -> Result<Report> {
    let done = server.read(DONE)?.unwrap_or_default();
    if AuthoritiesStep::marked(&done, &order.rotation) >= Some(order.step) {
        return report(server, Vec::new(), false);
    }
    let is_control_plane = server.is_there(&format!("{MANIFESTS}/kube-apiserver.yaml"));
    let _lock = server.lock()?;
    match order.step {
        AuthoritiesStep::Kubelet => kubelet(server, order)?,
        _ if !is_control_plane => {
            ensure!(
                order.step != AuthoritiesStep::Issue,
                "this node is no control plane"
            );
            write_authorities(server, order, false)?;
            embed(server, &order.cluster.certificates)?;
            systemctl(server, &["restart", "kubelet"])?;
        }
        _ if order.hands_over => {
            while_another_answers(server, |server| control_plane(server, order))??;
        }
        _ => control_plane(server, order)?,
    }
    let mark = order.step.mark(&order.rotation);
    server.write(&[NewFile::new(DONE, 0o644, format!("{mark}\n"))])?;
    report(server, Vec::new(), true)
}

fn control_plane(server: &mut impl Server, order: &AuthoritiesOrder) -> Result<()> {
    if order.step == AuthoritiesStep::Trust {
        keep_signing(server)?;
    }
    write_authorities(server, order, true)?;
    if order.step == AuthoritiesStep::Issue {
        let said = server.run("kubeadm", &["certs", "renew", "all"])?;
        ensure!(said.is_success, "kubeadm certs renew: {}", said.text.trim());
    }
    // kubeadm has put the first one alone into those that it renewed.
    embed(server, &order.cluster.certificates)?;
    let mark = order.step.mark(&order.rotation);
    for row in PODS {
        for name in row {
            mark_manifest(server, order.step, name, &mark)?;
        }
        for name in row {
            runs(server, order, name, &mark)?;
        }
    }
    if order.step == AuthoritiesStep::Forget {
        for end in ["crt", "key"] {
            server.remove(&format!("{SIGNING}.{end}"))?;
        }
    }
    systemctl(server, &["restart", "kubelet"])
}

fn mark_manifest(
    server: &mut impl Server,
    step: AuthoritiesStep,
    name: &str,
    mark: &str,
) -> Result<()> {
    let path = format!("{MANIFESTS}/{name}.yaml");
    let manifest = server.read(&path)?;
    let manifest = manifest.with_context(|| format!("{path} is not there"))?;
    let mut wanted = edit::with_label(&manifest, LABEL, mark)
        .with_context(|| format!("{path} is not as kubeadm writes it"))?;
    if name == MANAGER {
        let signs_by = match step {
            AuthoritiesStep::Forget => format!("{PKI}/ca"),
            _ => SIGNING.to_owned(),
        };
        wanted = edit::with_signer(&wanted, &signs_by)
            .with_context(|| format!("{path} does not say what it signs with"))?;
    }
    server.write(&[NewFile::new(path, 0o600, wanted)])
}

/// The certificate last: with it both are there.
fn keep_signing(server: &mut impl Server) -> Result<()> {
    if server.is_there(&format!("{SIGNING}.crt")) {
        return Ok(());
    }
    for end in ["key", "crt"] {
        let path = format!("{PKI}/ca.{end}");
        let content = server.read(&path)?;
        let content = content.with_context(|| format!("{path} is not there"))?;
        let mode = if end == "key" { 0o600 } else { 0o644 };
        server.write(&[NewFile::new(format!("{SIGNING}.{end}"), mode, content)])?;
    }
    Ok(())
}

fn write_authorities(
    server: &mut impl Server,
    order: &AuthoritiesOrder,
    is_control_plane: bool,
) -> Result<()> {
    let mut all = vec![("ca", &order.cluster)];
    if is_control_plane {
        let (Some(etcd), Some(front_proxy)) = (&order.etcd, &order.front_proxy) else {
            bail!("a control plane has three authorities, and the order not all of them");
        };
        all.extend([("etcd/ca", etcd), ("front-proxy-ca", front_proxy)]);
    }
    let mut files = Vec::new();
    for (name, authority) in all {
        // A worker has no key of anybody's.
        let key = authority.key.as_ref().filter(|_| is_control_plane);
        if let Some(key) = key {
            files.push(NewFile::new(
                format!("{PKI}/{name}.key"),
                0o600,
                key.reveal(),
            ));
        }
        let path = format!("{PKI}/{name}.crt");
        files.push(NewFile::new(path, 0o644, authority.certificates.as_str()));
    }
    if order.step == AuthoritiesStep::Issue
        && let Some(key) = &order.cluster.key
    {
        files.push(NewFile::new(format!("{SIGNING}.key"), 0o600, key.reveal()));
        files.push(NewFile::new(
            format!("{SIGNING}.crt"),
            0o644,
            first(&order.cluster)?,
        ));
    }
    server.write(&files)
}

fn first(authority: &Authority) -> Result<String> {
    let all = authorities::certificates(&authority.certificates).unwrap_or_default();
    all.into_iter()
        .next()
        .context("no certificate in the order")
}

/// Whoever goes by a kubeconfig of this node believes these.
fn embed(server: &mut impl Server, certificates: &str) -> Result<()> {
    for name in KUBECONFIGS {
        let path = format!("/etc/kubernetes/{name}");
        let Some(text) = server.read(&path)? else {
            continue;
        };
        let text = authorities::with_data(&text, AUTHORITY, certificates)
            .with_context(|| format!("{path} says nothing of an authority"))?;
        server.write(&[NewFile::new(path, 0o600, text)])?;
    }
    Ok(())
}

/// With what is on the disk now.
fn runs(server: &mut impl Server, order: &AuthoritiesOrder, name: &str, mark: &str) -> Result<()> {
    let (labels, node) = (
        format!("component={name},{LABEL}={mark}"),
        format!("spec.nodeName={}", order.node),
    );
    let ask = [
        "--kubeconfig",
        ADMIN,
        "--request-timeout=10s",
        "--namespace=kube-system",
        "get",
        "pods",
        "--selector",
        &labels,
        "--field-selector",
        &node,
        "--output",
        "jsonpath={.items[*].status.conditions[?(@.type==\"Ready\")].status}",
    ];
    wait(server, &format!("{name} does not run again"), |server| {
        let said = server.run("kubectl", &ask)?;
        Ok((said.is_success && said.text.trim() == "True")
            .then_some(())
            .ok_or(said.text))
    })
}

/// The certificate that it has lets it ask for another one: the cluster's manager signs that, by the new authority since all of them do.
fn kubelet(server: &mut impl Server, order: &AuthoritiesOrder) -> Result<()> {
    let issuer = NewFile::new(WANTED_ISSUER, 0o644, first(&order.cluster)?);
    server.write(&[issuer])?;
    if !is_issued(server)? {
        ask_anew(server)?;
        let lacks = "the kubelet has no certificate of the new authority";
        wait(server, lacks, |server| {
            let is_there = is_issued(server)? && server.is_there(KUBELET);
            Ok(is_there
                .then_some(())
                .ok_or_else(|| "`kubectl get csr` says whether one was asked for".to_owned()))
        })?;
    }
    for path in [BOOTSTRAP, BEFORE] {
        server.remove(path)?;
    }
    server.remove(WANTED_ISSUER)
}

fn is_issued(server: &mut impl Server) -> Result<bool> {
    if !server.is_there(CURRENT) {
        return Ok(false);
    }
    let said = server.run("openssl", &["verify", "-CAfile", WANTED_ISSUER, CURRENT])?;
    Ok(said.is_success)
}

/// Where this was cut, what is there of it already stays.
fn ask_anew(server: &mut impl Server) -> Result<()> {
    if let Some(text) = server.read(KUBELET)? {
        ensure!(
            text.contains(CURRENT),
            "{KUBELET} does not go by {CURRENT}: this kubelet does not renew its certificate by itself"
        );
        if let Some(pair) = server.read(CURRENT)? {
            server.write(&[NewFile::new(BEFORE, 0o600, pair)])?;
        }
        let text = text.replace(CURRENT, BEFORE);
        server.write(&[NewFile::new(BOOTSTRAP, 0o600, text)])?;
        // The certificate first: while there is a kubeconfig, the kubelet has not begun to ask.
        server.remove(CURRENT)?;
        server.remove(KUBELET)?;
    }
    systemctl(server, &["restart", "kubelet"])
}

fn wait<S: Server>(
    server: &mut S,
    what: &str,
    mut ask: impl FnMut(&mut S) -> Result<Result<(), String>>,
) -> Result<()> {
    let began = Instant::now();
    loop {
        let Err(why) = ask(server)? else {
            return Ok(());
        };
        let minutes = PATIENCE.as_secs() / 60;
        ensure!(
            began.elapsed() < PATIENCE,
            "{what} after {minutes} minutes: {}",
            why.lines().next_back().unwrap_or_default()
        );
        thread::sleep(AGAIN);
    }
}
