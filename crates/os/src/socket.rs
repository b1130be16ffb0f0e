//! IP sockets: options and queries for which `nix` and `socket2` have no function, and datagrams, many in
//! a system call.

pub mod datagrams;
pub(crate) mod ipv6;
mod marked;
pub(crate) mod option;
mod steering;
mod tcp_info;

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};
use units::ByteCount;

pub use marked::{MarkedDatagrams, send_marked};
pub use steering::{EarlierSockets, Steering, steer};
pub use tcp_info::TcpInfo;

/// Longest saved SYN in bytes: IPv6 and TCP headers with all options, and some extensions.
const SYN_ROOM: usize = 256;

/// A buffer of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferKind {
    /// The buffer of data to send.
    Send,
    /// The buffer of data received and not read.
    Receive,
}

/// Sets the size of a buffer, beyond the system's limit (`net.core.wmem_max`, `rmem_max`)
/// if privileged, otherwise up to it (socket(7)). The kernel doubles it for bookkeeping, so the
/// given size is what remains for data.
///
/// # Errors
/// Those of setsockopt(2).
pub fn set_buffer(socket: impl AsFd, buffer: BufferKind, size: ByteCount) -> io::Result<()> {
    // The kernel doubles the value, which must still fit into an int.
    let bytes = size.get().min(i32::MAX as u64 / 2) as usize;
    let forced = match buffer {
        BufferKind::Send => setsockopt(&socket, sockopt::SndBufForce, &bytes),
        BufferKind::Receive => setsockopt(&socket, sockopt::RcvBufForce, &bytes),
    };
    let set = match (forced, buffer) {
        (Err(Errno::EPERM), BufferKind::Send) => setsockopt(&socket, sockopt::SndBuf, &bytes),
        (Err(Errno::EPERM), BufferKind::Receive) => setsockopt(&socket, sockopt::RcvBuf, &bytes),
        (forced, _) => forced,
    };
    Ok(set?)
}

/// Makes a send on a UDP socket fail with ENOBUFS if a queue of this machine has no room for the datagram. The
/// kernel otherwise drops it in silence (`IP_RECVERR`, ip(7)). ICMP errors then wait in the socket's receive
/// buffer, which no datagrams need while their peer is unreachable.
///
/// # Errors
/// Those of setsockopt(2).
pub fn report_full_queues(socket: impl AsFd, v6: bool) -> io::Result<()> {
    let socket = socket.as_fd();
    if v6 {
        option::set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1)?;
    }
    // Also for IPv6 sockets, which may carry IPv4.
    option::set(socket, libc::IPPROTO_IP, libc::IP_RECVERR, 1)
}

/// Limits the receive window that the kernel advertises, in bytes (`TCP_WINDOW_CLAMP`, tcp(7)).
///
/// # Errors
/// Those of setsockopt(2).
pub fn clamp_window(socket: impl AsFd, bytes: u16) -> io::Result<()> {
    option::set(socket, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, libc::c_int::from(bytes))
}

/// Limits the rate at which a TCP socket sends, in bytes per second (`SO_MAX_PACING_RATE`,
/// socket(7)).
///
/// # Errors
/// Those of setsockopt(2).
pub fn set_max_pacing_rate(socket: impl AsFd, bytes_per_second: u64) -> io::Result<()> {
    option::set(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, bytes_per_second)
}

/// Returns the limit of [`set_max_pacing_rate`]; all ones without a limit.
///
/// # Errors
/// Those of getsockopt(2).
pub fn max_pacing_rate(socket: impl AsFd) -> io::Result<u64> {
    let mut rate = [0; size_of::<u64>()];
    option::get(socket.as_fd().as_raw_fd(), libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &mut rate)?;
    Ok(u64::from_ne_bytes(rate))
}

/// Makes the kernel drop packets to this socket with a lower TTL or hop limit (GTSM, RFC 5082; ip(7)
/// `IP_MINTTL`).
///
/// # Errors
/// Those of setsockopt(2).
pub fn set_least_ttl(socket: impl AsFd, v6: bool, least: u8) -> io::Result<()> {
    let least = libc::c_int::from(least);
    if v6 {
        return option::set(socket, libc::IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT, least);
    }
    option::set(socket, libc::IPPROTO_IP, libc::IP_MINTTL, least)
}

/// Makes a TCP listener save the SYNs of the connections it accepts for [`saved_syn`]
/// (`TCP_SAVE_SYN`).
///
/// # Errors
/// Those of setsockopt(2).
pub fn save_syns(listener: impl AsFd) -> io::Result<()> {
    option::set(listener, libc::IPPROTO_TCP, libc::TCP_SAVE_SYN, 1)
}

/// Returns the SYN that opened an accepted connection, from the IP header on; empty without
/// [`save_syns`], or when called a second time.
///
/// # Errors
/// Those of getsockopt(2).
pub fn saved_syn(socket: impl AsFd) -> io::Result<Vec<u8>> {
    let fd = socket.as_fd().as_raw_fd();
    let mut syn = vec![0; SYN_ROOM];
    let length = option::get(fd, libc::IPPROTO_TCP, libc::TCP_SAVED_SYN, &mut syn)?;
    syn.truncate(length);
    Ok(syn)
}

