//! What tells a disk from others, out of what the kernel has of it in `/sys/block`.

/// The kernel's `naa.5000c500a0b1c2d3…` as udev writes it: first 64 bits, all of it, and the rest.
pub fn world_wide_name(wwid: Option<&str>) -> (Option<String>, Option<String>, Option<String>) {
    let Some(wwid) = wwid else {
        return (None, None, None);
    };
    if wwid.starts_with("eui.") || wwid.starts_with("nvme.") {
        return (Some(wwid.to_owned()), Some(wwid.to_owned()), None);
    }
    let Some(digits) = wwid
        .strip_prefix("naa.")
        .filter(|d| d.len() >= 16 && d.is_ascii())
    else {
        return (None, None, None);
    };
    let (first, rest) = digits.split_at(16);
    let extension = (!rest.is_empty()).then(|| format!("0x{rest}"));
    (
        Some(format!("0x{first}")),
        Some(format!("0x{digits}")),
        extension,
    )
}

/// Of SCSI's vital product data page 0x80: four bytes of header, then text.
pub fn serial_of_page(page: &[u8]) -> Option<String> {
    let length = usize::from(u16::from_be_bytes([*page.get(2)?, *page.get(3)?]));
    let text = String::from_utf8_lossy(page.get(4..4 + length)?)
        .trim()
        .to_owned();
    (!text.is_empty()).then_some(text)
}
