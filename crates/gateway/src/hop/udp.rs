//! The hop's UDP socket: several datagrams per system call in both directions (GSO, GRO,
//! `recvmmsg`), never fragmented, with large buffers.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll};

pub(crate) use os::socket::datagrams::ReceiveMemory;
use os::socket::datagrams::{ArrivedDatagram, DatagramSocket};
use os::socket::{
    BufferKind, EarlierSockets, MarkedDatagrams, Steering, send_marked, set_buffer, steer,
};
use quinn_udp::{EcnCodepoint, Transmit, UdpSockRef};
use slacp::{Ecn, IndexShare, PACKET_MARK, PacketMark, SessionId};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use units::ByteCount;

use crate::network::presence;

/// Size of the socket buffers: 64 ms at 1 Gbit/s, for the time in which the thread is busy.
const KERNEL_BUFFER: ByteCount = ByteCount::new(8 << 20);
/// Maximum UDP payload over IPv4; GRO and GSO stay below it too.
const LARGEST_PAYLOAD: usize = 65_507;

/// A UDP socket on one local address.
pub(crate) struct UdpLink {
    datagrams: DatagramSocket,
    /// True for an IPv6 socket, on which IPv4 addresses are IPv4-mapped.
    v6: bool,
}

impl UdpLink {
    /// Binds a socket. The IPv6 wildcard address accepts IPv4 as well.
    ///
    /// # Errors
    /// The system's, such as `AddrInUse`.
    pub(crate) fn bind(local: SocketAddr) -> io::Result<Self> {
        Self::from_socket(bind(local, false)?, local.is_ipv6())
    }

    /// Like [`Self::bind`], for packets of that interface only.
    ///
    /// # Errors
    /// The system's, such as `ENODEV` if there is no such interface.
    pub(crate) fn bind_to(local: SocketAddr, interface: Option<&str>) -> io::Result<Self> {
        Self::from_socket(bind_device(local, interface)?, local.is_ipv6())
    }

    /// Polls the socket's readiness for reading, and registers the task.
    pub(crate) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket().poll_recv_ready(context)
    }

    /// Wraps a bound socket and enlarges its buffers. `v6`: it is an IPv6 socket.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn from_socket(socket: Socket, v6: bool) -> io::Result<Self> {
        // Without CAP_NET_ADMIN the system may permit less; then bursts may be lost.
        for buffer in [BufferKind::Receive, BufferKind::Send] {
            if let Err(error) = set_buffer(&socket, buffer, KERNEL_BUFFER) {
                tracing::debug!("cannot enlarge the UDP socket's {buffer:?} buffer: {error}");
            }
        }
        Ok(Self { datagrams: DatagramSocket::new(socket.into())?, v6 })
    }

    fn socket(&self) -> &UdpSocket {
        self.datagrams.socket()
    }

    /// The bound local address, with the port that the kernel chose for port 0.
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket().local_addr()
    }

    /// Waits until the socket may be readable.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        self.socket().readable().await
    }

    /// Waits until the socket may be writable.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.socket().writable().await
    }

    /// Maximum datagrams per [`DatagramBatch`] that the kernel can split (GSO).
    pub(crate) fn max_segments(&self) -> usize {
        self.datagrams.sender().max_gso_segments()
    }

    /// Sends a batch. Fails with `WouldBlock` while the kernel has no room, and until the runtime has
    /// noticed that it has again. [`Self::writable`] waits for both.
    pub(crate) fn send(&self, batch: &DatagramBatch, from: Option<IpAddr>) -> io::Result<()> {
        self.socket().try_io(Interest::WRITABLE, || self.send_at_once(batch, from))
    }

    /// Like [`Self::send`], but ignores the runtime's readiness: for a socket that is never awaited.
    pub(crate) fn send_at_once(
        &self,
        batch: &DatagramBatch,
        from: Option<IpAddr>,
    ) -> io::Result<()> {
        let Some(DatagramLabel { to, traffic_class, .. }) = batch.label else { return Ok(()) };
        let destination = self.to_socket_address(to);
        let segment = (batch.count > 1).then_some(batch.segment);
        if traffic_class.is_marked() {
            // quinn-udp sets the ECN bits only, so that a code point needs a call of our own.
            let marked = MarkedDatagrams {
                destination,
                source: from,
                traffic_class: traffic_class.bits(),
                bytes: &batch.bytes,
                // A payload is shorter than 64 kB.
                segment: segment.map(|bytes| bytes as u16),
            };
            return send_marked(self.socket(), &marked);
        }
        let transmit = Transmit {
            destination,
            ecn: EcnCodepoint::from_bits(traffic_class.ecn.bits()),
            contents: &batch.bytes,
            segment_size: segment,
            src_ip: from,
        };
        self.datagrams.sender().try_send(UdpSockRef::from(self.socket()), &transmit)
    }

    /// Receives with [`DatagramSocket::receive`]; `take` gets source, local address, ECN bits and payload.
    pub(crate) fn receive(
        &self,
        memory: &mut ReceiveMemory,
        mut take: impl FnMut(SocketAddr, Option<IpAddr>, Ecn, &mut [u8]),
    ) -> io::Result<bool> {
        self.datagrams.receive(memory, |ArrivedDatagram { from, to, ecn, bytes }| {
            take(from, to, ecn.map_or(Ecn::NotEct, Ecn::from_bits), bytes);
        })
    }

    /// Converts a destination for the socket: an IPv6 socket takes IPv4 addresses as `::ffff:a.b.c.d`.
    fn to_socket_address(&self, address: SocketAddr) -> SocketAddr {
        match address.ip() {
            IpAddr::V4(v4) if self.v6 => {
                SocketAddr::new(v4.to_ipv6_mapped().into(), address.port())
            }
            _ => address,
        }
    }
}

