//! Tests that read like a trace.
//!
//! A segment is a line in the manner of tcpdump, with positions instead of sequence numbers (0 is the SYN, 1
//! the first byte): flags, `from:to` of its data, `ack N`, and as needed `win N`, `sack a:b,c:d`, `ts
//! value,echo`, `mss N`, `ws N`, `sackok`, `fo COOKIE` (hexadecimal, `-` asks), `scps N`, `snack
//! OFFSET,SIZE`, `cc N`, `ccnew N`, `ccecho N`, `ce`, `ect`. The data of a SYN is `0:to`. Flags: S F R P, `.`
//! for ACK, E for ECE, W for CWR, L for slow start, `-` for none.
//!
//! `send!(t, time 100, "…")` hands segments to the connection under test at 100 ms; `recv!(t, time
//! 100, "…")` asserts what it sends at 100 ms: exactly these segments, and none between the
//! previous line of the test and then.

use bytes::Bytes;
use tcp::{
    Config, Connection, ConnectionEvent, Cookie, Ecn, SackBlock, Segment, SeqNr, Snack, TcpState,
    Timestamps,
};
use units::{Instant, Machine};

/// Initial sequence numbers of the connection and its peer: near the wrap, so that every test
/// crosses it.
const OURS: SeqNr = SeqNr::new(u32::MAX - 500);
const PEERS: SeqNr = SeqNr::new(u32::MAX - 700);

pub(crate) fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// A connection and a clock.
pub(crate) struct Trace {
    pub(crate) tcp: Connection<Bytes>,
    pub(crate) now: u64,
    written: u64,
    /// Value of the timestamp clock at 0 ms.
    zero: u32,
}

macro_rules! send {
    ($t:expr, time $ms:expr, $($line:expr),+ $(,)?) => {
        $t.go_to($ms);
        $($t.send($line);)+
    };
}

macro_rules! recv {
    ($t:expr, time $ms:expr $(, $line:expr)* $(,)?) => {{
        $t.go_to($ms);
        let lines: &[&str] = &[$($line),*];
        $t.expect(lines);
    }};
}

pub(crate) use {recv, send};

impl Trace {
    pub(crate) fn connecting(config: Config) -> Self {
        let tcp = Connection::connect(config, OURS);
        Self { tcp, now: 0, written: 0, zero: OURS.get() }
    }

    pub(crate) fn listening(config: Config) -> Self {
        let tcp = Connection::listen(config, OURS);
        Self { tcp, now: 0, written: 0, zero: OURS.get() }
    }

    /// A client whose handshake took from 0 to 100 ms, with a peer that offers `syn`, for instance
    /// `"mss 1000 win 30000"`.
    pub(crate) fn established(config: Config, syn: &str) -> Self {
        let mut t = Self::connecting(config);
        t.drain();
        send!(t, time 100, &format!("S. 0:0 ack 1 {syn}"));
        assert_eq!(t.drain().len(), 1);
        assert_eq!(
            (t.state(), t.event()),
            (TcpState::Established, Some(ConnectionEvent::Connected))
        );
        t
    }

    pub(crate) fn state(&self) -> TcpState {
        self.tcp.state()
    }

    pub(crate) fn event(&mut self) -> Option<ConnectionEvent> {
        self.tcp.poll_event()
    }

    pub(crate) fn events(&mut self) -> Vec<ConnectionEvent> {
        core::iter::from_fn(|| self.tcp.poll_event()).collect()
    }

    pub(crate) fn write(&mut self, len: u64) {
        let data: Vec<u8> = (self.written..self.written + len).map(byte).collect();
        self.written += len;
        assert_eq!(self.tcp.write(&data.into()), Ok(len as usize));
    }

    pub(crate) fn close(&mut self) {
        self.tcp.close();
    }

    pub(crate) fn read_all(&mut self) -> usize {
        core::iter::from_fn(|| self.tcp.read(usize::MAX)).map(|data| data.len()).sum()
    }

