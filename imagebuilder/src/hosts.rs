//! `firstlight hosts`: the servers that the box knows, and what a person asks of one of them.
//!
//! What is known comes from the box's status. What is asked is written into objects of the box's Kubernetes, which whoever may log in as
//! `admin` may write: the segment has no way to it. To add a verb: in `firstlight_api::verb`, what it writes in `orders`, and a line in
//! docs/hosts.md.

mod approve;
mod find;
mod orders;
mod show;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use firstlight_api::verb::Verb;
use serde_json::json;

use crate::UsageError;
use crate::box_client::BoxClient;
use crate::ssh::BoxArgs;
use approve::{APPROVING, ApproveArgs};
use orders::Order;

const EXAMPLES: &str = "Each verb is an annotation or a field of the server's BareMetalHost (docs/hosts.md), and is refused with a sentence where it would
do harm. NAME is its name, the beginning of it, or its MAC address.

  firstlight hosts list                        which servers there are, and who waits for you
  firstlight hosts show n3                     what n3 is doing, what went wrong, and which verbs it takes now
  firstlight hosts retry n3                    begin the step that failed again, now
  firstlight hosts list -o json | jq -r '.[] | select(.control.failed) | .name'

A box behind a forwarded port, with its host key in a file of its own:

  firstlight hosts list --box admin@gateway.example --port 2222 --identity ~/.ssh/site --known-hosts site.keys

What only reads (`list`, `show`) also takes a forwarded port of its page: --box http://127.0.0.1:8080";

const RETRYING: &str = "A registration, inspection, installation, cleaning or adoption that failed begins again at that step, with all its attempts, whether
the box would try again by itself or has given up. Mend first what `firstlight hosts show NAME` says. It is refused while nothing has
failed: no second write is begun beside one.";

const SWITCHING: &str = "The BMC that the server's object names switches it (docs/power.md). Without one, `power cycle` asks a running system over SSH to
restart, and a person does the rest. `off` asks the system to end first, and it stays off until `on`; `--hard` asks nobody.
It is refused while a disk is being written or cleaned, and needs `--yes` for a server that somebody uses.";

const SKIPPING: &str = "The server goes on without Ironic's inventory (Metal3's annotation inspect.metal3.io=disabled). What the box needs to install it, its
ramdisk has reported already. The annotation stays; take it away to have it inspected when it is registered the next time.";

const SPARING: &str = "A spare is registered, inspected, keeps its power and gets its image ahead of time, and no machine claims it: it is ready for the next
failure. `unspare` lets it be claimed at once. A server that a machine has already is taken out of its cluster first.";

const ALLOWING: &str = "With `start: auto` (docs/hosts.md) a model of servers on which a system did not come up by kexec is remembered, and its servers are
restarted by their firmware instead. After an update of firmware, kernel or image that may be over: this forgets it, for all servers of that
model. It is remembered again as soon as one does not come up.";

const GIVING_BACK: &str = "Its system is taken away, its disks are cleaned, and it is free. What a cluster has is given back by the cluster: delete its Machine,
or have fewer replicas, so that it is drained.

More than 3 servers within ten minutes wait for a person who says their names, whoever takes their systems away:

  firstlight hosts give-back n1 n2 n3 n4 --yes-all-of n1,n2,n3,n4";

const FORGETTING: &str = "For a server that is gone, or was never wanted: its object goes, and Ironic forgets it. If the server comes back, it is listed and left
alone until somebody says `kubectl annotate bmh NAME firstlight.internal/install=blank`.

With --force nothing is cleaned and nobody is waited for: for a server that is dead. Its Machine and its Node go with it.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct HostsArgs {
    #[command(subcommand)]
    command: HostsCommand,
    #[command(flatten)]
    the_box: BoxArgs,
    /// For people, or for programs
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        default_value = "text",
        global = true
    )]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
