//! `firstlight site new`: the settings of a site, with a comment on each that could be there, after a few questions or out of options.

mod keys;

use std::fs::OpenOptions;
use std::io::{self, BufRead, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use firstlight_api::site::parse_site;

use crate::UsageError;
use crate::check::describe;
pub use keys::{load as load_keys, with_keys};

/// What the stick has without any.
const TEMPLATE: &str = include_str!("../../rootfs/box/site.yaml");

const NEW: &str = "Without an option it asks, with at least one it does not. Either way the file says of everything that can be set what it is for, and `firstlight check` takes it.

  firstlight site new
  firstlight site new --name rack7 --address 10.20.0.1/24 --ssh-key ~/.ssh/id_ed25519.pub --join approve
  firstlight flash --site site.yaml firstlight.img /dev/sdX";

#[derive(Debug, Args)]
pub struct SiteArgs {
    #[command(subcommand)]
    command: SiteCommand,
}

#[derive(Debug, Subcommand)]
enum SiteCommand {
    /// Write a site.yaml, with a comment on each setting
    New(NewArgs),
}

#[derive(Debug, Default, Args)]
#[command(after_help = NEW)]
struct NewArgs {
    #[command(flatten)]
    answers: Answers,
    /// File to write; one that is there is left as it is
    #[arg(short, long, value_name = "FILE", default_value = "site.yaml")]
    output: PathBuf,
}

/// `None`: as without a word.
#[derive(Clone, Debug, Default, Args)]
struct Answers {
    /// Name of the site and of its cluster
    #[arg(long)]
    name: Option<String>,
    /// The box's address where servers boot, with the length of the network
    #[arg(long, value_name = "ADDRESS/LENGTH")]
    address: Option<String>,
    /// Public SSH key of who looks after the site; may be given several times
    #[arg(long, value_name = "KEY.PUB")]
    ssh_key: Vec<PathBuf>,
    /// Which servers are installed: blank, wipe or never
    #[arg(long)]
    install: Option<String>,
    /// Which servers are taken: open, approve or named
    #[arg(long)]
    join: Option<String>,
    /// Control planes of the cluster: 1, 3, or none for no cluster
    #[arg(long, value_name = "COUNT")]
    control_planes: Option<String>,
}

pub fn run(args: &SiteArgs) -> Result<String> {
    let SiteCommand::New(new) = &args.command;
    let answers = if new.answers.is_empty() {
        let (input, output) = (io::stdin(), io::stderr());
        if !input.is_terminal() {
            let why = "there is nobody to ask; say at least one of --name, --address, --ssh-key, --install, --join and --control-planes";
            return Err(UsageError(why.to_owned()).into());
        }
        ask(
            &mut input.lock(),
            &mut output.lock(),
            usual_key().as_deref(),
        )?
    } else {
        new.answers.clone()
    };
    let text = answers.text()?;
    let path = &new.output;
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).open(path);
    let mut file = file.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => UsageError(format!(
            "{} is there already; name another file with --output",
            path.display()
        )),
        _ => UsageError(format!("{}: {error}", path.display())),
    })?;
    file.write_all(text.as_bytes())
        .with_context(|| format!("writing {}", path.display()))?;
    Ok(format!(
        "{0} is there: read it, then `firstlight build --site {0}` or `firstlight flash --site {0} IMAGE DEVICE`\n",
        path.display()
    ))
}

impl Answers {
    fn is_empty(&self) -> bool {
        let texts = [
            &self.name,
            &self.address,
            &self.install,
            &self.join,
            &self.control_planes,
        ];
        self.ssh_key.is_empty() && texts.iter().all(|text| text.is_none())
    }

    /// The answer to a question, by its number.
    fn take(&mut self, question: usize, word: &str) {
        let place = match question {
            0 => &mut self.name,
            1 => &mut self.address,
            2 => return self.ssh_key.push(PathBuf::from(word)),
            3 => &mut self.install,
            4 => &mut self.join,
            _ => &mut self.control_planes,
        };
        *place = Some(word.to_owned());
    }

