//! Passwords and passphrases: asked for where somebody types, read from standard input by a script.

use std::io::{self, BufRead as _, IsTerminal as _};

use anyhow::Result;

use crate::UsageError;

/// One that is made now: asked for twice. `kind`: what there would be two of.
pub fn ask_new(prompt: &str, kind: &str) -> Result<String> {
    let first = ask(prompt)?;
    if io::stdin().is_terminal() && rpassword::prompt_password("The same again: ")? != first {
        return Err(UsageError(format!("these were two different {kind}")).into());
    }
    Ok(first)
}

pub fn ask(prompt: &str) -> Result<String> {
    if io::stdin().is_terminal() {
        return Ok(rpassword::prompt_password(prompt)?);
    }
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
