#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium};
use smoltcp::socket::{tcp, udp};
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr};

use super::*;

const PEER: Ipv4Addr = Ipv4Addr::new(172, 22, 0, 9);

fn read_frame(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut frame)?;
    Ok(frame)
}

fn write_frame(stream: &mut UnixStream, frame: &[u8]) {
    let length = u32::try_from(frame.len()).unwrap().to_be_bytes();
    stream.write_all(&[&length[..], frame].concat()).unwrap();
}

fn frame(to: u8, from: u8, payload: &[u8]) -> Vec<u8> {
    let mac = |n: u8| {
        if n == 0xff {
            [0xff; 6]
        } else {
            [2, 0, 0, 0, 0, n]
        }
    };
    [&mac(to)[..], &mac(from), &[0x88, 0xb5], payload].concat()
}

fn attach(wire: &Wire) -> UnixStream {
    let stream = wire.attach().unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    stream
}

#[test]
fn a_learned_address_gets_its_frames_alone() {
    let wire = Wire::lay(&WireSpec::default()).unwrap();
    let (mut a, mut b, mut c) = (attach(&wire), attach(&wire), attach(&wire));
    write_frame(&mut a, &frame(0xff, 1, b"hello"));
    assert_eq!(read_frame(&mut b).unwrap(), frame(0xff, 1, b"hello"));
    assert_eq!(read_frame(&mut c).unwrap(), frame(0xff, 1, b"hello"));
    write_frame(&mut b, &frame(1, 2, b"for a alone"));
    write_frame(&mut b, &frame(0xff, 2, b"for all"));
    assert_eq!(read_frame(&mut a).unwrap(), frame(1, 2, b"for a alone"));
    assert_eq!(
        read_frame(&mut c).unwrap(),
        frame(0xff, 2, b"for all"),
        "c must not see the frame for a"
    );
}

#[test]
fn frames_cut_at_any_place_arrive_whole() {
    let wire = Wire::lay(&WireSpec::default()).unwrap();
    let (mut a, mut b) = (attach(&wire), attach(&wire));
    let sent = frame(0xff, 1, &[7; 300]);
    let length = u32::try_from(sent.len()).unwrap().to_be_bytes();
    for byte in [&length[..], &sent, &length, &sent].concat() {
        a.write_all(&[byte]).unwrap();
    }
    assert_eq!(read_frame(&mut b).unwrap(), sent);
    assert_eq!(read_frame(&mut b).unwrap(), sent);
}

#[test]
fn a_machine_that_does_not_read_loses_frames_and_stops_nobody() {
    let wire = Wire::lay(&WireSpec::default()).unwrap();
    let (mut a, stuck, mut b) = (attach(&wire), attach(&wire), attach(&wire));
    let read = Arc::new(AtomicUsize::new(0));
    let counted = read.clone();
    let reader = std::thread::spawn(move || {
        (0..12_000).all(|number| {
            let is_read = read_frame(&mut b).is_ok();
            counted.store(number + 1, Ordering::SeqCst);
            is_read
        })
    });
    for sent in 0..12_000 {
        // No further ahead than its queue holds, however busy the host is.
        while sent > read.load(Ordering::SeqCst) + 64 && !reader.is_finished() {
            std::thread::yield_now();
        }
        write_frame(&mut a, &frame(0xff, 1, &[0; 1400]));
    }
    assert!(
        reader.join().unwrap(),
        "the machine that reads gets every frame"
    );
    assert!(wire.report().dropped > 0);
    drop(stuck);
}

#[test]
fn a_leak_is_counted_with_its_text() {
    let wire = Wire::lay(&WireSpec::default()).unwrap();
    let (mut a, mut b) = (attach(&wire), attach(&wire));
    let ip = [
        0x45, 0, 0, 24, 0, 0, 0, 0, 64, 17, 0, 0, 172, 22, 0, 9, 9, 9, 9, 9, 0, 9, 0, 53,
    ];
    let packet = [&[0xff; 6], &[2, 0, 0, 0, 0, 1][..], &[8, 0], &ip].concat();
    for _ in 0..2 {
        write_frame(&mut a, &packet);
        read_frame(&mut b).unwrap();
    }
    let leaks: Vec<_> = wire.report().leaks.into_iter().collect();
    assert_eq!(
        leaks,
        [(
            "02:00:00:00:00:01 sends UDP 172.22.0.9 to 9.9.9.9 port 53".to_owned(),
            2
        )]
    );
}