/// Binds a socket for packets of that interface only.
///
/// # Errors
/// The system's.
pub(super) fn bind_device(local: SocketAddr, interface: Option<&str>) -> io::Result<Socket> {
    let socket = open(local)?;
    // The device first: two links may use the same port, each on its own device.
    socket.bind_device(interface.map(str::as_bytes))?;
    presence::bind(&socket, local)?;
    Ok(socket)
}

/// Tests whether [`UdpLink::bind_to`] would succeed.
///
/// # Errors
/// The system's reason why not.
pub(crate) fn try_bind(local: SocketAddr, interface: Option<&str>) -> io::Result<()> {
    bind_device(local, interface).map(drop)
}

fn bind(local: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = open(local)?;
    socket.set_reuse_port(shared)?;
    presence::bind(&socket, local)?;
    Ok(socket)
}

fn open(local: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
    if local.is_ipv6() {
        // One socket for both versions, whatever the system's default (`bindv6only`).
        socket.set_only_v6(false)?;
    }
    Ok(socket)
}

/// Binds one socket for each of the `parts` of a hub, all to one address. The kernel steers the packets of
/// a session to the socket of its part; without that, the parts forward them to each other.
///
/// # Errors
/// The system's; `AddrInUse` also if another process shares the address with those that permit it.
pub(crate) fn bind_parts(local: SocketAddr, parts: u8) -> io::Result<Vec<Socket>> {
    // Without SO_REUSEPORT first, which fails if the address is in use.
    let alone = bind(local, false)?;
    if parts <= 1 {
        // An upgraded process of the same user may now bind beside this one.
        alone.set_reuse_port(true)?;
        return Ok(vec![alone]);
    }
    // For port 0, all parts share the port that the kernel has chosen.
    let port = alone.local_addr()?.as_socket().map_or_else(|| local.port(), |bound| bound.port());
    drop(alone);
    let local = SocketAddr::new(local.ip(), port);
    let sockets = (0..parts).map(|_| bind(local, true)).collect::<io::Result<Vec<_>>>()?;
    let PacketMark { mask, kind, index_at } = PACKET_MARK;
    let steering = Steering { mask, kind, number_at: index_at, sockets: parts, before: None };
    if let Err(error) = steer(&sockets[0], steering) {
        // Not fatal: the parts then forward datagrams to each other.
        tracing::debug!("the kernel cannot steer datagrams to workers: {error}");
    }
    Ok(sockets)
}

/// The sockets of the process that this one replaces.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SiblingSockets {
    /// Number of its sockets, one for each of its parts.
    pub(crate) count: u8,
    /// The session indices that are that process's.
    pub(crate) indices: IndexShare,
}

