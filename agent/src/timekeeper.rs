//! Keeps the time over power cuts, and tells when the clock was wrong. The agent may not set the clock: at the next start
//! `firstlight-clock.service` sets it forward to what was kept here, before Kubernetes looks at a certificate.

use std::{fs, time::Duration};

use anyhow::Result;
use firstlight_api::status::Problem;
use tokio_util::sync::CancellationToken;

use crate::{
    clock,
    files::{self, Access},
    paths::Paths,
    state,
    status::StatusSender,
};

/// As often as the stick is written to for it.
const KEEP: Duration = Duration::from_mins(5);
const LOOK: Duration = Duration::from_secs(10);
/// NTP moves a clock by less without a jump, and reading two clocks takes a moment.
const JUMP: i64 = 30;
/// A box that was off for longer, or whose clock says so, asks a person.
const LONG: i64 = 365 * 86_400;
const SOURCE: &str = "clock";

pub async fn run(paths: Paths, status: StatusSender, stop: CancellationToken) -> Result<()> {
    state::wait_until(|| state::is_usable(&paths), Duration::MAX, &stop).await;
    let mut keeper = Keeper {
        asleep: asleep(read_number(&paths.kept_clock()), Now::read().wall),
        ..Keeper::default()
    };
    let mut told = None;
    loop {
        let now = Now::read();
        let moved = read_number(&paths.clock_moved());
        keeper.look(now, moved);
        let problem = keeper.problem(moved);
        if told.as_ref() != Some(&problem) {
            status.problems(SOURCE, problem.iter().cloned().collect());
            told = Some(problem);
        }
        if keeper.is_due(now) {
            keep(&paths, now);
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = stop.cancelled() => break,
        }
    }
    // A clock that is behind what was kept may still be set.
    let now = Now::read();
    if read_number(&paths.kept_clock()).is_none_or(|kept| kept <= now.wall) {
        keep(&paths, now);
    }
    Ok(())
}

/// Both clocks, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Now {
    wall: i64,
    uptime: i64,
}

impl Now {
    fn read() -> Self {
        Self {
            wall: clock::wall_seconds(),
            uptime: i64::try_from(clock::uptime().as_secs()).unwrap_or(i64::MAX),
        }
    }
}

#[derive(Debug, Default)]
struct Keeper {
    last: Option<Now>,
    kept_at: Option<i64>,
    /// The last time the clock moved by itself, in seconds.
    jumped: Option<i64>,
    /// So many seconds are said to have gone by since the box knew the time; told while that is long.
    asleep: Option<i64>,
}

/// Nothing else shows that a clock is years ahead: it is believed, and so is everything that ends by it.
fn asleep(kept: Option<i64>, wall: i64) -> Option<i64> {
    let slept = wall.checked_sub(kept?)?;
    (slept > LONG).then_some(slept)
}

impl Keeper {
    /// `moved` is what `firstlight-clock.service` has done: no news.
    fn look(&mut self, now: Now, moved: Option<i64>) {
        if let Some(last) = self.last.replace(now) {
            let jump = (now.wall - last.wall) - (now.uptime - last.uptime);
            let ours = moved.is_some_and(|moved| jump.abs_diff(moved) <= JUMP.unsigned_abs());
            if jump.abs() > JUMP && !ours {
                tracing::warn!(seconds = jump, "the clock jumped");
                self.jumped = Some(jump);
            }
        }
    }

    /// Not at once: until then the clock may be behind what was kept.
    fn is_due(&mut self, now: Now) -> bool {
        let since = *self.kept_at.get_or_insert(now.uptime);
        let due = now.uptime - since >= KEEP.as_secs().cast_signed();
        if due {
            self.kept_at = Some(now.uptime);
        }
        due
    }

    fn problem(&self, moved: Option<i64>) -> Option<Problem> {
        let battery = moved.filter(|moved| *moved > JUMP).map(|moved| Problem {
            what: format!("the clock of this server was {} behind at its start and was set to the last time that the box knew", span(moved)),
            next: "replace the server's battery; set the time as admin with `sudo date -u -s \"2026-12-31 12:00\"` if it is wrong".to_owned(),
        });
        let jump = self.jumped.map(|jump| Problem {
            what: format!(
                "the clock jumped {} by {}",
                if jump > 0 { "forward" } else { "back" },
                span(jump)
            ),
            next: "nothing, if somebody set it right; else set the time as admin with `sudo date -u -s`: certificates and leases go by it".to_owned(),
        });
        let asleep = self.asleep.map(|slept| Problem {
            what: format!("the clock says that this box was off for {}", span(slept)),
            next: "nothing, if that is so; else set the time as admin with `sudo date -u -s \"2026-12-31 12:00\"`: certificates end by it, and nobody joins a cluster with one that has ended".to_owned(),
        });
        jump.or(battery).or(asleep)
    }
}

