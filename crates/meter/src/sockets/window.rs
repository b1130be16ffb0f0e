//! A receive window of a chosen size, to measure the effect of small windows.
//!
//! Linux has no such option. It derives the advertised window from `SO_RCVBUF` by an estimate of
//! its own overhead, which changes with the first full segment, and rounds it down to whole
//! segments. `TCP_WINDOW_CLAMP` is exact, but that same estimate overwrites it. So, before
//! connecting, a window of *W* bytes is
//!
//! - a segment size of which an even number (two share an acknowledgement) fills
//!   *W*, by `TCP_MAXSEG`,
//! - a receive buffer with room to spare, and
//! - a clamp, which is set again after every read.
//!
//! The first window also counts each segment's time stamp option (12 bytes, RFC 7323) and is about
//! 1 % larger. Sizes are for a path that carries packets of 1440 bytes and a peer that sends time
//! stamps, as Linux does.

use std::fmt;
use std::io;
use std::str::FromStr;

use os::socket::clamp_window;
use serde::{Deserialize, Serialize};
use socket2::SockRef;
use thiserror::Error;
use units::ByteCount;

use crate::sockets::{SocketError, SocketOptions};

/// The time stamp option with its padding.
const TIMESTAMPS: u16 = 12;
/// Payload of a packet of 1440 bytes with IPv6 and time stamps.
const PAYLOAD_MAX: u16 = 1440 - 40 - 20 - TIMESTAMPS;

/// A window of 2048 to 65,535 bytes: what the header holds without scaling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct ReceiveWindow(u16);

/// A window size that cannot be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a window of {bytes} bytes cannot be held: expected 2048 to 65535 bytes")]
pub struct WindowError {
    /// The requested size, in bytes.
    pub bytes: u64,
}

impl ReceiveWindow {
    /// The smallest window that can be held, in bytes.
    const MIN: u16 = 2048;

    /// Returns the size in bytes.
    pub fn bytes(self) -> u16 {
        self.0
    }

    /// Returns the number of full segments in the window, which is even.
    fn segments(self) -> u16 {
        2 * self.0.div_ceil(2 * PAYLOAD_MAX)
    }

    fn payload(self) -> u16 {
        self.0 / self.segments()
    }

    /// Sets the options of the receiving socket, before it connects or listens.
    pub(crate) fn prepare(self, socket: &SockRef<'_>) -> Result<(), SocketError> {
        let asked = u64::from(self.0);
        let refused = |error| SocketError::Window { asked, error };
        // With room to spare: the clamp, not the buffer, is to limit the window.
        let receive_buffer = Some(ByteCount::new(2 * asked));
        SocketOptions { receive_buffer, ..SocketOptions::default() }.apply(socket)?;
        // The announced MSS ignores options; the sender subtracts theirs (RFC 9293 §3.7.1).
        let segment = self.payload() + TIMESTAMPS;
        socket.set_tcp_mss(segment.into()).map_err(refused)?;
        let first = segment.saturating_mul(self.segments());
        clamp_window(&**socket, first).map_err(refused)
    }

    /// Sets the clamp again; must be called after every read.
    pub(crate) fn hold(self, socket: &SockRef<'_>) -> io::Result<()> {
        // Without time stamps, which only the first window counts.
        clamp_window(&**socket, self.payload() * self.segments())
    }
}

impl TryFrom<u64> for ReceiveWindow {
    type Error = WindowError;

    fn try_from(bytes: u64) -> Result<Self, WindowError> {
        let window = u16::try_from(bytes).ok().filter(|&window| window >= Self::MIN);
        window.map(Self).ok_or(WindowError { bytes })
    }
}

impl From<ReceiveWindow> for u64 {
    fn from(window: ReceiveWindow) -> Self {
        window.0.into()
    }
}

impl FromStr for ReceiveWindow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes: ByteCount =
            text.parse().map_err(|error: units::ParseError| error.to_string())?;
        Self::try_from(bytes.get()).map_err(|error| error.to_string())
    }
}

impl fmt::Display for ReceiveWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_segments_fill_it() {
        for bytes in [2048, 4096, 8000, 8192, 16_384, 32_768, 65_535] {
            let window = ReceiveWindow::try_from(bytes).unwrap();
            let segments = window.segments();
            let payload = window.payload();
            assert_eq!(segments % 2, 0);
            assert!(payload <= PAYLOAD_MAX && payload > 600, "{bytes}: {payload}");
            let filled = u64::from(segments) * u64::from(payload);
            assert!(filled <= bytes && bytes - filled < segments.into(), "{bytes}: {filled}");
        }
    }

    #[test]
    fn sizes_are_read_or_refused() {
        assert_eq!("8KiB".parse::<ReceiveWindow>().unwrap().bytes(), 8192);
        for wrong in ["2047 B", "64KiB", "0B"] {
            let told = wrong.parse::<ReceiveWindow>().unwrap_err();
            assert!(told.contains("2048 to 65535"), "{told}");
        }
        assert!("small".parse::<ReceiveWindow>().is_err());
    }
}
