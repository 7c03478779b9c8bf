//! DHCP beside Kea and dnsmasq, HTTP beside nginx, and the agent's memory, as rows of a table.
//!
//! `scripts/bench netboot` runs it as root in namespaces of its own, with the others' programs in PATH. `--serve-dhcp INTERFACE
//! FOLDER` is the agent's DHCP server alone; HTTP and memory are the agent's program's (`--agent PROGRAM`). All are asked in turn,
//! so that other load on the machine meets all of them.
#![allow(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::unwrap_used,
    reason = "a measuring program"
)]

mod dhcp;
mod http;
mod serve;
mod space;

use std::path::Path;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--serve-dhcp", interface, folder] => serve::run(interface, Path::new(folder)),
        ["--agent", agent, which @ ..] => {
            let is_asked = |what| which.is_empty() || which.contains(&what);
            space::apart();
            if is_asked("dhcp") {
                dhcp::measure();
            }
            if is_asked("http") {
                http::measure(agent);
            }
        }
        _ => panic!("usage: netboot_figures --agent PROGRAM [dhcp] [http]"),
    }
}

/// One row. `ratio`: how many times better ours is than the best of the others.
fn row(what: &str, ours: f64, best: (&str, f64), ratio: f64, limit: f64) {
    let (name, theirs) = best;
    let verdict = if ratio >= limit { "ok" } else { "misses" };
    println!(
        "| {what} | {ours:.2} | {name} {theirs:.2} | {ratio:.2} | >= {limit:.2} | {verdict} |"
    );
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
