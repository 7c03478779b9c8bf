//! The BMC of a server of the lab: Redfish over HTTP, at a port of the wire's host, so that the box reaches it as it reaches any
//! BMC on its network. The server is a QEMU process, which nobody else starts or ends.
//!
//! What is said is in [`redfish`]; here is what is done. Its thread owns the machine: a machine ends with the thread that started it.

mod ipmi;
mod redfish;

use std::convert::Infallible;
use std::fs::File;
use std::io::Write;
use std::net::{SocketAddr, SocketAddrV4};
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use lab::{BootFirst, Lab, ServerSpec, Vm};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use redfish::{Answer, Boot, Order, Reset, Seen, Target};

pub use ipmi::Ipmi;
pub use redfish::{PASSWORD, USER};

const LARGEST_BODY: usize = 64 << 10;

/// How its server can be brought to start something else than its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// Its firmware boots from the network, and its BMC has no virtual drive.
    Network,
    /// Its firmware knows no network boot.
    Cd,
}

pub struct Bmc {
    port: NonZeroU16,
    /// Where the port leads.
    local: SocketAddr,
    lab: Arc<Lab>,
    machine: Arc<Mutex<Machine>>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Bmc {
    /// For a server that is off. `port`: of the wire's host.
    pub fn connect(
        lab: &Arc<Lab>,
        server: ServerSpec,
        port: NonZeroU16,
        means: Means,
    ) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .context("a runtime for the BMC")?;
        let listener = runtime
            .block_on(TcpListener::bind(("127.0.0.1", 0)))
            .context("a port for the BMC")?;
        let local = listener.local_addr().context("a port for the BMC")?;
        lab.wire()
            .serve(port, local)
            .context("the BMC's port on the wire")?;
        let machine = Arc::new(Mutex::new(Machine {
            lab: Arc::clone(lab),
            server,
            vm: None,
            means,
            drive: None,
            boot: Boot::default(),
            starts: 0,
        }));
        let (end, ended) = oneshot::channel();
        let of_thread = Arc::clone(&machine);
        let thread = std::thread::Builder::new()
            .name("bmc".to_owned())
            .spawn(move || {
                tokio::task::LocalSet::new().block_on(&runtime, async {
                    tokio::select! {
                        () = serve(listener, &of_thread) => {}
                        _ = ended => {}
                    }
                });
            })
            .context("a thread for the BMC")?;
        Ok(Self {
            port,
            local,
            lab: Arc::clone(lab),
            machine,
            end: Some(end),
            thread: Some(thread),
        })
    }

    /// As `spec.bmc.address` names it.
    pub fn address(&self) -> String {
        let (host, port) = (self.lab.desk_address(), self.port);
        let scheme = match locked(&self.machine).means {
            Means::Network => "redfish+http",
            Means::Cd => "redfish-virtualmedia+http",
        };
        format!("{scheme}://{host}:{port}{}", redfish::SYSTEM)
    }

    /// It speaks IPMI from now on, too; with its server from when that is switched on the next time.
    pub fn speak_ipmi(&self, port: NonZeroU16) -> Result<Ipmi> {
        let ipmi = Ipmi::start(&self.lab, self.local, port)?;
        locked(&self.machine).server.kcs = Some(ipmi.kcs());
        Ok(ipmi)
    }

    /// Somebody presses its server's button.
    pub fn press_button(&self) -> Result<()> {
        locked(&self.machine).switch_on()
    }

    pub fn is_on(&self) -> bool {
        locked(&self.machine).is_on()
    }

    /// Whether something is in its virtual drive.
    pub fn has_cd(&self) -> bool {
        locked(&self.machine).drive.is_some()
    }

    /// How often it has switched its server on.
    pub fn starts(&self) -> u32 {
        locked(&self.machine).starts
    }
}

