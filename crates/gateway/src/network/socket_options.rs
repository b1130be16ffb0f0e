//! Options and queries of the kernel's TCP sockets.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use os::socket::{BufferKind, TcpInfo};
use pep::traffic::Packet;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use units::ByteCount;

/// Default idle time before keep-alive probes. Probing lasts as long again, so a client that is suspended
/// for two hours keeps its idle connections, whenever the last probe was. It is also the least default that
/// RFC 9293 §3.8.4 permits, and the kernel's.
const KEEPALIVE: Duration = Duration::from_secs(2 * 60 * 60);
/// Number of unanswered probes after which a connection is given up.
const KEEPALIVE_PROBES: u32 = 6;
/// Congestion controls on a LAN, in order of preference. The kernel's default may be BBR, whose pacing
/// costs four times the CPU there, without any gain.
const CONGESTION_CONTROLS: [&[u8]; 2] = [b"cubic", b"reno"];

/// Round-trip time below which a peer is near.
const NEAR: Duration = Duration::from_millis(1);
/// Receive buffer towards a near peer, enough for 8 Gbit/s. The kernel would let it grow to tens of
/// megabytes. Data that waits there for the hop has left the processor's caches when it is read.
const NEAR_BUFFER: ByteCount = ByteCount::new(1 << 20);

/// Idle time before keep-alive probes on new connections, in seconds.
#[derive(Debug)]
pub(crate) struct KeepaliveSetting(AtomicU64);

impl Default for KeepaliveSetting {
    fn default() -> Self {
        Self(AtomicU64::new(KEEPALIVE.as_secs()))
    }
}

impl KeepaliveSetting {
    /// Sets the idle time, in whole seconds and at least one; `None` restores the default.
    pub(crate) fn set(&self, time: Option<Duration>) {
        // The kernel takes seconds, and refuses 0.
        self.0.store(time.unwrap_or(KEEPALIVE).as_secs().max(1), Ordering::Relaxed);
    }

    /// Returns the same settings for a connection of skyhop's own stack.
    pub(crate) fn of_stack(&self) -> tcp::KeepaliveConfig {
        let idle = self.0.load(Ordering::Relaxed);
        let interval = idle.div_ceil(KEEPALIVE_PROBES.into());
        tcp::KeepaliveConfig {
            idle: Duration::from_secs(idle),
            interval: Duration::from_secs(interval),
            probes: idle.div_ceil(interval) as u32,
        }
    }

