//! What the tests of the whole agent share.

use std::process::Command;

const INSIDE: &str = "FIRSTLIGHT_TEST_INSIDE";

/// Runs `story`, the body of the test `name`, in user, network, mount and PID namespaces of its own, unprivileged: the test
/// starts itself again in them, and they take everything with them when they end.
pub fn isolated(name: &str, story: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return story();
    }
    let status = Command::new("unshare")
        .args([
            "--user",
            "--map-root-user",
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            name,
            "--include-ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(INSIDE, "1")
        .status()
        .expect("unshare of util-linux runs");
    assert!(
        status.success(),
        "the story inside the namespaces failed, see above (or user namespaces are switched off here)"
    );
}
