//! The command line of `firstlight`: what a person can ask for. One variant a subcommand, one function that runs it.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Args, Parser, Subcommand};

use crate::build::cache::Reuse;
use crate::build::progress::Progress;
use crate::build::settings::{Settings, find_cache, find_source};
use crate::{
    UsageError, agent, backup, boot, build, certificate, check, flash, hosts, inspect, install,
    kubeconfig, logs, manual, people, push, receipt, seal, signing, site, status, support, unpack,
    update, upgrade, wipe,
};

const EXAMPLES: &str = "Examples:
  firstlight build -o firstlight.img          build the stick's image
  firstlight site new                         settings of a new site, after a few questions
  firstlight check site.yaml                  find mistakes in the settings of a site
  firstlight build --site site.yaml -o a.img  build with these settings on the stick
  firstlight flash                            list the USB sticks that are plugged in
  firstlight flash --site site.yaml --ssh-key ~/.ssh/id_ed25519.pub firstlight.img /dev/sdX
                                              write it to one, with these settings, and read it back
  firstlight install --site site.yaml a.img   make this machine a box, without a stick
  firstlight inspect firstlight.img           list what is in an image or on a stick
  firstlight unpack firstlight.img folder     unpack the files of its system
  firstlight kubeconfig > lab.conf            access to the site's cluster, by tokens from the box over SSH
  firstlight push web.tar htop.deb            put an image and a package into the box's store
  firstlight status                           how the site is: what needs you, and what is on its way
  firstlight wait --for ready --nodes 2       end when two servers have become a cluster
  firstlight hosts list                       what the box knows of each server, and who waits for you
  firstlight operators add ada --role admin   let somebody log in at the page
  firstlight update new.img                   give a box that runs another version of its system
  firstlight backup -o lab.backup             what a box remembers, for the day its stick dies
  firstlight receipt > lab.receipt            what the box can prove of the site, signed
  firstlight seal > lab.recovery-key          what opens the encrypted state of a box when its TPM does not
  firstlight hosts retry n3                   begin the step that failed on a server again

Exit codes: 0 done, 1 failed, 2 wrong usage or nothing that could work was asked for.";

