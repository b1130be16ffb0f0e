//! Redirected SYNs and the answers that this machine sends to them, as headers logged by the kernel, for
//! [`AnswerWatch`].
//!
//! [`AnswerWatch`]: pep::admission::AnswerWatch

use std::io;
use std::net::SocketAddr;

use os::netlink::netfilter::NetfilterSocket;
use pep::traffic::{Packet, segment_of};

use super::netfilter::GatewaySlot;
use super::packet_log::PacketLog;

/// Offset of the flags in the TCP header, and the flag of an answer (RFC 9293 §3.1).
const FLAGS: usize = 13;
const ACK: u8 = 0x10;

/// Receives logged SYNs and answers.
pub(crate) struct AnswerTap(PacketLog);

/// A logged packet between a client and the listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoggedPacket {
    /// A SYN from the client `source` is on its way to the listener.
    Syn { source: SocketAddr, destination: SocketAddr },
    /// An answer leaves for the client `source`.
    Answer { source: SocketAddr, destination: SocketAddr },
    /// The kernel has dropped log messages.
    Gap,
}

impl AnswerTap {
    /// Subscribes to the watch group of `slot`.
    ///
    /// # Errors
    /// The kernel's refusal: it cannot log, or the group is taken.
    pub(crate) fn open(slot: GatewaySlot) -> io::Result<Self> {
        let group = NetfilterSocket::open()?.listen_to_headers(slot.watch_group())?;
        PacketLog::new(group, 32 << 10).map(Self)
    }

    /// Waits for the next logged packets, in order of time. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Vec<LoggedPacket> {
        self.0.next(sighting).await.unwrap_or_else(|| vec![LoggedPacket::Gap])
    }
}

/// Parses the headers of a SYN or of its answer; `None` for other packets.
fn sighting(packet: &[u8]) -> Option<LoggedPacket> {
    let parsed = Packet::parse(packet)?;
    let [source, destination] = parsed.ports?;
    let source = SocketAddr::new(parsed.source, source);
    let destination = SocketAddr::new(parsed.destination, destination);
    let flags = *packet.get(segment_of(packet)?.start + FLAGS)?;
    Some(if flags & ACK == 0 {
        LoggedPacket::Syn { source, destination }
    } else {
        LoggedPacket::Answer { source: destination, destination: source }
    })
}

#[cfg(test)]
mod tests {
    use pep::traffic::syn_packet;

    use super::*;

    #[test]
    fn a_syn_and_its_answer_are_told_apart_by_their_headers() {
        for v6 in [false, true] {
            let syn = syn_packet(v6, false, b"");
            let Some(LoggedPacket::Syn { source, destination }) = sighting(&syn) else {
                panic!("{syn:?}")
            };
            assert_eq!((source.port(), destination.port()), (0x1234, 80));
            let mut answer = syn.clone();
            answer[segment_of(&syn).unwrap().start + FLAGS] |= ACK;
            let expected = LoggedPacket::Answer { source: destination, destination: source };
            assert_eq!(sighting(&answer), Some(expected));
            // The kernel cuts packets off.
            assert!(
                (0..syn.len()).all(|length| sighting(&syn[..length]).is_none_or(|_| length > 30))
            );
        }
    }
}
