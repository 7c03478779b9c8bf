//! A ramdisk without a machine: decides by the real one's code (`firstlight_ramdisk::ipa::agent`), and is carried out here.
//! Of an image nothing is fetched and nothing is written: that is the network's and the disk's time.

use std::{
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use firstlight_api::{
    report::{
        Directive, DiskSignatures, Fresh, LookupState, PROGRESS_PATH, Phase, Progress, REPORT_PATH,
        Reply, Report,
    },
    signed,
    tpm::Tpm,
};
use firstlight_client::{key::Key, tls};
use firstlight_ironic::fake::Ramdisk as Inventory;
use firstlight_ramdisk::{
    cmdline::Cmdline,
    ipa::{
        agent::{Agent, Config},
        event::{Action, Departure, Event, HeartbeatReply, Registration},
        identity::Identity,
        ironic,
        job::Job,
    },
};
use http::Request;
use http_body_util::Full;
use hyper::body::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::{
    Mutex,
    mpsc::{self, UnboundedSender},
};

use super::{
    command_api::{CommandApi, callback},
    server::{Mark, Marks},
    talk::{self, Tls},
};

/// `POST /v1/continue_inspection` answers as a lookup does from this version on.
const VERSION: &str = "1.84";
const DISK_BYTES: u64 = 8 << 30;
/// That a ramdisk says it has written.
pub const IMAGE_BYTES: u64 = 1 << 30;

/// Runs until the server restarts.
pub async fn run(
    seed: u64,
    mac: &str,
    address: Ipv4Addr,
    cmdline: &Cmdline,
    marks: &Marks,
) -> Departure {
    let (events, mut inbox) = mpsc::unbounded_channel();
    let identity = Identity::new(address.into()).unwrap();
    let door = CommandApi::open(address, identity.config.clone(), events.clone()).await;
    let base = cmdline.box_url.clone().unwrap();
    let pem = loop {
        match talk::get(address, &None, &format!("{base}/boot/ca.pem")).await {
            Ok(pem) => break pem,
            Err(error) => eprintln!("{address}: {error}"),
        }
    };
    let ca = tls::check_ca(&pem, &cmdline.ca_sha256.unwrap()).unwrap();
    let shared = Arc::new(Shared {
        mac: mac.to_owned(),
        address,
        base,
        ironic: cmdline.ironic_url.clone().unwrap(),
        tls: Some(tls::trust_only(ca, Arc::default()).unwrap()),
        key: Key::new().unwrap(),
        boot_id: format!(
            "{:08x}-0000-4000-8000-{:012x}",
            seed & 0xffff_ffff,
            seed >> 32
        ),
        certificate: identity.certificate_pem,
        session: Mutex::default(),
        sequence: AtomicU64::new(1),
    });
    let started = Instant::now();
    let (mut agent, mut actions) = Agent::start(Config {
        has_box: true,
        inspects: true,
        seed,
        started_at: 0,
    });
    let edge = Edge {
        shared,
        events,
        door,
    };
    loop {
        for action in actions {
            if let Some(departure) = edge.apply(action).await {
                return departure;
            }
        }
        let wake = agent.next_wake().map(|at| started + at);
        let event = tokio::select! {
            event = inbox.recv() => event.unwrap(),
            () = until(wake) => Event::Woken,
        };
        match &event {
            Event::Registration(Registration::Accepted(_)) => marks.set(Mark::Registered),
            Event::Asked { .. } => marks.set(Mark::Called),
            _ => {}
        }
        actions = agent.handle(started.elapsed(), event);
        let is_written = |action: &Action| matches!(action, Action::Tell(Phase::Written { .. }));
        if actions.iter().any(is_written) {
            marks.set(Mark::Written);
        }
    }
}

async fn until(wake: Option<Instant>) {
    match wake {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

struct Edge {
    shared: Arc<Shared>,
    events: UnboundedSender<Event>,
    door: CommandApi,
}

/// What does not change during one boot, and the box's session.
struct Shared {
    mac: String,
    address: Ipv4Addr,
    base: String,
    ironic: String,
    tls: Tls,
    key: Key,
    boot_id: String,
    certificate: String,
    /// One post at a time: each has a greater number than the one before.
    session: Mutex<String>,
    sequence: AtomicU64,
}

impl Edge {
    async fn apply(&self, action: Action) -> Option<Departure> {
        match action {
            Action::Report { lookup } => {
                self.call(async move |shared| Event::Reported(shared.report(lookup).await));
            }
            Action::Inspect { node } => {
                self.call(async move |shared| Event::Registration(shared.inspect(node).await));
            }
            Action::LookUp { node } => {
                self.call(async move |shared| Event::Registration(shared.look_up(node).await));
            }
            Action::Beat { uuid, token } => self
                .call(async move |shared| Event::HeartbeatReply(shared.beat(&uuid, &token).await)),
            Action::Start { id, job } => {
                let inventory = self.shared.inventory();
                self.call(async move |shared| {
                    if let Job::WriteImage(_) = &job {
                        let (bytes, total) = (0, 1);
                        shared.tell(Phase::Writing { bytes, total }).await;
                    }
                    let result = Ok(result(&job, inventory));
                    Event::Finished { id, result }
                });
            }
            Action::Answer { ask, status, body } => self.door.answer(ask, status, body),
            // As the last thing before it leaves, it waits for it.
            Action::Tell(phase) => self.shared.tell(phase).await,
            Action::Abort | Action::Say(_) => {}
            Action::CloseServer => self.door.close(),
            Action::Leave(departure) => return Some(departure),
        }
        None
    }

    fn call<F>(&self, call: impl FnOnce(Arc<Shared>) -> F + Send + 'static)
    where
        F: Future<Output = Event> + Send + 'static,
    {
        let (shared, events) = (self.shared.clone(), self.events.clone());
        tokio::spawn(async move {
            // The server may have restarted.
            let event = call(shared).await;
            drop(events.send(event));
        });
    }
}

/// As `work` of the real one answers.
fn result(job: &Job, inventory: Value) -> Value {
    match job {
        Job::WriteImage(job) => {
            let said = "image written to /dev/vda";
            let wrote = json!({"imageBytes": IMAGE_BYTES});
            json!({"deploy_result": {"result": said, "wrote": wrote}, "deploy_step": job.step})
        }
        Job::Erase(job) => {
            json!({"clean_result": {"erased": ["/dev/vda"]}, "clean_step": job.step})
        }
        Job::CollectLogs => json!({"system_logs": ""}),
        Job::HardwareInfo => inventory,
        Job::InstallBootEntry | Job::Sync => Value::Null,
    }
}

impl Shared {
    fn inventory(&self) -> Value {
        Inventory::inventory_of(&self.mac, self.address.into())
    }

    async fn report(&self, lookup: LookupState) -> Result<Directive, String> {
        let disk = DiskSignatures {
            name: "/dev/vda".into(),
            size_bytes: DISK_BYTES,
            ..DiskSignatures::default()
        };
        let report = Report {
            boot_mac: self.mac.clone(),
            boot_id: self.boot_id.clone(),
            address: self.address.to_string(),
            inventory: self.inventory(),
            disks: vec![disk],
            lookup,
            tpm: Tpm::Absent,
            follows: Vec::new(),
            fresh: Fresh::default(),
        };
        let body = self.post(REPORT_PATH, report, |report| &mut report.fresh);
        let reply = Reply::parse(&body.await?).map_err(|error| error.to_string())?;
        Ok(reply.directive)
    }

    /// One that the box does not hear is repeated by nobody here.
    async fn tell(&self, phase: Phase) {
        let progress = Progress {
            boot_mac: self.mac.clone(),
            boot_id: self.boot_id.clone(),
            phase,
            fresh: Fresh::default(),
        };
        let told = self.post(PROGRESS_PATH, progress, |progress| &mut progress.fresh);
        if let Err(error) = told.await {
            eprintln!("{}: progress: {error}", self.address);
        }
    }

    async fn post<T: Serialize>(
        &self,
        path: &str,
        mut post: T,
        fresh: fn(&mut T) -> &mut Fresh,
    ) -> Result<Bytes, String> {
        let mut session = self.session.lock().await;
        for _ in 0..2 {
            *fresh(&mut post) = Fresh {
                session: session.clone(),
                sequence: self.sequence.fetch_add(1, Ordering::Relaxed),
            };
            let bytes = serde_json::to_vec(&post).unwrap();
            let (public, signature) = self.key.sign(path, &bytes);
            let request = Request::post(format!("{}{path}", self.base))
                .header("content-type", "application/json")
                .header(signed::KEY_HEADER, &public)
                .header(signed::SIGNATURE_HEADER, &signature)
                .body(Full::new(bytes.into()));
            let (status, body) = talk::send(self.address, &None, request.unwrap()).await?;
            if status != 200 {
                return Err(format!("{path} answers {status}"));
            }
            match Reply::parse(&body) {
                Ok(reply) if reply.directive == Directive::Again => *session = reply.session,
                _ => return Ok(body),
            }
        }
        Err("the box is restarting".to_owned())
    }

    async fn inspect(&self, node: Option<String>) -> Registration {
        let inventory = self.inventory();
        let body = json!({
            "root_disk": inventory["disks"][0], "inventory": inventory, "boot_interface": self.mac,
            "error": null, "configuration": {},
        });
        let node = node.map(|node| format!("?node_uuid={node}"));
        let path = format!("/v1/continue_inspection{}", node.unwrap_or_default());
        match self.ironic(&path, Some(&body)).await {
            Ok((status, body)) => ironic::read_inspection(status, &body),
            Err(error) => Registration::Failed(error),
        }
    }

    async fn look_up(&self, node: Option<String>) -> Registration {
        let by = node.map(|node| format!("node_uuid={node}"));
        let by = by.unwrap_or_else(|| format!("addresses={}", self.mac));
        match self.ironic(&format!("/v1/lookup?{by}"), None).await {
            Ok((status, body)) => ironic::read_lookup(status, &body),
            Err(error) => Registration::Failed(error),
        }
    }

    async fn beat(&self, uuid: &str, token: &str) -> HeartbeatReply {
        let body = json!({
            "callback_url": callback(self.address), "agent_token": token,
            "agent_verify_ca": self.certificate, "agent_version": "firstlight-simulated",
        });
        let path = format!("/v1/heartbeat/{uuid}");
        match self.ironic(&path, Some(&body)).await {
            Ok((status, body)) => ironic::read_heartbeat(status, &body),
            Err(error) => HeartbeatReply::Failed(error),
        }
    }

    async fn ironic(&self, path: &str, body: Option<&Value>) -> Result<(u16, Bytes), String> {
        let method = if body.is_some() { "POST" } else { "GET" };
        let body = body.map_or(Vec::new(), |body| body.to_string().into_bytes());
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.ironic))
            .header("content-type", "application/json")
            .header("x-openstack-ironic-api-version", VERSION)
            .body(Full::new(body.into()));
        talk::send(self.address, &self.tls, request.unwrap()).await
    }
}
