//! The control fields of a Debian package (deb(5), deb-control(5)).

use std::io::{Read, Write};

use crate::{Unfit, read_bounded};

/// Of `control.tar`, compressed and not.
const LARGEST_CONTROL: u64 = 16 << 20;
const HEADER: usize = 60;

/// Fields in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Control(Vec<(String, String)>);

impl Control {
    /// One stanza. A field that goes on in the next line keeps its line breaks.
    pub fn parse(text: &str) -> Result<Self, Unfit> {
        let mut fields: Vec<(String, String)> = Vec::new();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            if line.starts_with([' ', '\t']) {
                let Some((_, value)) = fields.last_mut() else {
                    return Err(Unfit::new("its control file begins with a continued line"));
                };
                value.push('\n');
                value.push_str(line);
                continue;
            }
            let Some((name, value)) = line.split_once(':') else {
                return Err(Unfit::new(format!(
                    "its control file has a line without a field: `{line}`"
                )));
            };
            fields.push((name.trim().to_owned(), value.trim().to_owned()));
        }
        let control = Self(fields);
        for needed in ["Package", "Version", "Architecture"] {
            if control.get(needed).is_none_or(str::is_empty) {
                return Err(Unfit::new(format!(
                    "its control file has no field `{needed}`"
                )));
            }
        }
        Ok(control)
    }

    /// A field by its name, whatever the case, with its further lines; the first of them if it is there twice.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self
            .0
            .iter()
            .find(|(field, _)| field.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Never empty.
    pub fn package(&self) -> &str {
        self.get("Package").unwrap_or_default()
    }

    /// Never empty; epoch and revision included.
    pub fn version(&self) -> &str {
        self.get("Version").unwrap_or_default()
    }

    /// Debian's name of it, or `all`. Never empty.
    pub fn architecture(&self) -> &str {
        self.get("Architecture").unwrap_or_default()
    }

    /// In the form in which it was read.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// Reads no further than the control part, which comes first.
pub fn read_control(mut deb: impl Read) -> Result<Control, Unfit> {
    let mut magic = [0; 8];
    deb.read_exact(&mut magic)?;
    if &magic != b"!<arch>\n" {
        return Err(Unfit::new("it is no Debian package"));
    }
    loop {
        let mut header = [0; HEADER];
        deb.read_exact(&mut header)
            .map_err(|_| Unfit::new("it is a package without a control part"))?;
        let text = |range: std::ops::Range<usize>| {
            std::str::from_utf8(&header[range])
                .map(|text| text.trim_end().trim_end_matches('/').to_owned())
        };
        let (Ok(name), Ok(Ok(size)), b"`\n") = (
            text(0..16),
            text(48..58).map(|size| size.parse::<u64>()),
            &header[58..],
        ) else {
            return Err(Unfit::new("its archive is damaged"));
        };
        if let Some(ending) = name.strip_prefix("control.tar") {
            if size > LARGEST_CONTROL {
                return Err(Unfit::new("its control part is larger than 16 MiB"));
            }
            let packed = read_bounded(deb.take(size), LARGEST_CONTROL, "its control part")?;
            if (packed.len() as u64) < size {
                return Err(Unfit::new("it was cut off"));
            }
            return control_in(&unpack(ending, &packed)?);
        }
        // Members begin at even places.
        let skipped = std::io::copy(
            &mut deb.by_ref().take(size + size % 2),
            &mut std::io::sink(),
        )?;
        if skipped < size {
            return Err(Unfit::new("it was cut off"));
        }
    }
}

fn unpack(ending: &str, packed: &[u8]) -> Result<Vec<u8>, Unfit> {
    let what = "its control part";
    match ending {
        "" => Ok(packed.to_vec()),
        ".gz" => read_bounded(flate2::read::GzDecoder::new(packed), LARGEST_CONTROL, what),
        ".zst" => read_bounded(zstd::Decoder::new(packed)?, LARGEST_CONTROL, what),
        ".xz" => {
            let mut plain = Bounded(Vec::new());
            lzma_rs::xz_decompress(&mut &*packed, &mut plain).map_err(|error| {
                Unfit::new(format!("its control part cannot be unpacked: {error:?}"))
            })?;
            Ok(plain.0)
        }
        other => Err(Unfit::new(format!(
            "its control part is packed as `{other}`, which nobody here knows"
        ))),
    }
}

/// Refuses to grow without end.
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if (self.0.len() + bytes.len()) as u64 > LARGEST_CONTROL {
            return Err(std::io::Error::other("larger than 16 MiB"));
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn control_in(tar: &[u8]) -> Result<Control, Unfit> {
    for entry in tar::Archive::new(tar).entries()? {
        let entry = entry?;
        let is_control = entry
            .path()?
            .file_name()
            .is_some_and(|name| name == "control");
        if is_control {
            let text = read_bounded(entry, LARGEST_CONTROL, "its control file")?;
            let text =
                String::from_utf8(text).map_err(|_| Unfit::new("its control file is no UTF-8"))?;
            return Control::parse(&text);
        }
    }
    Err(Unfit::new("its control part has no file `control`"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const CONTROL: &str = "Package: hello\nVersion: 2.10-3\nArchitecture: amd64\nDepends: libc6 (>= 2.34)\nDescription: greets\n It says hello.\n .\n And no more.\n";

    fn member(name: &str, content: &[u8]) -> Vec<u8> {
        let mut bytes = format!(
            "{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n",
            0,
            0,
            0,
            100_644,
            content.len()
        )
        .into_bytes();
        bytes.extend(content);
        if content.len() % 2 == 1 {
            bytes.push(b'\n');
        }
        bytes
    }

    fn tar(control: &str) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(control.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, "./control", control.as_bytes())
            .unwrap();
        tar.into_inner().unwrap()
    }

    fn deb(ending: &str, control: &[u8]) -> Vec<u8> {
        let mut deb = b"!<arch>\n".to_vec();
        deb.extend(member("debian-binary", b"2.0\n"));
        deb.extend(member(&format!("control.tar{ending}"), control));
        deb.extend(member("data.tar", b"never read"));
        deb
    }

    #[test]
    fn the_control_fields_are_read_however_they_are_packed() {
        let plain = tar(CONTROL);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&plain).unwrap();
        let mut xz = Vec::new();
        lzma_rs::xz_compress(&mut &*plain, &mut xz).unwrap();
        for (ending, packed) in [
            ("", plain.clone()),
            (".gz", gzip.finish().unwrap()),
            (".xz", xz),
            (".zst", zstd::encode_all(&*plain, 1).unwrap()),
        ] {
            let control = read_control(&*deb(ending, &packed)).unwrap();
            assert_eq!(
                (control.package(), control.version(), control.architecture()),
                ("hello", "2.10-3", "amd64")
            );
            assert_eq!(
                control.get("description"),
                Some("greets\n It says hello.\n .\n And no more.")
            );
        }
    }

    #[test]
    fn every_cut_is_an_error() {
        let whole = deb("", &tar(CONTROL));
        let needed = whole.len() - b"never read".len() - HEADER;
        for cut in (0..needed).step_by(7) {
            assert!(read_control(&whole[..cut]).is_err(), "{cut} bytes");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = read_control(&*deb("", &tar("Package: hello\n"))).unwrap_err();
        assert!(error.to_string().contains("`Version`"), "{error}");
    }

    proptest::proptest! {
        /// The damage is in what is packed, and the archive around it is whole.
        #[test]
        fn no_packed_control_part_breaks_it(how in 0..3_usize, bytes: Vec<u8>, at in 0..400_usize) {
            let plain = tar(CONTROL);
            let (ending, mut packed) = match how {
                0 => {
                    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                    gzip.write_all(&plain).unwrap();
                    (".gz", gzip.finish().unwrap())
                }
                1 => {
                    let mut xz = Vec::new();
                    lzma_rs::xz_compress(&mut &*plain, &mut xz).unwrap();
                    (".xz", xz)
                }
                _ => (".zst", zstd::encode_all(&*plain, 1).unwrap()),
            };
            let at = at.min(packed.len());
            let end = (at + bytes.len()).min(packed.len());
            packed.splice(at..end, bytes);
            let _ = read_control(&*deb(ending, &packed));
        }

        #[test]
        fn no_input_breaks_it(bytes: Vec<u8>, at in 0..400_usize) {
            let mut deb = deb("", &tar(CONTROL));
            deb.splice(at.min(deb.len())..(at + bytes.len()).min(deb.len()), bytes);
            let _ = read_control(&*deb);
        }
    }
}
