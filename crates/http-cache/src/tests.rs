//! The cache against what the standards say, case by case; and its bounds, with seeds.

mod bounds;
mod collapse;
mod record;
mod rules;

use core::time::Duration;
use std::net::IpAddr;

use units::{ByteCount, UnixTime};

use super::*;

/// A Sunday of 1994, as in the standards' examples.
const START: u64 = 784_111_777;
const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
/// Ten days before.
const CHANGED: &str = "Thu, 27 Oct 1994 08:49:37 GMT";
const BODY: &str = "0123456789";

fn at(seconds: u64) -> UnixTime {
    UnixTime::from_seconds(START + seconds)
}

fn config(memory: u64, disk: u64) -> CacheConfig {
    let limits = StoreLimits {
        memory: ByteCount::new(memory),
        disk: ByteCount::new(disk),
        object: ByteCount::new(1_000_000),
    };
    CacheConfig { limits, stale: Duration::from_secs(3600) }
}

fn client(number: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, number])
}

fn key(target: &str) -> CacheKey {
    let (destination, host) = ("192.0.2.1:80".to_owned(), "a.example".to_owned());
    CacheKey { destination, host, target: target.to_owned() }
}

fn fields(lines: &str) -> HeaderFields {
    let mut fields = HeaderFields::default();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').unwrap();
        fields.push(name, value.trim());
    }
    fields
}

/// The value of the first field of this name.
fn text<'a>(fields: &'a HeaderFields, name: &'a str) -> Option<&'a str> {
    fields.values(name).next().map(|value| core::str::from_utf8(value).unwrap())
}

/// A request for the path with these fields of one name, which may be anything.
fn get_with(name: &str, values: &[&[u8]]) -> RequestHead {
    let mut request = get("");
    values.iter().for_each(|value| request.fields.push(name, value));
    request
}

fn request(method: &str, lines: &str) -> RequestHead {
    let mut fields = fields(lines);
    fields.push("Host", "a.example");
    RequestHead { method: method.to_owned(), target: "/".to_owned(), minor: 1, fields }
}

fn get(lines: &str) -> RequestHead {
    request("GET", lines)
}

fn response(status: u16, lines: &str) -> ResponseHead {
    let mut head = ResponseHead::own(status, "x");
    head.fields = fields(lines);
    if !head.fields.has("date") {
        head.fields.push("Date", DATE);
    }
    head
}

/// A cache with a server behind it.
struct Net {
    cache: SharedCache<&'static str>,
}

/// What a client got.
#[derive(Debug, PartialEq, Eq)]
enum Got {
    /// From the cache, without asking.
    Hit(u16),
    /// From the cache, and asked meanwhile.
    HitWhileAsking(u16),
    /// From the server.
    Server(u16),
    /// From the cache after it asked.
    Confirmed(u16),
    Unavailable,
}

impl Net {
    fn new() -> Self {
        Self { cache: SharedCache::new(config(1_000_000, 0)) }
    }

    fn plan(&mut self, now: u64, request: &RequestHead) -> RequestAction<&'static str> {
        let framing = request.framing().unwrap();
        self.cache.handle_request(at(now), key(&request.target), request, framing, client(1))
    }

    /// A request that the server would answer like this.
    fn ask(&mut self, now: u64, request: &RequestHead, reply: &ResponseHead) -> Got {
        match self.plan(now, request) {
            RequestAction::Answer(answer, None) => Got::Hit(answer.head.status),
            RequestAction::Answer(answer, Some(_)) => Got::HitWhileAsking(answer.head.status),
            RequestAction::Unavailable => Got::Unavailable,
            RequestAction::Ask(_, asked) => self.reply(now, &asked, reply),
        }
    }

    fn reply(&mut self, now: u64, asked: &ForwardedRequest, reply: &ResponseHead) -> Got {
        match self.cache.handle_response(at(now), asked, reply) {
            ResponseAction::Answer(answer) => Got::Confirmed(answer.head.status),
            ResponseAction::Pass { store } => {
                if store {
                    self.cache.handle_body(at(now), asked, reply, BODY, BODY.len() as u64);
                }
                Got::Server(reply.status)
            }
            ResponseAction::Again(..) => Got::Server(0),
        }
    }

    /// Whether a second request is answered from the cache after so many seconds.
    fn reuses(first: &RequestHead, reply: &ResponseHead, after: u64, second: &RequestHead) -> bool {
        let mut net = Self::new();
        assert_eq!(net.ask(0, first, reply), Got::Server(reply.status));
        matches!(net.ask(after, second, reply), Got::Hit(_))
    }
}
