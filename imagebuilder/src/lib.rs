//! `firstlight`: makes the stick's image, writes it, looks into it, and runs it in virtual machines.
//!
//! No async runtime: a build is a list of steps. To add a subcommand: a variant in [`cli`], a module beside it.

pub mod agent;
pub mod backup;
pub mod boot;
mod box_client;
pub mod build;
pub mod certificate;
pub mod check;
pub mod cli;
pub mod disk;
pub mod flash;
pub mod hosts;
pub mod initramfs;
pub mod inspect;
pub mod install;
pub mod kubeconfig;
mod logs;
pub mod manual;
pub mod page;
mod people;
pub mod push;
pub mod receipt;
pub mod registry;
mod seal;
mod secret;
pub mod signing;
mod site;
pub mod ssh;
pub mod status;
pub mod stick;
mod support;
pub mod unpack;
pub mod update;
pub mod upgrade;
mod wipe;

/// What a person asked for cannot be done as asked: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);
