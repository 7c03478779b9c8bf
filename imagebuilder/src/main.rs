//! `firstlight`: build, flash, boot and inspect the stick.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use imagebuilder::UsageError;
use imagebuilder::cli::Cli;

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(text) => {
            // A reader that has gone (`| head`) is no failure of ours.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "firstlight: {error:#}");
            ExitCode::from(if error.is::<UsageError>() { 2 } else { 1 })
        }
    }
}
