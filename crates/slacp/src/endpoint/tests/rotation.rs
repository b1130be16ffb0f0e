//! A hub whose key is replaced by another.

use core::time::Duration;

use super::*;

const NEXT: u8 = 4;

/// A terminal and a hub.
struct Both {
    terminal: Endpoint,
    hub: Endpoint,
    now: Instant,
}

impl Both {
    fn new() -> Self {
        Self { terminal: terminal(5), hub: hub(config()), now: at(0) }
    }

    /// The hub answers to these keys from now on.
    fn set_keys(&mut self, keys: &[u8]) {
        self.hub.set_identities(keys.iter().map(|seed| key(*seed)).collect());
    }

    /// The terminal has been told a key by the hub.
    fn tell(&mut self, next: Option<u8>) {
        let next = next.map(|seed| key(seed).public());
        self.terminal.set_next_hub_key(key(HUB).public(), next);
    }

    /// Another process takes the hub's place. It has these keys and no sessions.
    fn restart(&mut self, keys: &[u8]) {
        self.hub = hub(config());
        self.set_keys(keys);
    }

    /// Carries all datagrams for a while. Returns the keys with which sessions came up.
    fn run(&mut self, ms: u64) -> Vec<u8> {
        let (until, mut up) = (self.now + Duration::from_millis(ms), Vec::new());
        while self.now < until {
            let now = self.now;
            carry(&mut self.terminal, TERMINAL, &mut self.hub, now);
            carry(&mut self.hub, HUB, &mut self.terminal, now);
            while let Some((_, event)) = self.terminal.poll_event() {
                if let Event::Up { peer, .. } = event {
                    let seed = (0..9).find(|seed| key(*seed).public() == peer);
                    up.push(seed.expect("it is one of the test's keys"));
                }
            }
            while self.hub.poll_event().is_some() {}
            self.now += Duration::from_millis(10);
        }
        up
    }

    /// The initiations that the terminal sends in a while, none of which arrives.
    fn initiations(&mut self, ms: u64) -> Vec<Vec<u8>> {
        let (until, mut sent) = (self.now + Duration::from_millis(ms), Vec::new());
        while self.now < until {
            sent.extend(drain(&mut self.terminal, self.now));
            self.now += Duration::from_millis(10);
        }
        sent.retain(|datagram| {
            matches!(packet::parse(datagram), Some(Datagram::Initiation { .. }))
        });
        sent
    }
}

/// How many of these are for a key.
fn count_for(seed: u8, initiations: &[Vec<u8>]) -> usize {
    let knock_key = KnockKey::new(key(seed).public());
    initiations.iter().filter(|it| knock_key.check(it).is_some()).count()
}

#[test]
fn terminals_follow_the_hub_from_key_to_key_and_no_session_ends() {
    let mut both = Both::new();
    assert_eq!(both.run(100), [HUB]);
    both.set_keys(&[HUB, NEXT]);
    both.tell(Some(NEXT));
    assert_eq!(both.run(60_000), [], "the session goes on");
    // The old key is gone, the session not.
    both.set_keys(&[NEXT]);
    assert_eq!(both.run(60_000), []);
    assert_eq!(both.terminal.footprint().sessions, 1);
    both.restart(&[NEXT]);
    assert_eq!(both.run(20_000), [NEXT]);
    // The owner may still name the hub by the key before.
    both.terminal.want_hub(key(HUB).public(), false);
    both.restart(&[NEXT]);
    assert_eq!(both.run(60_000), []);
    both.terminal.want_hub(key(NEXT).public(), true);
    assert_eq!(both.run(20_000), [NEXT]);
}

#[test]
fn a_hub_answers_to_both_keys_for_as_long_as_it_has_both() {
    for (told, used) in [(None, HUB), (Some(NEXT), NEXT)] {
        let mut both = Both::new();
        both.set_keys(&[HUB, NEXT]);
        both.tell(told);
        assert_eq!(both.run(100), [used]);
    }
    let mut both = Both::new();
    both.set_keys(&[NEXT]);
    assert_eq!(both.run(60_000), [], "the terminal was off while it could learn the key");
    both.set_keys(&[]);
    both.tell(Some(NEXT));
    assert_eq!(both.run(60_000), [NEXT], "a hub keeps the key that it has");
}