/// Returns true if the next byte to read from a TCP socket is marked as urgent (sockatmark(3)).
pub fn is_at_urgent(socket: impl AsFd) -> bool {
    /// From asm-generic/sockios.h.
    const SIOCATMARK: libc::Ioctl = 0x8905;
    // Other sockets have no urgent bytes.
    number(socket, SIOCATMARK).is_ok_and(|number| number != 0)
}

/// Returns the bytes that the peer of a TCP socket has not acknowledged, including the FIN
/// (`SIOCOUTQ`, tcp(7)).
///
/// # Errors
/// Those of ioctl(2).
pub fn unacknowledged(socket: impl AsFd) -> io::Result<usize> {
    // SIOCOUTQ has the number of TIOCOUTQ.
    Ok(usize::try_from(number(socket, libc::TIOCOUTQ)?).unwrap_or(0))
}

/// Returns the number of datagrams that a socket dropped for lack of room (`SO_MEMINFO`,
/// linux/sock_diag.h). Coalesced datagrams count once.
///
/// # Errors
/// Those of getsockopt(2).
pub fn overflows(socket: impl AsFd) -> io::Result<u32> {
    const NUMBER: usize = libc::SK_MEMINFO_DROPS as usize;
    let fd = socket.as_fd().as_raw_fd();
    let mut info = [0; (NUMBER + 1) * 4];
    let length = option::get(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut info)?;
    let number = info[..length].as_chunks().0.get(NUMBER).copied();
    number.map(u32::from_ne_bytes).ok_or_else(|| io::ErrorKind::Unsupported.into())
}

/// Returns the number of an ioctl request. `request` must be one that writes an `int`.
fn number(socket: impl AsFd, request: libc::Ioctl) -> io::Result<libc::c_int> {
    let mut number: libc::c_int = 0;
    // SAFETY: the request writes one int to the address given.
    let code = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), request, &raw mut number) };
    Errno::result(code)?;
    Ok(number)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};

    use nix::sys::socket::getsockopt;

    use super::*;

    fn connected(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    fn listener() -> TcpListener {
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
    }

    #[test]
    fn what_a_socket_has_no_room_for_is_counted() {
        let [near, far] = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        set_buffer(&near, BufferKind::Receive, ByteCount::new(4096)).unwrap();
        far.connect(near.local_addr().unwrap()).unwrap();
        assert_eq!(overflows(&near).unwrap(), 0);
        (0..100).for_each(|_| _ = far.send(&[0; 1000]).unwrap());
        near.set_nonblocking(true).unwrap();
        let received = std::iter::from_fn(|| near.recv(&mut [0; 1000]).ok()).count();
        assert!(received < 100, "the buffer has room for all");
        assert_eq!(overflows(&near).unwrap() as usize, 100 - received);
    }

    #[test]
    fn buffers_have_room_for_the_size() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        set_buffer(&socket, BufferKind::Send, ByteCount::new(65_536)).unwrap();
        set_buffer(&socket, BufferKind::Receive, ByteCount::new(32_768)).unwrap();
        assert_eq!(getsockopt(&socket, sockopt::SndBuf).unwrap(), 2 * 65_536);
        assert_eq!(getsockopt(&socket, sockopt::RcvBuf).unwrap(), 2 * 32_768);
        set_buffer(&socket, BufferKind::Send, ByteCount::new(u64::MAX)).unwrap();
    }

    #[test]
    fn the_syn_is_kept_for_one_question() {
        let listener = listener();
        save_syns(&listener).unwrap();
        let (_client, server) = connected(&listener);
        let syn = saved_syn(&server).unwrap();
        assert_eq!((syn[0], syn[9]), (0x45, 6), "an IPv4 header, TCP");
        assert_eq!(saved_syn(&server).unwrap(), []);
    }

    #[test]
    fn bytes_are_acknowledged_and_urgent_ones_are_marked() {
        let (mut client, mut server) = connected(&listener());
        client.write_all(b"plain").unwrap();
        server.read_exact(&mut [0; 5]).unwrap();
        assert!(!is_at_urgent(&server));
        while unacknowledged(&client).unwrap() > 0 {}
        setsockopt(&server, sockopt::OobInline, &true).unwrap();
        let flags = nix::sys::socket::MsgFlags::MSG_OOB;
        nix::sys::socket::send(client.as_raw_fd(), b"!", flags).unwrap();
        server.peek(&mut [0]).unwrap();
        assert!(is_at_urgent(&server));
    }

    #[test]
    fn rates_and_windows_are_limited() {
        let (client, _server) = connected(&listener());
        assert_eq!(max_pacing_rate(&client).unwrap(), u64::MAX);
        set_max_pacing_rate(&client, 1_000_000).unwrap();
        assert_eq!(max_pacing_rate(&client).unwrap(), 1_000_000);
        clamp_window(&client, 8192).unwrap();
        set_least_ttl(&client, false, 255).unwrap();
    }
}