/// A machine with a TCP/IP stack that answers each connection on port 80 with what it was sent, and ends.
struct Peer(UnixStream);

impl Device for Peer {
    type RxToken<'a> = host::Received;
    type TxToken<'a> = Out<'a>;
    fn receive(&mut self, _: smoltcp::time::Instant) -> Option<(host::Received, Out<'_>)> {
        let frame = read_frame(&mut self.0).ok()?;
        Some((host::Received(frame), Out(&mut self.0)))
    }
    fn transmit(&mut self, _: smoltcp::time::Instant) -> Option<Out<'_>> {
        Some(Out(&mut self.0))
    }
    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        capabilities
    }
}

struct Out<'a>(&'a mut UnixStream);

impl smoltcp::phy::TxToken for Out<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, f: F) -> R {
        let mut frame = vec![0; length];
        let result = f(&mut frame);
        write_frame(self.0, &frame);
        result
    }
}

/// At [`PEER`], with a network stack of its own.
fn machine(stream: UnixStream) -> (Peer, Interface) {
    stream
        .set_read_timeout(Some(Duration::from_millis(5)))
        .unwrap();
    let mut peer = Peer(stream);
    let config = Config::new(EthernetAddress([2, 0, 0, 0, 0, 9]).into());
    let mut interface = Interface::new(config, &mut peer, smoltcp::time::Instant::now());
    interface.update_ip_addrs(|list| list.push(IpCidr::new(IpAddress::Ipv4(PEER), 24)).unwrap());
    (peer, interface)
}

fn echo_until(stop: &AtomicBool, stream: UnixStream) {
    let (mut peer, mut interface) = machine(stream);
    let now = smoltcp::time::Instant::now;
    let buffer = || tcp::SocketBuffer::new(vec![0; 32 << 10]);
    let mut sockets = SocketSet::new(vec![]);
    let handle = sockets.add(tcp::Socket::new(buffer(), buffer()));
    while !stop.load(Ordering::Relaxed) {
        // Before the first poll: a connection that is already waiting must not be refused.
        let socket = sockets.get_mut::<tcp::Socket>(handle);
        if !socket.is_open() {
            socket.listen(80).unwrap();
        }
        interface.poll(now(), &mut peer, &mut sockets);
        let socket = sockets.get_mut::<tcp::Socket>(handle);
        while socket.can_recv() && socket.can_send() {
            let room = socket.send_capacity() - socket.send_queue();
            let data = socket
                .recv(|data| (data.len().min(room), data[..data.len().min(room)].to_vec()))
                .unwrap();
            socket.send_slice(&data).unwrap();
        }
        if socket.may_send() && !socket.may_recv() && socket.state() == tcp::State::CloseWait {
            socket.close();
        }
    }
}