    /// Returns the socket option. A dead peer is detected after twice the idle time: six probes in as long
    /// again, at most one a second.
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
pub(crate) fn prepare(socket: &TcpStream, keepalive: &KeepaliveSetting) -> io::Result<()> {
    if TcpInfo::of(socket)?.rtt().is_some_and(|rtt| rtt < NEAR) {
        os::socket::set_buffer(socket, BufferKind::Receive, NEAR_BUFFER)?;
    }
    let socket = SockRef::from(socket);
    // Data from the hop leaves at once: the sender's own Nagle algorithm has already gathered it.
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
    if v6 { socket.set_ip_transparent_v6(true) } else { socket.set_ip_transparent_v4(true) }
}

/// Makes the kernel drop packets to this socket that a router has forwarded (GTSM, RFC 5082), and send with
/// the TTL that lets the peer do the same.
pub(crate) fn stay_on_link(socket: &SockRef<'_>, v6: bool) -> io::Result<()> {
    const MOST: u8 = u8::MAX;
    if v6 {
        socket.set_unicast_hops_v6(MOST.into())?;
    } else {
        socket.set_ttl_v4(MOST.into())?;
    }
    os::socket::set_least_ttl(&**socket, v6, MOST)
}

/// Disables delayed ACKs until the kernel considers the connection interactive again (tcp(7),
/// TCP_QUICKACK). A route with `quickack` would last, but needs privileges.
pub(crate) fn acknowledge_at_once(socket: &TcpStream) {
    // Cannot fail on a TCP socket.
    let _ = SockRef::from(socket).set_tcp_quickack(true);
}

/// Returns the DSCP of the SYN that opened an accepted connection. `None` if the listener saves no SYNs
/// ([`os::socket::save_syns`]), or if called a second time.
pub(crate) fn dscp_of_syn(socket: &TcpStream) -> Option<u8> {
    let syn = os::socket::saved_syn(socket).ok()?;
    Packet::parse(&syn).map(|packet| packet.dscp)
}

/// Sets the DSCP of `socket` (IPv6 or IPv4). The kernel preserves the ECN bits (RFC 2474 §3).
///
/// # Errors
/// The system's.
pub(crate) fn set_dscp(socket: &SockRef<'_>, v6: bool, dscp: u8) -> io::Result<()> {
    let field = u32::from(dscp) << 2;
    if v6 { socket.set_tclass_v6(field) } else { socket.set_tos_v4(field) }
}

/// Closes a connection with a RST, so that its peer does not take a failure for the end of the data.
pub(crate) fn reset(socket: TcpStream) {
    reset_when_closed(&socket, true);
    drop(socket);
}

/// Sets whether the kernel sends a RST instead of a FIN when the socket is closed, also by the end of this
/// process.
pub(crate) fn reset_when_closed(socket: &TcpStream, resets: bool) {
    // Fails only if the connection is already gone.
    let _ = SockRef::from(socket).set_linger(resets.then_some(Duration::ZERO));
}

/// Bytes that the peer has not acknowledged, including the FIN; 0 once the connection has ended.
pub(crate) fn unacknowledged(socket: &TcpStream) -> io::Result<usize> {
    if TcpInfo::of(socket)?.is_closed() { Ok(0) } else { os::socket::unacknowledged(socket) }
}

/// Smoothed round-trip time of a connection, measured by the kernel.
pub(crate) fn rtt(socket: RawFd) -> Option<Duration> {
    Some(TcpInfo::of_number(socket).ok()?.rtt().unwrap_or_default())
}

/// Congestion window of a connection, in segments.
pub(crate) fn congestion_window(socket: RawFd) -> Option<u32> {
    Some(TcpInfo::of_number(socket).ok()?.congestion_window())
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::testkit::connected;

    #[tokio::test]
    async fn the_receive_buffer_towards_a_near_peer_is_limited() {
        let [near, other] = connected().await;
        prepare(&near, &KeepaliveSetting::default()).unwrap();
        os::socket::set_buffer(&other, BufferKind::Receive, NEAR_BUFFER).unwrap();
        let [near, other] = [near, other].map(|socket| SockRef::from(&socket).recv_buffer_size());
        assert_eq!(near.unwrap(), other.unwrap());
    }

    /// A dead peer is noticed within twice the idle time, and the first probe is never early.
    #[tokio::test]
    async fn probes_take_no_longer_than_the_idle_time_before_them() {
        let [near, _far] = connected().await;
        for seconds in [1, 2, 5, 6, 7, 60, 61, 3600, 7200] {
            let keepalive = KeepaliveSetting::default();
            keepalive.set(Some(Duration::from_secs(seconds)));
            prepare(&near, &keepalive).unwrap();
            let socket = SockRef::from(&near);
            let [time, interval] =
                [socket.tcp_keepalive_time(), socket.tcp_keepalive_interval()].map(Result::unwrap);
            let retries = socket.tcp_keepalive_retries().unwrap();
            assert_eq!(time, Duration::from_secs(seconds));
            assert!((1..=KEEPALIVE_PROBES).contains(&retries), "{seconds}: {retries}");
            let probing = interval * retries;
            assert!(time <= probing && probing < time + interval, "{seconds}: {probing:?}");
        }
    }

    /// Whenever it was probed last: from the first probe without an answer to the last.
    #[test]
    fn by_default_an_idle_connection_survives_a_suspend_of_two_hours() {
        let keepalive = KeepaliveSetting::default();
        keepalive.set(None);
        let tcp::KeepaliveConfig { interval, probes, .. } = keepalive.of_stack();
        assert!(interval * probes >= Duration::from_secs(7200), "{probes} every {interval:?}");
    }

    #[tokio::test]
    async fn without_a_setting_and_for_less_than_a_second_there_are_probes() {
        let [near, _far] = connected().await;
        for (setting, idle) in [(None, KEEPALIVE), (Some(Duration::ZERO), Duration::from_secs(1))] {
            let keepalive = KeepaliveSetting::default();
            keepalive.set(setting);
            prepare(&near, &keepalive).unwrap();
            let socket = SockRef::from(&near);
            assert!(socket.keepalive().unwrap() && socket.tcp_nodelay().unwrap());
            assert_eq!(socket.tcp_keepalive_time().unwrap(), idle);
        }
    }

    #[tokio::test]
    async fn a_code_point_leaves_the_ecn_bits_to_the_kernel() {
        let [near, _far] = connected().await;
        let socket = SockRef::from(&near);
        for dscp in [0, 46, 63] {
            set_dscp(&socket, false, dscp).unwrap();
            assert_eq!(socket.tos_v4().unwrap() >> 2, u32::from(dscp));
        }
        assert_eq!(dscp_of_syn(&near), None, "no listener has saved its SYN");
    }

    #[tokio::test]
    async fn a_socket_is_reset_when_closed_unless_its_data_has_arrived() {
        for resets in [true, false] {
            let [near, mut far] = connected().await;
            reset_when_closed(&near, true);
            reset_when_closed(&near, resets);
            drop(near);
            let read = far.read(&mut [0]).await;
            assert_eq!(
                read.err().map(|error| error.kind()),
                resets.then_some(ErrorKind::ConnectionReset)
            );
        }
    }

    #[tokio::test]
    async fn what_the_peer_has_acknowledged_is_not_counted() {
        let [mut near, mut far] = connected().await;
        near.write_all(b"hello").await.unwrap();
        far.read_exact(&mut [0; 5]).await.unwrap();
        // Loopback acknowledges within the call, or a few later.
        while unacknowledged(&near).unwrap() > 0 {
            tokio::task::yield_now().await;
        }
        reset(far);
        let gone = near.read(&mut [0]).await.unwrap_err();
        assert_eq!((gone.kind(), unacknowledged(&near).unwrap()), (ErrorKind::ConnectionReset, 0));
    }
}
