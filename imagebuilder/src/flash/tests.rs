#![allow(clippy::unwrap_used)]
use super::*;

fn stick() -> Disk {
    Disk {
        name: "sdx".to_owned(),
        model: "Stick".to_owned(),
        bytes: 100,
        removable: true,
        uses: Vec::new(),
    }
}

#[test]
fn only_an_unused_removable_disk_with_room_is_written() {
    assert_eq!(refuse(&stick(), 100, Target::RemovableOnly), None);
    let cases = [
        (
            Disk {
                uses: vec!["mounted at /mnt".to_owned()],
                ..stick()
            },
            "mounted at /mnt",
        ),
        (
            Disk {
                bytes: 99,
                ..stick()
            },
            "bigger stick",
        ),
        (
            Disk {
                removable: false,
                ..stick()
            },
            "--force",
        ),
    ];
    for (disk, part) in cases {
        assert!(
            refuse(&disk, 100, Target::RemovableOnly)
                .unwrap()
                .contains(part)
        );
    }
}

#[test]
fn force_allows_a_fixed_disk_but_never_a_mounted_one() {
    assert_eq!(
        refuse(
            &Disk {
                removable: false,
                ..stick()
            },
            1,
            Target::Any
        ),
        None
    );
    assert!(
        refuse(
            &Disk {
                uses: vec!["swap".to_owned()],
                ..stick()
            },
            1,
            Target::Any
        )
        .is_some()
    );
}

#[test]
fn a_mount_is_found_by_the_device_number() {
    let text =
        "36 35 98:0 / /mnt1 rw - ext3 /dev/root rw\n37 35 8:1 / /home rw - ext4 /dev/sda1 rw\n";
    assert_eq!(mounted_at(text, "8:1"), ["mounted at /home"]);
    assert!(mounted_at(text, "8:0").is_empty());
}

#[test]
fn a_flipped_byte_or_a_short_device_is_noticed() {
    let image = vec![7; 3 * BLOCK / 2];
    let mut bad = image.clone();
    bad[BLOCK + 5] = 8;
    let compare =
        |device: &[u8]| find_difference(&mut image.as_slice(), &mut &*device, |_| ()).unwrap();
    assert_eq!(compare(&image), None);
    assert_eq!(compare(&bad), Some(BLOCK as u64));
    assert_eq!(compare(&image[..10]), Some(0));
}

#[test]
fn a_file_is_no_device() {
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(load_disk(file.path()).unwrap_err().is::<UsageError>());
}
