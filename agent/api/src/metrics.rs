//! What installed systems measure of their servers: the text that `node_exporter` makes, in Prometheus' format.

/// At the bootstrap endpoint. Takes such a text, signed.
pub const PATH: &str = "/servers/v1/metrics";
/// Bytes of it.
pub const LARGEST: usize = 512 * 1024;
