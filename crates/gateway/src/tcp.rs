//! What the gateway asks of the kernel's TCP sockets.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// A peer that has said nothing for this long is asked whether it is there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 6;
/// In this order. The kernel's default may be BBR, which paces and so costs
/// four times the CPU on a LAN, where there is nothing to gain.
const CONGESTION_CONTROLS: [&[u8]; 2] = [b"cubic", b"reno"];

/// Sets up one leg of a split connection.
///
/// # Errors
/// When the peer has closed the connection already.
pub(crate) fn prepare(socket: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(socket);
    // What comes off the hop goes out at once: the sender's own Nagle has
    // done its work already.
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_keepalive(&keepalive)
}

/// Chooses a cheap congestion control for `socket` and, if it listens, for the
/// connections that it accepts. Users may lack the permission; then the
/// default does.
pub(crate) fn choose_congestion_control<'s>(socket: impl Into<SockRef<'s>>) {
    let socket = socket.into();
    let chosen = CONGESTION_CONTROLS.iter().any(|name| socket.set_tcp_congestion(name).is_ok());
    tracing::trace!(chosen, "congestion control of a LAN leg");
}

/// Closes the connection with a RST: its end must not look like a clean one.
pub(crate) fn reset(socket: TcpStream) {
    // It can fail only if the connection is gone already.
    let _ = SockRef::from(&socket).set_linger(Some(Duration::ZERO));
    drop(socket);
}

/// How many bytes the peer has not acknowledged, the FIN included; none once the
/// connection is over.
pub(crate) fn unacknowledged(socket: &TcpStream) -> io::Result<usize> {
    if is_over(socket)? {
        return Ok(0);
    }
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ, which has the number of TIOCOUTQ, writes one int to the
    // address given.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// Whether the connection has failed or has been closed on both sides.
fn is_over(socket: &TcpStream) -> io::Result<bool> {
    /// The first byte of `struct tcp_info` is the state; TCP_CLOSE is 7.
    const CLOSE: u8 = 7;
    let mut state = 0u8;
    let mut length = size_of_val(&state) as libc::socklen_t;
    // SAFETY: TCP_INFO writes as many bytes as `length` allows, one.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut state).cast(),
            &raw mut length,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(state == CLOSE) }
}
