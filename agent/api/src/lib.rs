//! Types that more than one program of Firstlight speaks: the status value, the ramdisk's report, `site.yaml`, CRDs.
//!
//! Must not: talk to anything. No kube client, no async runtime, no files, no clock.
//! To add a case: put it in the module named after the message it travels in.

#![warn(missing_docs)]

pub mod account;
pub mod addon;
pub mod artifact;
pub mod authorities;
pub mod backup;
pub mod bmh;
pub mod boot_choice;
pub mod bounded;
pub mod capi;
pub mod capm3;
pub mod digest;
pub mod disk;
pub mod edge;
pub mod health;
pub mod ipam;
pub mod logs;
pub mod measured;
pub mod metrics;
pub mod mirror;
pub mod names;
pub mod net;
pub mod node_image;
pub mod object;
pub mod order;
pub mod packages;
pub mod people;
pub mod ramdisk_order;
pub mod receipt;
pub mod report;
pub mod repository;
pub mod seal;
pub mod secrets;
pub mod signed;
pub mod site;
pub mod slot;
pub mod software;
pub mod start;
pub mod status;
pub mod tpm;
pub mod update;
pub mod upgrade;
pub mod verb;
pub mod verity;
pub mod versions;
pub mod wildcard;
