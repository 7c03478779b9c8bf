//! `firstlight wipe-site`: a stick that nobody learns anything of its site from.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::UsageError;
use crate::box_client::BoxClient;
use crate::ssh::BoxArgs;

const PROGRAM: &str = "sudo /usr/lib/firstlight/firstlight-update wipe";

const WAY: &str = "For a stick that is given away, or a site that ends. The box restarts, writes over what it remembers (keys, certificates, its Kubernetes, leases, people, uploads) and over site.yaml, and
switches its machine off. An encrypted state loses its keys at once and takes seconds; any other takes as long as the stick takes to be written once. Then the stick is as from its image.
Clusters and servers go on and have no box any more: give servers back first, if their disks are to be cleaned. There is no way back but a backup:

  firstlight backup -o lab.backup && firstlight wipe-site lab";

#[derive(Debug, Args)]
#[command(after_help = WAY)]
pub struct WipeArgs {
    /// Name of the site, as its page shows it: so that no other one is wiped
    site: String,
    #[command(flatten)]
    the_box: BoxArgs,
}

pub fn run(args: &WipeArgs) -> Result<String> {
    let status = BoxClient::new(&args.the_box)?.status()?;
    if status.site != args.site {
        return Err(UsageError(format!(
            "this is the box of the site `{}`, not of `{}`: nothing was done",
            status.site, args.site
        ))
        .into());
    }
    let done = args
        .the_box
        .way()
        .arg(PROGRAM)
        .stdin(Stdio::null())
        .status()
        .context("running ssh; install openssh-client")?;
    ensure!(done.success(), "the box did not do it, and says why above");
    Ok(format!(
        "the box of `{}` restarts, writes over what it remembers, and switches itself off when that is done; its console says how far it is\n",
        args.site
    ))
}