    /// Checked as the box does.
    fn text(&self) -> Result<String> {
        let mut text = TEMPLATE.to_owned();
        let address = self.address.as_ref();
        let address = address.map(|address| format!("\n  address: {}", quoted(address)));
        let cluster = self
            .control_planes
            .as_ref()
            .map(|count| match count.as_str() {
                "none" => " none".to_owned(),
                count => format!("\n  controlPlanes: {count}"),
            });
        let plain = |word: &Option<String>| word.as_ref().map(|word| format!(" {}", quoted(word)));
        for (key, value) in [
            ("name", plain(&self.name)),
            ("provisioning", address),
            ("install", plain(&self.install)),
            ("join", plain(&self.join)),
            ("cluster", cluster),
        ] {
            if let Some(value) = value {
                text = with_setting(&text, key, &value);
            }
        }
        let keys = load_keys(&self.ssh_key)?;
        if !keys.is_empty() {
            let keys: Vec<&String> = keys.iter().collect();
            text = with_keys(&text, &keys).context("the template has a list of keys")?;
        }
        parse_site(&text)
            .map_err(|problems| UsageError(describe(Path::new("site.yaml"), &problems)))?;
        Ok(text)
    }
}

/// What a person types is a text, whatever YAML would make of it.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "./-_:".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("{text:?}")
}

/// In the place of a setting that is there, or behind the comment that shows it.
fn with_setting(text: &str, key: &str, value: &str) -> String {
    let line = format!("{key}:{value}");
    let begins = |line: &str, mark: &str| {
        let rest = line
            .strip_prefix(mark)
            .and_then(|rest| rest.strip_prefix(key));
        rest.is_some_and(|rest| rest.starts_with(':'))
    };
    let mut lines: Vec<&str> = text.lines().collect();
    if let Some(at) = lines.iter().position(|line| begins(line, "")) {
        lines[at] = &line;
    } else if let Some(at) = lines.iter().position(|line| begins(line, "# ")) {
        let example = lines[at + 1..].iter();
        let example = example.take_while(|line| line.starts_with("#  ")).count();
        lines.insert(at + 1 + example, &line);
    } else {
        lines.push(&line);
    }
    lines.join("\n") + "\n"
}

fn usual_key() -> Option<PathBuf> {
    let folder = Path::new(&std::env::var_os("HOME")?).join(".ssh");
    let names = ["id_ed25519.pub", "id_ecdsa.pub", "id_rsa.pub"];
    names
        .map(|name| folder.join(name))
        .into_iter()
        .find(|path| path.is_file())
}

