//! `figures [PART]`: prints the table, or those of its rows whose ID begins like this; `figures ID VALUE`: keeps a measurement
//! that a script took.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use qemu_tests::figures::{ALL, Figure, table};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "figures: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [] | [_] => {
            let part = arguments.first().map_or("", String::as_str);
            let rows = ALL
                .iter()
                .copied()
                .filter(|figure| figure.id.starts_with(part))
                .map(|figure| Ok((figure, figure.load()?)))
                .collect::<Result<Vec<_>>>()?;
            std::io::stdout()
                .write_all(table(&rows).as_bytes())
                .context("printing the table")
        }
        [id, value] => {
            let figure = Figure::by_id(id).with_context(|| format!("`{id}` is no figure"))?;
            figure.record(
                value
                    .parse()
                    .with_context(|| format!("`{value}` is no number"))?,
            )
        }
        _ => bail!("usage: figures [PART | ID VALUE]"),
    }
}