#[test]
fn cookies_and_refusals_of_versions_are_of_the_key_that_was_asked() {
    let mut both = Both::new();
    both.hub = hub(Config { handshakes_per_second: 0, ..config() });
    both.set_keys(&[HUB, NEXT]);
    both.tell(Some(NEXT));
    assert_eq!(both.run(100), [NEXT]);
}

#[test]
fn a_key_that_leads_nowhere_costs_seconds_and_not_the_hub() {
    let mut both = Both::new();
    both.tell(Some(66));
    assert_eq!(both.run(15_000), [HUB]);
    both.restart(&[HUB]);
    assert_eq!(both.run(40_000), [HUB]);
    both.tell(None);
    both.restart(&[HUB]);
    assert_eq!(both.run(17_000), [HUB]);
}

#[test]
fn without_an_answer_both_keys_have_their_turns() {
    let mut both = Both::new();
    both.tell(Some(NEXT));
    let sent = both.initiations(60_000);
    let (old, new) = (count_for(HUB, &sent), count_for(NEXT, &sent));
    assert_eq!(old + new, sent.len());
    assert!(old >= 9 && new >= 9 && old.abs_diff(new) <= 3, "{old} and {new}");
}

#[test]
fn who_has_the_key_of_before_cannot_take_a_terminal_that_has_left_it() {
    let mut both = Both::new();
    both.set_keys(&[HUB, NEXT]);
    both.tell(Some(NEXT));
    assert_eq!(both.run(100), [NEXT]);
    // A thief with the key of before takes the hub's place, and its hints mean nothing.
    both.restart(&[HUB]);
    assert_eq!(both.run(120_000), []);
    assert_eq!(count_for(HUB, &both.initiations(120_000)), 0);
    both.restart(&[NEXT]);
    assert_eq!(both.run(60_000), [NEXT]);
}

#[test]
fn an_initiation_for_one_key_says_nothing_to_the_holder_of_another() {
    let mut both = Both::new();
    both.tell(Some(NEXT));
    let initiation = drain(&mut both.terminal, at(0)).remove(0);
    both.hub.handle_datagram(at(0), address(TERMINAL), &mut initiation.clone());
    assert_eq!((both.hub.ignored(), both.hub.footprint().handshakes), (1, 0));
    assert_eq!(drain(&mut both.hub, at(0)), [] as [Vec<u8>; 0]);
    // What was recorded before the hub had the key is as good afterwards as any repetition.
    both.set_keys(&[HUB, NEXT]);
    both.hub.handle_datagram(at(1), address(TERMINAL), &mut initiation.clone());
    assert_eq!(both.hub.footprint().handshakes, 1);
}

#[test]
fn a_hub_in_parts_has_its_keys_in_all_of_them() {
    let allow = [key(TERMINAL).public(), key(7).public()];
    let mut parts = Endpoint::hub_in_parts(&config(), &key(HUB), &allow, [9; 32], 2);
    for part in &mut parts {
        part.set_identities(vec![key(HUB), key(NEXT)]);
    }
    for seed in [TERMINAL, 7] {
        let hub = key(NEXT).public();
        let mut terminal =
            Endpoint::terminal(config(), key(seed), hub, vec![address(HUB)], [seed; 32]);
        carry(&mut terminal, seed, &mut parts[0], at(0));
        if let Some(handover) = parts[0].poll_handover() {
            parts[1].handle_handover(at(0), &handover);
        }
        for part in &mut parts {
            carry(part, HUB, &mut terminal, at(1));
        }
        assert!(is_up(&mut terminal), "{seed}");
    }
}

#[test]
fn hashes_are_counted_across_a_change_of_keys() {
    let mut both = Both::new();
    let initiation = drain(&mut both.terminal, at(0)).remove(0);
    both.hub.handle_datagram(at(0), address(TERMINAL), &mut initiation.clone());
    let before = both.hub.effort().hashes;
    both.set_keys(&[NEXT, HUB]);
    assert_eq!(both.hub.effort().hashes, before);
    both.hub.handle_datagram(at(1), address(TERMINAL), &mut initiation.clone());
    assert_eq!(both.hub.effort().hashes, before + 2, "a knock is tried with both");
}
