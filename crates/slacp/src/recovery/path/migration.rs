//! Validation of a new address of the peer, after packets have come from it (`docs/slacp.md`,
//! Migration). A new address is used once a challenge sent to it is answered while one sent to the
//! current address at the same time is not.

use core::time::Duration;
use std::collections::VecDeque;
use std::net::SocketAddr;

use rand_chacha::ChaCha20Rng;
use rand_core::Rng;
use units::Instant;

use crate::wire::frame::Frame;

/// Maximum number of new addresses examined at a time.
const CANDIDATES: usize = 4;
/// Number of challenges sent to each address, because the link may lose some.
const CHALLENGES: u32 = 3;
/// Time for which new addresses are ignored after the current one has answered.
const CALM: Duration = Duration::from_secs(1);
/// Maximum number of queued challenge answers.
const ANSWERS: usize = 8;
/// Maximum size of a challenge on the wire, in IP bytes.
const CHALLENGE_SIZE: u64 = 100;
/// Amplification limit: bytes that may be sent to an unvalidated address per byte received from it
/// (RFC 9000 §8.1).
const AMPLIFICATION: u64 = 3;

/// State of the validation of new addresses.
#[derive(Debug, Default)]
pub(crate) struct PathValidation {
    candidates: Vec<AddressCandidate>,
    /// New candidates are ignored before this time.
    calm_until: Instant,
    answers: VecDeque<(SocketAddr, u64)>,
}

#[derive(Debug)]
struct AddressCandidate {
    address: SocketAddr,
    /// Tokens of the challenges to the candidate and to the current address.
    tokens: [u64; 2],
    begun: Instant,
    /// IP bytes received from the candidate and sent to it.
    received: u64,
    sent: u64,
    /// Number of challenges sent to the candidate and to the current address.
    challenges: [u32; 2],
    answered: Option<Instant>,
}

impl AddressCandidate {
    /// Due time and destination of the next challenge: 0 for the candidate, 1 for the current
    /// address.
    fn next_challenge(&self, delay: Duration) -> Option<(Instant, usize)> {
        let at = |which: usize| (self.begun + delay / 8 * self.challenges[which], which);
        let affordable = self.sent + CHALLENGE_SIZE <= self.received * AMPLIFICATION;
        let wanted = |which: usize| self.challenges[which] < CHALLENGES;
        let to_candidate = (wanted(0) && affordable && self.answered.is_none()).then(|| at(0));
        let to_present = wanted(1).then(|| at(1));
        to_candidate.into_iter().chain(to_present).min()
    }

    /// The time of the decision about the candidate.
    fn decided_at(&self, delay: Duration) -> Instant {
        // Once the candidate has answered, the address in use has one probe delay to do so, too.
        self.begun + if self.answered.is_some() { delay } else { delay * 3 }
    }
}

impl PathValidation {
    /// Handles an authentic packet of `size` IP bytes from an address other than the current one.
    /// It is `newest` if no packet with a higher number has arrived.
    pub(crate) fn on_stray_packet(
        &mut self,
        now: Instant,
        from: SocketAddr,
        size: usize,
        newest: bool,
        rng: &mut ChaCha20Rng,
    ) {
        let known = self.candidates.iter_mut().find(|known| known.address == from);
        if let Some(known) = known {
            known.received += size as u64;
        // Packets that were overtaken may come from an address that the peer has left.
        } else if newest && now >= self.calm_until && self.candidates.len() < CANDIDATES {
            self.candidates.push(AddressCandidate {
                address: from,
                tokens: [rng.next_u64(), rng.next_u64()],
                begun: now,
                received: size as u64,
                sent: 0,
                challenges: [0, 0],
                answered: None,
            });
        }
    }

    /// Queues the answer to a challenge from the peer at `from`.
    pub(crate) fn on_challenge(&mut self, from: SocketAddr, token: u64) {
        if self.answers.len() < ANSWERS {
            self.answers.push_back((from, token));
        }
    }

    /// Handles the answer to a challenge, which shows that data sent to the challenged address
    /// reaches the peer. The token decides, not the source of the answer.
    pub(crate) fn on_answer(&mut self, now: Instant, token: u64) {
        for candidate in &mut self.candidates {
            if candidate.tokens[0] == token {
                // The first answer is the RTT sample of the new path.
                candidate.answered.get_or_insert(now);
            }
        }
        let before = self.candidates.len();
        self.candidates.retain(|candidate| candidate.tokens[1] != token);
        if self.candidates.len() < before {
            // The current address is good; the other packet was a copy that took another route.
            self.calm_until = now + CALM;
        }
    }

    /// The time of the next decision ([`Self::decide`]). `delay` is the maximum time for an answer.
    pub(crate) fn poll_timeout(&self, delay: Duration) -> Option<Instant> {
        self.candidates.iter().map(|candidate| candidate.decided_at(delay)).min()
    }

    /// Returns whether [`Self::next`] has no frame, now or later.
    pub(crate) fn is_idle(&self) -> bool {
        self.answers.is_empty() && self.candidates.is_empty()
    }

