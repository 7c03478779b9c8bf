//! What an HTTP request says, for whoever serves files: its head, its path, and which bytes it wants. Pure.
//!
//! Everything here reads what strangers send; what has no business here is hyper's.

mod head;
mod path;
mod range;

pub use head::{FileRequest, MOST_HEAD, read_head};
pub use path::{is_plain, is_plain_version, normalize, unescape};
pub use range::{RangeReply, plan_range};
