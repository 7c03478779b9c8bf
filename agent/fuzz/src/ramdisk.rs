//! Messages between ramdisk, box and Ironic.

use firstlight_api::artifact::ArtifactSpec;
use firstlight_api::order::DiskOrder;
use firstlight_api::packages;
use firstlight_api::report::{Progress, Reply, Report};
use firstlight_api::signed::{PublicKey, parse_signature};
use firstlight_api::site;
use firstlight_client::http::Url;
use firstlight_ramdisk::cmdline::parse_cmdline;
use firstlight_ramdisk::ipa::job;
use serde_json::{Value, json};

/// What is refused is refused in so many characters.
const LONGEST: usize = 1200;

fn refused(error: &dyn std::fmt::Display) {
    let sentence = error.to_string();
    assert!(sentence.chars().count() < LONGEST, "{sentence}");
    assert!(!sentence.contains(char::is_control), "{sentence}");
}

/// The first byte says what the rest is.
pub fn run(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    match kind % 6 {
        0 => match Report::parse(rest) {
            Ok(report) => {
                // What is kept is shown and written again.
                let hardware = serde_json::to_value(&*report.inventory.hardware);
                assert!(hardware.is_ok_and(|hardware| hardware.is_object()));
                let names = report.disks.iter().map(|disk| disk.name.chars().count());
                assert!(names.max().unwrap_or_default() <= 256);
            }
            Err(error) => refused(&error),
        },
        1 => match Progress::parse(rest) {
            Ok(progress) => {
                let text = serde_json::to_vec(&progress).expect("plain JSON");
                if text.len() <= firstlight_api::report::LARGEST_PROGRESS {
                    let again = Progress::parse(&text).expect("it was taken once");
                    assert_eq!(again, progress);
                }
            }
            Err(error) => refused(&error),
        },
        2 => match Reply::parse(rest) {
            Ok(reply) => {
                let text = serde_json::to_vec(&reply).expect("plain JSON");
                let again = Reply::parse(&text).expect("it was taken once");
                assert_eq!(again, reply);
            }
            Err(error) => refused(&error),
        },
        3 => {
            let Ok(body) = serde_json::from_slice::<Value>(rest) else {
                return;
            };
            let name = body["name"].as_str().unwrap_or_default();
            drop(job::plan(name, &body["params"], true));
            job::has_remote_power(&body["params"]["node"]);
            match DiskOrder::of_node(&body["params"]["node"]) {
                Ok(order) => drop(order),
                Err(sentence) => refused(&sentence),
            }
        }
        4 => {
            drop(packages::Order::parse(rest));
            drop(packages::Report::parse(rest));
            drop(serde_json::from_slice::<ArtifactSpec>(rest).map(|spec| spec.check()));
            drop(site::parse_site(rest));
        }
        _ => {
            let text = String::from_utf8_lossy(rest);
            parse_cmdline(&text);
            PublicKey::parse(&text);
            parse_signature(&text);
            if let Ok(url) = Url::parse(&text) {
                assert!(!url.to_string().contains(char::is_control));
            }
        }
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let id = "07070707070707070707070707070707";
    let report = json!({
        "bootMac": "52:54:00:00:00:01", "bootId": "a-1", "address": "172.22.0.9",
        "inventory": {
            "disks": [{"name": "/dev/vda", "size": 8_000_000_000_u64, "serial": "S1"}],
            "interfaces": [{"name": "eth0", "mac_address": "52:54:00:00:00:01"}],
            "cpu": {"count": 2, "flags": ["fpu"], "architecture": "x86_64"},
            "memory": {"physical_mb": 2048}, "system_vendor": {"manufacturer": "QEMU"},
            "boot": {"current_boot_mode": "uefi"},
        },
        "disks": [{"name": "/dev/vda", "sizeBytes": 8, "signatures": ["gpt"], "mark": {"state": "unfinished", "deployment": id}}],
        "lookup": "notAsked", "session": "ab", "sequence": 3,
    });
    let progress = json!({
        "bootMac": "52:54:00:00:00:01", "bootId": "a-1", "session": "ab", "sequence": 4,
        "phase": {"phase": "writing", "bytes": 1, "total": 2},
    });
    let reply = json!({"session": "ab", "action": "wait", "seconds": 5, "reason": "not yet"});
    let order =
        json!({"deployment": id, "policy": "blank", "disks": [{"serial": "S1", "sizeBytes": 8}]});
    let command = json!({
        "name": "deploy.execute_deploy_step",
        "params": {
            "step": {"step": "write_image", "interface": "deploy", "args": {
                "image_info": {"id": "i", "urls": ["http://172.22.0.1/images/node.raw.zst"], "os_hash_algo": "sha256",
                    "os_hash_value": "ab", "disk_format": "raw", "image_type": "whole-disk"},
                "configdrive": "H4sIAAAAAAAAAwMAAAAAAAAAAAA=",
            }},
            "node": {"driver": "manual-management", "extra": {"firstlight_order": order},
                "instance_info": {"root_device": {"size": ">= 8", "model": "<in> QEMU"}}},
            "ports": [],
        },
    });
    let packages = json!({"order": "packages", "state": "present", "packages": [{"name": "htop", "version": "3"}], "dryRun": true});
    let site = b"name: a\nprovisioning:\n  address: 172.22.0.1/24\n".to_vec();
    let line =
        b"console=ttyS0 firstlight.box=http://172.22.0.1 BOOTIF=01-52-54-00-00-00-01".to_vec();
    let texts = [report, progress, reply, command, packages].map(|value| value.to_string());
    let mut seeds: Vec<Vec<u8>> = (0..)
        .zip(texts)
        .map(|(kind, text)| [&[kind], text.as_bytes()].concat())
        .collect();
    seeds.push([vec![4], site].concat());
    seeds.push([vec![5], line].concat());
    seeds
}
