//! `firstlight receipt`: what a box can prove of its site, fetched from it, and checked later without it.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use firstlight_api::digest::Sha256Digest;
use firstlight_api::receipt::{
    Envelope, Installed, LARGEST, PATH, Receipt, ServerReceipt, StickReceipt,
};
use firstlight_signature::receipt::{fingerprint, open};
use firstlight_signature::{Unbelieved, signer};

use crate::box_client::BoxClient;
use crate::build::group;
use crate::signing::SignedBy;
use crate::ssh::BoxArgs;
use crate::{UsageError, inspect};

const CA: &str = "/boot/ca.pem";

const RECEIPT: &str = "A receipt tells what the box's stick is, which image went to which server's disk and on whose word, what each TPM vouches for, and what people have put on
the site since. The site's CA signs it. Whoever has seen the fingerprint of that CA can check it, years later and without the box:

  firstlight receipt > lab.receipt
  firstlight receipt --verify lab.receipt --ca ca.pem
  firstlight receipt --verify lab.receipt --ca ca.pem --signed-by release.pub --image firstlight.img

--image compares the stick with an image of your own: `firstlight build` of the same sources and packages makes the same bytes again.";

#[derive(Debug, Args)]
#[command(after_help = RECEIPT)]
pub struct ReceiptArgs {
    /// Check a receipt that was saved, and tell what is in it; no box is asked
    #[arg(long, value_name = "FILE", requires = "ca")]
    verify: Option<PathBuf>,
    /// The site's CA: its certificate (`/boot/ca.pem` of the box), or the SHA-256 of that, as a receipt is told with
    #[arg(long, value_name = "FILE|SHA256", requires = "verify")]
    ca: Option<String>,
    #[command(flatten)]
    signed_by: SignedBy,
    /// Refuse a receipt of a box whose stick has another system than this image
    #[arg(long, value_name = "IMAGE", requires = "verify")]
    image: Option<PathBuf>,
    /// With --verify: for people, or all that is in it
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Output,
    #[command(flatten)]
    the_box: BoxArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

pub fn run(args: &ReceiptArgs) -> Result<String> {
    match &args.verify {
        Some(file) => verify(args, file),
        None => fetch(args),
    }
}

/// As the box gave it, once it holds.
fn fetch(args: &ReceiptArgs) -> Result<String> {
    if args.signed_by.keys()?.is_some() {
        return Err(UsageError("--signed-by goes with --verify FILE".to_owned()).into());
    }
    let mut client = BoxClient::new(&args.the_box)?;
    let ca = client.ask("GET", CA, &[], &[])?;
    ca.check()?;
    let ca = fingerprint(&String::from_utf8_lossy(&ca.body))?;
    let answer = client.ask("GET", PATH, &[], &[])?;
    answer.check()?;
    let envelope = Envelope::parse(&answer.body)?;
    open(&envelope, ca)?;
    eprintln!(
        "signed by the site's CA, whose certificate has the SHA-256 {ca}; `--verify` asks for that"
    );
    Ok(format!("{}\n", serde_json::to_string(&envelope)?))
}

fn verify(args: &ReceiptArgs, file: &Path) -> Result<String> {
    let name = file.display();
    let envelope = Envelope::parse(&read(file)?).with_context(|| name.to_string())?;
    let ca = args.ca.as_deref().unwrap_or_default();
    let receipt = open(&envelope, trusted(ca)?).with_context(|| name.to_string())?;
    let by = signed(args, &receipt).with_context(|| name.to_string())?;
    for server in &receipt.servers {
        let quote = server.quote.as_ref();
        if quote.is_some_and(|quote| !firstlight_measured::is_whole(quote)) {
            bail!(
                "{name}: the quote of {} is none: its TPM has not signed these registers",
                called(server)
            );
        }
    }
    let text = match args.output {
        Output::Json => format!("{}\n", serde_json::to_string_pretty(&receipt)?),
        Output::Text => describe(&receipt, &by)?,
    };
    // Names are other people's words, and a terminal obeys some letters.
    Ok(text.replace(|c: char| c.is_control() && c != '\n', "\u{fffd}"))
}

fn read(file: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let opened =
        File::open(file).map_err(|error| UsageError(format!("{}: {error}", file.display())))?;
    opened
        .take(LARGEST as u64 + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("reading {}", file.display()))?;
    Ok(bytes)
}

/// A fingerprint, also as openssl prints it, or the file of a certificate.
fn trusted(ca: &str) -> Result<Sha256Digest> {
    if let Some(digest) = Sha256Digest::parse(&ca.replace(':', "")) {
        return Ok(digest);
    }
    let pem = read(Path::new(ca))?;
    let pem = String::from_utf8_lossy(&pem);
    Ok(fingerprint(&pem).map_err(|_| UsageError(format!("{ca} is no certificate (PEM)")))?)
}

/// Whose system the stick has; an error where that is not who was named.
fn signed(args: &ReceiptArgs, receipt: &Receipt) -> Result<String> {
    let (keys, stick) = (args.signed_by.keys()?, receipt.stick.as_ref());
    let none = "the box does not run from a stick, so that nothing vouches for its programs";
    let system = stick.map(|stick| &stick.system);
    if let Some(image) = &args.image {
        let system = system.context(none)?;
        let own = inspect::systems(image)?;
        let same = own.iter().any(|own| own.statement() == system.statement());
        if !same {
            bail!(
                "the stick has another system than {}: compare the digests of its layers (-o json)",
                image.display()
            );
        }
    }
    match (keys, system) {
        (Some(keys), system) => Ok(format!("signed by {}", keys.check(system.context(none)?)?)),
        (None, None) => Ok(none.to_owned()),
        (None, Some(system)) => match signer(system) {
            Ok(who) => Ok(format!("signed by {who}")),
            Err(why @ Unbelieved::Unsigned) => Ok(why.to_string()),
            Err(why) => Err(why.into()),
        },
    }
}

fn describe(receipt: &Receipt, signed: &str) -> Result<String> {
    let mut text = String::new();
    writeln!(
        text,
        "{}, Firstlight {}, {}\n\nstick",
        receipt.site, receipt.version, receipt.made
    )?;
    writeln!(text, "  {signed}")?;
    if let Some(stick) = &receipt.stick {
        describe_stick(&mut text, stick)?;
    }
    writeln!(
        text,
        "\n{} servers (join: {})",
        receipt.servers.len(),
        receipt.join
    )?;
    for server in &receipt.servers {
        describe_server(&mut text, server)?;
    }
    writeln!(
        text,
        "\n{} words of people on a server",
        receipt.approvals.len()
    )?;
    for line in &receipt.approvals {
        writeln!(
            text,
            "  {} {} ({}): {}, {}",
            line.time, line.who, line.from, line.what, line.target
        )?;
    }
    writeln!(text, "\ninstalled since")?;
    for upload in &receipt.uploads {
        let spec = &upload.spec;
        writeln!(
            text,
            "  {} {} {}  {}",
            spec.kind.as_str(),
            spec.name,
            spec.version,
            spec.sha256
        )?;
    }
    for addon in &receipt.addons {
        writeln!(
            text,
            "  addon {} of {}  {}",
            addon.name, addon.cluster, addon.chart
        )?;
    }
    for software in &receipt.software {
        writeln!(text, "  software {} on {}", software.name, software.ready)?;
    }
    writeln!(
        text,
        "\n{} lines of what else was done: `-o json` has them",
        receipt.done.len()
    )?;
    Ok(text)
}

fn describe_stick(text: &mut String, stick: &StickReceipt) -> Result<()> {
    for layer in &stick.system.layers {
        writeln!(
            text,
            "  {:<12}{:>16}  {}",
            layer.name,
            group(layer.length),
            layer.sha256
        )?;
    }
    for file in &stick.system.boot {
        writeln!(text, "  {:<28}  {}", file.name, file.sha256)?;
    }
    if let Some(seal) = &stick.seal {
        writeln!(text, "  {}", seal.sentence())?;
    }
    Ok(())
}

fn describe_server(text: &mut String, server: &ServerReceipt) -> Result<()> {
    let state = server
        .state
        .map_or("not heard since the box started", |state| state.as_str());
    let parts = match (server.product.as_str(), server.serial.as_str()) {
        ("", _) => String::new(),
        (product, "") => format!(", {product}"),
        (product, serial) => format!(", {product}, serial {serial}"),
    };
    writeln!(text, "  {} {}{parts}: {state}", called(server), server.mac)?;
    let word = match (server.approved.as_str(), server.named) {
        ("", true) => "named in site.yaml".to_owned(),
        ("", false) => "nobody has compared its code".to_owned(),
        (code, _) => format!("a person has compared its code {code}"),
    };
    writeln!(text, "    {word}")?;
    if let Some(tpm) = &server.tpm {
        let quote = match &server.quote {
            Some(_) => "it has signed how the server was started",
            None => "it has signed no start",
        };
        writeln!(text, "    TPM {tpm}: {quote}")?;
    }
    if let Some(held) = &server.installed {
        describe_installed(text, held)?;
    }
    Ok(())
}

fn describe_installed(text: &mut String, held: &Installed) -> Result<()> {
    let disks = held.disks.join(" and ");
    let whole = if held.complete {
        "every byte was verified"
    } else {
        "not complete"
    };
    writeln!(text, "    {disks} {}: {whole}", held.at)?;
    writeln!(text, "      {}  {}", held.image, held.checksum)?;
    if let Some(wrote) = &held.wrote {
        write!(text, "      {} bytes on the disk", group(wrote.image_bytes))?;
        if let Some(digest) = wrote.config_drive {
            write!(text, "; config drive {digest}")?;
        }
        if let Some(arguments) = &wrote.kernel_arguments {
            write!(text, "; kernel arguments {arguments}")?;
        }
        writeln!(text)?;
    }
    Ok(())
}

fn called(server: &ServerReceipt) -> &str {
    if server.name.is_empty() {
        "?"
    } else {
        &server.name
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use firstlight_api::receipt::Wrote;
    use firstlight_api::status::HostState;

    use super::*;

    #[test]
    fn a_fingerprint_is_taken_as_it_is_shown_and_a_file_that_is_none_is_named() {
        let digest = Sha256Digest::of(b"a certificate");
        let plain = digest.to_string();
        let pairs: Vec<&str> = (0..32).map(|at| &plain[2 * at..2 * at + 2]).collect();
        assert_eq!(trusted(&plain).unwrap(), digest);
        assert_eq!(trusted(&pairs.join(":").to_uppercase()).unwrap(), digest);
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = trusted(file.path().to_str().unwrap()).unwrap_err();
        assert!(error.to_string().contains("is no certificate"), "{error}");
    }

    #[test]
    fn a_person_reads_what_went_to_which_disk_and_on_whose_word() {
        let receipt = Receipt {
            site: "lab".to_owned(),
            join: "approve".to_owned(),
            servers: vec![ServerReceipt {
                name: "n1".to_owned(),
                mac: "52:54:00:00:00:01".to_owned(),
                product: "QEMU pc".to_owned(),
                state: Some(HostState::Running),
                approved: "7Q2M-XK4P-09AB-CDEF".to_owned(),
                installed: Some(Installed {
                    complete: true,
                    at: "2026-11-30T10:00:00Z".to_owned(),
                    disks: vec!["/dev/vda (10 GB, serial S1)".to_owned()],
                    image: "http://172.22.0.1/images/node.raw.zst".to_owned(),
                    checksum: "ab".repeat(32),
                    wrote: Some(Wrote {
                        image_bytes: 1_234_567,
                        ..Wrote::default()
                    }),
                    delivered: true,
                }),
                ..ServerReceipt::default()
            }],
            ..Receipt::default()
        };
        let text = describe(&receipt, "not signed").unwrap();
        for part in [
            "1 servers (join: approve)\n  n1 52:54:00:00:00:01, QEMU pc: running\n",
            "    a person has compared its code 7Q2M-XK4P-09AB-CDEF\n",
            "    /dev/vda (10 GB, serial S1) 2026-11-30T10:00:00Z: every byte was verified\n",
            "1,234,567 bytes on the disk\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
