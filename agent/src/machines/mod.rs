//! The infrastructure provider of Cluster API: gives machines hosts and tells hosts what to become. [`plan()`] is pure;
//! `provider` looks and writes.

mod choose;
mod data;
mod departures;
mod nodes;
mod plan;
mod view;

pub use departures::Departures;
pub use nodes::Nodes;
pub use plan::{left_behind, plan};
pub use view::clusters as shown;
