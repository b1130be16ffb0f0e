//! A connection with its user, as a peer of the virtual network. Segments
//! travel as bytes with checksums.

use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use link::testkit::Peer;
use tcp::{Connection, ConnectionEvent, Ecn, TcpState, wire};
use units::{Instant, Machine};

/// What one side does with its connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Bytes to send, then the stream ends.
    pub(crate) bytes: u64,
    /// Maximum number of bytes per read, whenever something arrives.
    pub(crate) read: usize,
    /// Whether the stream ends only after the peer's has.
    pub(crate) waits: bool,
}

pub(crate) struct Host {
    pub(crate) tcp: Connection<Bytes>,
    me: usize,
    plan: Plan,
    sent: u64,
    pub(crate) received: u64,
    closed: bool,
    pub(crate) finished: bool,
    pub(crate) is_over: bool,
    pub(crate) finished_at: Option<Instant>,
    now: Instant,
    /// Digest of everything sent, and when.
    pub(crate) digest: u64,
}

/// The byte at `offset` of the stream sent by host `side`.
fn byte(side: usize, offset: u64) -> u8 {
    ((offset ^ (side as u64) << 60).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Length of [`digest`] in bytes.
pub(crate) const TRAILER: usize = 8;

/// FNV-1a.
fn digest(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(start ^ 0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn path(from: usize) -> wire::SegmentPath {
    let address = |host: usize| IpAddr::V4(Ipv4Addr::new(10, 0, 0, host as u8 + 1));
    let (from, to) = (address(from), address(1 - from));
    wire::SegmentPath { from, from_port: 1000, to, to_port: 1000 }
}

impl Host {
    pub(crate) fn new(me: usize, tcp: Connection<Bytes>, plan: Plan) -> Self {
        Self {
            tcp,
            me,
            plan,
            sent: 0,
            received: 0,
            closed: false,
            finished: false,
            is_over: false,
            finished_at: None,
            now: Instant::ZERO,
            digest: 0,
        }
    }

    fn live(&mut self) {
        while let Some(event) = self.tcp.poll_event() {
            match event {
                ConnectionEvent::Finished => self.finished = true,
                ConnectionEvent::Closed => self.is_over = true,
                ConnectionEvent::Aborted(why) => panic!("host {} aborted: {why:?}", self.me),
                _ => {}
            }
        }
        self.read();
        self.write();
    }

    fn read(&mut self) {
        let mut left = self.plan.read;
        while let Some(data) = self.tcp.read(left) {
            for (at, data) in data.iter().enumerate() {
                let offset = self.received + at as u64;
                assert_eq!(*data, byte(1 - self.me, offset), "host {} at {offset}", self.me);
            }
            self.received += data.len() as u64;
            left -= data.len();
        }
        if self.finished && self.tcp.readable() == 0 {
            self.finished_at.get_or_insert(self.now);
        }
    }

    fn write(&mut self) {
        let can = matches!(
            self.tcp.state(),
            TcpState::SynSent | TcpState::Established | TcpState::CloseWait
        );
        if !can || self.closed {
            return;
        }
        while self.sent < self.plan.bytes {
            let end = self.plan.bytes.min(self.sent + 5000);
            let chunk: Bytes = (self.sent..end).map(|at| byte(self.me, at)).collect();
            let taken = self.tcp.write(&chunk).unwrap();
            self.sent += taken as u64;
            if taken == 0 {
                return;
            }
        }
        // CLOSE in SYN-SENT would abort the connection.
        let is_open = self.tcp.state() != TcpState::SynSent;
        if is_open && (!self.plan.waits || self.finished) {
            self.tcp.close();
            self.closed = true;
        }
    }

    /// Checks that everything went through in both directions; reads what a slow reader has left.
    pub(crate) fn check(&mut self, expected: u64) {
        self.plan.read = usize::MAX;
        self.read();
        assert_eq!(self.received, expected, "host {} received", self.me);
        assert_eq!(self.sent, self.plan.bytes, "host {} sent", self.me);
        assert!(self.finished && self.closed);
    }
}

impl Machine for Host {
    type Wake = tcp::TimerKind;

    fn poll_timeout(&self) -> Option<(Instant, tcp::TimerKind)> {
        self.tcp.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        self.tcp.handle_timeout(now);
        self.live();
    }
}

impl Peer for Host {
    fn receive(&mut self, now: Instant, from: usize, datagram: Vec<u8>) {
        self.now = now;
        let wire::SegmentPath { from, to, .. } = path(from);
        // A 16-bit checksum passes one of 65,536 damaged segments, as on the Internet; the digest
        // behind it, which stands for a link layer's checksum, does not.
        let (bytes, trailer) = datagram.split_at(datagram.len() - TRAILER);
        let is_intact = trailer == digest(0, bytes).to_be_bytes();
        let decoded = wire::decode(from, to, Ecn::NotEct, &Bytes::copy_from_slice(bytes));
        assert!(decoded.is_ok() || !is_intact);
        if let Some((_, segment)) = decoded.ok().filter(|_| is_intact) {
            self.tcp.handle_segment(now, &segment);
        }
        self.live();
    }

    fn transmit(&mut self, now: Instant) -> Option<(usize, Vec<u8>)> {
        self.now = now;
        self.live();
        let segment = self.tcp.poll_transmit(now)?;
        let mut out = Vec::new();
        wire::encode(&path(self.me), &segment, &mut out);
        assert!(out.len() <= 20 + 40 + 1460, "{} bytes", out.len());
        self.digest = digest(self.digest ^ now.as_nanos(), &out);
        out.extend_from_slice(&digest(0, &out).to_be_bytes());
        Some((1 - self.me, out))
    }
}
