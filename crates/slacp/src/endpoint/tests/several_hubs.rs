//! A terminal with two hubs.

use core::time::Duration;

use super::*;

const OTHER: u8 = 3;

struct Trio {
    terminal: Endpoint,
    /// The hubs, and the last byte of the address of each.
    hubs: [(u8, Endpoint); 2],
    now: Instant,
}

impl Trio {
    fn new() -> Self {
        let mut terminal = terminal(5);
        terminal.set_hub(key(OTHER).public(), vec![address(OTHER)]);
        let hub = |seed| {
            let allow = vec![key(TERMINAL).public()];
            (seed, Endpoint::hub(config(), key(seed), allow, [seed; 32]))
        };
        Self { terminal, hubs: [hub(HUB), hub(OTHER)], now: at(0) }
    }

    fn want(&mut self, hub: u8, wanted: bool) {
        self.terminal.want_hub(key(hub).public(), wanted);
    }

    /// Carries all datagrams for a while, but none of the hubs that are `away`. Returns the
    /// terminal's events by hub.
    fn run(&mut self, ms: u64, away: &[u8]) -> Vec<(u8, Event)> {
        let (until, mut buf) = (self.now + Duration::from_millis(ms), Vec::new());
        let mut events = Vec::new();
        while self.now < until {
            let now = self.now;
            self.terminal.handle_timeout(now);
            while let Some(to) = self.terminal.poll_transmit(now, &mut buf) {
                let found = self.hubs.iter_mut().find(|(last, _)| address(*last) == to);
                if let Some((_, hub)) = found.filter(|(last, _)| !away.contains(last)) {
                    hub.handle_datagram(now, address(TERMINAL), &mut buf);
                }
            }
            for (last, hub) in self.hubs.iter_mut().filter(|(last, _)| !away.contains(last)) {
                carry(hub, *last, &mut self.terminal, now);
            }
            events.extend(self.events());
            self.now += Duration::from_millis(10);
        }
        events
    }

    fn events(&mut self) -> Vec<(u8, Event)> {
        let mut events = Vec::new();
        while let Some((id, event)) = self.terminal.poll_event() {
            let peer = self.terminal.core.sessions.get(id).map(|session| session.peer.key);
            let of = |seed: &u8| peer == Some(key(*seed).public());
            events.push(([HUB, OTHER].into_iter().find(of).unwrap_or(0), event));
        }
        events
    }
}

fn ups(events: &[(u8, Event)]) -> Vec<u8> {
    let up = |(hub, event): &(u8, Event)| matches!(event, Event::Up { .. }).then_some(*hub);
    events.iter().filter_map(up).collect()
}

#[test]
fn a_session_exists_with_each_hub_that_is_wanted() {
    let mut trio = Trio::new();
    assert_eq!(ups(&trio.run(100, &[])), [HUB]);
    trio.want(OTHER, true);
    assert_eq!(ups(&trio.run(100, &[])), [OTHER]);
    assert_eq!(trio.terminal.footprint().sessions, 2);
    // One that is no longer wanted goes on until it is closed, and does not come back then.
    trio.want(HUB, false);
    assert_eq!(trio.run(60_000, &[]), []);
    let id = trio.terminal.core.sessions.iter().next().unwrap().0;
    trio.terminal.close(trio.now, id, CloseReason::Shutdown).unwrap();
    let closed = Event::Down(DownReason::Closed(CloseReason::Shutdown));
    assert_eq!(trio.run(60_000, &[]), [(HUB, closed)]);
    assert_eq!(
        trio.terminal.footprint(),
        EndpointFootprint { sessions: 1, ..EndpointFootprint::default() }
    );
}

#[test]
fn a_hub_that_does_not_answer_is_tried_until_it_is_no_longer_wanted() {
    let mut trio = Trio::new();
    trio.want(OTHER, true);
    assert_eq!(ups(&trio.run(30_000, &[OTHER])), [HUB]);
    assert_eq!(trio.terminal.footprint().handshakes, 1);
    trio.want(OTHER, false);
    assert_eq!(trio.terminal.footprint().handshakes, 0);
    assert_eq!(trio.run(30_000, &[]), []);
}

#[test]
fn a_hub_found_at_another_address_is_tried_there() {
    let mut trio = Trio::new();
    trio.terminal.set_hub(key(HUB).public(), vec![address(66)]);
    trio.hubs[0].0 = 66;
    let up = Event::Up { peer: key(HUB).public(), address: address(66) };
    assert_eq!(trio.run(100, &[]), [(HUB, up)]);
}

#[test]
fn a_hub_that_leaves_says_so_once_and_to_those_that_come() {
    let mut trio = Trio::new();
    trio.run(100, &[]);
    let now = trio.now;
    trio.hubs[0].1.announce(now, StopAnnouncement::Leaving);
    trio.hubs[0].1.announce(now, StopAnnouncement::Leaving);
    trio.hubs[1].1.announce(now, StopAnnouncement::Leaving);
    assert_eq!(trio.run(100, &[]), [(HUB, Event::Leaving)]);
    trio.want(OTHER, true);
    let events = trio.run(100, &[]);
    assert!(
        matches!(events[..], [(OTHER, Event::Up { .. }), (OTHER, Event::Leaving)]),
        "{events:?}"
    );
    assert_eq!(trio.terminal.footprint().sessions, 2);
}

#[test]
fn what_one_hub_answers_means_nothing_to_another() {
    let mut trio = Trio::new();
    trio.want(OTHER, true);
    let initiations = drain(&mut trio.terminal, at(0));
    assert_eq!(initiations.len(), 2);
    // Both initiations reach both hubs; each can read only its own.
    for (last, hub) in &mut trio.hubs {
        for initiation in &initiations {
            hub.handle_datagram(at(0), address(TERMINAL), &mut initiation.clone());
        }
        assert_eq!(carry(hub, *last, &mut trio.terminal, at(1)), 1);
    }
    assert_eq!(ups(&trio.events()), [HUB, OTHER]);
}
