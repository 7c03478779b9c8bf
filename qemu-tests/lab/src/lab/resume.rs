//! A lab whose machines are kept, or go on from what was kept.

use std::fs;
use std::sync::PoisonError;
use std::time::Instant;

use anyhow::{Context, Result};
use time::OffsetDateTime;

use super::Lab;
use crate::machine::Vm;
use crate::qemu::{Begin, VmSpec};
use crate::snapshot::{self, Snapshot, Snapshots};

/// What became of the wish to go on from a snapshot.
pub enum Resumed {
    Machines(Vec<Vm>),
    /// There is none yet.
    Nothing,
    /// There is none any more.
    Damaged(anyhow::Error),
}

impl Lab {
    /// The key of the snapshot in which `machines` are in a certain `state`; `stick` is the digest of what the box runs from.
    pub fn snapshot_key(&self, state: &str, stick: &str, machines: &[VmSpec]) -> Result<String> {
        let clock = format!("{:?}", self.spec.clock);
        snapshot::key(state, stick, &clock, self.accel, machines)
    }

    /// Keeps `machines`, and ends them; `agent` is the digest of the program that the box runs.
    pub fn save(&self, key: &str, agent: &str, machines: Vec<Vm>) -> Result<()> {
        let time = || self.now();
        Snapshots::open(&self.spec.cache)?.save(key, time, agent, machines, &self.dir.path)
    }

    /// Goes on from a snapshot, if there is a whole one; returns the digest of the agent's program, too.
    pub fn resume(&self, key: &str) -> Result<(Resumed, String)> {
        let snapshots = Snapshots::open(&self.spec.cache)?;
        let found = match snapshots.find(key) {
            Ok(None) => return Ok((Resumed::Nothing, String::new())),
            Ok(Some(snapshot)) => self.load(&snapshot).map(|machines| (snapshot, machines)),
            Err(error) => Err(error),
        };
        match found {
            Ok((snapshot, machines)) => {
                let agent = snapshot.manifest.agent.clone();
                *self.below.lock().unwrap_or_else(PoisonError::into_inner) = Some(snapshot);
                Ok((Resumed::Machines(machines), agent))
            }
            Err(error) => {
                self.forget(key)?;
                Ok((Resumed::Damaged(error), String::new()))
            }
        }
    }

    /// Removes a snapshot that is no good, and the disks that were made from it.
    pub fn forget(&self, key: &str) -> Result<()> {
        for entry in fs::read_dir(&self.dir.path)?.flatten() {
            let path = entry.path();
            let made = path
                .extension()
                .is_some_and(|end| end == "qcow2" || end == "vars");
            if made {
                fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
            }
        }
        Snapshots::open(&self.spec.cache)?.remove(key)
    }

    fn load(&self, snapshot: &Snapshot) -> Result<Vec<Vm>> {
        let mut machines = Vec::new();
        for spec in &snapshot.manifest.machines {
            let own = snapshot.furnish(spec, &self.dir.path)?;
            let mut vm = self.start_as(&own, Begin::Wait)?;
            vm.load_state(&snapshot.state(spec))?;
            machines.push(vm);
        }
        let time = OffsetDateTime::from_unix_timestamp(snapshot.manifest.time)
            .context("the time of the snapshot")?;
        *self.clock.lock().unwrap_or_else(PoisonError::into_inner) = (time, Instant::now());
        for vm in &mut machines {
            vm.go_on()?;
        }
        Ok(machines)
    }
}