    /// The time at which [`Self::next`] has a frame.
    pub(crate) fn send_time(&self, delay: Duration) -> Option<Instant> {
        if !self.answers.is_empty() {
            return Some(Instant::ZERO);
        }
        self.candidates.iter().filter_map(|one| Some(one.next_challenge(delay)?.0)).min()
    }

    /// Returns the next challenge or answer, to be sent alone in a packet, and its destination.
    pub(crate) fn next(
        &mut self,
        now: Instant,
        present: SocketAddr,
        delay: Duration,
    ) -> Option<(SocketAddr, Frame<'static>)> {
        if let Some((to, token)) = self.answers.pop_front() {
            return Some((to, Frame::PathAnswer(token)));
        }
        self.candidates.iter_mut().find_map(|candidate| {
            let (_, which) = candidate.next_challenge(delay).filter(|next| next.0 <= now)?;
            candidate.challenges[which] += 1;
            // Only bytes to the unvalidated address count against the amplification limit.
            if which == 0 {
                candidate.sent += CHALLENGE_SIZE;
            }
            let to = [candidate.address, present][which];
            Some((to, Frame::PathChallenge(candidate.tokens[which])))
        })
    }

    /// Returns the new address to use, if one is confirmed, and the time that its answer took.
    pub(crate) fn decide(
        &mut self,
        now: Instant,
        delay: Duration,
    ) -> Option<(SocketAddr, Duration)> {
        let due = |candidate: &AddressCandidate| candidate.decided_at(delay) <= now;
        let moved = self.candidates.iter().filter(|one| due(one)).find_map(|candidate| {
            let time = candidate.answered?.saturating_since(candidate.begun);
            Some((candidate.address, time))
        });
        match moved {
            Some(_) => self.candidates.clear(),
            None => self.candidates.retain(|candidate| !due(candidate)),
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;

    use super::*;

    const DELAY: Duration = Duration::from_millis(700);

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 1))
    }

    /// The validation of a path whose peer at address 1 was heard from address 2 at time 0, and the challenges sent
    /// there and to 1.
    fn strayed(size: usize) -> (PathValidation, Vec<(SocketAddr, u64)>) {
        let mut path = PathValidation::default();
        let mut rng = ChaCha20Rng::from_seed([1; 32]);
        path.on_stray_packet(at(0), address(2), size, true, &mut rng);
        let mut asked = Vec::new();
        for ms in 0..600 {
            while let Some((to, Frame::PathChallenge(token))) = path.next(at(ms), address(1), DELAY)
            {
                asked.push((to, token));
            }
        }
        (path, asked)
    }

    #[test]
    fn moves_when_the_new_address_answers_and_the_old_one_does_not() {
        let (mut path, asked) = strayed(1500);
        assert_eq!(asked.iter().filter(|ask| ask.0 == address(2)).count(), 3);
        assert_eq!(asked.iter().filter(|ask| ask.0 == address(1)).count(), 3);
        path.on_answer(at(610), asked.iter().find(|ask| ask.0 == address(2)).unwrap().1);
        assert_eq!(path.decide(at(699), DELAY), None);
        assert_eq!(path.decide(at(700), DELAY), Some((address(2), Duration::from_millis(610))));
        assert_eq!(path.poll_timeout(DELAY), None);
    }

    #[test]
    fn stays_when_the_old_address_answers() {
        let (mut path, asked) = strayed(1500);
        for (_, token) in asked {
            path.on_answer(at(610), token);
        }
        assert_eq!(path.decide(at(5000), DELAY), None);
        let mut rng = ChaCha20Rng::from_seed([1; 32]);
        path.on_stray_packet(at(1609), address(2), 100, true, &mut rng);
        assert_eq!(path.send_time(DELAY), None, "calm for a second");
        path.on_stray_packet(at(1610), address(2), 100, false, &mut rng);
        assert_eq!(path.send_time(DELAY), None, "an old packet");
        path.on_stray_packet(at(1610), address(2), 100, true, &mut rng);
        assert!(path.send_time(DELAY).is_some());
    }

    #[test]
    fn an_address_that_does_not_answer_gets_three_times_what_came_and_is_forgotten() {
        let (mut path, asked) = strayed(50);
        assert_eq!(asked.iter().filter(|ask| ask.0 == address(2)).count(), 1);
        for token in 0..1000 {
            path.on_answer(at(610), token);
        }
        assert_eq!(path.decide(at(2099), DELAY), None);
        assert!(path.poll_timeout(DELAY).is_some());
        assert_eq!(path.decide(at(2100), DELAY), None);
        assert_eq!(path.poll_timeout(DELAY), None);
    }

    #[test]
    fn many_addresses_take_no_more_room_than_four() {
        let mut path = PathValidation::default();
        let mut rng = ChaCha20Rng::from_seed([1; 32]);
        for last in 2..100 {
            path.on_stray_packet(at(0), address(last), 1500, true, &mut rng);
            path.on_challenge(address(last), 7);
        }
        assert_eq!((path.candidates.len(), path.answers.len()), (4, 8));
    }
}
