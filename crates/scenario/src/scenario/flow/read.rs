//! Reads and validates flows.

use core::time::Duration;
use std::path::Path;
use std::sync::Arc;

use units::{BitRate, ByteCount, format_duration};

use super::super::raw::{DatagramSize, RawFlow};
use super::{
    Direction, FetchMethod, FlowContents, FlowSize, FlowTraffic, HttpMethod, Kind, ReplySizes,
    ScenarioFlow,
};
use config::FileError;
use config::file::item::{DSCP_FORM, code_point};
use config::file::place::{KeyContext, quoted};
use config::file::text::Text;

const MOST_FLOWS: usize = 1000;
/// Maximum size of a transfer in bytes; larger ones are taken for typing errors.
const MOST_BYTES: u64 = 1 << 50;
/// Maximum number of applications per flow, and of objects per page.
const MOST_COUNT: u32 = 100_000;
const MOST_OBJECTS: usize = 10_000;
/// Maximum number of requests or pages per application.
const MOST_REPEAT: u64 = 1_000_000;
/// Default payload of a datagram, in bytes.
const DATAGRAM: u32 = 1000;
/// Minimum size of a sample of contents, in bytes. It must exceed a compressor's window, or its
/// repetition would be compressed away.
const LEAST_SAMPLE: usize = 64 << 10;
/// Default number of unacknowledged bundles on a hop; the same as in the gateway.
const WINDOW: u32 = 16;

impl Kind {
    /// Returns the kind's name, and the keys that it has but not all kinds have.
    const fn keys(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Bulk => ("bulk", &["direction", "bytes", "time", "watch"]),
            Self::Request => ("request", &["request", "reply", "think", "repeat"]),
            Self::Ftp => ("ftp", &["direction", "bytes", "think", "repeat"]),
            Self::Mail => ("mail", &["bytes", "pipelining", "think", "repeat"]),
            Self::Bundles => ("bundles", &["direction", "bytes", "bundle", "window"]),
            Self::Page => (
                "page",
                &["request", "method", "connections", "objects", "names", "think", "repeat"],
            ),
            Self::Users => ("users", &["request", "every", "sizes", "time"]),
            Self::Udp => ("udp", &["direction", "rate", "size", "dscp", "time"]),
        }
    }
}

/// Reads all sections `[[flow]]` of a network with this number of platforms.
pub(in super::super) fn read_all(
    place: &KeyContext<'_>,
    raw: &[RawFlow],
    platforms: usize,
) -> Result<Vec<ScenarioFlow>, FileError> {
    let good = (1..=MOST_FLOWS).contains(&raw.len());
    place.check(good, "flow", format!("{} of them", raw.len()), "1 to 1000: [[flow]]")?;
    let mut all: Vec<ScenarioFlow> = Vec::new();
    for (number, raw) in raw.iter().enumerate() {
        let place = place.within(format!("flow.{number}"));
        let flow = ScenarioFlow::read(&place, raw)?;
        let flows = match raw.per_platform {
            Some(true) => flow.on_each_platform(platforms),
            _ => vec![flow],
        };
        for flow in flows {
            // Checked with the platform's number appended, which may cause a clash.
            let is_new = all.iter().all(|other| other.name != flow.name);
            place.check(is_new, "name", quoted(&flow.name), "a name that no earlier flow has")?;
            all.push(flow);
        }
    }
    Ok(all)
}