#[derive(Debug, Parser)]
#[command(name = "firstlight", version, about = "Makes the USB stick that raises a bare-metal Kubernetes site", after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build the image of the stick; steps that did not change come from a cache
    Build(BuildArgs),
    /// Show partitions, layers, versions and payload of an image or a stick
    Inspect {
        /// Image file or device
        image: PathBuf,
        #[command(flatten)]
        signed_by: signing::SignedBy,
    },
    /// Unpack the files of an image's or a stick's system into a folder, to look at them
    Unpack(unpack::UnpackArgs),
    /// Write an image to a USB stick and verify it; everything on the stick is lost
    Flash(FlashArgs),
    /// Turn this machine, a Debian 13 that is there already, into a box: the stick's image without the stick
    Install(install::InstallArgs),
    /// Run an image in virtual machines: the box, and servers beside it
    Boot(boot::BootArgs),
    /// Bring an agent that was just compiled into a box that runs, until it starts again
    Agent(agent::AgentArgs),
    /// Print the kubeconfig of a site's cluster, fetched from the box over SSH
    Kubeconfig(kubeconfig::KubeconfigArgs),
    /// Put packages, charts, container archives and disk images into the box's store
    Push(push::PushArgs),
    /// How the site is: what needs somebody, and what is on its way
    Status(status::StatusArgs),
    /// What the site's logs say, by words, and what comes
    Logs(logs::LogsArgs),
    /// Wait until the box is up, or the whole site is ready
    Wait(status::WaitArgs),
    /// The servers that the box knows: what they do, and what you ask of one (retry, power, spare, give back, forget)
    Hosts(hosts::HostsArgs),
    /// Bring a cluster to another version of Kubernetes, node by node and in place
    Upgrade(upgrade::UpgradeArgs),
    /// Give a cluster other certificate authorities, without an interruption
    Rotate(upgrade::rotate::RotateArgs),
    /// Who may log in at the page, and as what
    Operators(people::OperatorsArgs),
    /// Tokens, with which programs call the page
    Tokens(people::TokensArgs),
    /// A certificate of your own authority for the page
    Certificate(certificate::CertificateArgs),
    /// What was done at the box, by whom and from where
    Audit(people::AuditArgs),
    /// What a box can prove: its stick, what it wrote to which server and on whose word; or check such a receipt without the box
    Receipt(receipt::ReceiptArgs),
    /// Collect what somebody who helps needs to see of a box, without its secrets
    Support(support::SupportArgs),
    /// Give a box that runs another version of its own system, with a way back
    Update(update::UpdateArgs),
    /// Bring what a box remembers into a file, encrypted
    Backup(backup::BackupArgs),
    /// Let a new box go on where the box of a backup was
    Restore(backup::RestoreArgs),
    /// Get a recovery key for what the box remembers, and have its TPM open that after a start of what runs now only
    Seal(seal::SealArgs),
    /// Clear a box's stick of its site, and switch the machine off
    WipeSite(wipe::WipeArgs),
    /// Print what a shell needs to complete commands and options
    Completion(manual::CompletionArgs),
    /// Write the manual pages
    Man(manual::ManArgs),
    /// Settings of a new site
    Site(site::SiteArgs),
    /// Check a site.yaml and report every mistake with its line
    Check {
        /// The file to check
        file: PathBuf,
        /// Say which of its rules each server of a box would take, and why not the ones before; `curl -o status.json
        /// http://BOX/api/v1/status` saves what the box knows
        #[arg(long, value_name = "STATUS.JSON")]
        hosts: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
struct BuildArgs {
    /// Settings to put on the stick; they can be edited there later
    #[arg(long, value_name = "FILE")]
    site: Option<PathBuf>,
    /// Debian mirror instead of mmdebstrap's default: one near you, or a snapshot for packages of a certain day
    #[arg(long, value_name = "URL")]
    mirror: Option<String>,
    /// Also bring this minor version of Kubernetes, for `firstlight upgrade`; may be given several times
    #[arg(long, value_name = "1.N")]
    kubernetes: Vec<String>,
    /// Make no image, but this folder with the versions of Kubernetes alone, for `firstlight push FOLDER` to a box that runs
    #[arg(long, value_name = "FOLDER", requires = "kubernetes", conflicts_with_all = ["site", "output"])]
    for_push: Option<PathBuf>,
    /// Sign the system with this SSH key (Ed25519 or ECDSA), which may also be KEY.pub of one that an agent or a security key has. The box
    /// then takes updates that are signed by it only
    #[arg(long, value_name = "KEY", conflicts_with = "for_push")]
    sign: Option<PathBuf>,
    /// Public SSH keys, one a line, that may sign this box's updates, too: for a key that is to take over, or another who builds
    #[arg(long, value_name = "KEYS", conflicts_with = "for_push")]
    trust: Option<PathBuf>,
    /// Ask the mirror for newer Debian packages instead of using the cached trees
    #[arg(long)]
    refresh: bool,
    /// File to write; it appears when it is complete
    #[arg(short, long, value_name = "FILE", default_value = "firstlight.img")]
    output: PathBuf,
}

#[derive(Debug, Args)]
struct FlashArgs {
    /// Image made by `firstlight build`, as it is or packed by zstd; without one the sticks that are plugged in are listed
    image: Option<PathBuf>,
    /// The stick, for example /dev/sdX
    device: Option<PathBuf>,
    /// Put these settings on the stick, instead of those in the image
    #[arg(long, value_name = "SITE.YAML")]
    site: Option<PathBuf>,
    /// Add this public SSH key to `sshKeys` there; may be given several times
    #[arg(long, value_name = "KEY.PUB")]
    ssh_key: Vec<PathBuf>,
    /// Write even to a device that is not removable
    #[arg(long)]
    force: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    signed_by: signing::SignedBy,
}

impl Cli {
    /// Runs the subcommand; the text it returns goes to standard output.
    pub fn run(self) -> Result<String> {
        match self.command {
            Command::Build(args) => args.build(),
            Command::Inspect { image, signed_by } => {
                inspect::inspect(&image, signed_by.keys()?.as_ref())
            }
            Command::Unpack(args) => unpack::unpack(&args).map(|()| String::new()),
            Command::Flash(args) => match args.plan()? {
                Some(plan) => flash::flash(&plan),
                None => flash::sticks(),
            },
            Command::Install(args) => install::install(&args),
            Command::Boot(args) => boot::run(&args).map(|()| String::new()),
            Command::Agent(args) => agent::run(&args),
            Command::Kubeconfig(args) => kubeconfig::fetch(&args),
            Command::Push(args) => push::push(&args),
            Command::Status(args) => status::show(&args),
            Command::Logs(args) => logs::run(&args),
            Command::Wait(args) => status::wait(&args),
            Command::Hosts(args) => hosts::run(&args),
            Command::Operators(args) => people::operators(&args),
            Command::Tokens(args) => people::tokens(&args),
            Command::Site(args) => site::run(&args),
            Command::Certificate(args) => certificate::run(&args),
            Command::Receipt(args) => receipt::run(&args),
            Command::Audit(args) => people::audit(&args),
            Command::Support(args) => support::run(&args),
            Command::Update(args) => update::run(&args),
            Command::Backup(args) => backup::run(&args),
            Command::Restore(args) => backup::restore(&args),
            Command::Upgrade(args) => upgrade::run(&args),
            Command::Seal(args) => seal::run(&args),
            Command::WipeSite(args) => wipe::run(&args),
            Command::Rotate(args) => upgrade::rotate::run(&args),
            Command::Completion(args) => manual::complete(&args),
            Command::Man(args) => manual::write_pages(&args),
            Command::Check { file, hosts } => check::run(&file, hosts.as_deref()),
        }
    }
}

impl BuildArgs {
    fn build(mut self) -> Result<String> {
        let progress = Progress::detect();
        let Some(folder) = self.for_push.take() else {
            return build::build(&self.settings()?, progress);
        };
        let folder = std::path::absolute(folder).context("reading the current folder")?;
        self.output.clone_from(&folder);
        build::build_for_push(&self.settings()?, &folder, progress)
    }

    fn settings(self) -> Result<Settings> {
        let is_url = |mirror: &str| mirror.starts_with("http://") || mirror.starts_with("https://");
        if let Some(mirror) = self.mirror.as_deref().filter(|mirror| !is_url(mirror)) {
            return Err(UsageError(format!(
                "--mirror {mirror}: not a URL; write it like http://mirror.example/debian"
            ))
            .into());
        }
        Ok(Settings {
            source: find_source()?,
            cache: find_cache()?,
            output: std::path::absolute(&self.output).context("reading the current folder")?,
            mirror: self
                .mirror
                .map(|mirror| mirror.trim_end_matches('/').to_owned()),
            site: self.site,
            kubernetes: self.kubernetes,
            sign: self.sign,
            trust: self.trust,
            debian: if self.refresh {
                Reuse::Never
            } else {
                Reuse::Cached
            },
        })
    }
}

impl FlashArgs {
    /// `None`: no image was named.
    fn plan(self) -> Result<Option<flash::FlashPlan>> {
        let Some(image) = self.image else {
            return Ok(None);
        };
        Ok(Some(flash::FlashPlan {
            signed_by: self.signed_by.keys()?,
            image,
            site: self.site,
            ssh_keys: self.ssh_key,
            device: self.device,
            target: if self.force {
                flash::Target::Any
            } else {
                flash::Target::RemovableOnly
            },
            confirm: if self.yes {
                flash::Confirm::Given
            } else {
                flash::Confirm::Ask
            },
        }))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
