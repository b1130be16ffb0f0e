//! Options and queries of the kernel's TCP sockets.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pep::traffic::Packet;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// Default idle time before keep-alive probes.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// Number of unanswered probes before the connection is given up.
const KEEPALIVE_PROBES: u32 = 6;
/// In order of preference. The kernel's default may be BBR, whose pacing costs four times the CPU
/// on a LAN, without any gain there.
const CONGESTION_CONTROLS: [&[u8]; 2] = [b"cubic", b"reno"];

/// Idle time before keep-alive probes on new connections, in seconds.
#[derive(Debug)]
pub(crate) struct Keepalive(AtomicU64);

impl Default for Keepalive {
    fn default() -> Self {
        Self(AtomicU64::new(KEEPALIVE.as_secs()))
    }
}

impl Keepalive {
    /// Sets the idle time; `None` restores the default. The kernel counts in seconds.
    pub(crate) fn set(&self, time: Option<Duration>) {
        self.0.store(time.unwrap_or(KEEPALIVE).as_secs().max(1), Ordering::Relaxed);
    }

    /// Detects a dead peer after twice the idle time: six probes in as long again, at most one per
    /// second.
    fn option(&self) -> TcpKeepalive {
        let idle = self.0.load(Ordering::Relaxed);
        let interval = idle.div_ceil(KEEPALIVE_PROBES.into());
        TcpKeepalive::new()
            .with_time(Duration::from_secs(idle))
            .with_interval(Duration::from_secs(interval))
            .with_retries(idle.div_ceil(interval) as u32)
    }
}

/// Prepares one leg of a split connection.
///
/// # Errors
/// If the peer has already closed the connection.
pub(crate) fn prepare(socket: &TcpStream, keepalive: &Keepalive) -> io::Result<()> {
    let socket = SockRef::from(socket);
    // Data from the hop leaves at once: the sender's own Nagle has already done its work.
    socket.set_tcp_nodelay(true)?;
    // Keeps urgent bytes in the stream; otherwise they would be lost (RFC 6093 §6).
    socket.set_out_of_band_inline(true)?;
    socket.set_tcp_keepalive(&keepalive.option())
}

/// Chooses a congestion control that costs little CPU for `socket` and the connections it accepts.
/// If that is not permitted, the default stays.
pub(crate) fn choose_congestion_control<'s>(socket: impl Into<SockRef<'s>>) {
    let socket = socket.into();
    let chosen = CONGESTION_CONTROLS.iter().any(|name| socket.set_tcp_congestion(name).is_ok());
    tracing::trace!(chosen, "congestion control of a LAN leg");
}

/// Allows `socket` (IPv6 or IPv4) to use addresses that are not this machine's.
///
/// # Errors
/// `PermissionDenied` without CAP_NET_ADMIN.
pub(crate) fn set_transparent(socket: &SockRef<'_>, v6: bool) -> io::Result<()> {
    /// IPV6_TRANSPARENT, which the libc crate lacks.
    const IPV6_TRANSPARENT: libc::c_int = 75;
    if !v6 {
        return socket.set_ip_transparent_v4(true);
    }
    switch_on(&**socket, libc::IPPROTO_IPV6, IPV6_TRANSPARENT)
}

/// Makes the listener save the SYNs of accepted connections for [`dscp_of_syn`].
pub(crate) fn keep_syns(listener: &impl AsRawFd) -> io::Result<()> {
    switch_on(listener, libc::IPPROTO_TCP, libc::TCP_SAVE_SYN)
}

/// Makes the kernel drop packets that a router has forwarded to this socket (GTSM, RFC 5082), and
/// send with the TTL that lets the peer do the same.
pub(crate) fn stay_on_link(socket: &SockRef<'_>, v6: bool) -> io::Result<()> {
    const MOST: u8 = u8::MAX;
    if v6 {
        socket.set_unicast_hops_v6(MOST.into())?;
        return set(&**socket, libc::IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT, MOST.into());
    }
    socket.set_ttl_v4(MOST.into())?;
    set(&**socket, libc::IPPROTO_IP, libc::IP_MINTTL, MOST.into())
}

fn switch_on(socket: &impl AsRawFd, level: libc::c_int, option: libc::c_int) -> io::Result<()> {
    set(socket, level, option, 1)
}

