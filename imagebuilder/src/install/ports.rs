//! Ports that a box needs for itself (docs/reference.md, "Addresses of the box"), and who listens on a machine. Pure.

use super::finding::Finding;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }

    /// How the kernel's list shows a socket that waits for others: TCP's LISTEN, and UDP's only unconnected state.
    fn waiting(self) -> &'static str {
        match self {
            Self::Tcp => "0A",
            Self::Udp => "07",
        }
    }
}

use Protocol::{Tcp, Udp};

const NEEDED: [(Protocol, u16, &str); 17] = [
    (Udp, 67, "DHCP"),
    (Udp, 69, "TFTP"),
    (Udp, 4011, "proxyDHCP"),
    (Tcp, 80, "the page and network boot"),
    (Tcp, 2379, "etcd"),
    (Tcp, 2380, "etcd"),
    (Tcp, 5000, "the registry"),
    (Tcp, 5001, "pushes to the registry"),
    (Tcp, 5002, "the registry"),
    (Tcp, 6385, "Ironic"),
    (Tcp, 6443, "the Kubernetes API"),
    (Tcp, 8443, "the bootstrap endpoint"),
    (Tcp, 8444, "the conversion of objects"),
    (Tcp, 10248, "kubelet"),
    (Tcp, 10249, "kube-proxy"),
    (Tcp, 10250, "kubelet"),
    (Tcp, 10256, "kube-proxy"),
];

/// A socket that somebody may send to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    pub protocol: Protocol,
    pub port: u16,
    pub inode: u64,
    /// Name of the program, as far as it could be found.
    pub program: Option<String>,
}

/// Out of `/proc/net/{tcp,tcp6,udp,udp6}` (`proc_net_tcp` in the kernel's documentation).
pub fn parse_listeners(protocol: Protocol, text: &str) -> Vec<Listener> {
    let parse = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, port) = fields.get(1)?.rsplit_once(':')?;
        (*fields.get(3)? == protocol.waiting()).then_some(())?;
        Some(Listener {
            protocol,
            port: u16::from_str_radix(port, 16).ok()?,
            inode: fields.get(9)?.parse().ok()?,
            program: None,
        })
    };
    text.lines().skip(1).filter_map(parse).collect()
}

/// Whatever the address: a box's services are not meant to share a port with somebody on another NIC.
pub fn check_ports(listeners: &[Listener]) -> Vec<Finding> {
    let taken = NEEDED.iter().filter_map(|(protocol, port, purpose)| {
        let listener = listeners
            .iter()
            .find(|listener| listener.protocol == *protocol && listener.port == *port)?;
        let program = listener.program.as_deref().unwrap_or("another program");
        Some(Finding::new(
            format!("port {}/{port}", protocol.name()),
            format!("{program} listens there, and the box needs it for {purpose}"),
            format!("stop {program}, or give it another port"),
        ))
    });
    taken.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1234 1 0 100 0 0 10 0
   1: 0100007F:0016 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 99 1 0 20 4 30 10 -1
";
    const UDP6: &str = "  sl  local_address remote_address st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode ref pointer drops
  10: 00000000000000000000000000000000:0043 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 77 2 0 0
";

    #[test]
    fn listeners_are_read_from_the_kernels_list_and_connections_are_not() {
        let tcp = parse_listeners(Protocol::Tcp, TCP);
        assert_eq!(
            tcp,
            [Listener {
                protocol: Protocol::Tcp,
                port: 80,
                inode: 1234,
                program: None
            }]
        );
        let udp = parse_listeners(Protocol::Udp, UDP6);
        assert_eq!((udp.len(), udp[0].port, udp[0].inode), (1, 67, 77));
    }

    #[test]
    fn every_taken_port_is_named_with_its_program_and_others_do_not_matter() {
        let listener = |protocol, port, program: Option<&str>| Listener {
            protocol,
            port,
            inode: 1,
            program: program.map(str::to_owned),
        };
        let findings = check_ports(&[
            listener(Protocol::Tcp, 22, Some("sshd")),
            listener(Protocol::Tcp, 67, Some("odd")),
            listener(Protocol::Udp, 67, Some("dnsmasq")),
            listener(Protocol::Tcp, 80, None),
        ]);
        let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(lines.len(), 2, "{lines:#?}");
        assert!(lines[0].starts_with("port udp/67: dnsmasq listens there"));
        assert!(lines[1].contains("another program") && lines[1].contains("the page"));
    }
}
