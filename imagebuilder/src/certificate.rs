//! `firstlight certificate`: a certificate of one's own authority for the page of a box.

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use firstlight_api::people::CertificateView;
use time::OffsetDateTime;

use crate::UsageError;
use crate::box_client::BoxClient;
use crate::ssh::BoxArgs;

const PATH: &str = "/api/v1/certificate";
const LARGEST: u64 = 64 * 1024;

const NAMES: &str = "Who asks for one of its names is shown it; who asks for the box's address is shown the site's own, as before. The names have to lead to the box in your DNS.

  firstlight certificate set page.pem chain.pem page.key     PEM, the page's own certificate first
  firstlight certificate remove";

#[derive(Debug, Args)]
#[command(after_help = NAMES)]
pub struct CertificateArgs {
    #[command(subcommand)]
    command: CertificateCommand,
    #[command(flatten)]
    the_box: BoxArgs,
}

#[derive(Debug, Subcommand)]
enum CertificateCommand {
    /// For which names there is one, and until when
    Show,
    /// Put one on the box, in place of the last one; nothing restarts
    Set {
        /// Certificates and the key, in one file or several
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Go back to the site's own alone
    Remove,
}

pub fn run(args: &CertificateArgs) -> Result<String> {
    let mut client = BoxClient::new(&args.the_box)?;
    match &args.command {
        CertificateCommand::Show => {
            let answer = client.ask("GET", PATH, &[], &[])?;
            if answer.status == 404 {
                return Ok(answer.sentence() + "\n");
            }
            answer.check()?;
            describe(&answer.body)
        }
        CertificateCommand::Set { files } => {
            let answer = client.ask("PUT", PATH, &[], &read(files)?)?;
            answer.check()?;
            describe(&answer.body)
        }
        CertificateCommand::Remove => {
            client.ask("DELETE", PATH, &[], &[])?.check()?;
            Ok("the page has the site's own certificate\n".to_owned())
        }
    }
}

fn read(files: &[PathBuf]) -> Result<Vec<u8>> {
    let mut pem = Vec::new();
    for path in files {
        let file =
            File::open(path).map_err(|error| UsageError(format!("{}: {error}", path.display())))?;
        file.take(LARGEST).read_to_end(&mut pem)?;
        pem.push(b'\n');
    }
    Ok(pem)
}

fn describe(body: &[u8]) -> Result<String> {
    let view: CertificateView = serde_json::from_slice(body)
        .context("the box's answer is none; is it of another version?")?;
    let end = OffsetDateTime::from_unix_timestamp(view.end)?;
    Ok(format!(
        "for {}, until {}\n",
        view.names.join(", "),
        end.date()
    ))
}
