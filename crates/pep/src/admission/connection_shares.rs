//! Divides a gateway's connections among its clients, and chooses idle ones to close when there are too
//! many. No I/O, no clock.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use units::Instant;

/// A client may have this many times as many connections as are free: a single client gets seven eighths of
/// all.
const MOST_PER_FREE: u64 = 7;
/// Connections idle for longer than this may be closed: clients have to expect that an address translator
/// on the path forgets them (RFC 5382 §5 requires two hours, many keep them for minutes).
const IDLE: Duration = Duration::from_secs(60);

/// Connections per client, which is an address or a network ([`slacp::client_network`]).
#[derive(Debug, Default)]
pub struct ConnectionShares {
    all: u64,
    clients: BTreeMap<IpAddr, u64>,
}

impl ConnectionShares {
    /// Counts a new connection.
    pub fn enter(&mut self, client: IpAddr) {
        self.all += 1;
        *self.clients.entry(client).or_default() += 1;
    }

    /// Counts a connection that has ended.
    pub fn leave(&mut self, client: IpAddr) {
        self.all -= 1;
        if let Some(count) = self.clients.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                self.clients.remove(&client);
            }
        }
    }

    /// Number of connections of all clients.
    pub fn count(&self) -> u64 {
        self.all
    }

    /// Returns `true` if a client may open another connection when `most` are allowed in total.
    pub fn admits(&self, client: IpAddr, most: u64) -> bool {
        self.of(client) < most.saturating_sub(self.all).saturating_mul(MOST_PER_FREE)
    }

    /// Returns `true` if one client has more than half of the connections, and others have some. A far side
    /// that refuses more of them then says nothing about other clients.
    pub fn is_dominated_by(&self, client: IpAddr) -> bool {
        let held = self.of(client);
        held < self.all && 2 * held > self.all
    }

    fn of(&self, client: IpAddr) -> u64 {
        self.clients.get(&client).copied().unwrap_or(0)
    }
}

/// A connection that may be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleConnection {
    /// Number of the connection in the gateway's register.
    pub id: u64,
    /// Client whose share it counts for.
    pub client: IpAddr,
    /// Time at which it last carried data.
    pub since: Instant,
}

/// Chooses up to `count` connections to close at `now`: those of the clients with most connections, the
/// longest idle first.
pub fn choose_evicted(
    now: Instant,
    connections: impl Iterator<Item = IdleConnection>,
    count: usize,
) -> Vec<u64> {
    let mut clients = BTreeMap::<IpAddr, (u64, Vec<(Instant, u64)>)>::new();
    for IdleConnection { id, client, since } in connections {
        let (held, idle) = clients.entry(client).or_default();
        *held += 1;
        if now.saturating_since(since) > IDLE {
            idle.push((since, id));
        }
    }
    // Sorted so that `pop` takes the longest idle.
    clients.values_mut().for_each(|(_, idle)| idle.sort_unstable_by(|a, b| b.cmp(a)));
    let mut chosen = Vec::new();
    while chosen.len() < count {
        let candidates = clients.values_mut().filter(|(_, idle)| !idle.is_empty());
        let rank = |(held, idle): &&mut (u64, Vec<(Instant, u64)>)| {
            (*held, std::cmp::Reverse(idle.last().copied()))
        };
        let Some((held, idle)) = candidates.max_by_key(rank) else { break };
        *held -= 1;
        chosen.extend(idle.pop().map(|(_, id)| id));
    }
    chosen
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

    /// How many connections a client gets of `most`.
    fn fill(shares: &mut ConnectionShares, of: u8, most: u64) -> u64 {
        let mut count = 0;
        while shares.admits(client(of), most) {
            shares.enter(client(of));
            count += 1;
        }
        count
    }

    #[test]
    fn clients_that_take_what_they_get_leave_others_some() {
        let mut shares = ConnectionShares::default();
        assert_eq!(fill(&mut shares, 1, 1024), 896);
        assert_eq!([2, 3].map(|number| fill(&mut shares, number, 1024)), [112, 14]);
        (0..500).for_each(|_| shares.leave(client(1)));
        assert!(fill(&mut shares, 9, 1024) > 400, "what is given back is there for others");
    }

    #[test]
    fn a_refusal_concerns_the_client_that_has_most() {
        let mut shares = ConnectionShares::default();
        (0..10).for_each(|_| shares.enter(client(1)));
        assert!(!shares.is_dominated_by(client(1)), "there is nobody else");
        shares.enter(client(2));
        assert!(shares.is_dominated_by(client(1)) && !shares.is_dominated_by(client(2)));
    }

    #[test]
    fn the_longest_idle_connections_of_the_largest_clients_give_way() {
        let connection =
            |id, of, seconds| IdleConnection { id, client: client(of), since: at(seconds) };
        let all = [
            connection(1, 1, 5),
            connection(2, 1, 3),
            connection(3, 1, 4),
            connection(4, 1, 190),
            connection(5, 2, 1),
            connection(6, 2, 7),
        ];
        assert_eq!(choose_evicted(at(200), all.into_iter(), 1), [2]);
        assert_eq!(choose_evicted(at(200), all.into_iter(), 3), [2, 3, 5]);
        assert_eq!(choose_evicted(at(200), all.into_iter(), 9).len(), 5, "one is in use");
        assert_eq!(choose_evicted(at(60), all.into_iter(), 9), Vec::<u64>::new());
    }
}
