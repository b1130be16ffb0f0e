//! What the gateway asks of the kernel's TCP sockets.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use crate::packet::Packet;

/// A peer that has said nothing for this long is asked whether it is there.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// How often it is asked before it is given up.
const KEEPALIVE_PROBES: u32 = 6;
/// In this order. The kernel's default may be BBR, which paces and so costs
/// four times the CPU on a LAN, where there is nothing to gain.
const CONGESTION_CONTROLS: [&[u8]; 2] = [b"cubic", b"reno"];

/// After how long a silent peer is asked whether it is there, for the connections that
/// begin from now on.
#[derive(Debug)]
pub(crate) struct Keepalive(AtomicU64);

impl Default for Keepalive {
    fn default() -> Self {
        Self(AtomicU64::new(KEEPALIVE.as_secs()))
    }
}

impl Keepalive {
    /// Sets it; the default without a time. The kernel counts in seconds.
    pub(crate) fn set(&self, time: Option<Duration>) {
        self.0.store(time.unwrap_or(KEEPALIVE).as_secs().max(1), Ordering::Relaxed);
    }

    /// A peer that is gone is found out after twice the time: it is asked six times, or
    /// each second if that is less often.
    fn option(&self) -> TcpKeepalive {
        let idle = self.0.load(Ordering::Relaxed);
        let interval = idle.div_ceil(KEEPALIVE_PROBES.into());
        TcpKeepalive::new()
            .with_time(Duration::from_secs(idle))
            .with_interval(Duration::from_secs(interval))
            .with_retries(idle.div_ceil(interval) as u32)
    }
}

/// Sets up one leg of a split connection.
///
/// # Errors
/// When the peer has closed the connection already.
pub(crate) fn prepare(socket: &TcpStream, keepalive: &Keepalive) -> io::Result<()> {
    let socket = SockRef::from(socket);
    // What comes off the hop goes out at once: the sender's own Nagle has
    // done its work already.
    socket.set_tcp_nodelay(true)?;
    // An urgent byte stays in its place: else it would be missing (RFC 6093 §6).
    socket.set_out_of_band_inline(true)?;
    socket.set_tcp_keepalive(&keepalive.option())
}

/// Chooses a cheap congestion control for `socket` and, if it listens, for the
/// connections that it accepts. Users may lack the permission; then the
/// default does.
pub(crate) fn choose_congestion_control<'s>(socket: impl Into<SockRef<'s>>) {
    let socket = socket.into();
    let chosen = CONGESTION_CONTROLS.iter().any(|name| socket.set_tcp_congestion(name).is_ok());
    tracing::trace!(chosen, "congestion control of a LAN leg");
}

/// Lets `socket`, of IPv6 or IPv4, have addresses that are not this machine's.
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

/// Has the listener keep the SYNs of the connections that it accepts, for
/// [`dscp_of_syn`].
pub(crate) fn keep_syns(listener: &impl AsRawFd) -> io::Result<()> {
    switch_on(listener, libc::IPPROTO_TCP, libc::TCP_SAVE_SYN)
}

/// Has the kernel drop what a router has passed on to this socket (GTSM, RFC 5082), and
/// send so that the peer can do the same.
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

/// Whether the byte to be read next is marked as urgent.
pub(crate) fn is_at_urgent(socket: &impl AsRawFd) -> bool {
    /// Of asm-generic/sockios.h.
    const SIOCATMARK: libc::Ioctl = 0x8905;
    let mut is_there: libc::c_int = 0;
    // SAFETY: SIOCATMARK writes one int to the address given.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCATMARK, &raw mut is_there) };
    result == 0 && is_there != 0
}

/// Has what has come, and what comes next, acknowledged without delay (tcp(7),
/// TCP_QUICKACK). Not for good: the kernel goes back when the connection looks
/// interactive.
pub(crate) fn acknowledge_at_once(socket: &TcpStream) {
    // It cannot fail on a TCP socket.
    let _ = switch_on(socket, libc::IPPROTO_TCP, libc::TCP_QUICKACK);
}

/// The code point of the SYN that opened an accepted connection; asked a second
/// time, or without [`keep_syns`], there is none.
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

/// Has the packets of `socket`, of IPv6 or IPv4, bear this code point. What there is for
/// ECN stays (RFC 2474 §3; the kernel sees to that).
///
/// # Errors
/// The system's.
pub(crate) fn set_dscp(socket: &SockRef<'_>, v6: bool, dscp: u8) -> io::Result<()> {
    let field = u32::from(dscp) << 2;
    if v6 { socket.set_tclass_v6(field) } else { socket.set_tos_v4(field) }
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
    let mut state = [0];
    info(socket.as_raw_fd(), &mut state)?;
    Ok(state == [CLOSE])
}

/// The smoothed round-trip time of a connection, by its kernel.
pub(crate) fn rtt(socket: RawFd) -> Option<Duration> {
    /// Where `tcpi_rtt` is in `struct tcp_info`, in µs.
    const RTT: usize = 68;
    let mut bytes = [0; RTT + 4];
    let length = info(socket, &mut bytes).ok()?;
    let micros: [u8; 4] = bytes[RTT..].try_into().expect("four bytes are left");
    (length == bytes.len()).then(|| Duration::from_micros(u32::from_ne_bytes(micros).into()))
}

/// The congestion window of a connection, in segments.
pub(crate) fn congestion_window(socket: RawFd) -> Option<u32> {
    /// Where `tcpi_snd_cwnd` is in `struct tcp_info`.
    const WINDOW: usize = 80;
    let mut bytes = [0; WINDOW + 4];
    let length = info(socket, &mut bytes).ok()?;
    let segments: [u8; 4] = bytes[WINDOW..].try_into().expect("four bytes are left");
    (length == bytes.len()).then(|| u32::from_ne_bytes(segments))
}

/// The beginning of `struct tcp_info`; how much there is of it.
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
