//! Parses the command line, sets up logging, runs the agent, maps the result to an exit code.

use std::process::ExitCode;

use clap::Parser;
use firstlight_agent::{journal::Stderr, options::Options};
use tracing_subscriber::EnvFilter;

/// kube reports every refused connection as an error, also while the API server is not there yet.
const LOG: &str = "info,kube_client=off";

fn main() -> ExitCode {
    let options = Options::parse();
    let filter = EnvFilter::try_from_env("FIRSTLIGHT_LOG").unwrap_or_else(|_| EnvFilter::new(LOG));
    // The journal adds the time; standard output is the console.
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Stderr::open())
        .with_ansi(false)
        .without_time()
        .init();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "starting the runtime");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(firstlight_agent::run(options)) {
        Ok(()) => {
            // A thread may be inside a read of the stick; nothing of it is needed any more.
            runtime.shutdown_background();
            ExitCode::SUCCESS
        }
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "the agent failed");
            runtime.shutdown_background();
            ExitCode::FAILURE
        }
    }
}
