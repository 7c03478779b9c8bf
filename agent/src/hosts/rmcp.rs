//! Does a BMC speak IPMI over LAN at an address? Ironic has one sentence for a password that is wrong and for a BMC that is not there; this
//! tells them apart. It speaks only to where an object names a BMC, or a BMC has said that it is, and tells it nothing.

use std::{
    future::Future,
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
    time::Duration,
};

use tokio::{
    net::{UdpSocket, lookup_host},
    time::timeout,
};

pub const PORT: u16 = 623;
/// For one answer of a BMC, and how often it is asked.
const PATIENCE: Duration = Duration::from_secs(2);
const TRIES: usize = 3;
/// For all of it, a name that is looked up included.
const LONGEST: Duration = Duration::from_secs(10);
/// RMCP, then Get Channel Authentication Capabilities of this channel, for administrators: what every console begins with, and every
/// BMC answers to whoever asks (IPMI 2.0, 13.6 and 22.13).
const QUESTION: [u8; 23] = [
    0x06, 0, 0xff, 0x07, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0x20, 0x18, 0xc8, 0x81, 0, 0x38, 0x8e, 4,
    0xb5,
];

/// Asks host and port; the error is for people.
pub type Hail = fn(String, u16) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Over the network.
pub fn hail(host: String, port: u16) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> {
    Box::pin(async move { answers(&host, port).await })
}

/// # Errors
/// Why nobody was heard.
pub async fn answers(host: &str, port: u16) -> Result<(), String> {
    match timeout(LONGEST, ask(host, port)).await {
        Ok(Ok(true)) => Ok(()),
        Ok(Ok(false)) => Err("what answers there speaks something else".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(silent().to_string()),
    }
}

async fn ask(host: &str, port: u16) -> io::Result<bool> {
    let place = lookup_host((host, port)).await?.next();
    let place = place.ok_or_else(|| io::Error::other("the name has no address"))?;
    let from: SocketAddr = if place.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let socket = UdpSocket::bind(from).await?;
    socket.connect(place).await?;
    let mut answer = [0; 64];
    for _ in 0..TRIES {
        socket.send(&QUESTION).await?;
        if let Ok(length) = timeout(PATIENCE, socket.recv(&mut answer)).await {
            return length.map(|length| answer[..length].starts_with(&QUESTION[..4]));
        }
    }
    Err(silent())
}

fn silent() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "nothing comes back")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Somebody who answers every datagram with these bytes.
    async fn who_says(answer: &'static [u8]) -> u16 {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = socket.local_addr().unwrap().port();
        tokio::spawn(async move {
            let mut asked = [0; 64];
            while let Ok((length, from)) = socket.recv_from(&mut asked).await {
                assert_eq!(asked[..length], QUESTION);
                if !answer.is_empty() {
                    socket.send_to(answer, from).await.unwrap();
                }
            }
        });
        port
    }

    #[tokio::test]
    async fn a_bmc_is_told_from_what_is_none() {
        let bmc = who_says(&[0x06, 0, 0xff, 0x07, 0, 0, 0, 0]).await;
        assert_eq!(answers("127.0.0.1", bmc).await, Ok(()));
        for other in [&b"\x06\0\xff\x06"[..], b"\x06", b"SSH-2.0"] {
            let port = who_says(other).await;
            let why = answers("127.0.0.1", port).await.unwrap_err();
            assert!(why.contains("something else"), "{why}");
        }
    }

    #[tokio::test]
    async fn who_is_not_there_is_told_at_once_or_after_some_seconds() {
        let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let why = answers("127.0.0.1", port).await.unwrap_err();
        assert!(why.to_lowercase().contains("refused"), "{why}");
        let port = who_says(b"").await;
        let why = answers("127.0.0.1", port).await.unwrap_err();
        assert_eq!(why, "nothing comes back");
        assert!(answers("255.255.255.255", 623).await.is_err());
    }
}
