//! Processors, from `/proc/cpuinfo`.

use std::collections::BTreeSet;

use serde::Serialize;

use super::sys::SysTree;

/// In ironic-python-agent's field names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cpu {
    pub model_name: String,
    /// MHz, as text.
    pub frequency: Option<String>,
    /// Logical processors.
    pub count: usize,
    pub architecture: String,
    pub flags: Vec<String>,
    pub socket_count: usize,
}

pub fn read_cpu(sys: &SysTree) -> Cpu {
    parse_cpuinfo(&sys.text("/proc/cpuinfo").unwrap_or_default())
}

fn parse_cpuinfo(text: &str) -> Cpu {
    let pairs = || {
        text.lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(key, value)| (key.trim(), value.trim()))
    };
    let first = |wanted: &str| pairs().find(|(key, _)| *key == wanted).map(|(_, v)| v);
    let all = |wanted: &'static str| pairs().filter(move |(key, _)| *key == wanted);
    let sockets: BTreeSet<&str> = all("physical id").map(|(_, v)| v).collect();
    Cpu {
        model_name: first("model name").unwrap_or_default().to_owned(),
        frequency: first("cpu MHz").map(str::to_owned),
        count: all("processor").count(),
        architecture: std::env::consts::ARCH.to_owned(),
        flags: first("flags")
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
        socket_count: sockets.len().max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sockets_with_two_threads_each_are_four_processors() {
        let block = |n: u32, socket: u32| {
            format!(
                "processor\t: {n}\nmodel name\t: Example CPU @ 2.00GHz\ncpu MHz\t\t: 1999.998\nphysical id\t: {socket}\n\
                 flags\t\t: fpu sse2 vmx\n\n"
            )
        };
        let text = [(0, 0), (1, 0), (2, 1), (3, 1)]
            .map(|(n, s)| block(n, s))
            .concat();
        assert_eq!(
            parse_cpuinfo(&text),
            Cpu {
                model_name: "Example CPU @ 2.00GHz".into(),
                frequency: Some("1999.998".into()),
                count: 4,
                architecture: "x86_64".into(),
                flags: vec!["fpu".into(), "sse2".into(), "vmx".into()],
                socket_count: 2,
            }
        );
    }

    #[test]
    fn an_empty_file_is_one_socket_and_no_processor() {
        let cpu = parse_cpuinfo("");
        assert_eq!((cpu.count, cpu.socket_count, cpu.frequency), (0, 1, None));
    }
}
