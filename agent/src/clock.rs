//! The two clocks of the box: `uptime` for everything that is shown, wall clock only where others demand it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};

/// Since the kernel started, sleep included; never jumps.
pub fn uptime() -> Duration {
    // The kernel has had CLOCK_BOOTTIME since 2.6.39, so there is no error to report.
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("CLOCK_BOOTTIME exists");
    Duration::from(now)
}

/// Wall clock as seconds since 1970. May be wrong by years on a server with an empty CMOS battery.
pub fn wall_seconds() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| {
            i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
        })
}

/// The same in nanoseconds.
pub fn wall_nanoseconds() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_nanos()).unwrap_or(i64::MAX))
}

/// Wall clock as RFC 3339, UTC.
pub fn rfc3339() -> String {
    rfc3339_of(wall_seconds())
}

pub fn rfc3339_of(wall_seconds: i64) -> String {
    let time = time::OffsetDateTime::from_unix_timestamp(wall_seconds)
        .unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
    time.format(&time::format_description::well_known::Rfc3339)
        .unwrap_or_default()
}
