//! Answers to what policies refuse: the table drops and logs SYNs and UDP datagrams ([`Rules`]), and the gateway
//! answers each with a reset or *port unreachable* in the name of its destination.
//!
//! Not left to the kernel (`reject`): it sends *port unreachable* from an address of its own, and after six at once
//! only one a second to each client (icmp(7), `icmp_ratelimit`), while a page asks dozens of hosts at once.
//!
//! [`Rules`]: crate::intercept::netfilter::Rules

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use control::status::RefusalStatus;
use os::netlink::netfilter::NetfilterSocket;
use pep::admission::RefusalLimiter;
use pep::traffic::{IpFamily, Refusal};
use socket2::Socket;
use units::Instant;

use crate::intercept::packet_log::PacketLog;
use crate::intercept::syn_tap::raw_socket;
use crate::process::clock;

/// Longest message of the log group: a packet's start and its metadata.
const LONGEST_MESSAGE: usize = 8 << 10;

/// Receives logged packets and answers them.
pub(crate) struct Refuser {
    log: PacketLog,
    /// Sockets for packets to clients: IPv4, IPv6.
    sockets: [Option<Socket>; 2],
    limiter: RefusalLimiter,
    counts: RefusalStatus,
}

impl Refuser {
    /// Subscribes to the log `group` and opens the raw sockets.
    ///
    /// # Errors
    /// The kernel's refusal: CAP_NET_ADMIN or CAP_NET_RAW is missing, it cannot log, or the group is taken.
    pub(crate) fn open(group: u16, versions: &[IpFamily]) -> io::Result<Self> {
        let of = |version| versions.contains(&version).then(|| raw_socket(version, None));
        let sockets = [of(IpFamily::V4).transpose()?, of(IpFamily::V6).transpose()?];
        let group = NetfilterSocket::open()?.listen_to_starts(group)?;
        Ok(Self {
            log: PacketLog::new(group, LONGEST_MESSAGE)?,
            sockets,
            limiter: RefusalLimiter::default(),
            counts: RefusalStatus::default(),
        })
    }

    /// Answers packets for ever. Cancel-safe.
    pub(crate) async fn serve(&mut self) -> Infallible {
        loop {
            // If the kernel has dropped some, their clients repeat them.
            let refused = self.log.next(Refusal::of).await.unwrap_or_default();
            let now = clock::now();
            refused.iter().for_each(|refusal| self.answer(now, refusal));
        }
    }

    /// Number of packets answered, and of those beyond a client's limit.
    pub(crate) fn counts(&self) -> RefusalStatus {
        self.counts
    }

    fn answer(&mut self, now: Instant, refusal: &Refusal) {
        if !self.limiter.take(now, refusal.client) {
            self.counts.limited += 1;
            return;
        }
        let Some(socket) = &self.sockets[usize::from(refusal.client.is_ipv6())] else { return };
        match socket.send_to(&refusal.packet, &SocketAddr::new(refusal.client, 0).into()) {
            Ok(_) => self.counts.answered += 1,
            // Not fatal: the client repeats its packet.
            Err(error) => tracing::debug!("cannot refuse a packet of {}: {error}", refusal.client),
        }
    }
}
