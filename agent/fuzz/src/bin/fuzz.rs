//! libFuzzer over one target, by the coverage that `scripts/fuzz` has the compiler count.
#![no_main]
#![allow(unsafe_code, reason = "libFuzzer's entry point")]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<String> =
    LazyLock::new(|| std::env::var("FIRSTLIGHT_FUZZ").expect("FIRSTLIGHT_FUZZ names the target"));

fuzz_target!(|bytes: &[u8]| firstlight_fuzz::run(&TARGET, bytes));