enum HostsCommand {
    /// Each server: name, MAC address, state, code, and what happens or why not
    List,
    /// One server: state, step, problem and what to do, history, and the verbs that it takes now
    Show(One),
    /// Let a server join whose code you have read on its own screen
    #[command(after_help = APPROVING)]
    Approve(ApproveArgs),
    /// Begin the step that failed again, at once
    #[command(after_help = RETRYING)]
    Retry(One),
    /// Switch it on, off, or off and on
    #[command(after_help = SWITCHING)]
    Power(PowerArgs),
    /// Go on without an inspection that fails
    #[command(after_help = SKIPPING)]
    SkipInspection(One),
    /// Set it aside: no machine claims it
    #[command(after_help = SPARING)]
    Spare(One),
    /// Let machines claim it again
    Unspare(One),
    /// Let servers of its model be started by kexec again, although one did not come up
    #[command(after_help = ALLOWING)]
    AllowKexec(One),
    /// Take its system away, clean its disks, and have it free
    #[command(after_help = GIVING_BACK)]
    GiveBack(GiveBackArgs),
    /// Take a server off the list that is gone, or was never wanted
    #[command(after_help = FORGETTING)]
    Forget(ForgetArgs),
}

#[derive(Debug, Args)]
struct One {
    /// Its name, the beginning of it, or its MAC address
    #[arg(value_name = "NAME|MAC")]
    server: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
    Cycle,
}

#[derive(Debug, Args)]
struct PowerArgs {
    what: Switch,
    /// Its name, the beginning of it, or its MAC address
    #[arg(value_name = "NAME|MAC")]
    server: String,
    /// Off at once, without asking its system
    #[arg(long)]
    hard: bool,
    /// Also a server that somebody uses
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Args)]
struct GiveBackArgs {
    /// Their names, the beginnings of them, or their MAC addresses
    #[arg(value_name = "NAME|MAC", required = true)]
    servers: Vec<String>,
    /// Also erase what somebody else has put on its disks since
    #[arg(long)]
    wipe: bool,
    /// Also a server that is in use by something that the box does not know
    #[arg(long)]
    force: bool,
    /// The whole names of all of them once more: for more than 3, and for those that wait for it
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    yes_all_of: Vec<String>,
}

#[derive(Debug, Args)]
struct ForgetArgs {
    /// Its name, the beginning of it, or its MAC address
    #[arg(value_name = "NAME|MAC")]
    server: String,
    /// It is dead, or shall keep what is on its disks
    #[arg(long)]
    force: bool,
}

pub fn run(args: &HostsArgs) -> Result<String> {
    let site = BoxClient::new(&args.the_box)?.status()?;
    let is_json = args.output == Output::Json;
    let order = match &args.command {
        HostsCommand::List if is_json => return show::json(&site.hosts),
        HostsCommand::List => return Ok(show::list(&site.hosts)),
        HostsCommand::Show(one) => {
            let host = find::find(&site.hosts, &one.server)?;
            return if is_json {
                show::one_as_json(&site, host)
            } else {
                Ok(show::one(&site, host))
            };
        }
        HostsCommand::Approve(approve) => approve::order(&site.hosts, approve)?,
        HostsCommand::Retry(one) => orders::plain(&site, Verb::Retry, &one.server)?,
        HostsCommand::SkipInspection(one) => {
            orders::plain(&site, Verb::SkipInspection, &one.server)?
        }
        HostsCommand::Spare(one) => orders::plain(&site, Verb::Spare, &one.server)?,
        HostsCommand::Unspare(one) => orders::plain(&site, Verb::Unspare, &one.server)?,
        HostsCommand::AllowKexec(one) => orders::plain(&site, Verb::AllowKexec, &one.server)?,
        HostsCommand::Power(power) => orders::power(&site, power)?,
        HostsCommand::GiveBack(give) => orders::give_back(&site, give)?,
        HostsCommand::Forget(forget) => orders::forget(&site, forget)?,
    };
    if args.the_box.host.starts_with("http://") {
        return Err(UsageError(format!(
            "`{}` needs a login: give --box as SSH is told, like admin@172.22.0.1",
            order.verb
        ))
        .into());
    }
    order.send(args.the_box.way())?;
    if is_json {
        return show::json(&told(&order));
    }
    Ok(format!("{}\n", order.done))
}

fn told(order: &Order) -> serde_json::Value {
    let names = order.hosts.iter().map(|host| &host.name);
    json!({"hosts": names.collect::<Vec<_>>(), "verb": order.verb, "message": order.done})
}

#[cfg(test)]
mod tests;
