//! What a shell and `man` know of this program, made of its command line.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::UsageError;
use crate::cli::Cli;

const NAME: &str = "firstlight";

const COMPLETING: &str = "  firstlight completion bash >/etc/bash_completion.d/firstlight
  firstlight completion zsh >\"${fpath[1]}/_firstlight\"
  firstlight completion fish >~/.config/fish/completions/firstlight.fish";

#[derive(Debug, Args)]
#[command(after_help = COMPLETING)]
pub struct CompletionArgs {
    shell: Shell,
}

#[derive(Debug, Args)]
pub struct ManArgs {
    /// Folder to write them to, one for each command: /usr/local/share/man/man1
    folder: PathBuf,
}

pub fn complete(args: &CompletionArgs) -> Result<String> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), NAME, &mut script);
    String::from_utf8(script).context("the script is no text")
}

pub fn write_pages(args: &ManArgs) -> Result<String> {
    let folder = &args.folder;
    if !folder.is_dir() {
        let why = format!("{} is no folder: create it", folder.display());
        return Err(UsageError(why).into());
    }
    let command = Cli::command().name(NAME);
    clap_mangen::generate_to(command, folder)
        .with_context(|| format!("writing pages to {}", folder.display()))?;
    Ok(String::new())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_command_has_a_page_and_each_shell_knows_them() {
        let folder = tempfile::tempdir().unwrap();
        let args = ManArgs {
            folder: folder.path().to_owned(),
        };
        write_pages(&args).unwrap();
        let scripts = [Shell::Bash, Shell::Zsh, Shell::Fish]
            .map(|shell| complete(&CompletionArgs { shell }).unwrap());
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            let page = folder.path().join(format!("{NAME}-{name}.1"));
            let page = std::fs::read_to_string(page).unwrap();
            let shown = format!("{NAME}-{name}").replace('-', "\\-");
            assert!(page.contains(&shown), "{name}");
            for script in &scripts {
                assert!(script.contains(name), "{name}");
            }
        }
    }

    #[test]
    fn a_folder_that_is_not_there_is_no_place_for_pages() {
        let args = ManArgs {
            folder: "/nowhere".into(),
        };
        let refused = write_pages(&args).unwrap_err();
        assert!(refused.is::<UsageError>(), "{refused}");
    }
}
