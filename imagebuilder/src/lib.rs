//! See ARCHITECTURE.md.
pub mod vm;