fn span(seconds: i64) -> String {
    match seconds.unsigned_abs() {
        seconds @ 0..120 => format!("{seconds} seconds"),
        seconds @ 120..7200 => format!("{} minutes", seconds / 60),
        seconds @ 7200..172_800 => format!("{} hours", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

fn keep(paths: &Paths, now: Now) {
    let path = paths.kept_clock();
    if let Err(error) = files::write(&path, format!("{}\n", now.wall).as_bytes(), Access::Group) {
        tracing::warn!(error = format!("{error:#}"), "the time was not kept");
    }
}

fn read_number(path: &std::path::Path) -> Option<i64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn at(wall: i64, uptime: i64) -> Now {
        Now { wall, uptime }
    }

    fn after(looks: &[Now], moved: Option<i64>) -> Keeper {
        let mut keeper = Keeper::default();
        for now in looks {
            keeper.look(*now, moved);
        }
        keeper
    }

    #[test]
    fn a_jump_is_told_in_both_directions_and_a_slow_clock_is_none() {
        assert_eq!(
            after(&[at(1000, 10), at(1012, 20)], None).problem(None),
            None
        );
        let what = |looks: &[Now]| after(looks, None).problem(None).unwrap().what;
        assert_eq!(
            what(&[at(1000, 10), at(8210, 20)]),
            "the clock jumped forward by 2 hours"
        );
        assert_eq!(
            what(&[at(900_000, 10), at(10, 20)]),
            "the clock jumped back by 10 days"
        );
    }

    #[test]
    fn what_the_start_has_set_right_is_told_as_what_it_is() {
        let moved = Some(90 * 86_400);
        let keeper = after(&[at(1000, 10), at(1010 + 90 * 86_400, 20)], moved);
        let told = keeper.problem(moved).unwrap();
        assert!(told.what.contains("90 days behind"), "{told:?}");
        assert!(told.next.contains("battery"));
        assert_eq!(after(&[at(1000, 10)], Some(2)).problem(Some(2)), None);
    }

    #[test]
    fn a_clock_that_is_years_ahead_at_the_start_is_told_until_somebody_sets_it() {
        let now = 1_800_000_000;
        assert_eq!(asleep(Some(now - LONG), now), None);
        assert_eq!(asleep(None, now), None, "the first start");
        assert_eq!(asleep(Some(i64::MIN), now), None, "a damaged file");
        let mut keeper = Keeper {
            asleep: asleep(Some(now - 20 * LONG), now),
            ..Keeper::default()
        };
        let what = keeper.problem(None).unwrap().what;
        assert_eq!(what, "the clock says that this box was off for 7300 days");
        keeper.look(at(now, 10), None);
        keeper.look(at(now - 20 * LONG, 20), None);
        assert!(keeper.problem(None).unwrap().what.contains("jumped back"));
    }

    #[test]
    fn the_time_is_kept_every_five_minutes_and_not_at_once() {
        let mut keeper = Keeper::default();
        let due: Vec<i64> = (0..1000)
            .step_by(10)
            .filter(|uptime| keeper.is_due(at(0, *uptime)))
            .collect();
        assert_eq!(due, [300, 600, 900]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_is_kept_at_the_stop_unless_the_clock_is_behind() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::new(dir.path());
        fs::create_dir_all(paths.agent_state()).unwrap();
        let kept = || read_number(&paths.kept_clock());
        for (before, is_changed) in [("12\n", true), ("4000000000\n", false), ("?", true)] {
            fs::write(paths.kept_clock(), before).unwrap();
            let (status, _, _owner) = crate::status::channel("1");
            let stop = CancellationToken::new();
            let task = tokio::spawn(run(paths.clone(), status, stop.clone()));
            tokio::time::sleep(LOOK / 2).await;
            stop.cancel();
            task.await.unwrap().unwrap();
            let now = clock::wall_seconds();
            let is_now = kept().is_some_and(|kept| (now - kept).abs() < 60);
            assert_eq!(is_now, is_changed, "{before}");
        }
    }

    proptest! {
        /// The files may be damaged, and a clock without a battery may say any year.
        #[test]
        fn whatever_the_files_say_a_jump_is_told_or_taken_for_ours(
            text in ".{0,10}|-?[0-9]{0,20}",
            steps in proptest::collection::vec((prop_oneof![Just(0), -4000_i64..4000], 0..100_i64), 0..6),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("moved");
            fs::write(&path, &text).unwrap();
            let moved = read_number(&path);
            prop_assert_eq!(moved, text.trim().parse().ok());
            let mut now = at(0, 0);
            let looks: Vec<Now> = steps.iter().map(|(years, pause)| {
                now = at(now.wall + years * 31_557_600 + pause, now.uptime + pause);
                now
            }).collect();
            let jumps: Vec<i64> = steps.iter().skip(1).map(|(years, _)| years * 31_557_600).filter(|jump| *jump != 0).collect();
            prop_assert_eq!(after(&looks, None).jumped, jumps.last().copied());
            let keeper = after(&looks, moved);
            prop_assert!(keeper.jumped.is_none_or(|jump| jumps.contains(&jump)));
            if let Some(problem) = keeper.problem(moved) {
                prop_assert!(problem.what.chars().count() < 200, "{}", problem.what);
            }
        }
    }
}
