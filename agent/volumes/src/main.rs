//! `firstlight-volumes`: what the addon `storage` runs on nodes. local-path-provisioner starts it in its helper pod to make or remove the
//! folder of a volume (`order`), and a pod on each node says to the scheduler how much its disk still takes (`capacity`).

mod capacity;
mod disk;
mod event;
mod helper;
mod order;
mod quota;

use std::process::ExitCode;

use anyhow::Result;

const USAGE: &str = "usage: firstlight-volumes capacity | -p FOLDER -s BYTES -m MODE -a create|delete
The second is how local-path-provisioner calls its helper. SHARE is the percentage of the file system that volumes may take.";

fn main() -> ExitCode {
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
    drop(rustls::crypto::ring::default_provider().install_default());
    let words: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    if words == ["capacity"] {
        return runtime.block_on(capacity::run());
    }
    runtime.block_on(helper::run(&words))
}
