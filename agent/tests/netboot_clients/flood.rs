//! Good clients beside those that mean harm, or are broken.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use firstlight_api::status::DhcpMode;

use super::{
    common::isolated,
    needs,
    segment::{Server, Stick, wait_for, wait_for_dhcp},
};

const BOX: Ipv4Addr = Ipv4Addr::new(172, 22, 0, 1);
const A_SECOND: u64 = 10_000;
const SLOW: u8 = 64;

/// Sent in turn to each of the ports.
const PORTS: [u16; 3] = [67, 69, 4011];

/// Something between a message and noise.
fn malformed(number: u64) -> Vec<u8> {
    let mut noise = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move || {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        noise.to_le_bytes()[0]
    };
    let length = 1 + usize::from(next()) * 2;
    let mut bytes: Vec<u8> = (0..length).map(|_| next()).collect();
    // Half of them get past the first look.
    if number.is_multiple_of(2) && length > 244 {
        bytes[..3].copy_from_slice(&[1, 1, 6]);
        bytes[236..240].copy_from_slice(&[99, 130, 83, 99]);
    } else if length > 2 {
        bytes[..2].copy_from_slice(&[0, 1]);
    }
    bytes
}

/// `A_SECOND` datagrams each second, until `stop`; how many there were.
fn flood(stop: &AtomicBool, sent: &AtomicU64) {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let start = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let due = start.elapsed().as_millis() * u128::from(A_SECOND) / 1000;
        let due = u64::try_from(due).unwrap();
        for number in sent.load(Ordering::Relaxed)..due {
            let port = PORTS[usize::try_from(number % 3).unwrap()];
            // A full queue is a datagram that nobody has to read.
            drop(socket.send_to(&malformed(number), (BOX, port)));
            sent.store(number + 1, Ordering::Relaxed);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Asks for a file and reads a byte of it each second, until `stop`; again if it is sent away.
fn read_slowly(from: Ipv4Addr, stop: &AtomicBool, open: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut stream) = connect(from) else {
            std::thread::sleep(Duration::from_millis(200));
            continue;
        };
        open.fetch_add(1, Ordering::Relaxed);
        let mut byte = [0];
        while !stop.load(Ordering::Relaxed) && matches!(stream.read(&mut byte), Ok(1)) {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
}

fn connect(from: Ipv4Addr) -> std::io::Result<TcpStream> {
    use nix::sys::socket::{
        AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, setsockopt, socket, sockopt,
    };
    use std::{net::SocketAddrV4, os::fd::AsRawFd};
    let fd = socket(
        AddressFamily::Inet,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    // As little as there is: the rest waits at the box.
    setsockopt(&fd, sockopt::RcvBuf, &4096)?;
    bind(
        fd.as_raw_fd(),
        &SockaddrIn::from(SocketAddrV4::new(from, 0)),
    )?;
    connect(
        fd.as_raw_fd(),
        &SockaddrIn::from(SocketAddrV4::new(BOX, 80)),
    )?;
    let mut stream = TcpStream::from(fd);
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET /boot/kernel HTTP/1.1\r\nHost: box\r\n\r\n")?;
    Ok(stream)
}

#[test]
fn good_clients_go_on_beside_a_flood_and_beside_those_that_do_not_read() {
    isolated(
        "flood::good_clients_go_on_beside_a_flood_and_beside_those_that_do_not_read",
        || {
            needs("atftp", "atftp");
            let (stick, server) = (Stick::new(), Server::connect());
            for last in 10..10 + SLOW {
                let address = format!("172.22.0.{last}/24");
                server.run("ip", &["address", "add", &address, "dev", "fl-host"]);
            }
            let _agent = stick.start_agent();
            wait_for_dhcp("DHCP", |mode| *mode == DhcpMode::Serving);
            let [sent, open] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
            let ended = Arc::new(AtomicBool::new(false));
            let mut bad = vec![];
            {
                let (ended, sent) = (ended.clone(), sent.clone());
                bad.push(server.spawn_inside(move || flood(&ended, &sent)));
            }
            for last in 10..10 + SLOW {
                let (ended, open) = (ended.clone(), open.clone());
                bad.push(server.spawn_inside(move || {
                    read_slowly([172, 22, 0, last].into(), &ended, &open);
                }));
            }
            wait_for("those that read slowly", || {
                (open.load(Ordering::Relaxed) >= u64::from(SLOW)).then_some(())
            });
            wait_for("the flood", || {
                (sent.load(Ordering::Relaxed) >= A_SECOND).then_some(())
            });
            let (script, file) = (stick.script(), stick.path("out"));
            let out = file.to_str().unwrap();
            for round in 0..3 {
                let lease = wait_for("a lease in the flood", || {
                    let output = server
                        .command("busybox")
                        .args([
                            "udhcpc", "-i", "fl-host", "-f", "-q", "-n", "-t", "5", "-T", "1",
                        ])
                        .args(["-s", script.to_str().unwrap()])
                        .output()
                        .unwrap();
                    let text = String::from_utf8_lossy(&output.stdout).into_owned();
                    text.starts_with("ip=").then_some(text)
                });
                assert!(lease.starts_with("ip=172.22.0.100 "), "{round}: {lease}");
                let url = "http://172.22.0.1/boot/kernel";
                server.run("curl", &["-sf", "-m", "60", "-o", out, url]);
                assert!(fs::read(&file).unwrap() == stick.kernel, "{round}: by HTTP");
                fs::remove_file(&file).unwrap();
                server.run(
                    "atftp",
                    &["--get", "-r", "undionly.kpxe", "-l", out, "172.22.0.1"],
                );
                let loader = &stick.kernel[..100_000];
                assert!(fs::read(&file).unwrap() == loader, "{round}: by TFTP");
                fs::remove_file(&file).unwrap();
            }
            ended.store(true, Ordering::Relaxed);
            for bad in bad {
                bad.join().unwrap();
            }
        },
    );
}
