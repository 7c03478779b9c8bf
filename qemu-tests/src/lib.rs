//! Whole-system tests in virtual machines, written as a user acts: build the image, switch machines on, look at the
//! page's API, log in with SSH. No internals of the agent.
//!
//! `tests/stories.rs` holds the stories; this library is what they are told with: [`site`] makes image and key,
//! [`scene`] runs the machines and waits, [`bmc`] switches those that nobody starts by hand, [`ssh`] logs in, [`typed`] is a person at a desk, [`cluster`] and
//! [`registry`] are a cluster's user, [`store`] the box's, [`nodes`] runs a cluster without machines, [`conformance`] has upstream's own tests for it, [`pods`] are what both run on clusters, [`forger`] lies to it, [`figures`] keeps what was measured, [`plan`] chooses
//! what there is time for.
//! To add a story: a function in `tests/stories/`, a line in the list of `tests/stories.rs`.

pub mod bmc;
pub mod cluster;
pub mod conformance;
pub mod figures;
pub mod forger;
pub mod nodes;
pub mod plan;
pub mod pods;
pub mod registry;
pub mod scene;
pub mod site;
pub mod ssh;
pub mod store;
pub mod typed;