impl ScenarioFlow {
    fn read(place: &KeyContext<'_>, raw: &RawFlow) -> Result<Self, FileError> {
        let name = &raw.name;
        let good = !name.is_empty()
            && name.len() <= 64
            // Without `+` and `.`, which join subjects and metrics elsewhere: `forward+return`.
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
        place.check(good, "name", quoted(name), "1 to 64 letters, digits, - and _")?;
        let count = raw.count.unwrap_or(1);
        place.check((1..=MOST_COUNT).contains(&count), "count", count, "1 to 100,000")?;
        fitting(place, raw)?;
        let client = raw.tcp.clone().unwrap_or_else(|| "default".to_owned());
        // Both ends have the same settings unless the file says otherwise.
        let server = raw.server_tcp.clone().unwrap_or_else(|| client.clone());
        Ok(Self {
            name: name.clone(),
            count,
            platform: None,
            start: place.time("start", raw.start)?.unwrap_or_default(),
            spacing: place.time("spacing", raw.spacing)?.unwrap_or_default(),
            tcp: [client, server],
            ip: raw.ip.unwrap_or_default(),
            traffic: traffic(place, raw)?,
            contents: contents(place, raw)?,
            watch: raw.watch.unwrap_or(count <= 8),
        })
    }

    /// Returns a copy of the flow for each platform.
    fn on_each_platform(&self, platforms: usize) -> Vec<Self> {
        let on = |platform: u32| {
            let name = format!("{}-{}", self.name, platform + 1);
            Self { name, platform: Some(platform), ..self.clone() }
        };
        (0..platforms as u32).map(on).collect()
    }
}

/// Checks that the flow has only keys of its kind.
fn fitting(place: &KeyContext<'_>, raw: &RawFlow) -> Result<(), FileError> {
    let (kind, keys) = raw.kind.keys();
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
        ("dscp", raw.dscp.is_some()),
        ("watch", raw.watch.is_some()),
        ("names", raw.names.is_some()),
        ("pipelining", raw.pipelining.is_some()),
        ("bundle", raw.bundle.is_some()),
        ("window", raw.window.is_some()),
    ];
    // A key of another kind would silently have no effect.
    let odd = given.into_iter().find(|(key, given)| *given && !keys.contains(key));
    odd.map_or(Ok(()), |(key, _)| {
        let expected = format!("a key that a flow of kind {kind:?} has: {}", keys.join(", "));
        Err(place.wrong_value(key, "a value", expected))
    })
}

fn traffic(place: &KeyContext<'_>, raw: &RawFlow) -> Result<FlowTraffic, FileError> {
    let time = || place.time("time", raw.time);
    let think = || Ok(place.time("think", raw.think)?.unwrap_or_default());
    let repeat = || {
        let repeat = raw.repeat.unwrap_or(1);
        let good = (1..=MOST_REPEAT).contains(&repeat);
        place.check(good, "repeat", repeat, "1 to 1,000,000").map(|()| repeat)
    };
    let request = || bytes(place, "request", raw.request);
    let direction = raw.direction.unwrap_or(Direction::Down);
    Ok(match raw.kind {
        Kind::Bulk => FlowTraffic::Bulk { direction, amount: amount(place, raw)? },
        Kind::Request => FlowTraffic::Request {
            request: request()?,
            reply: bytes(place, "reply", raw.reply)?,
            think: think()?,
            repeat: repeat()?,
        },
        Kind::Ftp => FlowTraffic::Ftp {
            direction,
            bytes: bytes(place, "bytes", raw.bytes)?,
            think: think()?,
            repeat: repeat()?,
        },
        Kind::Mail => FlowTraffic::Mail {
            bytes: bytes(place, "bytes", raw.bytes)?,
            pipelining: raw.pipelining.unwrap_or(true),
            think: think()?,
            repeat: repeat()?,
        },
        Kind::Bundles => bundles(place, raw, direction)?,
        Kind::Page => FlowTraffic::Page {
            method: method(place, raw)?,
            request: request()?,
            objects: objects(place, raw)?,
            names: names(place, raw)?,
            think: think()?,
            repeat: repeat()?,
        },
        Kind::Users => FlowTraffic::Users {
            every: every(place, raw)?,
            request: request()?,
            sizes: sizes(place, raw)?,
            time: time()?,
        },
        Kind::Udp => FlowTraffic::Udp {
            direction,
            rate: rate(place, raw)?,
            size: datagram(place, raw)?,
            dscp: dscp(place, raw)?,
            time: time()?,
        },
    })
}

