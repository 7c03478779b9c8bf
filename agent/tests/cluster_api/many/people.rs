//! People at the box's page: curl as a browser's and a program's, and the real kubectl through the page's port with a token.

use std::{fs, process::Command};

use firstlight_api::{
    bmh::APPROVE_ANNOTATION,
    people::{AuditLine, MadeToken, Role},
    receipt::{self, Envelope},
};
use firstlight_signature::receipt::{fingerprint, open};
use serde_json::{Value, json};

use super::{ramdisk::IMAGE_BYTES, the_box::TheBox};
use crate::programs::program;

const ON_BOX: &str = "http://127.0.0.1";
const PAGE: &str = "https://172.22.0.1";
const PASSWORD: &str = "four plain words here";

struct Desk<'a> {
    the_box: &'a TheBox,
    tokens: Vec<(Role, String)>,
}

/// Whoever is on the box lets people and programs in, and they do what their roles may, with one of the servers that are there.
pub fn log_in_and_act(the_box: &TheBox, host: &str) {
    let mut desk = Desk {
        the_box,
        tokens: Vec::new(),
    };
    assert_eq!(
        desk.status(&["http://172.22.0.1/api/v1/status"]),
        "200",
        "nobody's yet"
    );
    let ada = json!({"name": "ada", "role": "admin", "password": PASSWORD});
    desk.on_box("/api/v1/operators", &ada);
    for role in Role::ALL {
        let new = json!({"name": role, "role": role, "days": 1});
        let made: MadeToken = serde_json::from_str(&desk.on_box("/api/v1/tokens", &new)).unwrap();
        desk.tokens.push((role, made.token));
    }
    desk.the_cable_takes_no_secret();
    desk.verbs_are_by_role(host);
    desk.kubectl_is_by_role(host);
    desk.a_browser_logs_in(host);
    desk.all_of_it_is_told(host);
    desk.a_receipt_has_it(host);
}

