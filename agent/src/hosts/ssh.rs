//! Does an operating system answer there? An SSH server says so before anybody logs in (RFC 4253, section 4.2).

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use tokio::{io::AsyncReadExt, net::TcpStream};

const TIME: Duration = Duration::from_secs(4);

pub async fn answers(address: Ipv4Addr, port: u16) -> bool {
    let banner = async {
        let mut stream = TcpStream::connect(SocketAddr::from((address, port)))
            .await
            .ok()?;
        let mut start = [0; 4];
        stream.read_exact(&mut start).await.ok()?;
        Some(start)
    };
    matches!(tokio::time::timeout(TIME, banner).await, Ok(Some(start)) if &start == b"SSH-")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::{io::AsyncWriteExt, net::TcpListener};

    #[tokio::test]
    async fn only_a_banner_of_ssh_counts() {
        for (says, expected) in [
            ("SSH-2.0-OpenSSH_10.0\r\n", true),
            ("HTTP/1.1 400\r\n", false),
            ("", false),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let server = tokio::spawn(async move {
                listener
                    .accept()
                    .await
                    .unwrap()
                    .0
                    .write_all(says.as_bytes())
                    .await
            });
            assert_eq!(
                answers(Ipv4Addr::LOCALHOST, port).await,
                expected,
                "{says:?}"
            );
            server.await.unwrap().unwrap();
        }
    }
}
