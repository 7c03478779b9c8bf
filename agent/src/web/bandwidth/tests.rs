#![allow(clippy::unwrap_used)]

use firstlight_api::site::parse_site;
use http_body_util::StreamBody;
use tokio::task::JoinSet;

use super::*;
use crate::web::full;

const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(172, 22, 0, 101));
const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(172, 22, 0, 102));

/// 1 MB a second.
fn bandwidth() -> Bandwidth {
    let site = parse_site("provisioning: {bandwidth: 8 Mbit/s}").unwrap();
    Bandwidth::new(watch::Sender::new(Some(Arc::new(site))).subscribe())
}

/// Bytes that each of these connections has had after so long.
async fn after(bandwidth: &Bandwidth, peers: &[IpAddr], time: Duration) -> Vec<u64> {
    let mut sending = JoinSet::new();
    let had: Vec<_> = peers.iter().map(|_| Arc::new(Mutex::new(0))).collect();
    for (peer, had) in peers.iter().zip(&had) {
        let (share, had) = (bandwidth.share(*peer).unwrap(), Arc::clone(had));
        sending.spawn(async move {
            loop {
                share.turn(share.piece()).await;
                *had.lock().unwrap() += share.piece();
            }
        });
    }
    tokio::time::sleep(time).await;
    sending.shutdown().await;
    had.iter().map(|had| *had.lock().unwrap()).collect()
}

fn is_about(bytes: u64, wanted: u64) -> bool {
    bytes.abs_diff(wanted) <= wanted / 20
}

#[tokio::test(start_paused = true)]
async fn one_server_gets_all_of_it_and_no_more() {
    let had = after(&bandwidth(), &[A], Duration::from_secs(10)).await;
    assert!(is_about(had[0], 10_000_000), "{had:?}");
}

#[tokio::test(start_paused = true)]
async fn servers_have_the_same_however_many_connections_they_have() {
    let peers = [A, A, A, A, A, A, A, B];
    let had = after(&bandwidth(), &peers, Duration::from_secs(10)).await;
    let of_a: u64 = had[..7].iter().sum();
    assert!(
        is_about(of_a, 5_000_000) && is_about(had[7], 5_000_000),
        "{had:?}"
    );
    let least = had[..7].iter().min().unwrap();
    assert!(*least > 600_000, "{had:?}");
}

#[tokio::test(start_paused = true)]
async fn who_comes_late_has_no_claim_to_what_was_before() {
    let bandwidth = bandwidth();
    let alone = bandwidth.clone();
    let first = tokio::spawn(async move { after(&alone, &[A], Duration::from_secs(20)).await });
    tokio::time::sleep(Duration::from_secs(10)).await;
    let late = after(&bandwidth, &[B], Duration::from_secs(10)).await;
    assert!(is_about(late[0], 5_000_000), "{late:?}");
    assert!(is_about(first.await.unwrap()[0], 15_000_000));
}

#[tokio::test(start_paused = true)]
async fn clients_that_go_while_they_wait_hold_nobody_up() {
    let bandwidth = bandwidth();
    let mut gone = JoinSet::new();
    for _ in 0..100 {
        let share = bandwidth.share(A).unwrap();
        gone.spawn(async move { share.turn(1_000_000).await });
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    gone.shutdown().await;
    let began = Instant::now();
    bandwidth.share(B).unwrap().turn(1000).await;
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(locked(&bandwidth.link).waiting.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_large_answer_waits_and_a_small_one_does_not() {
    let bandwidth = bandwidth();
    let answer = |bytes: usize| {
        let frame = move |_| Ok::<_, io::Error>(Frame::data(Bytes::from(vec![0; bytes / 10])));
        let frames = futures_util::stream::iter((0..10).map(frame));
        let mut answer = Response::new(BodyExt::boxed_unsync(StreamBody::new(frames)));
        answer
            .headers_mut()
            .insert(header::CONTENT_LENGTH, bytes.into());
        answer
    };
    let took = async |answer: Response<Body>| {
        let began = Instant::now();
        let bytes = answer.collect().await.unwrap().to_bytes().len();
        (bytes, began.elapsed().as_millis())
    };
    let small = bandwidth.limit(A, answer(60_000));
    assert_eq!(took(small).await, (60_000, 0));
    let (bytes, time) = took(bandwidth.limit(A, answer(1_000_000))).await;
    // The last piece needs not be over.
    assert!(
        bytes == 1_000_000 && (900..1000).contains(&time),
        "{bytes} {time}"
    );
    let local = bandwidth.limit([127, 0, 0, 1].into(), answer(1_000_000));
    assert_eq!(took(local).await, (1_000_000, 0));
    let endless = Response::new(full("x"));
    assert_eq!(took(bandwidth.limit(A, endless)).await, (1, 0));
    let without = Bandwidth::new(watch::Sender::new(None).subscribe());
    assert!(without.share(A).is_none());
}