/// Binds sockets like [`bind_parts`], beside those of the process that this one replaces. The kernel
/// steers packets of that process's sessions to it, and all others here.
///
/// # Errors
/// The system's; also if the kernel cannot steer datagrams.
pub(crate) fn bind_beside(
    local: SocketAddr,
    parts: u8,
    before: SiblingSockets,
) -> io::Result<Vec<Socket>> {
    // The earlier sockets keep their places in the group; the new ones come behind them.
    let bound = (0..parts.max(1)).map(|_| bind(local, true)).collect::<io::Result<Vec<_>>>()?;
    let PacketMark { mask, kind, index_at } = PACKET_MARK;
    let first_bytes = before.indices.first_bytes().into_inner();
    let before = Some(EarlierSockets { sockets: before.count, first_bytes });
    let steering = Steering { mask, kind, number_at: index_at, sockets: parts.max(1), before };
    steer(&bound[0], steering)?;
    Ok(bound)
}

/// The traffic class byte of an IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TrafficClass {
    /// Code point, 0 to 63.
    pub(crate) dscp: u8,
    pub(crate) ecn: Ecn,
}

impl TrafficClass {
    fn is_marked(self) -> bool {
        self.dscp != 0
    }

    /// The byte as in the header (RFC 2474 §3, RFC 3168 §5).
    fn bits(self) -> u8 {
        self.dscp << 2 | self.ecn.bits()
    }
}

/// Destination and treatment of a datagram. Datagrams with equal labels may share a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DatagramLabel {
    pub(crate) to: SocketAddr,
    pub(crate) traffic_class: TrafficClass,
    /// Number of the link that it is sent over.
    pub(crate) link: u8,
    /// The session that it belongs to; `None` for handshakes and the like.
    pub(crate) session: Option<SessionId>,
}

/// Datagrams of equal length (the last may be shorter) with one label, sent in one call and split by the
/// kernel (UDP GSO).
#[derive(Debug, Default)]
pub(crate) struct DatagramBatch {
    label: Option<DatagramLabel>,
    bytes: Vec<u8>,
    segment: usize,
    count: usize,
}

impl DatagramBatch {
    pub(crate) fn destination(&self) -> Option<SocketAddr> {
        self.label.map(|label| label.to)
    }

    /// Number of the link of its datagrams; 0 if empty.
    pub(crate) fn link(&self) -> u8 {
        self.label.map_or(0, |label| label.link)
    }

    /// The session of its datagrams, if they belong to one.
    pub(crate) fn session(&self) -> Option<SessionId> {
        self.label.and_then(|label| label.session)
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Iterates over the datagrams in sending order.
    pub(crate) fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks(self.segment.max(1))
    }

    pub(crate) fn clear(&mut self) {
        self.label = None;
        self.bytes.clear();
        self.count = 0;
    }

    /// Returns whether no datagram can be added: the batch has `most` or is full, or its last datagram is
    /// shorter than the others.
    pub(crate) fn is_closed(&self, most: usize) -> bool {
        let is_full = self.count >= most || self.bytes.len() + self.segment > LARGEST_PAYLOAD;
        self.count > 0 && (is_full || self.bytes.len() < self.count * self.segment)
    }

    /// Appends a datagram; false if it needs a new batch.
    pub(crate) fn join(&mut self, label: DatagramLabel, datagram: &[u8], most: usize) -> bool {
        let joins = !self.is_closed(most) && self.fits(label, datagram.len());
        if joins {
            self.bytes.extend_from_slice(datagram);
            self.count_datagram(label, datagram.len());
        }
        joins
    }

    /// Lets `build` append a datagram to the batch's buffer, without a copy, and adds it if it fits.
    pub(crate) fn build(
        &mut self,
        most: usize,
        build: impl FnOnce(&mut Vec<u8>) -> Option<DatagramLabel>,
    ) -> BuildOutcome {
        debug_assert!(!self.is_closed(most));
        let before = self.bytes.len();
        let Some(label) = build(&mut self.bytes) else { return BuildOutcome::Nothing };
        let len = self.bytes.len() - before;
        if !self.fits(label, len) {
            return BuildOutcome::NeedsNewBatch(label, self.bytes.split_off(before));
        }
        self.count_datagram(label, len);
        BuildOutcome::Joined
    }

