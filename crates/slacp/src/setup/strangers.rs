//! Machines that ask a hub for sessions and are not served.
//!
//! A hub is silent towards them, so a terminal with a wrong key learns nothing. The hub's owner
//! does: a bounded table holds those heard last, and new ones are reported.

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use units::Instant;

use crate::setup::foreign::ReportLimiter;
use crate::{EndpointNotice, PublicKey};

/// Maximum number of entries. Anyone can fill the table with forged addresses.
const MAX_ENTRIES: usize = 64;
/// An entry older than this makes room for another: a terminal that is not answered repeats its
/// message every few seconds.
const STALE: Duration = Duration::from_secs(60);
/// An entry is removed after this time.
const FORGET: Duration = Duration::from_secs(3600);

/// A machine that asks a hub for sessions and is not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stranger {
    /// Source of its last message. It may be forged.
    pub address: SocketAddr,
    /// Its key, which the hub does not permit. `None` if its messages are for another hub's key, so that
    /// this hub cannot read them.
    pub key: Option<PublicKey>,
    /// Time of its first message.
    pub first: Instant,
    /// Time of its last message.
    pub last: Instant,
    /// Number of messages received from it.
    pub attempts: u64,
}

/// Identity of a stranger: its key or, if that is unknown, its IP address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum StrangerId {
    Key(PublicKey),
    Address(IpAddr),
}

/// The strangers heard last, at most [`MAX_ENTRIES`].
#[derive(Debug, Default)]
pub(crate) struct StrangerTable {
    known: BTreeMap<StrangerId, Stranger>,
    reported: ReportLimiter<StrangerId>,
}

impl StrangerTable {
    /// Records a message. Returns a notice if its sender is to be reported.
    pub(crate) fn record(
        &mut self,
        now: Instant,
        address: SocketAddr,
        key: Option<PublicKey>,
    ) -> Option<EndpointNotice> {
        let who = key.map_or_else(|| StrangerId::Address(address.ip()), StrangerId::Key);
        match self.known.get_mut(&who) {
            Some(known) => {
                (known.address, known.last) = (address, now);
                known.attempts += 1;
            }
            None => {
                self.make_room(now)?;
                let stranger = Stranger { address, key, first: now, last: now, attempts: 1 };
                self.known.insert(who, stranger);
            }
        }
        let is_news = self.reported.is_news(now, who);
        is_news.then_some(EndpointNotice::Stranger { address, key })
    }

    /// Makes room for an entry; `None` if all entries are recent.
    fn make_room(&mut self, now: Instant) -> Option<()> {
        if self.known.len() < MAX_ENTRIES {
            return Some(());
        }
        let oldest = self.known.iter().min_by_key(|(_, stranger)| stranger.last);
        // A machine that keeps asking stays: forged addresses must not displace it.
        let (who, _) = oldest.filter(|(_, stranger)| now >= stranger.last + STALE)?;
        let who = *who;
        self.known.remove(&who).map(drop)
    }

    /// Removes a terminal that is permitted now.
    pub(crate) fn forget(&mut self, key: &PublicKey) {
        self.known.remove(&StrangerId::Key(*key));
    }

    /// Those heard within the last hour, in no particular order.
    pub(crate) fn all(&self, now: Instant) -> impl Iterator<Item = &Stranger> {
        self.known.values().filter(move |stranger| now < stranger.last + FORGET)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn address(n: u32) -> SocketAddr {
        (IpAddr::V4(n.into()), 5900).into()
    }

    #[test]
    fn a_stranger_is_reported_once_and_counted_until_it_is_permitted() {
        let mut strangers = StrangerTable::default();
        let key = Some(PublicKey([7; 32]));
        let first = strangers.record(at(1), address(1), key);
        assert_eq!(first, Some(EndpointNotice::Stranger { address: address(1), key }));
        // It has another address now.
        assert_eq!(strangers.record(at(9), address(2), key), None);
        let all: Vec<_> = strangers.all(at(9)).collect();
        let expected =
            Stranger { address: address(2), key, first: at(1), last: at(9), attempts: 2 };
        assert_eq!(all, [&expected]);
        assert_eq!(strangers.all(at(9) + FORGET).count(), 0);
        strangers.forget(&PublicKey([7; 32]));
        assert_eq!(strangers.all(at(9)).count(), 0);
    }

    #[test]
    fn forged_addresses_displace_nobody_who_keeps_asking_and_are_reported_64_times() {
        let mut strangers = StrangerTable::default();
        // The first in the table, before all forged ones: the first to be displaced if anybody recent were.
        let own = address(0);
        let mut notices = 0;
        for second in 0..200 {
            notices += usize::from(strangers.record(at(second), own, None).is_some());
            for n in 1..=100 {
                let forged = address(second as u32 * 100 + n);
                notices += usize::from(strangers.record(at(second), forged, None).is_some());
            }
            assert!(strangers.known.len() <= MAX_ENTRIES);
        }
        assert_eq!(notices, 64);
        let kept = strangers.all(at(200)).find(|stranger| stranger.address == own).unwrap();
        assert_eq!((kept.first, kept.attempts), (at(0), 200));
    }
}