/// One question after the other; what cannot be is asked again, with the reason.
fn ask(
    input: &mut impl BufRead,
    output: &mut impl io::Write,
    key: Option<&Path>,
) -> Result<Answers> {
    let found = key.map(|key| key.display().to_string());
    let found = found.as_deref().unwrap_or_default();
    let shown = if found.is_empty() { "none" } else { found };
    // What is shown is as without a word, but for a key that was found.
    let questions = [
        ("Name of the site", "firstlight", ""),
        ("The box's address where servers boot", "172.22.0.1/24", ""),
        ("Your public SSH key, a file", shown, found),
        (
            "Which servers are installed: blank (those without data), wipe (all) or never",
            "blank",
            "",
        ),
        (
            "Which servers are taken: open (all), approve (whose code you have compared) or named (in the file)",
            "open",
            "",
        ),
        ("Control planes of the cluster: 1, 3 or none", "1", ""),
    ];
    let mut answers = Answers::default();
    for (at, (question, shown, meant)) in questions.into_iter().enumerate() {
        loop {
            write!(output, "{question} [{shown}]: ")?;
            output.flush()?;
            let mut line = String::new();
            if input.read_line(&mut line)? == 0 {
                return Err(UsageError("the answers ended; nothing was written".to_owned()).into());
            }
            let said = line.trim();
            let word = if said.is_empty() { meant } else { said };
            let mut next = answers.clone();
            if !word.is_empty() {
                next.take(at, word);
            }
            match next.text() {
                Ok(_) => {
                    answers = next;
                    break;
                }
                Err(error) => writeln!(output, "{error:#}")?,
            }
        }
    }
    Ok(answers)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use firstlight_api::site::{ClusterChoice, InstallPolicy, JoinPolicy, SiteConfig};
    use proptest::prelude::*;

    use super::*;

    const KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJKnMsDQbTMUlMvSn7Cb5mS1nP7oGV9hCZLJj9XVIBYF ada";

    fn key() -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), KEY).unwrap();
        file
    }

    #[test]
    fn what_is_said_is_in_the_file_and_every_comment_stays() {
        let key = key();
        let answers = Answers {
            name: Some("rack7".to_owned()),
            address: Some("10.20.0.1/16".to_owned()),
            ssh_key: vec![key.path().to_owned()],
            install: Some("never".to_owned()),
            join: Some("approve".to_owned()),
            control_planes: Some("3".to_owned()),
        };
        let text = answers.text().unwrap();
        let site = parse_site(&text).unwrap();
        assert_eq!(site.name.as_str(), "rack7");
        assert_eq!(site.provisioning.address.to_string(), "10.20.0.1/16");
        assert_eq!(
            (site.install, site.join),
            (InstallPolicy::Never, JoinPolicy::Approve)
        );
        assert_eq!(site.ssh_keys.len(), 1);
        for line in TEMPLATE.lines().filter(|line| line.starts_with('#')) {
            assert!(text.lines().any(|kept| kept == line), "{line}\n{text}");
        }
        let none = Answers {
            control_planes: Some("none".to_owned()),
            ..Answers::default()
        };
        let site = parse_site(none.text().unwrap()).unwrap();
        assert_eq!(site.cluster, ClusterChoice::None);
        assert_eq!(
            parse_site(Answers::default().text().unwrap()).unwrap(),
            SiteConfig::default()
        );
    }

    #[test]
    fn questions_are_asked_again_until_the_answer_can_be() {
        let key = key();
        let said = "rack 7\nrack7\nnowhere\n10.0.0.1/24\n\n\nsometimes\napprove\n3\n";
        let (mut input, mut output) = (said.as_bytes(), Vec::new());
        let answers = ask(&mut input, &mut output, Some(key.path())).unwrap();
        let site = parse_site(answers.text().unwrap()).unwrap();
        assert_eq!(
            (site.name.as_str(), site.join),
            ("rack7", JoinPolicy::Approve)
        );
        assert_eq!(site.ssh_keys[0].as_str(), KEY);
        assert_eq!(answers.install, None, "as without a word");
        let asked = String::from_utf8(output).unwrap();
        assert_eq!(asked.matches("Name of the site").count(), 2, "{asked}");
        assert_eq!(asked.matches("The box's address").count(), 2, "{asked}");
        let cut = ask(&mut &b"rack7\n"[..], &mut Vec::new(), None).unwrap_err();
        assert!(cut.to_string().contains("nothing was written"), "{cut}");
    }

    #[test]
    fn a_file_that_is_there_stays() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("site.yaml");
        let new = || SiteArgs {
            command: SiteCommand::New(NewArgs {
                answers: Answers {
                    name: Some("lab".to_owned()),
                    ..Answers::default()
                },
                output: output.clone(),
            }),
        };
        assert!(run(&new()).unwrap().contains("is there: read it"));
        let text = fs::read_to_string(&output).unwrap();
        assert!(run(&new()).unwrap_err().is::<UsageError>());
        assert_eq!(fs::read_to_string(&output).unwrap(), text);
    }

    proptest! {
        #[test]
        fn whatever_is_typed_is_a_name_or_refused(name in "\\PC{0,20}", address in "\\PC{0,20}") {
            let answers = Answers { name: Some(name.clone()), address: Some(address), ..Answers::default() };
            if let Ok(text) = answers.text() {
                let site = parse_site(text).unwrap();
                prop_assert_eq!(site.name.as_str(), name);
                prop_assert_eq!(site.install, InstallPolicy::Blank);
            }
        }
    }
}
