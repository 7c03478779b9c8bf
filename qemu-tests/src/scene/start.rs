//! Where a story begins: machines that go on from a snapshot, or that are brought there and kept for the next one.
//!
//! Stories about booting boot. All others begin in a state that many need, and a box that boots to it takes minutes.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use imagebuilder::agent::{Boxes, put};
use imagebuilder::stick::{Stick, load_stick};
use lab::{BoxSpec, Resumed, ServerSpec, VmSpec};

use super::Scene;
use crate::figures;

/// Of a box that goes on: it has nothing to start.
const ANSWERS: Duration = Duration::from_secs(30);

impl Scene<'_> {
    /// A box that is ready, and no server.
    pub fn ready_box(&mut self) -> Result<()> {
        self.begin_from("the box is ready", &[], |scene| {
            scene.switch_box_on(&BoxSpec::default())?;
            scene.wait_status("the box is ready", Duration::from_mins(4), |status| {
                status.ready.then_some(())
            })
        })
    }

    /// Box and `servers` in `state`: from a snapshot, else as `make` brings them there.
    pub fn begin_from(
        &mut self,
        state: &str,
        servers: &[ServerSpec],
        make: impl Fn(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let stick = load_stick(self.image(), &self.lab.dir().join("agent-layer"))?;
        let mut machines: Vec<VmSpec> = vec![self.lab.plan_box(&BoxSpec::default())];
        machines.extend(servers.iter().map(|server| self.lab.plan_server(server)));
        let key = self.lab.snapshot_key(state, &stick.digest, &machines)?;
        if self.go_on_from(&key, &stick)? {
            return Ok(());
        }
        self.tell(format_args!("no snapshot: {state}"));
        make(self)?;
        let stopped = Instant::now();
        let the_box = self.the_box.take().context("the box is off")?;
        let machines = std::iter::once(the_box)
            .chain(std::mem::take(&mut self.servers))
            .collect();
        match self.lab.save(&key, &stick.agent_digest, machines) {
            Ok(()) => {
                figures::BASE_SNAPSHOT_SAVED.record_time(stopped.elapsed())?;
                self.tell(format_args!(
                    "kept for the next story  ({:.1} s)",
                    stopped.elapsed().as_secs_f64()
                ));
                if self.go_on_from(&key, &stick)? {
                    return Ok(());
                }
            }
            Err(error) => self.tell(format_args!("it cannot be kept: {error:#}")),
        }
        // The story is about something else: it is told without.
        self.lab.forget(&key)?;
        make(self)
    }

    /// False if there is no snapshot that is whole.
    fn go_on_from(&mut self, key: &str, stick: &Stick) -> Result<bool> {
        let began = Instant::now();
        let (resumed, agent) = self.lab.resume(key)?;
        let mut machines = match resumed {
            Resumed::Machines(machines) => machines.into_iter(),
            Resumed::Nothing => return Ok(false),
            Resumed::Damaged(error) => {
                self.tell(format_args!("a snapshot is of no use: {error:#}"));
                return Ok(false);
            }
        };
        self.the_box = machines.next();
        self.servers = machines.collect();
        let answers = self.wait_status("the box goes on from a snapshot", ANSWERS, |status| {
            status.ready.then_some(())
        });
        if let Err(error) = answers {
            self.tell(format_args!("a snapshot is of no use: {error:#}"));
            self.the_box = None;
            self.servers.clear();
            self.lab.forget(key)?;
            return Ok(false);
        }
        figures::BASE_SNAPSHOT_ANSWER.record_time(began.elapsed())?;
        if agent != stick.agent_digest {
            self.put_agent(&stick.agent)?;
        }
        Ok(true)
    }

    /// Brings another agent into the box that runs; returns when its page answers.
    pub fn put_agent(&mut self, program: &std::path::Path) -> Result<()> {
        let began = Instant::now();
        let way: Command = self.box_ssh().way();
        put(way, program, Boxes::OfTheLab)?;
        self.tell(format_args!(
            "the box has another agent  ({:.1} s)",
            began.elapsed().as_secs_f64()
        ));
        self.wait_status("its page answers", ANSWERS, |_| Some(()))
    }
}
