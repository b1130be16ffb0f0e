//! Fuzz targets: a client, a hub and a server that send arbitrary bytes.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use pep::fuzzing::bounded;
use units::{ByteCount, Instant, Machine};

use super::message::HEADER;
use super::{
    ATTEMPTS, CacheLimits, Lookup, LookupStep, NamesConfig, PoolConfig, QuestionSource, Resolver,
    ResolverOutput,
};

/// Longest message over UDP that is not fragmented, in bytes.
const LONGEST: usize = 1232;

fn resolver() -> Resolver<u8> {
    let prefixes = ["198.18.0.0/15", "fd00:53::/64"].iter().filter_map(|it| it.parse().ok());
    let mut resolver = Resolver::new(NamesConfig {
        cache: CacheLimits { bytes: ByteCount::new(20_000), entries: 4 },
        stale: Duration::from_secs(60),
        prefetch: 1,
        real: Vec::new(),
        pool: Some(PoolConfig { prefixes: prefixes.collect(), time: Duration::from_secs(60) }),
        canary: true,
        hides_http_3: true,
    });
    resolver.set_hub(Instant::ZERO, true);
    resolver
}

/// A client asks `message` twice, then over TCP; the upstream replies with `reply`, alone or appended
/// to the question.
fn resolve(message: &[u8], reply: &[u8], behind: bool) {
    let mut resolver = resolver();
    let mut now = Instant::ZERO;
    for asker in 0..3 {
        let asked = QuestionSource {
            asker,
            client: IpAddr::from([10, 0, 0, asker]),
            resolver: (asker > 0).then_some(SocketAddr::from(([192, 0, 2, 1], 53))),
            over_tcp: asker == 2,
            uses_pool: asker == 1,
        };
        resolver.handle_message(now, asked, message);
        let mut answers = drain(&mut resolver, now, reply, behind);
        now += Duration::from_secs(40);
        resolver.handle_timeout(now);
        answers += drain(&mut resolver, now, reply, behind);
        assert!(answers <= 1, "{answers} answers to one question");
    }
    let stats = resolver.stats();
    assert!(stats.entries <= 4 && stats.bytes <= ByteCount::new(20_000), "{stats:?}");
}

/// Carries out the resolver's outputs, and counts its answers.
fn drain(resolver: &mut Resolver<u8>, now: Instant, reply: &[u8], behind: bool) -> usize {
    let mut answers = 0;
    while let Some(output) = resolver.poll_output() {
        match output {
            ResolverOutput::Answer(asker, answer) => {
                answers += 1;
                let passed = answer == reply;
                assert!(asker == 2 || passed || answer.len() <= LONGEST, "{}", answer.len());
            }
            ResolverOutput::Ask(ask) => {
                let reply = if behind { after(&ask.message, reply) } else { reply.to_vec() };
                resolver.handle_reply(now, ask.id, Some(&reply));
            }
        }
    }
    answers
}

/// Appends `said` to the question as the records of a reply. Their counts are in its first six bytes.
fn after(message: &[u8], said: &[u8]) -> Vec<u8> {
    let Some((counts, records)) = said.split_first_chunk::<6>() else { return said.to_vec() };
    let mut reply = message.to_vec();
    // Without the OPT record, which comes last: an empty name, type, class, TTL and length.
    reply.truncate(message.len().saturating_sub(11).max(HEADER.min(message.len())));
    if let Some(header) = reply.first_chunk_mut::<HEADER>() {
        header[2] |= 0b1000_0000;
        header[3] = counts[0] & 0xf;
        header[6..].copy_from_slice(&[0, counts[1] % 8, 0, counts[2] % 8, 0, counts[3] % 8]);
    }
    reply.extend_from_slice(records);
    reply
}

/// A hub looks up a terminal's message; its server replies with `reply`, alone or appended to the question.
fn look_up(message: &[u8], reply: &[u8], behind: bool) {
    let Ok(mut lookup) = Lookup::new(Instant::ZERO, message, 2, [0x5a5a; ATTEMPTS]) else { return };
    let mut steps = 0;
    while let Some(step) = lookup.poll_step() {
        steps += 1;
        assert!(steps <= 4 * ATTEMPTS, "it never ends");
        match step {
            LookupStep::Udp(_, message) | LookupStep::Tcp(_, message) => {
                let reply = if behind { after(&message, reply) } else { reply.to_vec() };
                lookup.handle_message(Instant::ZERO, &reply);
                if let Some((until, _)) = lookup.poll_timeout() {
                    lookup.handle_timeout(until);
                }
            }
            LookupStep::Done(answer) => assert!(answer.starts_with(&[0, 0])),
            LookupStep::Failed => {}
        }
    }
}

/// A DNS question and its reply. The first byte is the length of the question; the lowest bit of the second
/// appends the reply to the question.
///
/// # Panics
/// On a bug in this crate.
pub fn names(bytes: &[u8]) {
    let Some(([length, behind], said)) = bytes.split_first_chunk() else { return };
    let (message, reply) = said.split_at(said.len().min(usize::from(*length)));
    let behind = behind & 1 != 0;
    // Each question is asked three times or more, and its reply contains the question.
    bounded(said, (10_000, 100), || {
        resolve(message, reply, behind);
        look_up(message, reply, behind);
    });
}

/// A request of DNS over HTTPS (method, target and media type, a line each), then an answer.
///
/// # Panics
/// On a bug in this crate.
pub fn doh(bytes: &[u8]) {
    let mut lines = bytes.splitn(4, |byte| *byte == b'\n');
    let [method, target, kind, answer] = [(); 4].map(|()| lines.next().unwrap_or_default());
    let [method, target] = [method, target].map(String::from_utf8_lossy);
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (&*target, None),
    };
    match super::doh::question(&method, path, query, Some(kind)) {
        Ok(super::doh::QuestionLocation::Target(message)) => {
            assert!(message.len() <= super::doh::LONGEST_QUESTION + 3);
        }
        Ok(super::doh::QuestionLocation::Body) => assert_eq!(method, "POST"),
        Err(why) => assert!((400..500).contains(&why.status())),
    }
    // RFC 8767 §4: no record is kept for longer than a week.
    assert!(super::doh::freshness(answer) <= 7 * 86_400);
}
