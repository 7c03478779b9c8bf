//! The same BMC by IPMI: the simulator of `OpenIPMI`, which has the Redfish service do what is asked of its chassis.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::num::NonZeroU16;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use lab::Lab;

use super::redfish::{PASSWORD, RESET, SYSTEM, USER};

/// Ends with this.
pub struct Ipmi {
    process: Child,
    address: String,
    /// Where it is spoken to over the network.
    local: SocketAddr,
    /// Where its own server speaks to it.
    kcs: u16,
}

impl Ipmi {
    /// At `port` of the wire's host, beside the service at `redfish`.
    pub fn start(lab: &Lab, redfish: SocketAddr, port: NonZeroU16) -> Result<Self> {
        let dir = lab.dir().join("ipmi");
        fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
        let local = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|socket| socket.local_addr())
            .context("finding a free port")?;
        let kcs = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|listener| listener.local_addr())
            .context("finding a free port")?
            .port();
        let write = |name: &str, text: String| {
            let file = dir.join(name);
            fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
            Ok::<_, anyhow::Error>(file)
        };
        let chassis = write("chassis", chassis(redfish))?;
        let parameters = write("parameters", parameters(lab.desk_address()))?;
        let ports = (local.port(), kcs);
        let lan = write("lan.conf", lan(ports, &chassis, &parameters))?;
        let controller = write("mc.emu", CONTROLLER.to_owned())?;
        let process = Command::new("ipmi_sim")
            .arg("-c")
            .arg(lan)
            .arg("-f")
            .arg(controller)
            .arg("-s")
            .arg(&dir)
            .arg("-n")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting ipmi_sim (package openipmi)")?;
        let address = format!("ipmi://{}:{port}", lab.desk_address());
        let started = Self {
            process,
            address,
            local,
            kcs,
        };
        lab.wire()
            .serve_datagrams(port, local)
            .context("the BMC's port on the wire")?;
        Ok(started)
    }

    /// As `spec.bmc.address` names it.
    pub fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn kcs(&self) -> u16 {
        self.kcs
    }

    /// Does it know this user and password, for `ipmitool`?
    pub fn lets_in(&self, user: &str, password: &str) -> Result<bool> {
        let (host, port) = (self.local.ip().to_string(), self.local.port().to_string());
        let status = Command::new("ipmitool")
            .args(["-I", "lanplus", "-C", "3", "-H", &host, "-p", &port])
            .args(["-U", user, "-E", "chassis", "power", "status"])
            .env("IPMI_PASSWORD", password)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        let status = status.context("running ipmitool (package ipmitool)")?;
        Ok(status.success())
    }
}

impl Drop for Ipmi {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const CONTROLLER: &str = "mc_setbmc 0x20\n\
    mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\n\
    sel_enable 0x20 1000 0x0a\n\
    mc_enable 0x20\n";

/// `ipmi_lan(5)`
fn lan((port, kcs): (u16, u16), chassis: &Path, parameters: &Path) -> String {
    let modes = "none md2 md5 straight";
    let allowed = ["callback", "user", "operator", "admin"]
        .map(|who| format!("    allowed_auths_{who} {modes}\n"))
        .concat();
    format!(
        "name \"lab\"\nset_working_mc 0x20\n  serial 15 127.0.0.1 {kcs} codec VM\n  startlan 1\n    addr 127.0.0.1 {port}\n    priv_limit admin\n{allowed}    \
         guid a123456789abcdefa123456789abcdef\n    lan_config_program \"/bin/sh {}\"\n  endlan\n  chassis_control \"/bin/sh {} 0x20\"\n  \
         user 1 true \"\" \"test\" user 10 {modes}\n  user 2 true \"{USER}\" \"{PASSWORD}\" admin 10 {modes}\n",
        parameters.display(),
        chassis.display()
    )
}

/// What the simulator asks of its network: `… get NAME…`.
fn parameters(address: Ipv4Addr) -> String {
    format!(
        r#"while [ $# -gt 0 ] && [ "$1" != get ]; do shift; done
for word; do case $word in
ip_addr) echo ip_addr:{address} ;;
ip_addr_src) echo ip_addr_src:static ;;
subnet_mask) echo subnet_mask:255.255.255.0 ;;
*_mac_addr | mac_addr) echo $word:02:00:00:00:00:01 ;;
*_ip_addr) echo $word:0.0.0.0 ;;
esac; done
"#
    )
}

/// What the simulator calls: `chassis 0x20 get NAME…` and `chassis 0x20 set NAME VALUE…`.
fn chassis(redfish: SocketAddr) -> String {
    format!(
        r#"#!/bin/sh
ask() {{ curl --silent --fail --noproxy '*' --user {USER}:{PASSWORD} --header 'Content-Type: application/json' "$@"; }}
reset() {{ ask --data "{{\"ResetType\": \"$1\"}}" http://{redfish}{RESET}; }}
boot() {{ ask --request PATCH --data "{{\"Boot\": {{\"BootSourceOverrideTarget\": \"$1\", \"BootSourceOverrideEnabled\": \"$2\"}}}}" http://{redfish}{SYSTEM}; }}
[ $# -gt 0 ] || exit 1
op=$2
shift 2
case $op in
get) for word; do case $word in
    power) ask http://{redfish}{SYSTEM} | grep -q '"PowerState":"On"' && echo power:1 || echo power:0 ;;
    boot) echo boot:default ;;
    esac; done ;;
set) while [ $# -gt 1 ]; do case $1,$2 in
    power,1) reset On ;;
    power,0) reset ForceOff ;;
    reset,*) reset ForceRestart ;;
    shutdown,*) reset GracefulShutdown ;;
    boot,pxe) boot Pxe Once ;;
    boot,*) boot None Disabled ;;
    esac; shift 2; done ;;
esac
"#
    )
}
