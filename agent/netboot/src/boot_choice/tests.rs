//! Command line and texts.

use super::*;
use crate::testing::{ip, mac};

#[test]
fn the_command_line_is_the_one_of_the_architecture() {
    let site = BootSite {
        http: BoxHttp::new(ip("172.22.0.1"), 80),
        ironic_port: 6385,
        ca: CaFingerprint::new([0xab; 32]),
        extra_args: vec!["console=ttyS1,115200".parse().unwrap()],
    };
    let fingerprint = "ab".repeat(32);
    assert_eq!(
        kernel_command_line(&site, mac(1)),
        format!(
            "firstlight.box=http://172.22.0.1 ipa-api-url=https://172.22.0.1:6385 firstlight.ca=sha256:{fingerprint} \
             BOOTIF=01-52-54-00-aa-00-01 console=tty0 console=ttyS0,115200 quiet panic=30 console=ttyS1,115200"
        )
    );
}

#[test]
fn kernel_arguments_cannot_leave_their_word() {
    for good in [
        "nomodeset",
        "console=ttyS1,115200n8",
        "modprobe.blacklist=a,b",
        "ip=10.0.0.1:eth0",
    ] {
        assert!(good.parse::<KernelArg>().is_ok(), "{good}");
    }
    for bad in [
        "", "a b", "a\nboot", "${x}", "$x", "a;b", "a'b", "a\"b", "a\\b", "a{b", "a|b", "a&b",
        "a#b", "a<b",
    ] {
        assert!(bad.parse::<KernelArg>().is_err(), "{bad:?}");
    }
}

#[test]
fn texts_have_no_meaning_to_a_script() {
    assert_eq!(
        plain_text("box is \"starting\"; $(rm) ${net0/mac}\nboot && exit"),
        "box is ?starting?? ?(rm) ??net0/mac??boot ?? exit"
    );
}
