//! What the kernel was told at the start of the box: whether it runs from a stick, and whether its system is tried for the first time.

use std::fs;

use firstlight_api::boot_choice::TRIAL_WORD;

use crate::paths::Paths;

/// How this machine's system was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartedFrom {
    /// Somebody's Debian, or a developer's machine.
    Elsewhere,
    Stick,
    /// By GRUB, for once: it has to show that it works.
    Trial,
}

impl StartedFrom {
    pub fn read(paths: &Paths) -> Self {
        let line = fs::read_to_string(paths.kernel_line()).unwrap_or_default();
        let words = || line.split_ascii_whitespace();
        if !words().any(|word| word.starts_with("firstlight.slot=")) {
            Self::Elsewhere
        } else if words().any(|word| word == TRIAL_WORD) {
            Self::Trial
        } else {
            Self::Stick
        }
    }
}

/// The running system is tried, and it is not said yet whether it stays.
pub fn is_tried(paths: &Paths) -> bool {
    StartedFrom::read(paths) == StartedFrom::Trial && paths.trial().exists()
}