    pub(crate) fn cwnd(&self) -> u64 {
        self.tcp.stats().cwnd.get()
    }

    pub(crate) fn ssthresh(&self) -> u64 {
        self.tcp.stats().ssthresh.get()
    }

    /// Advances the time to `ms`. Nothing may be sent before then.
    pub(crate) fn go_to(&mut self, ms: u64) {
        assert!(ms >= self.now, "time goes back from {} to {ms} ms", self.now);
        if ms > self.now {
            let left = self.drain();
            assert!(left.is_empty(), "unexpected at {} ms: {left:#?}", self.now);
        }
        while let Some((due, wake)) = self.tcp.poll_timeout().filter(|(due, _)| *due <= at(ms)) {
            self.now = self.now.max(due.as_nanos().div_ceil(1_000_000));
            self.tcp.handle_timeout(due.max(at(self.now)));
            if self.now < ms {
                let sent = self.drain();
                assert!(sent.is_empty(), "unexpected at {} ms ({wake:?}): {sent:#?}", self.now);
            } else if self.tcp.poll_timeout().is_some_and(|(next, _)| next <= at(ms)) {
                // Something waits to be polled, not for the time.
                break;
            }
        }
        self.now = ms;
    }

    pub(crate) fn send(&mut self, line: &str) {
        let segment = parse(line, self.zero);
        self.tcp.handle_segment(at(self.now), &segment);
    }

    pub(crate) fn drain(&mut self) -> Vec<Segment<Bytes>> {
        let now = at(self.now);
        core::iter::from_fn(|| self.tcp.poll_transmit(now)).collect()
    }

    #[track_caller]
    pub(crate) fn expect(&mut self, lines: &[&str]) {
        let sent = self.drain();
        // A line is compared only in the fields it mentions.
        let shown: Vec<String> = (0..sent.len().max(lines.len()))
            .filter_map(|n| Some(show(sent.get(n)?, lines.get(n).unwrap_or(&""), self.zero)))
            .collect();
        assert_eq!(shown, lines, "at {} ms", self.now);
    }
}

