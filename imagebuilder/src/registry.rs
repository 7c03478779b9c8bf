//! Container images for the nodes, laid out as the storage of a registry (CNCF distribution): at run time nothing is
//! imported or pushed, the registry serves the files as they lie on the stick.
//!
//! [`layer`] makes layers, [`store`] puts layers and images into the tree. Same inputs, same bytes. Must not: know which
//! images there are; that is `build/workload.rs`.

pub mod layer;
pub mod store;
