//! Flows of a scenario: the behaviour of its applications.

use core::time::Duration;
use std::sync::Arc;

use units::{BitRate, ByteCount};

use super::error::{Place, ScenarioError, quoted};
use super::raw;
use crate::app::{Direction, Method, Sizes};
use crate::talk::Turn;

/// One or more identical applications.
#[derive(Debug, Clone)]
pub(super) struct Flow {
    pub(super) name: String,
    pub(super) count: u32,
    pub(super) start: Duration,
    /// Time between the starts of these.
    pub(super) spacing: Duration,
    /// The names of the client's and the server's TCP.
    pub(super) tcp: [String; 2],
    pub(super) kind: Kind,
    pub(super) watch: bool,
}

#[derive(Debug, Clone)]
pub(super) enum Kind {
    Bulk { direction: Direction, amount: Amount },
    Request { turn: Turn, think: Duration, repeat: u64 },
    Page { method: Method, request: u64, objects: Arc<[u64]>, think: Duration, repeat: u64 },
    Users { every: Duration, request: u64, sizes: Sizes, time: Option<Duration> },
    Udp { direction: Direction, rate: BitRate, size: u32, time: Option<Duration> },
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Amount {
    Bytes(ByteCount),
    /// From the flow's start on.
    Time(Duration),
}

/// Maximum size of a transfer; anything larger is a typing error.
const MOST_BYTES: u64 = 1 << 50;
/// Maximum number of applications per flow, and of objects per page.
const MOST_COUNT: u32 = 100_000;
const MOST_OBJECTS: usize = 10_000;
/// Maximum number of requests or pages per application.
const MOST_REPEAT: u64 = 1_000_000;

/// The keys of each kind, in addition to the common ones.
const KEYS: [(&str, &[&str]); 5] = [
    ("bulk", &["direction", "bytes", "time", "watch"]),
    ("request", &["request", "reply", "think", "repeat"]),
    ("page", &["request", "method", "connections", "objects", "think", "repeat"]),
    ("users", &["request", "every", "sizes", "time"]),
    ("udp", &["direction", "rate", "size", "time"]),
];

impl Flow {
    pub(super) fn read(place: &Place, raw: &raw::Flow) -> Result<Self, ScenarioError> {
        let name = &raw.name;
        let good = !name.is_empty()
            && name.len() <= 64
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
        place.check(good, "name", quoted(name), "1 to 64 letters, digits, - and _")?;
        let count = raw.count.unwrap_or(1);
        place.check((1..=MOST_COUNT).contains(&count), "count", count, "1 to 100,000")?;
        fitting(place, raw)?;
        let client = raw.tcp.clone().unwrap_or_else(|| "default".to_owned());
        let server = raw.server_tcp.clone().unwrap_or_else(|| client.clone());
        Ok(Self {
            name: name.clone(),
            count,
            start: place.time("start", raw.start.as_deref())?.unwrap_or_default(),
            spacing: place.time("spacing", raw.spacing.as_deref())?.unwrap_or_default(),
            tcp: [client, server],
            kind: kind(place, raw)?,
            watch: raw.watch.unwrap_or(count <= 8),
        })
    }
}

/// Checks that there are no keys that have no meaning for this kind.
fn fitting(place: &Place, raw: &raw::Flow) -> Result<(), ScenarioError> {
    let names = KEYS.map(|(name, keys)| (name, keys));
    let keys = place.word("kind", &raw.kind, &names)?;
    let given = [
        ("direction", raw.direction.is_some()),
        ("bytes", raw.bytes.is_some()),
        ("time", raw.time.is_some()),
        ("request", raw.request.is_some()),
        ("reply", raw.reply.is_some()),
        ("think", raw.think.is_some()),
        ("repeat", raw.repeat.is_some()),
        ("method", raw.method.is_some()),
        ("connections", raw.connections.is_some()),
        ("objects", raw.objects.is_some()),
        ("every", raw.every.is_some()),
        ("sizes", raw.sizes.is_some()),
        ("rate", raw.rate.is_some()),
        ("size", raw.size.is_some()),
        ("watch", raw.watch.is_some()),
    ];
    let odd = given.into_iter().find(|(key, given)| *given && !keys.contains(key));
    odd.map_or(Ok(()), |(key, _)| {
        let expected = format!("for kind {:?} only {}", raw.kind, keys.join(", "));
        Err(place.wrong(key, "a value", expected))
    })
}

fn kind(place: &Place, raw: &raw::Flow) -> Result<Kind, ScenarioError> {
    let time = || place.time("time", raw.time.as_deref());
    let think = || Ok(place.time("think", raw.think.as_deref())?.unwrap_or_default());
    let repeat = || {
        let repeat = raw.repeat.unwrap_or(1);
        let good = (1..=MOST_REPEAT).contains(&repeat);
        place.check(good, "repeat", repeat, "1 to 1,000,000").map(|()| repeat)
    };
    Ok(match raw.kind.as_str() {
        "bulk" => Kind::Bulk { direction: direction(place, raw)?, amount: amount(place, raw)? },
        "request" => {
            let turn = Turn {
                request: bytes(place, "request", raw.request.as_deref())?,
                reply: bytes(place, "reply", raw.reply.as_deref())?,
            };
            Kind::Request { turn, think: think()?, repeat: repeat()? }
        }
        "page" => Kind::Page {
            method: method(place, raw)?,
            request: bytes(place, "request", raw.request.as_deref())?,
            objects: objects(place, raw)?,
            think: think()?,
            repeat: repeat()?,
        },
        "users" => Kind::Users {
            every: every(place, raw)?,
            request: bytes(place, "request", raw.request.as_deref())?,
            sizes: sizes(place, raw)?,
            time: time()?,
        },
        _ => udp(place, raw, time()?)?,
    })
}

fn direction(place: &Place, raw: &raw::Flow) -> Result<Direction, ScenarioError> {
    let text = raw.direction.as_deref().unwrap_or("down");
    place.word("direction", text, &[("down", Direction::Down), ("up", Direction::Up)])
}

fn bytes(place: &Place, key: &str, text: Option<&str>) -> Result<u64, ScenarioError> {
    let text = text.ok_or_else(|| place.missing(key, "a size, such as \"20 MB\""))?;
    let bytes: ByteCount = place.read(key, Some(text))?.unwrap_or_default();
    let good = (1..=MOST_BYTES).contains(&bytes.get());
    place.check(good, key, quoted(text), "1 B to 2^50 B").map(|()| bytes.get())
}

fn amount(place: &Place, raw: &raw::Flow) -> Result<Amount, ScenarioError> {
    match (&raw.bytes, &raw.time) {
        (Some(text), None) => Ok(Amount::Bytes(ByteCount::new(bytes(place, "bytes", Some(text))?))),
        (None, Some(text)) => Ok(Amount::Time(place.time("time", Some(text))?.unwrap_or_default())),
        (Some(_), Some(time)) => {
            Err(place.wrong("time", quoted(time), "either bytes or time, not both"))
        }
        (None, None) => Err(place.missing("bytes", "either bytes or time")),
    }
}

fn method(place: &Place, raw: &raw::Flow) -> Result<Method, ScenarioError> {
    let connections = raw.connections.unwrap_or(1);
    let good = (1..=1000).contains(&connections);
    place.check(good, "connections", connections, "1 to 1000")?;
    let text = raw.method.as_deref().unwrap_or("keep-alive");
    let words = [
        ("http/1.0", Method::Http10(connections)),
        ("keep-alive", Method::KeepAlive(connections)),
        ("pipelining", Method::Pipelining(connections)),
    ];
    place.word("method", text, &words)
}

fn objects(place: &Place, raw: &raw::Flow) -> Result<Arc<[u64]>, ScenarioError> {
    let Some(list) = &raw.objects else {
        return Err(place.missing("objects", "a list of sizes, the document first"));
    };
    let good = (1..=MOST_OBJECTS).contains(&list.len());
    place.check(good, "objects", format!("{} of them", list.len()), "1 to 10,000")?;
    // `"6 x 847 kB"` means six of them.
    let mut all = Vec::new();
    for text in list {
        let (times, size) = match text.split_once(" x ") {
            Some((times, size)) => (times.trim().parse().ok(), size),
            None => (Some(1), text.as_str()),
        };
        let good = times.filter(|times| (1..=MOST_OBJECTS - all.len()).contains(times));
        let expected = "a size, or \"6 x 10 kB\"; 10,000 objects in all";
        let times = good.ok_or_else(|| place.wrong("objects", quoted(text), expected))?;
        let size = bytes(place, "objects", Some(size))?;
        all.extend(core::iter::repeat_n(size, times));
    }
    Ok(all.into())
}

fn every(place: &Place, raw: &raw::Flow) -> Result<Duration, ScenarioError> {
    let every = place.time("every", raw.every.as_deref())?;
    let every = every.ok_or_else(|| place.missing("every", "a duration, such as \"100 ms\""))?;
    let good = every >= Duration::from_micros(1);
    place.check(good, "every", units::format_duration(every), "1 us or more").map(|()| every)
}

fn sizes(place: &Place, raw: &raw::Flow) -> Result<Sizes, ScenarioError> {
    let Some(text) = &raw.sizes else {
        return Err(place.missing("sizes", "a size, or \"pareto least=2kB most=1MB alpha=1.2\""));
    };
    let Some(words) = text.strip_prefix("pareto ") else {
        return bytes(place, "sizes", Some(text)).map(Sizes::Fixed);
    };
    pareto(words).ok_or_else(|| {
        let expected = "\"pareto least=2kB most=1MB alpha=1.2\" with 1 B <= least <= most and \
                        0.1 <= alpha <= 100";
        place.wrong("sizes", quoted(text), expected)
    })
}

fn pareto(words: &str) -> Option<Sizes> {
    let (mut least, mut most, mut alpha) = (None, None, None);
    for word in words.split_whitespace() {
        let (name, value) = word.split_once('=')?;
        match name {
            "least" => least = value.parse::<ByteCount>().ok(),
            "most" => most = value.parse::<ByteCount>().ok(),
            "alpha" => alpha = value.parse::<f64>().ok(),
            _ => return None,
        }
    }
    let (least, most, alpha) = (least?.get(), most?.get(), alpha?);
    let good = least > 0 && least <= most && most <= MOST_BYTES && (0.1..=100.0).contains(&alpha);
    good.then_some(Sizes::Pareto { least, most, alpha })
}

fn udp(place: &Place, raw: &raw::Flow, time: Option<Duration>) -> Result<Kind, ScenarioError> {
    let rate: Option<BitRate> = place.read("rate", raw.rate.as_deref())?;
    let rate = rate.ok_or_else(|| place.missing("rate", "a rate, such as \"1 Mbit/s\""))?;
    let good = (1000..=1_000_000_000_000).contains(&rate.bits_per_second());
    place.check(good, "rate", rate, "1 kbit/s to 1000 Gbit/s")?;
    Ok(Kind::Udp { direction: direction(place, raw)?, rate, size: datagram(place, raw)?, time })
}

/// Payload of a datagram in bytes, written as a number or as text.
fn datagram(place: &Place, raw: &raw::Flow) -> Result<u32, ScenarioError> {
    let Some(value) = &raw.size else { return Ok(1000) };
    let size = match value {
        toml::Value::String(text) => place.read("size", Some(text))?.map(ByteCount::get),
        toml::Value::Integer(size) => u64::try_from(*size).ok(),
        _ => None,
    };
    let size = size.filter(|size| (1..=1472).contains(size));
    let expected = "\"1 B\" to \"1472 B\" of payload";
    size.map(|size| size as u32).ok_or_else(|| place.wrong("size", value, expected))
}
