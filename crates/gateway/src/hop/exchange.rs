//! Communication between the parts of a hub: datagrams that the kernel delivered to the wrong part,
//! handshakes forwarded by the first part, and the use of the common link. Each part has a thread;
//! nothing here waits for another thread.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use slacp::{Ecn, InitiationHandover, LinkUse, part_of, use_link};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use units::Instant;

use super::tcp::ConnectionId;

/// Capacity of a part's queue of messages. Further ones are dropped, as in the network.
const MOST_MAIL: usize = 1024;
/// Maximum length of a forwarded datagram: the largest MTU of a hop. Where the kernel does not steer
/// datagrams, strangers can make a part hold this much, [`MOST_MAIL`] times.
const LONGEST: usize = 9216;
/// Published turn of a part that has nothing to send.
const NO_TURN: u64 = u64::MAX;

/// A datagram as it was received.
#[derive(Debug)]
pub(crate) struct ReceivedDatagram {
    pub(crate) from: SocketAddr,
    /// The address of ours that it was sent to, if known.
    pub(crate) ours: Option<IpAddr>,
    pub(crate) ecn: Ecn,
    /// The TCP connection that carried it.
    pub(crate) over: Option<ConnectionId>,
    pub(crate) bytes: Vec<u8>,
}

/// A message from one part to another.
#[derive(Debug)]
pub(crate) enum PartMessage {
    Datagram(ReceivedDatagram),
    /// A handshake that the receiving part must answer.
    Handover(InitiationHandover),
}

/// State shared by all parts.
struct ExchangeShared {
    mailboxes: Vec<PartMailbox>,
    /// Time at which the link is free again after all that the parts have sent, in nanoseconds.
    free_at: AtomicU64,
}

/// A part as seen by the others.
struct PartMailbox {
    /// Virtual time of its next packet.
    turn: AtomicU64,
    mail: Sender<PartMessage>,
}

/// The connection of a part to the others.
pub(crate) struct PartExchange {
    own: u8,
    board: Arc<ExchangeShared>,
    mail: Receiver<PartMessage>,
    /// The part of this one's link use that the board already includes.
    spent: Duration,
}

impl PartExchange {
    /// Creates the exchanges of `parts` parts, in order.
    pub(crate) fn among(parts: u8) -> Vec<Self> {
        let (desks, boxes): (Vec<PartMailbox>, Vec<_>) = (0..parts)
            .map(|_| {
                let (mail, received) = channel(MOST_MAIL);
                (PartMailbox { turn: AtomicU64::new(NO_TURN), mail }, received)
            })
            .unzip();
        let board = Arc::new(ExchangeShared { mailboxes: desks, free_at: AtomicU64::new(0) });
        let spent = Duration::ZERO;
        let exchange = |(own, mail)| Self { own, board: board.clone(), mail, spent };
        (0..).zip(boxes).map(exchange).collect()
    }

    /// Returns the part that a datagram belongs to; `None` for this one.
    pub(crate) fn other_part_of(&self, datagram: &[u8]) -> Option<u8> {
        // At most `MOST_PARTS`, which is a `u8`.
        let part = part_of(datagram, self.board.mailboxes.len() as u8);
        (part != self.own).then_some(part)
    }

    /// Sends a message to a part. It is dropped if it is too long or the part's queue is full.
    pub(crate) fn send(&self, part: u8, mail: PartMessage) {
        if let PartMessage::Datagram(ReceivedDatagram { bytes, .. }) = &mail
            && bytes.len() > LONGEST
        {
            return;
        }
        // A full queue drops the message, as the network would: no thread waits for another.
        if let Some(desk) = self.board.mailboxes.get(usize::from(part)) {
            let _ = desk.mail.try_send(mail);
        }
    }

    /// Takes the next waiting message from another part.
    pub(crate) fn try_receive(&mut self) -> Option<PartMessage> {
        self.mail.try_recv().ok()
    }

