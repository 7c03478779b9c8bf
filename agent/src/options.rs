//! The command line.

use std::path::PathBuf;

use clap::Parser;

/// The on-box agent of Firstlight: brings the box up, serves network boot, installs servers, shows the status page.
///
/// On the box it runs without options. On a developer's machine, to look at the page without any privilege:
///   firstlight-agent --root /tmp/box --loopback 8080
#[derive(Clone, Debug, Parser)]
#[command(version, verbatim_doc_comment)]
pub struct Options {
    /// Directory below which all files are read and written (site.yaml is DIR/firstlight/site/site.yaml).
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,

    /// This machine has a life of its own (`firstlight install`): the provisioning NIC is the one that site.yaml names, and
    /// must have no address of somebody else's.
    #[arg(long, conflicts_with = "loopback")]
    pub installed: bool,

    /// Serve the page on 127.0.0.1:PORT only; touch no network interface, no console, no Kubernetes.
    #[arg(long, value_name = "PORT")]
    pub loopback: Option<u16>,
}

/// What this machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoxForm {
    /// A box that runs from its stick, and is nothing else.
    Box,
    /// A box on somebody's own machine (`firstlight install`): what is not the box's stays as it is.
    Installed,
    /// A developer's machine: the page, and nothing of the system it runs on.
    Desk,
}

impl Options {
    pub fn form(&self) -> BoxForm {
        match (self.loopback, self.installed) {
            (Some(_), _) => BoxForm::Desk,
            (None, true) => BoxForm::Installed,
            (None, false) => BoxForm::Box,
        }
    }
}
