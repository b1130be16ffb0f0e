//! Selects the kernel's congestion control of a socket by name.

use std::fmt;
use std::io;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use socket2::{Domain, SockRef, Socket, Type};
use thiserror::Error;

const RENO: &str = "reno";
/// `TCP_CA_NAME_MAX` of Linux without the terminating NUL.
pub(crate) const NAME_MAX: usize = 15;

/// The name of a kernel congestion control, such as `cubic` or `bbr`. [`CongestionControl::check`]
/// asks the kernel whether it has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CongestionControl(String);

/// The reason why a congestion control cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CongestionError {
    /// The text cannot be the name of a congestion control.
    #[error(
        "{text:?} is not the name of a congestion control: expected 1 to 15 visible ASCII \
         characters, like \"cubic\""
    )]
    Name {
        /// The text that is no valid name.
        text: String,
    },
    /// The kernel does not have this congestion control.
    #[error(
        "the kernel has no congestion control \"{name}\" (see \
         net.ipv4.tcp_available_congestion_control)"
    )]
    Unknown {
        /// Name of the requested congestion control.
        name: CongestionControl,
    },
    /// The kernel has it, but this user may not use it.
    #[error(
        "this user may not use the congestion control \"{name}\" (see \
         net.ipv4.tcp_allowed_congestion_control)"
    )]
    Forbidden {
        /// Name of the requested congestion control.
        name: CongestionControl,
    },
    /// The kernel refused it for another reason.
    #[error("cannot set the congestion control \"{name}\": {error}")]
    Refused {
        /// Name of the requested congestion control.
        name: CongestionControl,
        /// The error of `setsockopt(2)`, as text.
        error: String,
    },
}

impl CongestionControl {
    /// The name as the kernel knows it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Checks whether a socket in this thread's network namespace, and of this user, can use this
    /// congestion control. Tries it on a socket that is never connected.
    ///
    /// # Errors
    /// [`CongestionError::Unknown`], [`CongestionError::Forbidden`] or
    /// [`CongestionError::Refused`].
    pub fn check(&self) -> Result<(), CongestionError> {
        let socket =
            Socket::new(Domain::IPV4, Type::STREAM, None).map_err(|error| self.refused(&error))?;
        self.apply(&SockRef::from(&socket))
    }

    /// Sets this congestion control on `socket`.
    ///
    /// # Errors
    /// As [`CongestionControl::check`].
    pub fn apply(&self, socket: &SockRef<'_>) -> Result<(), CongestionError> {
        socket.set_tcp_congestion(self.0.as_bytes()).map_err(|error| self.refused(&error))
    }

    fn refused(&self, error: &io::Error) -> CongestionError {
        let name = self.clone();
        // ENOENT: unknown to the kernel; EPERM: not in `tcp_allowed_congestion_control` (tcp(7)).
        match error.kind() {
            io::ErrorKind::NotFound => CongestionError::Unknown { name },
            io::ErrorKind::PermissionDenied => CongestionError::Forbidden { name },
            _ => CongestionError::Refused { name, error: error.to_string() },
        }
    }
}

/// The congestion control of the connections of a listener for which no other is requested.
///
/// Connections begin with Reno, because one that began with BBR keeps its pacing whatever is set on
/// it later: the kernel never takes that back (`sk_pacing_status`). Every kernel has Reno and
/// allows it to every user.
#[derive(Debug, Clone)]
pub(crate) struct ListenerControl {
    /// The listener's original congestion control; `None` if it could not be replaced.
    default: Option<CongestionControl>,
}

impl ListenerControl {
    /// Makes the connections that `listener` will accept begin with Reno.
    pub(crate) fn start_with_reno(listener: &SockRef<'_>) -> Self {
        let default = current(listener);
        let set = listener.set_tcp_congestion(RENO.as_bytes());
        Self { default: default.filter(|_| set.is_ok()) }
    }

