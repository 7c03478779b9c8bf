//! Others are served while somebody floods the door, and nothing is left afterwards.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::*;

/// What an honest server waits at most, on a busy machine.
const SOON: Duration = Duration::from_secs(5);
const SERVER: u8 = 100;
const STRANGER: u8 = 50;

async fn connect(number: u8, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    // Little, so that who does not read holds up the sender.
    socket.set_recv_buffer_size(4096).unwrap();
    socket.bind(([127, 0, 0, number], 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

/// What eight addresses can hold on to; each connection says `says` and reads no more than the first bytes of an answer.
async fn flood(to: SocketAddr, of_each: usize, says: &str) -> Vec<TcpStream> {
    let mut open = vec![];
    for number in 11..19 {
        for _ in 0..of_each {
            let mut stream = connect(number, to).await;
            // Without a place it is closed.
            if stream.write_all(says.as_bytes()).await.is_ok() {
                open.push(stream);
            }
        }
    }
    open
}

impl Fixture {
    fn lease_to(&self, number: u8) {
        let address = Ipv4Addr::new(127, 0, 0, number);
        self.leased
            .send_replace(Arc::new(BTreeSet::from([address])));
    }

    async fn serves(&self, number: u8) {
        let request = Request::get("/images/node.raw.zst").header("host", "box");
        let request = request.body(Full::default()).unwrap();
        let answer = async {
            let response = send_from(number, self.address, request).await;
            body(response).await
        };
        let image = timeout(SOON, answer).await.expect("a place");
        assert!(image == self.image);
    }

    async fn is_empty(&self) {
        let empty = async {
            while self.door.open() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(SOON, empty).await.expect("all places are back");
    }
}

#[tokio::test]
async fn idle_connections_of_eight_addresses_keep_nobody_out() {
    let box_ = serve().await;
    box_.lease_to(SERVER);
    let said = "GET /boot/kernel HTTP/1.1\r\nhost: box\r\n\r\n";
    let mut idle = flood(box_.address, 40, said).await;
    for stream in &mut idle {
        // Answered, or closed for want of a place.
        drop(timeout(SOON, stream.read(&mut [0; 16])).await.unwrap());
    }
    assert!(box_.door.open() <= server::SEGMENT.all - server::SEGMENT.kept);
    box_.serves(SERVER).await;
    box_.serves(STRANGER).await;
    drop(idle);
    box_.is_empty().await;
}

#[tokio::test]
async fn who_does_not_read_or_does_not_end_its_request_keeps_nobody_out() {
    for says in [
        "GET /images/node.raw.zst HTTP/1.1\r\nhost: box\r\n\r\n",
        "POST /api/v1/ramdisk/report HTTP/1.1\r\nhost: box\r\ncontent-length: 90000\r\n\r\n{",
        "GET /images/no",
    ] {
        let box_ = serve().await;
        box_.lease_to(SERVER);
        let open = flood(box_.address, 40, says).await;
        box_.serves(SERVER).await;
        box_.serves(STRANGER).await;
        assert!(box_.door.open() <= server::SEGMENT.all - server::SEGMENT.kept);
        drop(open);
        box_.is_empty().await;
    }
}

/// A flood that holds leases too has its share of each address, and no more.
#[tokio::test]
async fn servers_that_flood_leave_room_for_one_that_does_not() {
    let box_ = serve().await;
    let leased = (11..31).map(|number| Ipv4Addr::new(127, 0, 0, number));
    box_.leased.send_replace(Arc::new(leased.collect()));
    let reading = "GET /images/node.raw.zst HTTP/1.1\r\nhost: box\r\n\r\n";
    let mut open = vec![];
    for number in 11..30 {
        for _ in 0..server::SEGMENT.of_peer {
            let mut stream = connect(number, box_.address).await;
            drop(stream.write_all(reading.as_bytes()).await);
            open.push(stream);
        }
    }
    box_.serves(30).await;
    drop(open);
    box_.is_empty().await;
}
