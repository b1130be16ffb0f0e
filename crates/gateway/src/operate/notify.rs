//! Reports the service's state to systemd (`sd_notify(3)`), if asked to.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::Duration;

/// The service manager's socket, if there is one, and the watchdog's interval.
#[derive(Debug)]
pub(crate) struct ServiceNotifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl ServiceNotifier {
    /// Reads `NOTIFY_SOCKET` and the watchdog's variables.
    pub(crate) fn from_environment() -> Self {
        let variable = |name| std::env::var(name).ok();
        let address = std::env::var_os("NOTIFY_SOCKET").and_then(|path| address(path.as_bytes()));
        let socket = address.and_then(|at| Some((UnixDatagram::unbound().ok()?, at)));
        let watchdog = watchdog(variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"));
        Self { socket, watchdog }
    }

    /// A notifier without a service manager.
    pub(crate) fn silent() -> Self {
        Self { socket: None, watchdog: None }
    }

    /// Interval at which the watchdog must be notified.
    pub(crate) fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Sends a state such as `READY=1`.
    pub(crate) fn notify(&self, what: &str) {
        if let Some((socket, address)) = &self.socket {
            // Nothing can be done about a failure.
            let _ = socket.send_to_addr(what.as_bytes(), address);
        }
    }
}

/// Parses a socket's address: a path, or an abstract name after an `@`.
fn address(name: &[u8]) -> Option<SocketAddr> {
    match name {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok(),
        [b'/', ..] => SocketAddr::from_pathname(Path::new(std::ffi::OsStr::from_bytes(name))).ok(),
        _ => None,
    }
}

/// Half of the watchdog's time-out, as sd_watchdog_enabled(3) recommends, if it applies to this
/// process.
fn watchdog(micros: Option<String>, pid: Option<String>) -> Option<Duration> {
    let ours = pid.is_none_or(|pid| pid == std::process::id().to_string());
    let micros: u64 = micros?.parse().ok().filter(|micros| ours && *micros > 0)?;
    Some(Duration::from_micros(micros / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_to_the_service_manager_arrive() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let systemd = UnixDatagram::bind(&path).unwrap();
        let socket = UnixDatagram::unbound().unwrap();
        let address = address(path.as_os_str().as_bytes()).unwrap();
        let notifier = ServiceNotifier { socket: Some((socket, address)), watchdog: None };
        notifier.notify("READY=1");
        let mut buffer = [0; 64];
        let length = systemd.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"READY=1");
        drop(systemd);
        notifier.notify("nobody listens");
    }

    #[test]
    fn names_are_paths_or_abstract() {
        assert!(address(b"/run/x").is_some() && address(b"@x").is_some());
        assert!(address(b"x").is_none() && address(b"").is_none());
    }

    #[test]
    fn a_watchdog_of_another_process_is_not_ours() {
        let some = |text: &str| Some(text.to_owned());
        let own = std::process::id().to_string();
        assert_eq!(watchdog(some("3000000"), None), Some(Duration::from_millis(1500)));
        assert_eq!(watchdog(some("3000000"), some(&own)), Some(Duration::from_millis(1500)));
        assert_eq!(watchdog(some("3000000"), some("1x")), None);
        assert_eq!(watchdog(some("x"), None), None);
        assert_eq!(watchdog(None, None), None);
    }
}