fn set(
    socket: &impl AsRawFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the address and the length are those of `value`.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether the next byte to read is marked as urgent.
pub(crate) fn is_at_urgent(socket: &impl AsRawFd) -> bool {
    /// From asm-generic/sockios.h.
    const SIOCATMARK: libc::Ioctl = 0x8905;
    let mut is_there: libc::c_int = 0;
    // SAFETY: SIOCATMARK writes one int to the address given.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCATMARK, &raw mut is_there) };
    result == 0 && is_there != 0
}

/// Disables delayed ACKs for now (tcp(7), TCP_QUICKACK). The kernel re-enables them when the
/// connection looks interactive. A route with `quickack` would last, but needs privileges.
pub(crate) fn acknowledge_at_once(socket: &TcpStream) {
    // Cannot fail on a TCP socket.
    let _ = switch_on(socket, libc::IPPROTO_TCP, libc::TCP_QUICKACK);
}

/// DSCP of the SYN that opened an accepted connection. `None` without [`keep_syns`], or when called
/// a second time.
pub(crate) fn dscp_of_syn(socket: &TcpStream) -> Option<u8> {
    /// IPv6 and TCP headers with all options, and some extensions.
    const ROOM: usize = 256;
    let mut syn = [0u8; ROOM];
    let mut length = ROOM as libc::socklen_t;
    // SAFETY: TCP_SAVED_SYN writes as many bytes as `length` allows.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_SAVED_SYN,
            syn.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    let syn = syn.get(..length as usize).filter(|_| result == 0)?;
    Packet::parse(syn).map(|packet| packet.dscp)
}

/// Sets the DSCP of `socket` (IPv6 or IPv4). The kernel preserves the ECN bits (RFC 2474 §3).
///
/// # Errors
/// The system's.
pub(crate) fn set_dscp(socket: &SockRef<'_>, v6: bool, dscp: u8) -> io::Result<()> {
    let field = u32::from(dscp) << 2;
    if v6 { socket.set_tclass_v6(field) } else { socket.set_tos_v4(field) }
}

/// Closes the connection with a RST, so that it does not look like a clean end.
pub(crate) fn reset(socket: TcpStream) {
    reset_when_closed(&socket);
    drop(socket);
}

/// Makes the closing of the connection a RST.
pub(crate) fn reset_when_closed(socket: &TcpStream) {
    // Fails only if the connection is already gone.
    let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
}

/// Bytes that the peer has not acknowledged, including the FIN; 0 once the connection is over.
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

/// Whether the connection has failed, or is closed on both sides.
fn is_over(socket: &TcpStream) -> io::Result<bool> {
    /// The first byte of `struct tcp_info` is the state; TCP_CLOSE is 7.
    const CLOSE: u8 = 7;
    let mut state = [0];
    info(socket.as_raw_fd(), &mut state)?;
    Ok(state == [CLOSE])
}

/// Smoothed round-trip time of a connection, from the kernel.
pub(crate) fn rtt(socket: RawFd) -> Option<Duration> {
    /// Offset of `tcpi_rtt` (in µs) in `struct tcp_info`.
    const RTT: usize = 68;
    let mut bytes = [0; RTT + 4];
    let length = info(socket, &mut bytes).ok()?;
    let micros: [u8; 4] = bytes[RTT..].try_into().expect("four bytes are left");
    (length == bytes.len()).then(|| Duration::from_micros(u32::from_ne_bytes(micros).into()))
}

/// Congestion window of a connection, in segments.
pub(crate) fn congestion_window(socket: RawFd) -> Option<u32> {
    /// Offset of `tcpi_snd_cwnd` in `struct tcp_info`.
    const WINDOW: usize = 80;
    let mut bytes = [0; WINDOW + 4];
    let length = info(socket, &mut bytes).ok()?;
    let segments: [u8; 4] = bytes[WINDOW..].try_into().expect("four bytes are left");
    (length == bytes.len()).then(|| u32::from_ne_bytes(segments))
}

/// Reads the beginning of `struct tcp_info`; returns the length.
fn info(socket: RawFd, bytes: &mut [u8]) -> io::Result<usize> {
    let mut length = libc::socklen_t::try_from(bytes.len()).expect("a short buffer");
    // SAFETY: TCP_INFO writes as many bytes as `length` allows.
    let result = unsafe {
        libc::getsockopt(
            socket,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(length as usize) }
}