/// Reads the sample file that `contents` names; noise by default.
fn contents(place: &KeyContext<'_>, raw: &RawFlow) -> Result<FlowContents, FileError> {
    // A file of this name can be given as `./noise`.
    let Some(path) = raw.contents.as_ref().filter(|path| *path != "noise") else {
        return Ok(FlowContents::Noise);
    };
    let (_, text) = place
        .folder()
        .open(Path::new(path))
        .map_err(|error| place.unreadable("contents", error))?;
    let expected =
        "a text of 64 KiB or more, which repeats itself beyond what a compressor remembers";
    let good = text.len() >= LEAST_SAMPLE;
    place.check(good, "contents", ByteCount::new(text.len() as u64), expected)?;
    Ok(FlowContents::Sample(text.into()))
}

fn bundles(
    place: &KeyContext<'_>,
    raw: &RawFlow,
    direction: Direction,
) -> Result<FlowTraffic, FileError> {
    let file = bytes(place, "bytes", raw.bytes)?;
    let bundle = match raw.bundle {
        Some(_) => bytes(place, "bundle", raw.bundle)?,
        None => file,
    };
    let expected = "at most 100,000 of them in the file";
    let good = file.div_ceil(bundle) <= u64::from(MOST_COUNT);
    place.check(good, "bundle", ByteCount::new(bundle), expected)?;
    let window = raw.window.unwrap_or(WINDOW);
    place.check((1..=MOST_COUNT).contains(&window), "window", window, "1 to 100,000")?;
    Ok(FlowTraffic::Bundles { direction, bytes: file, bundle, window })
}

fn bytes(
    place: &KeyContext<'_>,
    key: &str,
    size: Option<Text<ByteCount>>,
) -> Result<u64, FileError> {
    let Text(size) = size.ok_or_else(|| place.missing_key(key, "a size, such as \"20 MB\""))?;
    let good = (1..=MOST_BYTES).contains(&size.get());
    place.check(good, key, size, "1 B to 2^50 B").map(|()| size.get())
}

fn amount(place: &KeyContext<'_>, raw: &RawFlow) -> Result<FlowSize, FileError> {
    match (raw.bytes, place.time("time", raw.time)?) {
        (Some(_), None) => Ok(FlowSize::Bytes(ByteCount::new(bytes(place, "bytes", raw.bytes)?))),
        (None, Some(time)) => Ok(FlowSize::Time(time)),
        (Some(_), Some(time)) => {
            Err(place.wrong_value("time", format_duration(time), "either bytes or time, not both"))
        }
        (None, None) => Err(place.missing_key("bytes", "either bytes or time")),
    }
}

fn method(place: &KeyContext<'_>, raw: &RawFlow) -> Result<FetchMethod, FileError> {
    let connections = raw.connections.unwrap_or(1);
    let good = (1..=1000).contains(&connections);
    place.check(good, "connections", connections, "1 to 1000")?;
    Ok(match raw.method.unwrap_or(HttpMethod::KeepAlive) {
        HttpMethod::Http10 => FetchMethod::Http10(connections),
        HttpMethod::KeepAlive => FetchMethod::KeepAlive(connections),
        HttpMethod::Pipelining => FetchMethod::Pipelining(connections),
    })
}

fn objects(place: &KeyContext<'_>, raw: &RawFlow) -> Result<Arc<[u64]>, FileError> {
    let Some(list) = &raw.objects else {
        return Err(place.missing_key("objects", "a list of sizes, the document first"));
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
        // Checked first, because a typing error must not fill the memory.
        let good = times.filter(|times| (1..=MOST_OBJECTS - all.len()).contains(times));
        let expected = "a size, or \"6 x 10 kB\"; 10,000 objects in all";
        let times = good.ok_or_else(|| place.wrong_value("objects", quoted(text), expected))?;
        let size = size_in(place, "objects", size)?;
        all.extend(core::iter::repeat_n(size, times));
    }
    Ok(all.into())
}

