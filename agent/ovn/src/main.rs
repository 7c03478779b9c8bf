//! `firstlight-ovn`: logical networks of a cluster by OVN, for further interfaces of pods. The addon `ovn` starts it beside OVN's databases
//! (`controller`) and on each node (`node`), and containerd calls it there as a plugin (docs/ovn.md).

mod acl;
mod addresses;
mod attach;
mod attachment;
mod controller;
mod devices;
mod kinds;
mod node;
mod northbound;
mod plugin;
mod program;
#[cfg(test)]
mod testing;

use std::process::ExitCode;

use anyhow::{Result, bail};
use kube::Client;

const USAGE: &str = "usage: firstlight-ovn databases DATABASE=SCHEMA... | controller | node | ready
A plugin of containers' networks if CNI_COMMAND is set.";

fn main() -> ExitCode {
    if std::env::var_os("CNI_COMMAND").is_some() {
        return plugin::main();
    }
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(false)
        .init();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match words[..] {
            ["databases", ref databases @ ..] if !databases.is_empty() => {
                node::make_databases(databases).await
            }
            ["controller"] => controller::run(client().await?).await,
            ["node"] => node::run(client().await?).await,
            ["ready"] => node::is_ready().await,
            _ => bail!(USAGE),
        }
    })
}

async fn client() -> Result<Client> {
    drop(rustls::crypto::ring::default_provider().install_default());
    Ok(Client::try_default().await?)
}
