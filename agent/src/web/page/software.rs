//! Packages on the page: by server, what is wanted beside what is there.

use std::fmt::{self, Write as _};

use firstlight_api::{
    software::{NodeState, NodeStatus, PackageState, PackageStatus, SoftwareState},
    status::SoftwareLine,
};

use super::Text;

pub fn write(out: &mut String, software: &[SoftwareLine]) -> fmt::Result {
    software.iter().try_for_each(|one| write_one(out, one))
}

fn write_one(out: &mut String, software: &SoftwareLine) -> fmt::Result {
    let class = match software.state {
        SoftwareState::Ready => "good",
        SoftwareState::Pending => "wait",
        SoftwareState::Installing => "busy",
        SoftwareState::Failed | SoftwareState::Stopped => "bad",
    };
    writeln!(
        out,
        "<section class=\"card\"><h2>Software</h2>\n<div class=\"host-head\"><h3>{}</h3><span class=\"dim\">{} servers ready</span>\
         <span class=\"pill {class}\">{}</span></div>",
        Text(&software.name),
        Text(&software.ready),
        software.state.as_str()
    )?;
    if !software.message.is_empty() {
        writeln!(out, "<p>{}</p>", Text(&software.message))?;
    }
    if !software.nodes.is_empty() {
        out.write_str(
            "<table><thead><tr><th>Server</th><th>Package</th><th>Wanted</th><th>Have</th><th>State</th></tr></thead>\n<tbody>\n",
        )?;
        software
            .nodes
            .iter()
            .try_for_each(|node| write_node(out, node))?;
        out.write_str("</tbody></table>\n")?;
    }
    out.write_str("</section>\n")
}

fn write_node(out: &mut String, node: &NodeStatus) -> fmt::Result {
    let class = match node.state {
        NodeState::Ready => "good",
        NodeState::Waiting => "wait",
        NodeState::Failed => "bad",
        _ => "busy",
    };
    write!(
        out,
        "<tr><td rowspan=\"{}\">{}",
        node.packages.len() + 1,
        Text(&node.name)
    )?;
    if !node.cluster.is_empty() {
        write!(
            out,
            "<br><span class=\"dim\">{}</span>",
            Text(&node.cluster)
        )?;
    }
    write!(
        out,
        "</td><td colspan=\"3\" class=\"dim\">{}</td><td class=\"{class}\">{}</td></tr>",
        Text(&node.message),
        node.state.as_str()
    )?;
    node.packages
        .iter()
        .try_for_each(|package| write_package(out, package))?;
    out.write_str("\n")
}

fn write_package(out: &mut String, package: &PackageStatus) -> fmt::Result {
    let class = match package.state {
        PackageState::Ready => "good",
        PackageState::Pending => "wait",
        PackageState::Failed => "bad",
    };
    let have = if package.have.is_empty() {
        "?"
    } else {
        &package.have
    };
    write!(
        out,
        "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"{class}\">{}",
        Text(&package.name),
        Text(&package.wanted),
        Text(have),
        package.state.as_str()
    )?;
    if !package.reason.is_empty() {
        write!(
            out,
            "<br><span class=\"dim\">{}</span>",
            Text(&package.reason)
        )?;
    }
    out.write_str("</td></tr>")
}