fn names(place: &KeyContext<'_>, raw: &RawFlow) -> Result<u32, FileError> {
    let names = raw.names.unwrap_or(1);
    place.check((1..=1000).contains(&names), "names", names, "1 to 1000").map(|()| names)
}

fn size_in(place: &KeyContext<'_>, key: &str, text: &str) -> Result<u64, FileError> {
    let size = text.parse().map_err(|error| place.unreadable(key, error))?;
    bytes(place, key, Some(Text(size)))
}

fn every(place: &KeyContext<'_>, raw: &RawFlow) -> Result<Duration, FileError> {
    let every = place.time("every", raw.every)?;
    let every =
        every.ok_or_else(|| place.missing_key("every", "a duration, such as \"100 ms\""))?;
    // With a pause of zero, requests would never get past the first instant.
    let good = every >= Duration::from_micros(1);
    place.check(good, "every", format_duration(every), "1 us or more").map(|()| every)
}

fn sizes(place: &KeyContext<'_>, raw: &RawFlow) -> Result<ReplySizes, FileError> {
    let Some(text) = &raw.sizes else {
        return Err(
            place.missing_key("sizes", "a size, or \"pareto least=2kB most=1MB alpha=1.2\"")
        );
    };
    let Some(words) = text.strip_prefix("pareto ") else {
        return size_in(place, "sizes", text).map(ReplySizes::Fixed);
    };
    pareto(words).ok_or_else(|| {
        let expected = "\"pareto least=2kB most=1MB alpha=1.2\" with 1 B <= least <= most and \
                        0.1 <= alpha <= 100";
        place.wrong_value("sizes", quoted(text), expected)
    })
}

fn pareto(words: &str) -> Option<ReplySizes> {
    let mut least = None;
    let mut most = None;
    let mut alpha = None;
    for word in words.split_whitespace() {
        let (name, value) = word.split_once('=')?;
        match name {
            // An unreadable value counts as missing, and the whole text is refused below.
            "least" => least = value.parse::<ByteCount>().ok(),
            "most" => most = value.parse::<ByteCount>().ok(),
            "alpha" => alpha = value.parse::<f64>().ok(),
            _ => return None,
        }
    }
    let least = least?.get();
    let most = most?.get();
    let alpha = alpha?;
    let good = least > 0 && least <= most && most <= MOST_BYTES && (0.1..=100.0).contains(&alpha);
    good.then_some(ReplySizes::Pareto { least, most, alpha })
}

fn rate(place: &KeyContext<'_>, raw: &RawFlow) -> Result<BitRate, FileError> {
    let missing = || place.missing_key("rate", "a rate, such as \"1 Mbit/s\"");
    let Text(rate) = raw.rate.ok_or_else(missing)?;
    let good = (1000..=1_000_000_000_000).contains(&rate.bits_per_second());
    place.check(good, "rate", rate, "1 kbit/s to 1000 Gbit/s").map(|()| rate)
}

/// Reads the payload of a datagram, in bytes.
fn datagram(place: &KeyContext<'_>, raw: &RawFlow) -> Result<u32, FileError> {
    let size = match raw.size {
        None => return Ok(DATAGRAM),
        Some(DatagramSize::Bytes(size)) => size,
        Some(DatagramSize::Text(Text(size))) => size.get(),
    };
    // An Ethernet packet without IPv4 and UDP headers: 1500 − 20 − 8 bytes.
    let good = (1..=1472).contains(&size);
    let expected = "\"1 B\" to \"1472 B\" of payload";
    place.check(good, "size", ByteCount::new(size), expected).map(|()| size as u32)
}

fn dscp(place: &KeyContext<'_>, raw: &RawFlow) -> Result<u8, FileError> {
    raw.dscp.as_ref().map_or(Ok(0), |item| {
        code_point(item).ok_or_else(|| place.wrong_value("dscp", item, DSCP_FORM))
    })
}
