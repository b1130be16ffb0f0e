//! Clients whose new connections pass unaccelerated for a while, because they have their share of the
//! gateway's connections, or most of those that the far side can carry. No I/O, no clock.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use units::Instant;

/// Period for which a client's connections pass. Each change rebuilds the interception table.
const PAUSE: Duration = Duration::from_secs(5);
/// Maximum number of clients that pass at a time.
const MOST: usize = 64;

/// The clients that pass, and until when.
#[derive(Debug, Default)]
pub struct PassingClients {
    until: BTreeMap<IpAddr, Instant>,
    /// The list as last reported.
    known: Vec<IpAddr>,
}

impl PassingClients {
    /// Lets a client pass for a while. Returns `true` if the interception has to be updated.
    pub fn pass(&mut self, now: Instant, client: IpAddr) -> bool {
        self.until.retain(|_, until| *until > now);
        if self.until.len() >= MOST && !self.until.contains_key(&client) {
            return false;
        }
        self.until.insert(client, now + PAUSE).is_none()
    }

    /// Time at which the next client stops passing.
    pub fn next_end(&self) -> Option<Instant> {
        self.known.iter().filter_map(|client| self.until.get(client)).min().copied()
    }

    /// The clients to let pass, if the list has changed since the last call.
    pub fn take_change(&mut self, now: Instant) -> Option<Vec<IpAddr>> {
        let passing = self.until.iter().filter(|(_, until)| **until > now);
        let passing: Vec<IpAddr> = passing.map(|(client, _)| *client).collect();
        if passing == self.known {
            return None;
        }
        self.known.clone_from(&passing);
        Some(passing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_client_passes_until_five_seconds_after_the_last_time() {
        let mut passing = PassingClients::default();
        assert!(passing.pass(at(0), client(1)));
        assert_eq!(passing.take_change(at(0)), Some(vec![client(1)]));
        assert!(!passing.pass(at(3), client(1)), "it passes already");
        assert_eq!((passing.take_change(at(3)), passing.next_end()), (None, Some(at(8))));
        assert_eq!(passing.take_change(at(8)), Some(vec![]));
        assert_eq!(passing.next_end(), None);
    }

    #[test]
    fn the_number_is_limited() {
        let mut passing = PassingClients::default();
        assert_eq!((0..=255).filter(|number| passing.pass(at(0), client(*number))).count(), MOST);
        assert!(passing.pass(at(5), client(255)), "the others are over");
    }
}