impl Desk<'_> {
    fn curl(&self, arguments: &[&str]) -> String {
        let output = Command::new("curl")
            .args(["-sS", "--cacert"])
            .arg(self.the_box.paths.site_ca())
            .args(arguments)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "curl {arguments:?}: {said}\n{}",
            self.the_box.agent.tail()
        );
        String::from_utf8(output.stdout).unwrap()
    }

    fn status(&self, arguments: &[&str]) -> String {
        let told = ["-o", "/dev/null", "-w", "%{http_code}"];
        self.curl(&[&told[..], arguments].concat())
    }

    fn on_box(&self, path: &str, body: &Value) -> String {
        let (body, url) = (body.to_string(), format!("{ON_BOX}{path}"));
        self.curl(&[
            "-f",
            "-H",
            "content-type: application/json",
            "-d",
            &body,
            &url,
        ])
    }

    fn bearer(&self, role: Role) -> String {
        let (_, token) = self.tokens.iter().find(|(of, _)| *of == role).unwrap();
        format!("authorization: Bearer {token}")
    }

    fn the_cable_takes_no_secret(&self) {
        let viewer = self.bearer(Role::Viewer);
        let told = self.curl(&[
            "-o",
            "/dev/null",
            "-w",
            "%{http_code} %{redirect_url}",
            "http://172.22.0.1/",
        ]);
        assert_eq!(told, format!("307 {PAGE}/"));
        for (arguments, status) in [
            (&["http://172.22.0.1/api/v1/status"][..], "401"),
            (&["-H", &viewer, "http://172.22.0.1/api/v1/status"], "403"),
            (
                &[
                    "-d",
                    "name=ada&password=x",
                    "http://172.22.0.1/api/v1/login",
                ],
                "403",
            ),
            (&["http://172.22.0.1/boot/ca.pem"], "200"),
            (&[&format!("{PAGE}/api/v1/status")], "401"),
            (&["-H", &viewer, &format!("{PAGE}/api/v1/status")], "200"),
            (&["-H", &viewer, &format!("{PAGE}/metrics")], "200"),
        ] {
            assert_eq!(self.status(arguments), status, "{arguments:?}");
        }
    }

    fn verbs_are_by_role(&self, host: &str) {
        let ask = |role, verb: &str| {
            let (bearer, url) = (
                self.bearer(role),
                format!("{PAGE}/api/v1/hosts/{host}/{verb}"),
            );
            self.status(&["-X", "POST", "-H", &bearer, &url])
        };
        assert_eq!(ask(Role::Viewer, "power-cycle"), "403");
        assert_eq!(ask(Role::Operator, "retry"), "409", "nothing has failed");
        assert_eq!(ask(Role::Operator, "power-cycle"), "204");
    }

    fn kubectl(&self, role: Role, arguments: &[&str]) -> (bool, String) {
        let (_, token) = self.tokens.iter().find(|(of, _)| *of == role).unwrap();
        let output = Command::new(program("kube"))
            .arg("kubectl")
            .args([
                &format!("--server={PAGE}/kubernetes"),
                &format!("--token={token}"),
            ])
            .arg(format!(
                "--certificate-authority={}",
                self.the_box.paths.site_ca().display()
            ))
            .arg(format!(
                "--cache-dir={}",
                self.the_box.paths.root().join("cache").display()
            ))
            .arg("--namespace=default")
            .args(arguments)
            .env_remove("KUBECONFIG")
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    }

    fn kubectl_is_by_role(&self, host: &str) {
        let mark = ["annotate", "--overwrite", "bmh", host, "team=a"];
        for (role, arguments, refused) in [
            (Role::Viewer, &["get", "bmh", "-A"][..], None),
            (Role::Viewer, &["get", "secrets", "-A"], Some("forbidden")),
            (Role::Viewer, &mark, Some("forbidden")),
            (Role::Operator, &mark, None),
            (Role::Operator, &["get", "secrets"], Some("forbidden")),
            (
                Role::Operator,
                &["get", "bmh", "--as=firstlight-agent"],
                None,
            ),
            (Role::Admin, &["get", "secrets", "-A"], None),
        ] {
            let (is_well, said) = self.kubectl(role, arguments);
            assert_eq!(is_well, refused.is_none(), "{role} {arguments:?}: {said}");
            assert!(said.contains(refused.unwrap_or_default()), "{said}");
        }
        // Whoever says that he is somebody else is himself all the same.
        let (_, said) = self.kubectl(
            Role::Viewer,
            &[
                "auth",
                "whoami",
                "--as=kubernetes-admin",
                "--as-group=system:masters",
            ],
        );
        assert!(
            said.contains("firstlight:token:viewer") && !said.contains("masters"),
            "{said}"
        );
    }

    fn a_browser_logs_in(&self, host: &str) {
        let jar = self.the_box.paths.root().join("cookies");
        let jar = jar.to_str().unwrap();
        let log_in = |password: &str| {
            let form = format!("name=ada&password={password}");
            let origin = format!("origin: {PAGE}");
            self.status(&[
                "-c",
                jar,
                "-H",
                &origin,
                "-d",
                &form,
                &format!("{PAGE}/api/v1/login"),
            ])
        };
        assert_eq!(log_in("wrong"), "401");
        assert_eq!(log_in("four+plain+words+here"), "303");
        let page = self.curl(&["-b", jar, &format!("{PAGE}/hosts/{host}")]);
        assert!(
            page.contains("Log out") && page.contains("class=\"verbs\""),
            "{page}"
        );
        let people = self.curl(&["-b", jar, &format!("{PAGE}/people")]);
        assert!(
            people.contains("<b>ada</b>") && !people.contains("argon2"),
            "{people}"
        );
    }

    /// What the box can prove, with the word of a person on a server, which came by the real kubectl.
    fn a_receipt_has_it(&self, host: &str) {
        let said = format!("{APPROVE_ANNOTATION}=7Q2M-XK4P-09AB-CDEF");
        let (is_well, told) = self.kubectl(Role::Operator, &["annotate", "bmh", host, &said]);
        assert!(is_well, "{told}");
        let url = format!("{PAGE}{}", receipt::PATH);
        assert_eq!(
            self.status(&["-H", &self.bearer(Role::Operator), &url]),
            "403"
        );
        let made = self.curl(&["-f", "-H", &self.bearer(Role::Admin), &url]);
        let envelope = Envelope::parse(made.as_bytes()).unwrap();
        let ca = fs::read_to_string(self.the_box.paths.site_ca()).unwrap();
        let receipt = open(&envelope, fingerprint(&ca).unwrap()).unwrap();
        let approval = receipt.approvals.last().unwrap();
        assert_eq!(
            (approval.who.as_str(), approval.what.as_str()),
            ("token operator", "host approve 7Q2M-XK4P-09AB-CDEF")
        );
        assert!(approval.target.ends_with(host), "{}", approval.target);
        let servers = receipt.servers.iter();
        let written = servers.filter_map(|server| server.installed.as_ref());
        let written: Vec<_> = written.collect();
        assert!(written.len() >= 3, "{:#?}", receipt.servers);
        for held in written {
            assert!(
                held.complete && !held.at.is_empty() && held.disks.len() == 1,
                "{held:#?}"
            );
            assert_eq!(held.checksum.len(), 64, "{held:#?}");
            assert_eq!(
                held.wrote.as_ref().map(|wrote| wrote.image_bytes),
                Some(IMAGE_BYTES)
            );
        }
    }

    fn all_of_it_is_told(&self, host: &str) {
        let bearer = self.bearer(Role::Admin);
        let audit = self.curl(&["-f", "-H", &bearer, &format!("{PAGE}/api/v1/audit")]);
        let audit: Vec<AuditLine> = serde_json::from_str(&audit).unwrap();
        for (who, what, target, outcome) in [
            ("box", "add operator", "ada", "done"),
            ("token operator", "host power-cycle", host, "done"),
            ("ada", "log in", "ada", "done"),
            ("token admin", "kubernetes GET", "/api/v1/secrets", "done"),
        ] {
            let is_there = audit.iter().any(|line| {
                (line.who.as_str(), line.what.as_str()) == (who, what)
                    && line.target == target
                    && line.outcome == outcome
            });
            assert!(is_there, "{who}: {what} {target}: {audit:#?}");
        }
        let text = format!("{audit:?}");
        for secret in [PASSWORD, "firstlight_", "wrong+"] {
            assert!(!text.contains(secret), "{secret}");
        }
    }
}
