//! Many clients, names and faults: everybody gets one answer, and nothing grows without bound.

use std::collections::{BTreeMap, BTreeSet};

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};

use super::*;

const SEEDS: u64 = 300;
const STEPS: u32 = 400;

/// A world in which questions are asked and answered at random.
struct World {
    rng: ChaCha20Rng,
    resolver: Resolver<u32>,
    now: u64,
    /// Replies under way, by the time when they arrive.
    under_way: BTreeMap<(u64, QueryId), Option<Vec<u8>>>,
    /// Those who wait for an answer, and since when.
    waiting: BTreeMap<u32, u64>,
    answered: BTreeSet<u32>,
    next_asker: u32,
    log: Vec<(u64, u32, usize)>,
}

impl World {
    fn new(seed: u64) -> Self {
        let prefixes = vec!["198.18.0.0/24".parse().unwrap()];
        let config = NamesConfig {
            cache: CacheLimits { bytes: ByteCount::new(30_000), entries: 40 },
            stale: Duration::from_secs(3600),
            prefetch: 1,
            real: vec![],
            pool: seed
                .is_multiple_of(2)
                .then_some(PoolConfig { prefixes, time: Duration::from_secs(60) }),
            canary: false,
            hides_http_3: false,
        };
        Self {
            rng: ChaCha20Rng::seed_from_u64(seed),
            resolver: Resolver::new(config),
            now: 0,
            under_way: BTreeMap::new(),
            waiting: BTreeMap::new(),
            answered: BTreeSet::new(),
            next_asker: 0,
            log: Vec::new(),
        }
    }

    fn below(&mut self, limit: u32) -> u32 {
        self.rng.next_u32() % limit
    }

    fn ask(&mut self) {
        let kinds = [RecordType::A, RecordType::AAAA, RecordType::HTTPS, RecordType::TXT];
        let (number, kind) = (self.below(60), kinds[self.below(4) as usize]);
        let dnssec = self.below(4) == 0;
        let asker = self.next_asker;
        self.next_asker += 1;
        let asked = QuestionSource {
            asker,
            client: client(self.below(5) as u8),
            resolver: (self.below(3) > 0).then_some(SocketAddr::from(([9, 9, 9, 9], 53))),
            over_tcp: self.below(2) == 0,
            uses_pool: self.below(4) > 0,
        };
        let message = question(asker as u16, &format!("n{number}.example."), kind, dnssec);
        self.waiting.insert(asker, self.now);
        self.resolver.handle_message(at(self.now), asked, &bytes(&message));
    }

    /// Something happens to a question that was handed out.
    fn handle_ask(&mut self, ask: &UpstreamQuery) {
        let ttl = [0, 1, 5, 30, 300][self.below(5) as usize];
        let of = read(&ask.message).queries[0].name().to_ascii();
        let reply = match self.below(10) {
            0 => None,
            1 => Some(bytes(&reply(&ask.message, ResponseCode::ServFail, vec![]))),
            2 => {
                let mut none = reply(&ask.message, ResponseCode::NXDomain, vec![]);
                none.add_authorities([soa(ttl, 60)]);
                Some(bytes(&none))
            }
            3 => Some((0..40).map(|_| self.rng.next_u32() as u8).collect()),
            _ => {
                let answers = vec![address(&of, ttl, 7)];
                Some(bytes(&reply(&ask.message, ResponseCode::NoError, answers)))
            }
        };
        if self.below(10) > 0 {
            let arrives = self.now + 20 + u64::from(self.below(3000));
            self.under_way.insert((arrives, ask.id), reply);
        }
    }

    fn drain(&mut self) {
        while let Some(output) = self.resolver.poll_output() {
            match output {
                ResolverOutput::Ask(ask) => self.handle_ask(&ask),
                ResolverOutput::Answer(asker, message) => {
                    assert!(self.waiting.remove(&asker).is_some(), "{asker} has its answer");
                    assert_eq!(read(&message).metadata.id, asker as u16);
                    assert!(self.answered.insert(asker));
                    self.log.push((self.now, asker, message.len()));
                }
            }
        }
        let stats = self.resolver.stats();
        assert!(stats.entries <= 40 && stats.bytes <= ByteCount::new(30_000), "{stats:?}");
        assert!(stats.names <= 254);
        let oldest = self.waiting.values().min().copied();
        assert!(oldest.is_none_or(|since| self.now - since <= 30_000), "{:?}", self.waiting);
    }

    /// Everything due up to `until`, in the order of time.
    fn advance(&mut self, until: u64) {
        loop {
            let arrival = self.under_way.keys().next().map(|(time, _)| *time);
            let timer = self.resolver.poll_timeout().map(|(time, _)| {
                let since = time.saturating_since(Instant::ZERO).as_nanos();
                u64::try_from(since.div_ceil(1_000_000)).unwrap().max(self.now)
            });
            let next = arrival.into_iter().chain(timer).min().filter(|next| *next <= until);
            let Some(next) = next else { break };
            self.now = next;
            self.resolver.handle_timeout(at(next));
            while let Some(first) = self.under_way.first_entry().filter(|it| it.key().0 <= next) {
                let ((_, id), reply) = first.remove_entry();
                self.resolver.handle_reply(at(next), id, reply.as_deref());
            }
            self.drain();
        }
        self.now = until;
    }

    fn run(mut self) -> Vec<(u64, u32, usize)> {
        for _ in 0..STEPS {
            match self.below(30) {
                0 => self.resolver.set_hub(at(self.now), false),
                1..=3 => self.resolver.set_hub(at(self.now), true),
                _ => self.ask(),
            }
            self.drain();
            let pause = u64::from(self.below(400));
            self.advance(self.now + pause);
        }
        self.advance(self.now + 60_000);
        assert!(self.waiting.is_empty(), "without an answer: {:?}", self.waiting);
        assert_eq!(self.answered.len(), self.next_asker as usize);
        let stats = self.resolver.stats();
        assert_eq!(stats.questions, u64::from(self.next_asker));
        self.log
    }
}

#[test]
fn everybody_gets_one_answer_whatever_happens() {
    for seed in 0..SEEDS {
        println!("seed {seed}");
        World::new(seed).run();
    }
}

#[test]
fn the_same_inputs_give_the_same_answers() {
    for seed in 0..10 {
        assert_eq!(World::new(seed).run(), World::new(seed).run(), "seed {seed}");
    }
}