    /// Waits for a message from another part. Cancel-safe.
    pub(crate) async fn receive(&mut self) -> Option<PartMessage> {
        self.mail.recv().await
    }

    /// Adds this part's use of the link. Returns the time at which the link is free, and the least turn of
    /// the other parts that have something to send.
    pub(crate) fn account_link_use(
        &mut self,
        now: Instant,
        used: LinkUse,
    ) -> (Instant, Option<u64>) {
        let more = used.spent - std::mem::replace(&mut self.spent, used.spent);
        let use_more = |free_at| use_link(now, Instant::from_nanos(free_at), more).as_nanos();
        let free_at = if more.is_zero() {
            self.board.free_at.load(Ordering::Relaxed)
        } else {
            use_more(self.board.free_at.update(Ordering::Relaxed, Ordering::Relaxed, use_more))
        };
        let others = (0..).zip(&self.board.mailboxes).filter(|(part, _)| *part != self.own);
        let turns = others.map(|(_, desk)| desk.turn.load(Ordering::Relaxed));
        (Instant::from_nanos(free_at), turns.min().filter(|turn| *turn != NO_TURN))
    }

    /// Publishes the virtual time of this part's next packet.
    pub(crate) fn publish(&self, used: LinkUse) {
        let desk = &self.board.mailboxes[usize::from(self.own)];
        desk.turn.store(used.turn.unwrap_or(NO_TURN), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(ms: u64, turn: Option<u64>) -> LinkUse {
        LinkUse { spent: Duration::from_millis(ms), turn }
    }

    #[test]
    fn the_parts_use_one_link_and_see_each_others_turns() {
        let mut parts = PartExchange::among(3);
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        parts[0].publish(used(0, Some(7)));
        parts[1].publish(used(0, Some(3)));
        // After a pause, 4 ms of it may leave at once.
        assert_eq!(parts[0].account_link_use(at(100), used(10, None)), (at(106), Some(3)));
        assert_eq!(parts[1].account_link_use(at(100), used(5, None)), (at(111), Some(7)));
        assert_eq!(parts[1].account_link_use(at(100), used(5, None)), (at(111), Some(7)));
        parts[1].publish(used(5, None));
        assert_eq!(parts[2].account_link_use(at(100), used(0, None)), (at(111), Some(7)));
        assert_eq!(parts[0].account_link_use(at(100), used(11, None)), (at(112), None));
    }

    #[test]
    fn a_packet_goes_to_the_part_of_its_index_and_too_much_mail_is_lost() {
        let mut parts = PartExchange::among(2);
        // Data packets for the indices 4 and 5.
        assert_eq!(parts[0].other_part_of(&[0x40, 0, 0, 0, 4, 1, 2]), None);
        assert_eq!(parts[0].other_part_of(&[0x40, 0, 0, 0, 5, 1, 2]), Some(1));
        assert_eq!(parts[1].other_part_of(b"anything else"), Some(0));
        let from = SocketAddr::from(([192, 0, 2, 1], 9));
        for _ in 0..2 * MOST_MAIL {
            let (ours, ecn, over, bytes) = (None, Ecn::NotEct, None, vec![0x40, 0, 0, 0, 5, 1, 2]);
            parts[0]
                .send(1, PartMessage::Datagram(ReceivedDatagram { from, ours, ecn, over, bytes }));
        }
        let received = std::iter::from_fn(|| parts[1].try_receive()).count();
        assert_eq!(received, MOST_MAIL);
        for (length, passes) in [(LONGEST, true), (LONGEST + 1, false)] {
            let (ours, ecn, over, bytes) = (None, Ecn::NotEct, None, vec![0x40; length]);
            parts[0]
                .send(1, PartMessage::Datagram(ReceivedDatagram { from, ours, ecn, over, bytes }));
            assert_eq!(parts[1].try_receive().is_some(), passes, "{length} bytes");
        }
    }
}