    /// Sets the congestion control of an accepted connection: `wanted`, or else the listener's
    /// original one.
    ///
    /// # Errors
    /// As [`CongestionControl::check`], for `wanted` only.
    pub(crate) fn set_control(
        &self,
        socket: &SockRef<'_>,
        wanted: Option<&CongestionControl>,
    ) -> Result<(), CongestionError> {
        if let Some(wanted) = wanted {
            return wanted.apply(socket);
        }
        // A route may have chosen another one (`congctl`, ip-route(8)).
        let begun = current(socket).is_some_and(|control| control.as_str() == RENO);
        if let Some(default) = self.default.as_ref().filter(|_| begun) {
            let set = default.apply(socket);
            tracing::trace!(?set, "default congestion control of a connection");
        }
        Ok(())
    }
}

/// The congestion control of a socket.
fn current(socket: &SockRef<'_>) -> Option<CongestionControl> {
    let name = socket.tcp_congestion().ok()?;
    // The kernel returns its whole name field, padded with zeros.
    std::str::from_utf8(&name).ok()?.trim_end_matches('\0').parse().ok()
}

impl FromStr for CongestionControl {
    type Err = CongestionError;

    fn from_str(text: &str) -> Result<Self, CongestionError> {
        let fits = (1..=NAME_MAX).contains(&text.len());
        if !fits || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(CongestionError::Name { text: text.to_owned() });
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for CongestionControl {
    type Error = CongestionError;

    fn try_from(text: String) -> Result<Self, CongestionError> {
        text.parse()
    }
}

impl From<CongestionControl> for String {
    fn from(name: CongestionControl) -> Self {
        name.0
    }
}

impl fmt::Display for CongestionControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{TcpListener, TcpStream};

    use os::testkit::skip;

    use super::*;
    use crate::server::serve;

    /// A listener with another congestion control than Reno, whatever the machine's default is, and
    /// that one; `None` if this user may use no other.
    fn listener() -> Option<(TcpListener, CongestionControl)> {
        let allowed =
            fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control").ok()?;
        let other = allowed.split_whitespace().find(|name| *name != RENO)?;
        let other: CongestionControl = other.parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        other.apply(&SockRef::from(&listener)).unwrap();
        Some((listener, other))
    }

    const ONLY_RENO: &str = "this user may use no congestion control but Reno";

    #[test]
    fn names_are_what_the_kernel_could_have() {
        assert!("cubic".parse::<CongestionControl>().is_ok());
        for text in ["", "two words", "sixteen-letters!", "cub\0ic", "kübik"] {
            let error = text.parse::<CongestionControl>().unwrap_err();
            assert_eq!(error, CongestionError::Name { text: text.to_owned() });
        }
    }

    #[test]
    fn connections_begin_unpaced_and_get_what_they_are_to_have() {
        let reno: CongestionControl = RENO.parse().unwrap();
        for wanted in [None, Some(&reno)] {
            let Some((listener, other)) = listener() else { return skip(ONLY_RENO) };
            let unpaced = ListenerControl::start_with_reno(&SockRef::from(&listener));
            let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (stream, _) = listener.accept().unwrap();
            let socket = SockRef::from(&stream);
            assert_eq!(current(&socket).unwrap().as_str(), RENO);
            unpaced.set_control(&socket, wanted).unwrap();
            assert_eq!(current(&socket).as_ref(), Some(wanted.unwrap_or(&other)));
        }
    }

    #[tokio::test]
    async fn the_connections_of_a_server_begin_unpaced() {
        let Some((listener, _)) = listener() else { return skip(ONLY_RENO) };
        let same = listener.try_clone().unwrap();
        tokio::select! {
            biased;
            end = serve(listener) => panic!("{end:?}"),
            () = tokio::task::yield_now() => {}
        }
        assert_eq!(current(&SockRef::from(&same)).unwrap().as_str(), RENO);
    }

    #[test]
    fn the_kernel_says_what_it_has() {
        let unknown: CongestionControl = "no-such-cc".parse().unwrap();
        let error = unknown.check().unwrap_err();
        // Without CAP_NET_ADMIN the error is also that it is unknown.
        assert_eq!(error, CongestionError::Unknown { name: unknown });
        // Reno is built into every kernel and always allowed.
        assert_eq!("reno".parse::<CongestionControl>().unwrap().check(), Ok(()));
    }
}