    /// Adds datagrams of the same length and label as the last one, which `build` appends to the batch's
    /// buffer. `build` gets the number that there is room for, and returns the number it has appended.
    pub(crate) fn add(&mut self, most: usize, build: impl FnOnce(&mut Vec<u8>, usize) -> usize) {
        if self.is_closed(most) {
            return;
        }
        let room = (LARGEST_PAYLOAD - self.bytes.len()) / self.segment.max(1);
        self.count += build(&mut self.bytes, room.min(most - self.count));
        debug_assert_eq!(self.bytes.len(), self.count * self.segment, "all have the same length");
    }

    /// Returns whether a datagram of `len` bytes fits a batch that is not closed.
    fn fits(&self, label: DatagramLabel, len: usize) -> bool {
        self.count == 0 || self.label == Some(label) && len <= self.segment
    }

    /// Counts an appended datagram; the first one sets the label and the segment length.
    fn count_datagram(&mut self, label: DatagramLabel, len: usize) {
        if self.count == 0 {
            self.label = Some(label);
            self.segment = len;
        }
        self.count += 1;
    }
}

/// Outcome of [`DatagramBatch::build`] for the datagram that was built.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BuildOutcome {
    /// There was no datagram to build.
    Nothing,
    Joined,
    /// It does not fit this batch and must begin a new one.
    NeedsNewBatch(DatagramLabel, Vec<u8>),
}

#[cfg(test)]
mod tests {
    use os::testkit::skip;

    use super::*;
    use crate::testkit::in_namespace;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn label(to: SocketAddr, traffic_class: TrafficClass) -> DatagramLabel {
        DatagramLabel { to, traffic_class, link: 0, session: None }
    }

    fn unmarked(ecn: Ecn) -> TrafficClass {
        TrafficClass { ecn, ..TrafficClass::default() }
    }

    #[test]
    fn a_socket_may_be_bound_to_an_address_that_no_interface_has_yet() {
        in_namespace(|| {
            for ip in ["192.0.2.7", "2001:db8::7"] {
                let address = SocketAddr::new(ip.parse().unwrap(), 0);
                assert!(presence::is_absent(address.ip()));
                let bound = [bind(address, false), bind_device(address, Some("lo"))];
                assert!(bound.iter().all(Result::is_ok), "{bound:?}");
            }
        });
    }

    #[test]
    fn equal_datagrams_join_and_a_short_one_closes() {
        let mut batch = DatagramBatch::default();
        assert!(batch.join(label(address(1), unmarked(Ecn::NotEct)), &[0; 100], 4));
        assert!(batch.join(label(address(1), unmarked(Ecn::NotEct)), &[0; 100], 4));
        assert!(!batch.join(label(address(1), unmarked(Ecn::NotEct)), &[0; 101], 4), "longer");
        assert!(!batch.join(label(address(2), unmarked(Ecn::NotEct)), &[0; 100], 4), "elsewhere");
        assert!(
            !batch.join(label(address(1), unmarked(Ecn::Ect0)), &[0; 100], 4),
            "another codepoint"
        );
        let voice = TrafficClass { dscp: 46, ..TrafficClass::default() };
        assert!(!batch.join(label(address(1), voice), &[0; 100], 4), "another class");
        assert!(batch.join(label(address(1), unmarked(Ecn::NotEct)), &[0; 50], 4));
        assert!(
            !batch.join(label(address(1), unmarked(Ecn::NotEct)), &[0; 50], 4),
            "behind a short one"
        );
        assert!(batch.is_closed(4) && batch.count() == 3);
        batch.clear();
        assert!(
            batch.join(label(address(2), unmarked(Ecn::NotEct)), &[0; 7], 1) && batch.is_closed(1)
        );
    }

