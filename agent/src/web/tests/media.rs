//! Virtual CDs, as BMCs ask for them.

use super::*;

const PATH: &str = "/boot/cd/52-54-00-00-00-01.iso";

/// With all that a CD is made of.
async fn whole_stick() -> Fixture {
    let box_ = serve().await;
    let folder = Paths::new(box_.dir.path()).netboot();
    let kernel: Vec<u8> = (0..200_001_u32)
        .map(|at| u8::try_from(at % 249).unwrap())
        .collect();
    fs::write(folder.join("vmlinuz"), kernel).unwrap();
    fs::write(folder.join("grubx64.efi"), "grub").unwrap();
    fs::write(folder.join("initrd"), "initramfs").unwrap();
    box_
}

#[tokio::test]
async fn a_cd_comes_whole_and_in_any_parts_and_says_what_its_server_is() {
    let box_ = whole_stick().await;
    assert_eq!(box_.text(PATH).await.0, 503, "the box is not up yet");
    box_.boot.send_replace(Some(boot_site()));
    let whole = box_.get(PATH, &[]).await;
    let etag = whole.headers()["etag"].to_str().unwrap().to_owned();
    let whole = body(whole).await;
    assert_eq!(&whole[16 * 2048..][..6], b"\x01CD001");
    let has = |words: &str| whole.windows(words.len()).any(|at| at == words.as_bytes());
    assert!(has("BOOTIF=01-52-54-00-00-00-01") && has("initramfs"));
    // What a slow BMC asks: the whole of it, again and again, a little at a time, over the borders of all parts.
    let mut read = Vec::new();
    while read.len() < whole.len() {
        let last = (read.len() + 7000).min(whole.len() - 1);
        let range = format!("bytes={}-{last}", read.len());
        let part = box_
            .get(PATH, &[("range", &range), ("if-range", &etag)])
            .await;
        assert_eq!(part.status(), 206);
        read.extend_from_slice(&body(part).await);
    }
    assert!(read == whole);
    let head = Request::head(PATH)
        .header("host", "box")
        .body(Full::default());
    let head = send(box_.address, head.unwrap()).await;
    let length = head.headers()["content-length"].to_str().unwrap();
    assert_eq!(length, whole.len().to_string());
    // Another server, and another stick: other CDs.
    let other = box_.get("/boot/cd/52-54-00-00-00-02.iso", &[]).await;
    assert_ne!(other.headers()["etag"].to_str().unwrap(), etag);
    fs::write(Paths::new(box_.dir.path()).netboot().join("initrd"), "new").unwrap();
    let old = [("if-range", &*etag), ("range", "bytes=0-9")];
    let newer = box_.get(PATH, &old).await;
    assert_eq!(newer.status(), 200, "no part of another CD");
    let newer = body(newer).await;
    assert!(
        newer.windows(3).any(|at| at == b"new") && !newer.windows(9).any(|at| at == b"initramfs")
    );
}

#[tokio::test]
async fn there_is_no_cd_for_nobody_and_none_of_half_a_stick() {
    let box_ = whole_stick().await;
    box_.boot.send_replace(Some(boot_site()));
    for path in [
        "/boot/cd/x.iso",
        "/boot/cd/",
        "/boot/cd/52-54-00-00-00-01",
        "/boot/cd/ff-ff-ff-ff-ff-ff.iso",
    ] {
        assert_eq!(box_.text(path).await.0, 404, "{path}");
    }
    fs::remove_file(Paths::new(box_.dir.path()).netboot().join("grubx64.efi")).unwrap();
    assert_eq!(box_.text(PATH).await.0, 404);
}
