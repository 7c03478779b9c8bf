//! What an installed server does before cloud-init: it waits until the box hands out its bootstrap data. And what it does
//! later when the box orders packages ([`packages`]), an account in this server's BMC ([`bmc`]),
//! or that this server starts the box's ramdisk by itself ([`ramdisk`]), or asks how its mirror is ([`mirror`]). Its journal and its
//! metrics go to the box all the while ([`destination`], [`journal`], [`metrics`]).
//!
//! A server is installed before anybody knows what it will become. Its config drive then carries an invitation
//! ([`invitation`]) instead of user data: where to ask, a token, and the CA to trust. This program asks ([`link`],
//! [`answer`]), puts what it gets where cloud-init looks for a config drive ([`seed`]), confirms that it is durable, and
//! ends; cloud-init goes on as on any other machine. [`access`] makes the box's own login. Decisions are in [`plan`],
//! everything that touches the machine in [`machine`]. Without an invitation it ends at once; with or without one, packages
//! come from the box ([`sources`]).
//!
//! Must not: run anything that it was sent (a kernel of the box's takes this one's place, and is no program of it), or end before cloud-init may start.

pub mod access;
pub mod answer;
pub mod backups;
pub mod bmc;
mod clock;
pub mod destination;
pub mod drive;
pub mod files;
pub mod follow;
pub mod invitation;
pub mod journal;
pub mod link;
pub mod machine;
pub mod metrics;
pub mod mirror;
pub mod packages;
pub mod plan;
pub mod proxy;
pub mod ramdisk;
pub mod seed;
pub mod sources;
pub mod trust;
