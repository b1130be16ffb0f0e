//! Encodes frames written as text in the test vectors, as specified in `docs/slacp.md` (Frames).

use std::net::SocketAddr;

/// RFC 9000 §16.
pub fn varint(value: u64) -> Vec<u8> {
    let (length, prefix) = match value {
        0..0x40 => (1, 0),
        0x40..0x4000 => (2, 0x40),
        0x4000..0x4000_0000 => (4, 0x80),
        _ => (8, 0xc0),
    };
    let mut bytes = value.to_be_bytes()[8 - length..].to_vec();
    bytes[0] |= prefix;
    bytes
}

/// The fields of a frame: `name=value` each.
struct Fields<'a>(&'a str);

impl Fields<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.0
            .split(' ')
            .filter_map(|field| field.split_once('='))
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value)
    }

    fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_else(|| panic!("{} has no {name}", self.0))
    }

    fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap()
    }

    fn varints(&self, names: &[&str]) -> Vec<u8> {
        names.iter().flat_map(|name| varint(self.number(name))).collect()
    }

    fn has(&self, flag: &str) -> bool {
        self.0.split(' ').any(|word| word == flag)
    }

    fn address(&self, name: &str) -> Vec<u8> {
        let port = |port: u16| port.to_be_bytes();
        match self.text(name).parse() {
            Ok(SocketAddr::V4(v4)) => [&[4], &v4.ip().octets()[..], &port(v4.port())].concat(),
            Ok(SocketAddr::V6(v6)) => [&[6], &v6.ip().octets()[..], &port(v6.port())].concat(),
            Err(_) if self.text(name) == "resolver" => vec![1],
            Err(_) if self.text(name) == "bundles" => vec![3],
            Err(_) => {
                let (host, number) = self.text(name).split_once(':').unwrap();
                let head = [0, host.len() as u8];
                [&head, host.as_bytes(), &port(number.parse().unwrap())].concat()
            }
        }
    }

    /// `data` as the last field of a frame, with its length unless that is omitted.
    fn data(data: &[u8], last: bool) -> Vec<u8> {
        let length = if last { Vec::new() } else { varint(data.len() as u64) };
        [&length, data].concat()
    }

    fn stream(&self, last: bool) -> Vec<u8> {
        let kind = 0x10 | u8::from(self.has("FIN")) | u8::from(!last) << 1;
        let [stream, offset] = ["stream", "offset"].map(|field| varint(self.number(field)));
        [&[kind], &stream[..], &offset, &Self::data(b"data", last)].concat()
    }

    fn compact_stream(&self) -> Vec<u8> {
        let (stream, offset) = (self.number("stream"), self.number("offset") % (1 << 26));
        let [high, low @ ..] = (offset as u32).to_be_bytes();
        let kind = 0x80 | u8::from(self.has("FIN")) << 6 | high << 4 | stream.min(15) as u8;
        let rest = stream.checked_sub(15).map_or(Vec::new(), varint);
        [&[kind], &rest[..], &low, b"data"].concat()
    }

    fn packet(&self, last: bool) -> Vec<u8> {
        let part = self.get("total").is_some();
        let kind = 0x18 | u8::from(!last) | u8::from(part) << 1;
        let place = if part { self.varints(&["offset", "total"]) } else { Vec::new() };
        let names = self.varints(&["channel", "lane", "sequence"]);
        [&[kind], &names[..], &place, &Self::data(b"packet", last)].concat()
    }

    fn context(&self) -> Vec<u8> {
        let inner = ["none", "rtp", "esp"].iter().position(|name| *name == self.text("inner"));
        let profile = inner.unwrap() as u8 | u8::from(self.has("COUNTS")) << 7;
        let stride = if inner == Some(1) { self.varints(&["stride"]) } else { Vec::new() };
        let names = self.varints(&["channel", "lane", "sequence"]);
        let head = [0x25, self.number("context") as u8, profile];
        [&head, &stride[..], &names, &Self::data(b"packet", false)].concat()
    }

    fn compressed(&self, last: bool) -> Vec<u8> {
        let kind = 0x28 | u8::from(!last) | u8::from(self.has("CHANGED")) << 1;
        let head = [kind, self.number("context") as u8];
        [&head, &self.varints(&["distance"])[..], &Self::data(b"packet", last)].concat()
    }

    /// Ranges such as `50-79,90`, highest first, as start and exclusive end.
    fn ranges(&self, name: &str) -> Vec<(u64, u64)> {
        let range = |text: &str| {
            let (from, to) = text.split_once('-').unwrap_or((text, text));
            (from.parse().unwrap(), to.parse::<u64>().unwrap() + 1)
        };
        let mut ranges: Vec<_> =
            self.get(name).map_or(Vec::new(), |text| text.split(',').map(range).collect());
        ranges.sort_unstable_by(|a, b| b.cmp(a));
        ranges
    }

    fn ack(&self) -> Vec<u8> {
        let received = self.ranges("received");
        let largest = received[0].1 - 1;
        let (mut runs, mut marks) = (Vec::new(), Vec::new());
        let mut end = None;
        for (from, to) in received {
            runs.extend(end.map_or(Vec::new(), |end: u64| varint(end - to)));
            runs.extend(varint(to - from));
            end = Some(from);
        }
        let mut end = largest + 1;
        for (from, to) in self.ranges("restored") {
            marks.extend([varint(end - to), varint(to - from)].concat());
            end = from;
        }
        let kind = if self.get("clock").is_some() { 0x0e } else { 0x02 };
        let head = [varint(largest), self.varints(&["held"]), self.times(largest)].concat();
        let lists = [Self::data(&runs, false), Self::data(&marks, false)].concat();
        [&[kind], &head[..], &lists].concat()
    }

    fn times(&self, largest: u64) -> Vec<u8> {
        let Some(clock) = self.get("clock") else { return Vec::new() };
        let clock = u32::from_str_radix(clock, 16).unwrap().to_be_bytes();
        let mark = |text: &str| {
            let (number, age) = text.split_once(':').unwrap();
            [varint(largest - number.parse::<u64>().unwrap()), varint(age.parse().unwrap())]
                .concat()
        };
        let marks: Vec<u8> = self.text("marks").split(',').flat_map(mark).collect();
        [&clock[..], &Self::data(&marks, false)].concat()
    }
}

