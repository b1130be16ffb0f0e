//! Kernel TCP settings on one side of a solo gateway.

use std::io;

use config::SideConfig;
use os::socket::{BufferKind, set_buffer, set_max_pacing_rate};
use socket2::{Domain, SockRef, Socket, Type};

use crate::process::error::RunError;

/// Applies the settings of a side to its sockets.
pub(crate) trait SocketSettings {
    /// Applies the settings to a socket before it connects or listens; accepted sockets inherit
    /// them.
    ///
    /// # Errors
    /// The key that the system refuses, and the system's reason.
    fn apply(&self, socket: &SockRef<'_>) -> Result<(), (&'static str, io::Error)>;

    /// Checks that the system accepts the settings, on a socket of its own.
    ///
    /// # Errors
    /// The refused key, in the configuration's `section`.
    fn check(&self, section: &'static str) -> Result<(), RunError>;
}

impl SocketSettings for SideConfig {
    fn apply(&self, socket: &SockRef<'_>) -> Result<(), (&'static str, io::Error)> {
        if let Some(name) = &self.congestion_control {
            let set = socket.set_tcp_congestion(name.as_bytes());
            set.map_err(|error| ("congestion_control", error))?;
        }
        if let Some(size) = self.send_buffer {
            let set = set_buffer(&**socket, BufferKind::Send, size);
            set.map_err(|error| ("send_buffer", error))?;
        }
        if let Some(size) = self.receive_buffer {
            let set = set_buffer(&**socket, BufferKind::Receive, size);
            set.map_err(|error| ("receive_buffer", error))?;
        }
        if let Some(rate) = self.pacing_rate {
            // The kernel counts in bytes.
            let bytes_per_second = rate.bits_per_second() / 8;
            let set = set_max_pacing_rate(&**socket, bytes_per_second);
            set.map_err(|error| ("pacing_rate", error))?;
        }
        Ok(())
    }

    fn check(&self, section: &'static str) -> Result<(), RunError> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).map_err(RunError::System)?;
        let applied = self.apply(&SockRef::from(&socket));
        applied.map_err(|(key, cause)| refused(self, section, key, cause))
    }
}

/// Builds the error for a refused key of a side.
fn refused(
    side: &SideConfig,
    section: &'static str,
    key: &'static str,
    cause: io::Error,
) -> RunError {
    let value = match key {
        "congestion_control" => side.congestion_control.clone(),
        "send_buffer" => side.send_buffer.map(|size| size.to_string()),
        "receive_buffer" => side.receive_buffer.map(|size| size.to_string()),
        _ => side.pacing_rate.map(|rate| rate.to_string()),
    };
    RunError::Side { section, key, value: format!("{:?}", value.unwrap_or_default()), cause }
}

#[cfg(test)]
mod tests {
    use os::socket::max_pacing_rate;
    use units::{BitRate, ByteCount};

    use super::*;

    fn socket() -> Socket {
        Socket::new(Domain::IPV4, Type::STREAM, None).unwrap()
    }

    #[test]
    fn a_socket_has_what_the_side_says() {
        let side = SideConfig {
            congestion_control: Some("reno".to_owned()),
            send_buffer: Some(ByteCount::new(65_536)),
            receive_buffer: Some(ByteCount::new(32_768)),
            pacing_rate: Some(BitRate::from_mbit(8)),
            ..SideConfig::default()
        };
        let socket = socket();
        side.apply(&SockRef::from(&socket)).unwrap();
        assert!(socket.tcp_congestion().unwrap().starts_with(b"reno"));
        assert_eq!(socket.send_buffer_size().unwrap(), 2 * 65_536);
        assert_eq!(socket.recv_buffer_size().unwrap(), 2 * 32_768);
        assert_eq!(max_pacing_rate(&socket).unwrap(), 1_000_000);
    }

    #[test]
    fn a_side_that_says_nothing_changes_nothing() {
        let (one, other) = (socket(), socket());
        SideConfig::default().apply(&SockRef::from(&one)).unwrap();
        assert_eq!(one.tcp_congestion().unwrap(), other.tcp_congestion().unwrap());
        assert_eq!(one.send_buffer_size().unwrap(), other.send_buffer_size().unwrap());
    }

    #[test]
    fn what_the_system_does_not_have_is_named() {
        let congestion_control = Some("no-such-thing".to_owned());
        let side = SideConfig { congestion_control, ..SideConfig::default() };
        let error = side.check("wan").unwrap_err().to_string();
        assert!(error.contains("wan.congestion_control"), "{error}");
    }
}
