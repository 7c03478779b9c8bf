//! Files that people upload.

use std::io::{Cursor, Read, Write};

use firstlight_artifacts::{Format, apt, chart, container, deb, qcow2, recognise};

/// Of a disk, as many bytes are unpacked.
const MOST: u64 = 1 << 20;

/// The first byte says what the rest is: a file, or what is packed within one, for no change of a byte would come past the
/// checksum of a packed stream.
pub fn run(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    match kind % 5 {
        0 => file(rest),
        1 => file(&package(rest)),
        2 => file(&package(&tar("./control", rest))),
        3 => file(&gzip(rest)),
        _ => file(&gzip(&tar("web/Chart.yaml", rest))),
    }
}

/// As `firstlight push` and the box's store read one.
fn file(bytes: &[u8]) {
    let mut file = Cursor::new(bytes);
    let Ok(format) = recognise(&mut file) else {
        return;
    };
    match format {
        Format::Deb => {
            if let Ok(control) = deb::read_control(file)
                && let Ok(name) = apt::filename(&control)
            {
                let mut parts = name.split('/');
                assert!(parts.all(|part| !matches!(part, "" | "." | "..")), "{name}");
            }
        }
        Format::Tar => drop(container::read_container(&mut file)),
        Format::Gzip => drop(chart::read_chart(file)),
        Format::Qcow2 => {
            if let Ok(disk) = qcow2::Disk::open(file) {
                let size = disk.size();
                let mut unpacked = Vec::new();
                if disk.take(MOST).read_to_end(&mut unpacked).is_ok() {
                    assert_eq!(unpacked.len() as u64, size.min(MOST));
                }
            }
        }
        Format::Zstd | Format::Raw => {}
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(bytes).expect("memory takes everything");
    gzip.finish().expect("memory takes everything")
}

fn tar(name: &str, content: &[u8]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    append(&mut tar, name, content);
    tar.into_inner().expect("memory takes everything")
}

fn append(tar: &mut tar::Builder<Vec<u8>>, name: &str, content: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    let appended = tar.append_data(&mut header, name, content);
    appended.expect("memory takes everything");
}

/// A package with this control part, not packed.
fn package(control: &[u8]) -> Vec<u8> {
    let member = |name: &str, content: &[u8]| {
        let length = content.len();
        let mut bytes =
            format!("{name:<16}{0:<12}{0:<6}{0:<6}{0:<8}{length:<10}`\n", 0).into_bytes();
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(2), b'\n');
        bytes
    };
    let parts = [
        b"!<arch>\n".to_vec(),
        member("debian-binary", b"2.0\n"),
        member("control.tar", control),
        member("data.tar", b"never read"),
    ];
    parts.concat()
}

pub fn seeds() -> Vec<Vec<u8>> {
    let control = b"Package: hello\nVersion: 2.10-3\nArchitecture: amd64\nDescription: greets\n It says hello.\n";
    let chart = b"apiVersion: v2\nname: web\nversion: 1.2.3\nkeywords: [a]\n";
    let mut docker = tar::Builder::new(Vec::new());
    let manifest =
        br#"[{"Config": "config.json", "RepoTags": ["web:1"], "Layers": ["a/layer.tar"]}]"#;
    let config = br#"{"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": ["sha256:ab"]}}"#;
    append(&mut docker, "manifest.json", manifest);
    append(&mut docker, "config.json", config);
    append(&mut docker, "a/layer.tar", b"layer");
    let docker = docker.into_inner().expect("memory takes everything");
    let of = |kind: u8, bytes: &[u8]| [&[kind], bytes].concat();
    vec![
        of(0, &package(&tar("./control", control))),
        of(0, &docker),
        of(0, &gzip(&tar("web/Chart.yaml", chart))),
        of(0, &disk()),
        of(1, &tar("./control", control)),
        of(2, control),
        of(3, &tar("web/Chart.yaml", chart)),
        of(4, chart),
    ]
}

/// QCOW2 of four clusters: one plain, one packed, one of zeros, one that is not there.
fn disk() -> Vec<u8> {
    const CLUSTER: usize = 512;
    let mut packed = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    packed
        .write_all(&[7; CLUSTER])
        .expect("memory takes everything");
    let packed = packed.finish().expect("memory takes everything");
    let mut disk = vec![0; 6 * CLUSTER];
    let mut put = |at: usize, bytes: &[u8]| disk[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"QFI\xfb\0\0\0\x03");
    put(20, &9_u32.to_be_bytes());
    put(24, &(4 * CLUSTER as u64).to_be_bytes());
    put(36, &1_u32.to_be_bytes());
    put(40, &(CLUSTER as u64).to_be_bytes());
    put(96, &4_u32.to_be_bytes());
    put(100, &104_u32.to_be_bytes());
    put(CLUSTER, &(2 * CLUSTER as u64).to_be_bytes());
    let entries = [3 * CLUSTER as u64, (1 << 62) | (4 * CLUSTER as u64), 1, 0];
    put(2 * CLUSTER, &entries.map(u64::to_be_bytes).concat());
    put(3 * CLUSTER, &[9; CLUSTER]);
    put(4 * CLUSTER, &packed);
    disk
}