impl Drop for Bmc {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn locked(machine: &Mutex<Machine>) -> MutexGuard<'_, Machine> {
    machine.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(listener: TcpListener, machine: &Arc<Mutex<Machine>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let machine = Arc::clone(machine);
        tokio::task::spawn_local(async move {
            let service = service_fn(|request| respond(request, &machine));
            // Whoever asked has gone.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn respond(
    request: Request<Incoming>,
    machine: &Mutex<Machine>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = match Limited::new(body, LARGEST_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return Ok(refusal(StatusCode::BAD_REQUEST, &error.to_string())),
    };
    let asked = redfish::Request {
        method: &head.method,
        path: head.uri.path(),
        authorization: head
            .headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok()),
        body: &body,
    };
    let answer = redfish::answer(&asked, &locked(machine).seen());
    Ok(match answer {
        Answer::Shown(value) => json(StatusCode::OK, &value),
        Answer::Refused(status, why) => refusal(status, &why),
        Answer::Order(order) => match carry_out(order, machine).await {
            Ok(()) => Response::builder()
                .status(StatusCode::NO_CONTENT)
                .body(Full::default())
                .expect("a status alone is a response"),
            Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error:#}")),
        },
    })
}

async fn carry_out(order: Order, machine: &Mutex<Machine>) -> Result<()> {
    let Order::Insert(url) = order else {
        return locked(machine).obey(&order);
    };
    // The BMC goes where its server could go, and no further.
    let (lab, file) = {
        let machine = locked(machine);
        let name = format!("{}.iso", machine.server.name());
        (Arc::clone(&machine.lab), machine.lab.dir().join(name))
    };
    fetch(&lab, &url, &file).await?;
    locked(machine).drive = Some((url, file));
    Ok(())
}

async fn fetch(lab: &Lab, url: &str, to: &Path) -> Result<()> {
    let url: Uri = url.parse().context("the URL of the image")?;
    let host = url.host().context("the URL of the image names no host")?;
    let target = SocketAddrV4::new(host.parse()?, url.port_u16().unwrap_or(80));
    let stream = TcpStream::connect(lab.forward(0, target)?).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::task::spawn_local(connection);
    let request = Request::get(url.path()).header(HOST, target.to_string());
    let request = request.body(Empty::<Bytes>::new())?;
    let mut answer = sender.send_request(request).await?;
    ensure!(
        answer.status() == StatusCode::OK,
        "{url}: {}",
        answer.status()
    );
    let mut file = File::create(to).with_context(|| format!("creating {}", to.display()))?;
    while let Some(frame) = answer.frame().await {
        if let Ok(piece) = frame?.into_data() {
            file.write_all(&piece)?;
        }
    }
    Ok(())
}

fn refusal(status: StatusCode, why: &str) -> Response<Full<Bytes>> {
    json(status, &redfish::error(why))
}

fn json(status: StatusCode, value: &serde_json::Value) -> Response<Full<Bytes>> {
    Response::builder()
        .status(status)
        .header(CONTENT_TYPE, "application/json")
        .body(Full::from(value.to_string()))
        .expect("a status and one header of ours are a response")
}

struct Machine {
    lab: Arc<Lab>,
    server: ServerSpec,
    vm: Option<Vm>,
    means: Means,
    /// What is in its virtual drive, and from where it was had. The server sees it from its next start on.
    drive: Option<(String, PathBuf)>,
    boot: Boot,
    starts: u32,
}

impl Machine {
    /// A machine may have switched itself off.
    fn is_on(&mut self) -> bool {
        self.vm = self
            .vm
            .take()
            .and_then(|mut vm| vm.check_running().is_ok().then_some(vm));
        self.vm.is_some()
    }

    fn seen(&mut self) -> Seen {
        Seen {
            is_on: self.is_on(),
            boot: self.boot,
            firmware: self.server.firmware,
            drive: (self.means == Means::Cd)
                .then(|| self.drive.as_ref().map(|(url, _)| url.clone())),
        }
    }

    fn obey(&mut self, order: &Order) -> Result<()> {
        match order {
            Order::Boot(boot) => {
                self.boot = *boot;
                Ok(())
            }
            Order::Insert(_) => bail!("the image is not here"),
            Order::Eject => {
                self.drive = None;
                self.vm.as_mut().map_or(Ok(()), Vm::eject_cd)
            }
            Order::Reset(Reset::On) => self.switch_on(),
            Order::Reset(Reset::ForceOff) => self.switch_off(),
            Order::Reset(Reset::ForceRestart) => {
                self.switch_off()?;
                self.switch_on()
            }
            Order::Reset(Reset::GracefulShutdown) => match &mut self.vm {
                Some(vm) => vm.press_power_button(),
                None => Ok(()),
            },
        }
    }

    fn switch_on(&mut self) -> Result<()> {
        if self.is_on() {
            return Ok(());
        }
        let (boot, next) = self.boot.taken(self.means);
        self.server.cd = self.drive.as_ref().map(|(_, file)| file.clone());
        self.server.boot = match boot {
            BootFirst::CdOnce if self.server.cd.is_none() => BootFirst::Disk,
            boot => boot,
        };
        self.vm = Some(self.lab.start_server(&self.server)?);
        (self.boot, self.starts) = (next, self.starts + 1);
        Ok(())
    }

    fn switch_off(&mut self) -> Result<()> {
        self.vm.take().map_or(Ok(()), Vm::switch_off)
    }
}

impl Means {
    /// What the firmware of its server begins with by itself, as that of every server of the lab.
    fn own_order(self) -> BootFirst {
        match self {
            Self::Network => BootFirst::Network,
            Self::Cd => BootFirst::Disk,
        }
    }
}

impl Boot {
    /// What a machine that starts now begins with, and what is left for the next time.
    fn taken(self, means: Means) -> (BootFirst, Self) {
        use redfish::Enabled::{Continuous, Disabled, Once};
        let next = if self.enabled == Once {
            Self::default()
        } else {
            self
        };
        let first = match (self.target, self.enabled) {
            (Target::Pxe, Once) if means == Means::Network => BootFirst::NetworkOnce,
            (Target::Pxe, Continuous) if means == Means::Network => BootFirst::Network,
            (Target::Cd, Once) if means == Means::Cd => BootFirst::CdOnce,
            (Target::None, _) | (_, Disabled) => means.own_order(),
            // The other means are not there.
            (Target::Hdd | Target::Pxe | Target::Cd, Once | Continuous) => BootFirst::Disk,
        };
        (first, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redfish::Enabled::{Continuous, Disabled, Once};

    #[test]
    fn a_server_starts_by_its_own_order_unless_its_bmc_was_told_otherwise() {
        use BootFirst::{CdOnce, Disk, Network, NetworkOnce};
        let nothing = Boot::default();
        for (target, enabled, means, first, stays) in [
            (Target::None, Disabled, Means::Network, Network, true),
            (Target::None, Disabled, Means::Cd, Disk, true),
            (Target::Pxe, Disabled, Means::Network, Network, true),
            (Target::Pxe, Once, Means::Network, NetworkOnce, false),
            (Target::Pxe, Continuous, Means::Network, Network, true),
            (Target::Hdd, Once, Means::Network, Disk, false),
            (Target::Hdd, Continuous, Means::Network, Disk, true),
            (Target::Cd, Once, Means::Cd, CdOnce, false),
            (Target::Pxe, Once, Means::Cd, Disk, false),
        ] {
            let boot = Boot { target, enabled };
            let next = if stays { boot } else { nothing };
            assert_eq!(boot.taken(means), (first, next), "{boot:?} {means:?}");
        }
    }
}
