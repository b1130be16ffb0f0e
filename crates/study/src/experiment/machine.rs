//! The properties of the machine that affect the figures.

use std::fs;

use serde::Serialize;

/// The machine's properties, without anything that identifies it.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// Kernel name and release, such as `Linux 6.12.0`.
    kernel: String,
    /// Processor model, if the kernel reports one.
    processor: Option<String>,
    /// Cores available to this process.
    cores: usize,
}

impl Machine {
    /// Reads the properties of this machine.
    pub fn this() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let release = read("/proc/sys/kernel/osrelease");
        Self {
            kernel: format!("Linux {}", release.trim()),
            processor: processor(&read("/proc/cpuinfo")),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kernel, processor, cores } = self;
        let cores = if *cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") };
        match processor {
            Some(processor) => write!(f, "{cores}, {processor}, {kernel}"),
            None => write!(f, "{cores}, {kernel}"),
        }
    }
}

/// Returns the first processor's model name in `/proc/cpuinfo`; not every architecture reports one.
fn processor(cpuinfo: &str) -> Option<String> {
    let lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let mut names = lines.filter(|(key, _)| key.trim() == "model name");
    names.next().map(|(_, name)| name.trim().to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_one_line_error() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Some CPU @ 2.5GHz\nflags\t: x y\n";
        let processor = processor(cpuinfo);
        let machine = Machine { kernel: "Linux 6.1".into(), processor, cores: 2 };
        assert_eq!(machine.to_string(), "2 cores, Some CPU @ 2.5GHz, Linux 6.1");
        let machine = Machine { processor: super::processor("x"), cores: 1, ..machine };
        assert_eq!(machine.to_string(), "1 core, Linux 6.1");
    }
}
