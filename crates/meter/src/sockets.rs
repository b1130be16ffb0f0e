//! Options of the sockets that carry traffic, their figures, and the time limit of every wait on them.

pub mod congestion;
pub(crate) mod patience;
pub mod sender;
pub mod window;

use std::fmt;
use std::io;

use socket2::SockRef;
use thiserror::Error;
use units::ByteCount;

use congestion::{CongestionControl, CongestionError};

/// Socket options; `None` keeps the kernel's default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// Congestion control of the sending direction.
    pub congestion_control: Option<CongestionControl>,
    /// The send buffer, `SO_SNDBUF`.
    pub send_buffer: Option<ByteCount>,
    /// `SO_RCVBUF`, approximately the maximum window offered. The kernel reserves as much again for
    /// its own records.
    pub receive_buffer: Option<ByteCount>,
}

/// One of a socket's two buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketBuffer {
    /// The send buffer, `SO_SNDBUF`.
    Send,
    /// The receive buffer, `SO_RCVBUF`.
    Receive,
}

/// The reason why a socket option could not be set.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SocketError {
    /// The congestion control could not be set.
    #[error(transparent)]
    Congestion(#[from] CongestionError),
    /// The kernel allows a smaller buffer than requested.
    #[error("the kernel grants a {which} buffer of {granted} bytes, not {asked} (see {})", which.sysctl())]
    Buffer {
        /// Which of the two buffers.
        which: SocketBuffer,
        /// Requested size in bytes, before the kernel doubles it.
        asked: u64,
        /// Size in bytes that the kernel granted.
        granted: u64,
    },
    /// The window could not be held.
    #[error("cannot hold a window of {asked} bytes: {error}")]
    Window {
        /// Requested window in bytes.
        asked: u64,
        /// The error of the system call that failed.
        error: io::Error,
    },
    /// The kernel refused to set or report a buffer's size.
    #[error("cannot set the {which} buffer to {asked} bytes: {error}")]
    Refused {
        /// Which of the two buffers.
        which: SocketBuffer,
        /// Requested size in bytes, before the kernel doubles it.
        asked: u64,
        /// The error of the system call that failed.
        error: io::Error,
    },
}

impl SocketBuffer {
    fn sysctl(self) -> &'static str {
        match self {
            Self::Send => "net.core.wmem_max",
            Self::Receive => "net.core.rmem_max",
        }
    }
}

impl fmt::Display for SocketBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "send",
            Self::Receive => "receive",
        })
    }
}

impl SocketOptions {
    /// Sets the options on `socket`, and checks that buffers have the requested size.
    pub(crate) fn apply(&self, socket: &SockRef<'_>) -> Result<(), SocketError> {
        if let Some(congestion) = &self.congestion_control {
            congestion.apply(socket)?;
        }
        if let Some(size) = self.send_buffer {
            set(socket, SocketBuffer::Send, size.get())?;
        }
        if let Some(size) = self.receive_buffer {
            set(socket, SocketBuffer::Receive, size.get())?;
        }
        Ok(())
    }
}

fn set(socket: &SockRef<'_>, which: SocketBuffer, asked: u64) -> Result<(), SocketError> {
    // The kernel takes the size as an `int`.
    let size = usize::try_from(asked).unwrap_or(usize::MAX).min(i32::MAX as usize);
    let set = || match which {
        SocketBuffer::Send => {
            socket.set_send_buffer_size(size).and_then(|()| socket.send_buffer_size())
        }
        SocketBuffer::Receive => {
            socket.set_recv_buffer_size(size).and_then(|()| socket.recv_buffer_size())
        }
    };
    // socket(7): the kernel doubles the value and returns the doubled one.
    let granted = set().map_err(|error| SocketError::Refused { which, asked, error })? as u64 / 2;
    if granted < asked {
        return Err(SocketError::Buffer { which, asked, granted });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use socket2::{Domain, Socket, Type};

    use super::*;

    #[test]
    fn buffers_are_set_or_refused() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let of = |bytes| SocketOptions {
            send_buffer: Some(ByteCount::new(bytes)),
            receive_buffer: Some(ByteCount::new(bytes)),
            ..SocketOptions::default()
        };
        of(8000).apply(&SockRef::from(&socket)).unwrap();
        assert_eq!(socket.recv_buffer_size().unwrap(), 16_000);
        let error = of(1 << 50).apply(&SockRef::from(&socket)).unwrap_err();
        assert!(error.to_string().contains("net.core.wmem_max"), "{error}");
    }
}
