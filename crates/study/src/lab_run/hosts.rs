//! The hosts' TCP: the kernel's, or this project's endpoint.

use meter::CongestionControl;
use tcp::{Config, Profile};

/// The TCP implementation of a flow's hosts in the lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HostTcp {
    /// The kernel's TCP at both ends, with the congestion controls of client and server.
    Kernel([CongestionControl; 2]),
    /// This project's endpoint at both ends.
    Own,
}

/// Congestion controls of this project that stand for one of Linux, and its name there. Linux calls
/// its NewReno "reno".
const KERNEL: [(&str, &str); 4] =
    [("bbr", "bbr"), ("cubic", "cubic"), ("newreno", "reno"), ("reno", "reno")];

/// Returns the kernel's congestion control for an endpoint that is the profile `linux` with one
/// that Linux has, without options. The kernel's options hold for the whole machine or route, so
/// any other endpoint is this project's.
pub(super) fn kernel_control(config: &Config) -> Option<CongestionControl> {
    let name = config.controller.to_string();
    let (_, kernels) = KERNEL.into_iter().find(|(ours, _)| *ours == name)?;
    let linux = Config { controller: config.controller.clone(), ..Profile::Linux.config() };
    if linux == *config { kernels.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(options: &[(&str, &str)]) -> Config {
        let mut config = Profile::Linux.config();
        options.iter().for_each(|(name, value)| config.set(name, value).unwrap());
        config
    }

    #[test]
    fn the_kernel_stands_for_linux_and_for_nothing_else() {
        let name =
            |options: &[(&str, &str)]| kernel_control(&config(options)).map(|it| it.to_string());
        assert_eq!(name(&[]).as_deref(), Some("cubic"));
        assert_eq!(name(&[("controller", "newreno")]).as_deref(), Some("reno"));
        assert_eq!(name(&[("controller", "bbr")]).as_deref(), Some("bbr"));
        for other in [
            ("controller", "cubic:hystart=off"),
            ("controller", "hybla"),
            ("initial-window", "3"),
            ("receive-buffer", "64 KiB"),
            ("sack", "off"),
        ] {
            assert_eq!(name(&[other]), None, "{other:?}");
        }
    }
}
