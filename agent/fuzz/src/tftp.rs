//! The TFTP server's packets, and transfers that they steer.

use std::time::Duration;

use tftp_server::{
    Action, ClientPacket, Input, Mode, Negotiated, NegotiationLimits, Transfer, encode_error,
};

use crate::{join, messages};

/// Each message is a packet of one client; a pause lies between two.
pub fn run(bytes: &[u8]) {
    let limits = NegotiationLimits::default();
    let mut transfer: Option<Transfer> = None;
    let mut now = Duration::ZERO;
    for (count, datagram) in messages(bytes).enumerate() {
        let input = match ClientPacket::parse(datagram) {
            Err(error) => {
                let refusal = encode_error(tftp_server::ErrorCode::NotDefined, &error.to_string());
                assert!(refusal.len() < 512);
                continue;
            }
            Ok(ClientPacket::Read(request)) => {
                let path = request.path.as_str();
                let parts = path.split('/');
                assert!(!path.starts_with('/') && parts.clone().all(|part| part != ".."));
                if request.mode != Mode::Octet {
                    continue;
                }
                let size = path.len() as u64 * 70_000;
                let (settings, oack) = Negotiated::new(&request.options, size, &limits);
                assert!(settings.block_size <= limits.block_size);
                assert!((1..=limits.window).contains(&settings.window));
                assert!(oack.as_ref().is_none_or(|oack| oack.len() < 100));
                transfer.get_or_insert_with(|| Transfer::new(settings, oack, size, now));
                Input::Tick
            }
            Ok(ClientPacket::Write) => continue,
            Ok(ClientPacket::Ack(block)) => Input::Ack(block),
            Ok(ClientPacket::Error { code, message }) => {
                assert!(!message.contains(char::is_control));
                Input::ClientError { code, message }
            }
        };
        let Some(transfer) = &mut transfer else {
            continue;
        };
        let before = transfer.acknowledged();
        for input in [input, Input::Tick] {
            if let Action::SendBlocks(blocks) = transfer.handle(input, now) {
                assert!(blocks.first > 0 && blocks.count > 0);
                assert!(blocks.count <= u64::from(transfer.settings().window));
            }
        }
        assert!(transfer.acknowledged() >= before);
        now += Duration::from_millis(if count.is_multiple_of(3) { 1100 } else { 1 });
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let read = b"\0\x01shimx64.efi\0octet\0tsize\x000\0blksize\x001468\0windowsize\x004\0";
    let plain = b"\0\x01/grub/grub.cfg\0octet\0";
    let ack = |block: u8| [0, 4, 0, block];
    let error = b"\0\x05\0\x08User aborted the transfer\0";
    vec![
        join(&[read, &ack(0), &ack(4), &ack(8), &ack(8)]),
        join(&[plain, &ack(1), &ack(2), error]),
        join(&[read, read, error]),
    ]
}