    #[test]
    fn a_datagram_that_needs_a_batch_of_its_own_leaves_the_other_as_it_was() {
        let (mut batch, here) =
            (DatagramBatch::default(), label(address(1), TrafficClass::default()));
        let append = |label, datagram: &'static [u8]| {
            move |buffer: &mut Vec<u8>| {
                buffer.extend_from_slice(datagram);
                Some(label)
            }
        };
        assert_eq!(batch.build(4, |_| None), BuildOutcome::Nothing);
        assert_eq!(batch.build(4, append(here, &[1; 100])), BuildOutcome::Joined);
        let elsewhere = DatagramLabel { link: 1, ..here };
        for (other, datagram) in [(elsewhere, &[2; 100][..]), (here, &[2; 101])] {
            let apart = BuildOutcome::NeedsNewBatch(other, datagram.to_vec());
            assert_eq!(batch.build(4, append(other, datagram)), apart);
        }
        assert_eq!(batch.build(4, append(here, &[3; 50])), BuildOutcome::Joined);
        assert!(batch.is_closed(4));
        let datagrams: Vec<&[u8]> = batch.datagrams().collect();
        assert_eq!(datagrams, [&[1; 100][..], &[3; 50]]);
    }

    #[test]
    fn datagrams_like_the_last_are_added_while_there_is_room() {
        let (mut batch, here) =
            (DatagramBatch::default(), label(address(1), TrafficClass::default()));
        let add = |batch: &mut DatagramBatch, most| {
            let mut told = None;
            batch.add(most, |buffer, room| {
                told = Some(room);
                buffer.resize(buffer.len() + room * 1400, 7);
                room
            });
            told
        };
        assert!(batch.join(here, &[0; 1400], 9));
        assert_eq!(add(&mut batch, 4), Some(3));
        assert_eq!((batch.count(), add(&mut batch, 4)), (4, None), "as many as the kernel takes");
        assert_eq!(add(&mut batch, 64), Some(LARGEST_PAYLOAD / 1400 - 4), "as long as a datagram");
        assert_eq!(
            (batch.datagrams().count(), add(&mut batch, 64)),
            (LARGEST_PAYLOAD / 1400, None)
        );
        batch.clear();
        assert!(batch.join(here, &[0; 1400], 9) && batch.join(here, &[0; 100], 9));
        assert_eq!(add(&mut batch, 9), None, "behind a short one");
    }

    #[test]
    fn a_batch_never_exceeds_a_datagram() {
        let mut batch = DatagramBatch::default();
        while batch.join(label(address(1), unmarked(Ecn::NotEct)), &[0; 1472], 64) {}
        assert_eq!(batch.count(), LARGEST_PAYLOAD / 1472);
    }

    #[tokio::test]
    async fn a_batch_arrives_as_its_datagrams_over_either_family() {
        for (local, name) in [("127.0.0.1:0", "v4"), ("[::]:0", "dual")] {
            let Ok(receiver) = UdpLink::bind(local.parse().unwrap()) else {
                skip("no IPv6 here");
                continue;
            };
            let sender = UdpLink::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let to = address(receiver.local_addr().unwrap().port());
            let mut batch = DatagramBatch::default();
            let most = sender.max_segments();
            sender.writable().await.unwrap();
            for length in [9, 9, 5] {
                let datagram = vec![length; usize::from(length)];
                if !batch.join(label(to, unmarked(Ecn::Ect0)), &datagram, most) {
                    sender.send(&batch, None).unwrap();
                    batch.clear();
                    assert!(batch.join(label(to, unmarked(Ecn::Ect0)), &datagram, most));
                }
            }
            sender.send(&batch, None).unwrap();
            let (mut reception, mut lengths) = (ReceiveMemory::new(), Vec::new());
            while lengths.len() < 3 {
                receiver.readable().await.unwrap();
                let taken = receiver.receive(&mut reception, |from, _, ecn, bytes| {
                    assert_eq!(ecn, Ecn::Ect0, "{name}");
                    assert!(from.is_ipv4(), "{name}: {from}");
                    assert!(bytes.iter().all(|byte| usize::from(*byte) == bytes.len()));
                    lengths.push(bytes.len());
                });
                assert!(taken.is_ok() || taken.unwrap_err().kind() == io::ErrorKind::WouldBlock);
            }
            assert_eq!(lengths, [9, 9, 5]);
        }
    }

    #[tokio::test]
    async fn every_codepoint_arrives_as_it_was_sent() {
        let receiver = UdpLink::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let sender = UdpLink::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let to = address(receiver.local_addr().unwrap().port());
        let (mut reception, mut batch) = (ReceiveMemory::new(), DatagramBatch::default());
        for sent in [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce, Ecn::NotEct] {
            batch.clear();
            assert!(batch.join(label(to, unmarked(sent)), &[7; 30], 1));
            sender.writable().await.unwrap();
            sender.send(&batch, None).unwrap();
            let mut received = None;
            while received.is_none() {
                receiver.readable().await.unwrap();
                let _ = receiver.receive(&mut reception, |_, _, ecn, _| received = Some(ecn));
            }
            assert_eq!(received, Some(sent));
        }
    }
}