/// Encodes a frame; `last` if it is the last in its packet.
pub fn encode(text: &str, last: bool) -> Vec<u8> {
    let fields = Fields(text);
    let name = text.split(' ').take_while(|word| !word.contains('=') && *word != "FIN");
    let name = name.collect::<Vec<_>>().join(" ");
    let numbers = |kind: u8, names: &[&str]| [vec![kind], fields.varints(names)].concat();
    let token = || u64::from_str_radix(fields.text("token"), 16).unwrap().to_be_bytes();
    let destination = || match fields.get("exchange") {
        Some(_) => [&[2], &fields.address("exchange")[..]].concat(),
        None => fields.address("destination"),
    };
    let addresses = || [destination(), fields.address("source")].concat();
    match &name[..] {
        "PING" => vec![0x01],
        "ACK" | "TIMED ACK" => fields.ack(),
        "SETTLED" => numbers(0x03, &["number"]),
        "OPEN" => [numbers(0x04, &["stream", "window", "credit"]), addresses()].concat(),
        "ACCEPT" => numbers(0x05, &["stream"]),
        "RESET" => {
            [numbers(0x06, &["stream", "sent"]), vec![fields.number("reason") as u8]].concat()
        }
        "SESSION_CREDIT" => numbers(0x07, &["limit"]),
        "STREAM_CREDIT" => numbers(0x08, &["stream", "returns", "limit"]),
        "RETURN" => numbers(0x22, &["stream", "returns", "limit"]),
        "PATH_CHALLENGE" => [&[0x0b], &token()[..]].concat(),
        "PATH_ANSWER" => [&[0x0c], &token()[..]].concat(),
        "CLOSE" => vec![0x0d, fields.number("reason") as u8],
        "MARK" => vec![0x0f],
        "ECN" => numbers(0x23, &["ect0", "ce"]),
        "STREAM" => fields.stream(last),
        "PACKET" => fields.packet(last),
        "CHANNEL" => numbers(0x20, &["channel", "deadline"]),
        "MARKED OPEN" => {
            let compressed = u8::from(fields.has("COMPRESSED")) << 7;
            let code_point = vec![fields.text("dscp").parse().unwrap_or(64) | compressed];
            [numbers(0x21, &["stream", "window", "credit"]), code_point, addresses()].concat()
        }
        "CONTEXT" => fields.context(),
        "COMPRESSED" => fields.compressed(last),
        "compact STREAM" => fields.compact_stream(),
        other => panic!("{other} is no frame"),
    }
}