#[test]
fn a_forwarded_port_reaches_a_machine_and_brings_every_byte_back() {
    let wire = Wire::lay(&WireSpec::default()).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (stream, stopped) = (wire.attach().unwrap(), Arc::clone(&stop));
    let peer = std::thread::spawn(move || echo_until(&stopped, stream));
    let address = wire.forward(0, SocketAddrV4::new(PEER, 80)).unwrap();

    let sent: Vec<u8> = (0..1_000_000_u32)
        .map(|n| n.to_le_bytes()[n as usize % 3])
        .collect();
    let mut client = TcpStream::connect(address).unwrap();
    client
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let (mut writer, data) = (client.try_clone().unwrap(), sent.clone());
    let writing = std::thread::spawn(move || {
        writer.write_all(&data).unwrap();
        writer.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut received = Vec::new();
    client.read_to_end(&mut received).unwrap();
    writing.join().unwrap();
    assert!(
        received == sent,
        "{} of {} bytes came back the same",
        received.len(),
        sent.len()
    );
    assert!(wire.report().leaks.is_empty(), "{:?}", wire.report().leaks);
    stop.store(true, Ordering::Relaxed);
    peer.join().unwrap();
}

/// A machine that opens a connection to the wire's host and reads what comes until its end.
fn answer_at(wire: &Wire, port: u16, from: u16, question: &[u8]) -> Vec<u8> {
    let stream = wire.attach().unwrap();
    let (mut peer, mut interface) = machine(stream);
    let now = smoltcp::time::Instant::now;
    let buffer = || tcp::SocketBuffer::new(vec![0; 32 << 10]);
    let mut socket = tcp::Socket::new(buffer(), buffer());
    socket.set_timeout(Some(smoltcp::time::Duration::from_secs(20)));
    let host = IpAddress::Ipv4(HOST_ADDRESS);
    socket
        .connect(interface.context(), (host, port), from)
        .unwrap();
    let mut sockets = SocketSet::new(vec![]);
    let handle = sockets.add(socket);
    let (mut asked, mut answer) = (false, Vec::new());
    loop {
        interface.poll(now(), &mut peer, &mut sockets);
        let socket = sockets.get_mut::<tcp::Socket>(handle);
        if socket.may_send() && !asked {
            socket.send_slice(question).unwrap();
            asked = true;
        }
        while socket.can_recv() {
            socket
                .recv(|data| {
                    answer.extend_from_slice(data);
                    (data.len(), ())
                })
                .unwrap();
        }
        if !socket.is_open() || socket.state() == tcp::State::CloseWait {
            return answer;
        }
    }
}

#[test]
fn a_machine_reaches_a_service_of_the_host_time_and_again() {
    let wire = Wire::lay(&WireSpec::default()).unwrap();
    let service = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = NonZeroU16::new(8000).unwrap();
    wire.serve(port, service.local_addr().unwrap()).unwrap();
    let answering = std::thread::spawn(move || {
        for _ in 0..6 {
            let (mut stream, _) = service.accept().unwrap();
            let mut question = [0; 5];
            stream.read_exact(&mut question).unwrap();
            question.reverse();
            stream.write_all(&question).unwrap();
        }
    });
    for round in 0..6_u8 {
        let (question, from) = ([round, 1, 2, 3, 4], 50_000 + u16::from(round));
        assert_eq!(
            answer_at(&wire, 8000, from, &question),
            [4, 3, 2, 1, round],
            "round {round}"
        );
    }
    answering.join().unwrap();
    // The service has ended; and nobody ever was at this port.
    assert_eq!(answer_at(&wire, 8000, 50_006, b"hello"), b"");
    assert_eq!(answer_at(&wire, 8001, 50_007, b"hello"), b"");
    assert!(wire.report().leaks.is_empty(), "{:?}", wire.report().leaks);
}

#[test]
fn datagrams_of_a_machine_reach_a_service_and_its_answers_come_back() {
    let wire = Wire::lay(&WireSpec::default()).unwrap();
    let service = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = NonZeroU16::new(6230).unwrap();
    let target = service.local_addr().unwrap();
    wire.serve_datagrams(port, target).unwrap();
    let answering = std::thread::spawn(move || {
        let mut data = [0; 16];
        let (length, from) = service.recv_from(&mut data).unwrap();
        data[..length].reverse();
        service.send_to(&data[..length], from).unwrap();
    });
    let stream = wire.attach().unwrap();
    let (mut peer, mut interface) = machine(stream);
    let now = smoltcp::time::Instant::now;
    let buffer = || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY], vec![0; 64]);
    let mut socket = udp::Socket::new(buffer(), buffer());
    socket.bind(50_000).unwrap();
    socket
        .send_slice(b"ping", (IpAddress::Ipv4(HOST_ADDRESS), 6230))
        .unwrap();
    let mut sockets = SocketSet::new(vec![]);
    let handle = sockets.add(socket);
    let began = std::time::Instant::now();
    loop {
        interface.poll(now(), &mut peer, &mut sockets);
        if let Ok((data, _)) = sockets.get_mut::<udp::Socket>(handle).recv() {
            assert_eq!(data, b"gnip");
            break;
        }
        assert!(began.elapsed() < Duration::from_mins(1), "no answer came");
    }
    answering.join().unwrap();
    assert!(wire.report().leaks.is_empty(), "{:?}", wire.report().leaks);
}