fn byte(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Parses hexadecimal; `-` is empty.
pub(crate) fn cookie(text: &str) -> Cookie {
    let digits = text.trim_matches('-').as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn range(text: &str) -> (u64, u64) {
    let (from, to) = text.split_once(':').expect("from:to");
    (from.parse().unwrap(), to.parse().unwrap())
}

fn parse(line: &str, zero: u32) -> Segment<Bytes> {
    let mut words = line.split_whitespace();
    let mut next = || words.next();
    let mut segment = Segment { window: 65_535, ..Segment::default() };
    for flag in next().unwrap().chars() {
        let flags = &mut segment.flags;
        match flag {
            'S' => flags.syn = true,
            'F' => flags.fin = true,
            'R' => flags.rst = true,
            'P' => flags.psh = true,
            'E' => flags.ece = true,
            'W' => flags.cwr = true,
            'L' => flags.slow_start = true,
            '.' | '-' => {}
            other => panic!("flag {other}"),
        }
    }
    let (from, to) = range(next().unwrap());
    segment.seq = PEERS.advance(from);
    segment.payload = (from..to).map(byte).collect::<Vec<_>>().into();
    while let Some(word) = next() {
        let mut value = || next().unwrap();
        let options = &mut segment.options;
        match word {
            "ack" => segment.ack = Some(OURS.advance(value().parse().unwrap())),
            "win" => segment.window = value().parse().unwrap(),
            "mss" => options.mss = Some(value().parse().unwrap()),
            "ws" => options.window_scale = Some(value().parse().unwrap()),
            "sackok" => options.sack_permitted = true,
            "fo" => options.fast_open = Some(cookie(value())),
            "scps" => options.scps = Some(value().parse().unwrap()),
            "cc" => options.counts.cc = value().parse().unwrap(),
            "ccnew" => options.counts.new = value().parse().unwrap(),
            "ccecho" => options.counts.echo = value().parse().unwrap(),
            "snack" => {
                let (offset, size) = value().split_once(',').unwrap();
                let (offset, size) = (offset.parse().unwrap(), size.parse().unwrap());
                options.snack = Some(Snack { offset, size });
            }
            "sack" => {
                let block = |text| {
                    let (from, to) = range(text);
                    SackBlock { start: OURS.advance(from), end: OURS.advance(to) }
                };
                options.sack = value().split(',').map(block).collect();
            }
            "ts" => {
                let (own, echo) = value().split_once(',').unwrap();
                let echo: u32 = echo.parse().unwrap();
                options.timestamps =
                    Some(Timestamps { value: own.parse().unwrap(), echo: echo.wrapping_add(zero) });
            }
            "ce" => segment.ecn = Ecn::Ce,
            "ect" => segment.ecn = Ecn::Ect0,
            other => panic!("no word {other:?} for a segment"),
        }
    }
    segment
}

/// The line of a segment, with those optional words that `like` has.
fn show(segment: &Segment<Bytes>, like: &str, zero: u32) -> String {
    let flags = segment.flags;
    let letters = [
        (flags.syn, 'S'),
        (flags.fin, 'F'),
        (flags.rst, 'R'),
        (flags.psh && like.starts_with(|c| "FP".contains(c)) && like.contains('P'), 'P'),
        (flags.ece, 'E'),
        (flags.cwr, 'W'),
        (flags.slow_start, 'L'),
        (segment.ack.is_some(), '.'),
    ];
    let mut line: String = letters.iter().filter(|(set, _)| *set).map(|(_, c)| *c).collect();
    if line.is_empty() {
        line.push('-');
    }
    let from = segment.seq.get().wrapping_sub(OURS.get());
    line += &format!(" {from}:{}", from as usize + segment.payload.len());
    // The SYN itself has position 0.
    let first = u64::from(from) + u64::from(flags.syn);
    let check = |at: usize, data: &u8| *data == byte(first + at as u64 - 1);
    let is_right = segment.payload.iter().enumerate().all(|(at, data)| check(at, data));
    assert!(is_right, "wrong bytes in {line}");
    if let Some(ack) = segment.ack {
        line += &format!(" ack {}", ack.get().wrapping_sub(PEERS.get()));
    }
    let options = &segment.options;
    let wants = |word: &str| like.split_whitespace().any(|w| w == word);
    if wants("win") {
        line += &format!(" win {}", segment.window);
    }
    if let Some(mss) = options.mss.filter(|_| wants("mss")) {
        line += &format!(" mss {mss}");
    }
    if let Some(shift) = options.window_scale {
        line += &format!(" ws {shift}");
    }
    if options.sack_permitted {
        line += " sackok";
    }
    if let Some(cookie) = &options.fast_open {
        let hex: String = cookie.iter().map(|byte| format!("{byte:02x}")).collect();
        line += &format!(" fo {}", if hex.is_empty() { "-" } else { &hex });
    }
    if let Some(bits) = options.scps {
        line += &format!(" scps {bits}");
    }
    if let Some(snack) = options.snack {
        line += &format!(" snack {},{}", snack.offset, snack.size);
    }
    let counts = options.counts;
    for (word, count) in [("cc", counts.cc), ("ccnew", counts.new), ("ccecho", counts.echo)] {
        if count != 0 {
            line += &format!(" {word} {count}");
        }
    }
    if !options.sack.is_empty() {
        let relative = |seq: SeqNr| seq.get().wrapping_sub(PEERS.get());
        let block = |b: &SackBlock| format!("{}:{}", relative(b.start), relative(b.end));
        line += &format!(" sack {}", options.sack.iter().map(block).collect::<Vec<_>>().join(","));
    }
    if let Some(ts) = options.timestamps.filter(|_| wants("ts")) {
        line += &format!(" ts {},{}", ts.value.wrapping_sub(zero), ts.echo);
    }
    if segment.ecn == Ecn::Ect0 {
        line += " ect";
    }
    line
}
