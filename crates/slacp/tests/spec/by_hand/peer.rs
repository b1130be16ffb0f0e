//! A terminal or hub implemented from the specification. It sets up a session, opens or accepts a
//! stream, acknowledges packets, restores lost ones from repairs, and changes keys.

use std::collections::{BTreeMap, BTreeSet};

use super::crypto::{
    Noise, first_message, hkdf, mac, open, public, read_first, read_second, seal, second_message,
    x25519,
};
use super::erasure;
use super::frames::{encode, varint};

const INDEX: u32 = 0x7e57_0001;

/// Base, stride, number of sources, number of repairs.
type Block = (u64, u64, usize, usize);
/// With their indices.
type Repairs = Vec<(usize, Vec<u8>)>;

/// A peer of a hub with ChaCha20-Poly1305 and no extras.
pub struct Peer {
    hub: Vec<u8>,
    private: Vec<u8>,
    ephemeral: Vec<u8>,
    noise: Option<Noise>,
    index_of_peer: [u8; 4],
    /// The role of this peer: a hub answers, a terminal initiates.
    is_hub: bool,
    send: Vec<u8>,
    /// By key phase; the second follows a key change.
    receive: Vec<Vec<u8>>,
    /// The hub's next key, used as soon as the terminal switches.
    next_send: Option<Vec<u8>>,
    phase: u8,
    /// Datagrams to send in reply.
    pub replies: Vec<Vec<u8>>,
    chain: Vec<u8>,
    fresh: Option<Vec<u8>>,
    /// Packets received in the second phase.
    pub renewed: usize,
    next: u64,
    /// One more than the largest of our packets that was acknowledged.
    acknowledged: u64,
    /// Packets received or restored, with the frames of FEC sources.
    packets: BTreeMap<u64, Vec<u8>>,
    restored: BTreeSet<u64>,
    settled: u64,
    blocks: BTreeMap<Block, Repairs>,
    /// The data of stream 0, and where it ends.
    pub data: Vec<Option<u8>>,
    pub end: Option<u64>,
    pub opened: bool,
    pub accepted: bool,
    pub closed: Option<u8>,
    /// Whether an acknowledgement is due.
    owes: bool,
}

impl Peer {
    pub fn new(hub: &[u8], private: [u8; 32], ephemeral: [u8; 32]) -> Self {
        Self {
            hub: hub.to_vec(),
            private: private.to_vec(),
            ephemeral: ephemeral.to_vec(),
            noise: None,
            index_of_peer: [0; 4],
            is_hub: false,
            send: Vec::new(),
            receive: Vec::new(),
            next_send: None,
            phase: 0,
            replies: Vec::new(),
            chain: Vec::new(),
            fresh: None,
            renewed: 0,
            next: 0,
            acknowledged: 0,
            packets: BTreeMap::new(),
            restored: BTreeSet::new(),
            settled: 0,
            blocks: BTreeMap::new(),
            data: Vec::new(),
            end: None,
            opened: false,
            accepted: false,
            closed: None,
            owes: false,
        }
    }

    /// A hub with this key that serves any terminal.
    pub fn hub(private: [u8; 32], ephemeral: [u8; 32]) -> Self {
        let hub = public(&private);
        Self { is_hub: true, ..Self::new(&hub, private, ephemeral) }
    }

    /// Parameters 1 to 3: 16 MB, 4 MB, 8 streams.
    fn parameters() -> Vec<u8> {
        let pairs = [(1, 16 << 20), (2, 4 << 20), (3, 8)];
        pairs.into_iter().flat_map(|(name, value)| [varint(name), varint(value)].concat()).collect()
    }

    fn knock(&self, message: &[u8]) -> Vec<u8> {
        mac(&[b"SLACP knock", &self.hub[..]].concat(), message)[..16].to_vec()
    }

    pub fn initiation(&mut self) -> Vec<u8> {
        let prologue = [&b"SLACP\x02"[..], &[0; 16]].concat();
        let keys = [&self.private[..], &self.ephemeral];
        let (message, noise) = first_message(&prologue, keys, &self.hub, &Self::parameters());
        self.noise = Some(noise);
        let initiation = [&[1, 2], &INDEX.to_be_bytes()[..], &[0; 16], &message].concat();
        [&initiation[..], &self.knock(&initiation)].concat()
    }

    /// Takes a datagram of the other side.
    pub fn receive(&mut self, datagram: &[u8]) {
        match datagram[0] {
            1 if self.is_hub => self.answer(datagram),
            2 if self.noise.is_some() => self.response(datagram),
            first if first & 0xcc == 0x40 => self.packet(datagram),
            _ => {}
        }
    }

    /// Answers an initiation.
    fn answer(&mut self, datagram: &[u8]) {
        let (message, knock) = datagram.split_at(datagram.len() - 16);
        assert_eq!((message[1], knock), (2, &self.knock(message)[..]));
        let prologue = [b"SLACP\x02", &message[6..22]].concat();
        let (terminal, _, mut noise) = read_first(&prologue, &self.private, &message[22..]);
        let keys = [&terminal[..], &message[22..54]];
        let second = second_message(&mut noise, keys, &self.ephemeral, &Self::parameters());
        self.index_of_peer.copy_from_slice(&message[2..6]);
        self.begin(&noise);
        let head = [&[2, 2], &INDEX.to_be_bytes()[..], &self.index_of_peer].concat();
        self.replies.push([head, second].concat());
    }

    fn begin(&mut self, noise: &Noise) {
        let [up, down] = noise.derive(&[]);
        self.chain = hkdf(&noise.hash, &[up, down].concat(), b"SLACP chain", 32);
        let [send, receive] = if self.is_hub { [down, up] } else { [up, down] };
        (self.send, self.receive) = (send.to_vec(), vec![receive.to_vec()]);
    }

    fn response(&mut self, datagram: &[u8]) {
        assert_eq!((datagram[1], &datagram[6..10]), (2, &INDEX.to_be_bytes()[..]));
        let mut noise = self.noise.take().unwrap();
        read_second(&mut noise, [&self.private, &self.ephemeral], &datagram[10..]);
        self.index_of_peer.copy_from_slice(&datagram[2..6]);
        self.begin(&noise);
    }

    fn packet(&mut self, datagram: &[u8]) {
        assert_eq!(datagram[1..5], INDEX.to_be_bytes());
        let length = usize::from(datagram[0] & 3) + 1;
        let low = datagram[5..5 + length].iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
        let expected = self.packets.keys().next_back().map_or(0, |last| last + 1);
        let number = complete(low, 8 * length as u32, expected);
        if number < self.settled || self.packets.contains_key(&number) {
            return;
        }
        let phase = usize::from(datagram[0] >> 4 & 1);
        let key = &self.receive[phase];
        let Some(frames) = open("", key, number, datagram, 5 + length) else { return };
        if let Some(next) = self.next_send.take_if(|_| phase == 1) {
            (self.send, self.phase) = (next, 1);
        }
        self.renewed += phase;
        let source = datagram[0] & 0x20 != 0;
        self.packets.insert(number, if source { frames.clone() } else { Vec::new() });
        self.frames(number, &frames);
        self.restore();
    }

    /// Processes the frames of a packet.
    fn frames(&mut self, number: u64, mut rest: &[u8]) {
        let input = &mut rest;
        while let Some((&kind, after)) = input.split_first() {
            *input = after;
            self.owes |= !matches!(kind, 0 | 2 | 3 | 0x0b | 0x0c | 0x0d | 0x0e);
            match kind {
                0 | 1 => {}
                2 => self.ack(input),
                4 => self.open(input),
                3 => self.settled = self.settled.max(read(input)),
                5 => self.accepted = read(input) == 0,
                7 => _ = read(input),
                8 | 0x22 => _ = (read(input), read(input), read(input)),
                9 => self.repair(number, input),
                0x0a => self.rekey(input),
                0x0d => self.closed = Some(take(input, 1)[0]),
                0x10..=0x13 => self.stream(kind, input),
                0x80.. => self.compact_stream(kind, input),
                other => panic!("frame {other:#04x} was not agreed on"),
            }
        }
    }

    /// Starts the first key change.
    pub fn offer_keys(&mut self, private: [u8; 32]) -> Vec<u8> {
        self.fresh = Some(private.to_vec());
        self.packet_of(&[&[0x0a, 1], &public(&private)[..]].concat())
    }

    /// Processes the other side's share of the first key change.
    fn rekey(&mut self, input: &mut &[u8]) {
        assert_eq!(read(input), 1);
        let theirs = take(input, 32);
        if self.is_hub && self.receive.len() == 1 {
            let private = [6; 32];
            let keys = self.derive(&private, theirs);
            self.receive.push(keys[..32].to_vec());
            self.next_send = Some(keys[32..64].to_vec());
            let reply = self.packet_of(&[&[0x0a, 1], &public(&private)[..]].concat());
            self.replies.push(reply);
        }
        let Some(private) = self.fresh.take() else { return };
        let keys = self.derive(&private, theirs);
        (self.send, self.phase) = (keys[..32].to_vec(), 1);
        self.receive.push(keys[32..64].to_vec());
    }

    /// Derives the keys of the next generation and the chaining key.
    fn derive(&self, private: &[u8], theirs: &[u8]) -> Vec<u8> {
        let (secret, ours) = x25519(private, theirs);
        let halves = if self.is_hub { [theirs, &ours] } else { [&ours[..], theirs] };
        hkdf(&self.chain, &[&secret[..], halves[0], halves[1]].concat(), b"SLACP keys", 96)
    }

    fn ack(&mut self, input: &mut &[u8]) {
        self.acknowledged = self.acknowledged.max(read(input) + 1);
        read(input);
        for _ in ["runs", "marks"] {
            let length = read(input);
            take(input, length as usize);
        }
    }

    /// Parses OPEN of stream 0, from an IPv4 address to another.
    fn open(&mut self, input: &mut &[u8]) {
        assert_eq!(read(input), 0);
        for _ in ["window", "credit"] {
            read(input);
        }
        let addresses = [take(input, 7), take(input, 7)];
        assert!(addresses.iter().all(|address| address[0] == 4));
        self.opened = true;
    }

    fn stream(&mut self, kind: u8, input: &mut &[u8]) {
        let (stream, offset) = (read(input), read(input));
        let length = if kind & 2 != 0 { read(input) as usize } else { input.len() };
        assert_eq!(stream, 0);
        let data = take(input, length);
        self.store(offset, data, kind & 1 != 0);
    }

    /// The stream is far too short for its offsets to be ambiguous.
    fn compact_stream(&mut self, kind: u8, input: &mut &[u8]) {
        assert_eq!(kind & 15, 0, "stream 0");
        let high = u64::from(kind >> 4 & 3);
        let offset = take(input, 3).iter().fold(high, |n, byte| n << 8 | u64::from(*byte));
        let data = take(input, input.len());
        self.store(offset, data, kind & 0x40 != 0);
    }

    fn store(&mut self, offset: u64, data: &[u8], fin: bool) {
        let end = offset as usize + data.len();
        self.data.resize(self.data.len().max(end), None);
        let place = self.data[offset as usize..end].iter_mut();
        place.zip(data).for_each(|(place, byte)| *place = Some(*byte));
        if fin {
            self.end = Some(end as u64);
        }
    }

    fn repair(&mut self, number: u64, input: &mut &[u8]) {
        let (distance, stride) = (read(input), read(input));
        let sizes = take(input, 3);
        let [count, total, index] = [sizes[0], sizes[1], sizes[2]].map(usize::from);
        let length = input.len();
        let shard = take(input, length).to_vec();
        self.blocks
            .entry((number - distance, stride, count, total))
            .or_default()
            .push((index, shard));
    }

    /// Restores what the repairs allow.
    fn restore(&mut self) {
        let blocks: Vec<_> = self.blocks.keys().copied().collect();
        for key in blocks {
            let (base, stride, count, total) = key;
            let numbers = || (0..count as u64).map(move |n| base + n * stride);
            let missing: Vec<u64> = numbers().filter(|n| !self.packets.contains_key(n)).collect();
            if base < self.settled || self.blocks[&key].len() < missing.len() {
                continue;
            }
            let mut repairs = self.blocks.remove(&key).unwrap();
            repairs.truncate(missing.len());
            let Some((_, shard)) = repairs.first() else { continue };
            let size = shard.len();
            let shard = |n: u64| {
                let frames = self.packets.get(&n)?;
                let mut shard = [&(frames.len() as u16).to_be_bytes()[..], frames].concat();
                shard.resize(size, 0);
                Some(shard)
            };
            let originals: Vec<_> = numbers().map(shard).collect();
            let restored = erasure::restore(&originals, &repairs, total);
            for (number, shard) in missing.into_iter().zip(restored) {
                let length = usize::from(u16::from_be_bytes([shard[0], shard[1]]));
                if length > 0 {
                    self.packets.insert(number, shard[2..2 + length].to_vec());
                    self.restored.insert(number);
                    self.frames(number, &shard[2..2 + length]);
                }
            }
        }
    }

    pub fn restored(&self) -> usize {
        self.restored.len()
    }

    /// An acknowledgement, if one is due.
    pub fn acknowledgement(&mut self) -> Option<Vec<u8>> {
        if !core::mem::take(&mut self.owes) {
            return None;
        }
        let ranges = |numbers: &mut dyn Iterator<Item = u64>| {
            let mut ranges: Vec<(u64, u64)> = Vec::new();
            for number in numbers {
                match ranges.last_mut() {
                    Some((_, last)) if *last + 1 == number => *last = number,
                    _ => ranges.push((number, number)),
                }
            }
            ranges.iter().map(|(from, to)| format!("{from}-{to}")).collect::<Vec<_>>().join(",")
        };
        let settled = self.settled;
        let received = ranges(&mut self.packets.keys().copied().filter(|n| *n >= settled));
        let restored = ranges(&mut self.restored.iter().copied().filter(|n| *n >= settled));
        let marks =
            if restored.is_empty() { String::new() } else { format!(" restored={restored}") };
        let frame = encode(&format!("ACK received={received} held=0{marks}"), false);
        Some(self.packet_of(&frame))
    }

    /// A packet with these frames.
    pub fn packet_of(&mut self, frames: &[u8]) -> Vec<u8> {
        let number = self.next;
        self.next += 1;
        let span = 2 * (number + 1 - self.acknowledged);
        let length = (1..4).find(|length| span < 1 << (8 * length)).unwrap_or(4);
        let low = &number.to_be_bytes()[8 - length..];
        let first = 0x40 | self.phase << 4 | (length as u8 - 1);
        let header = [&[first], &self.index_of_peer[..], low].concat();
        seal("", &self.send, number, &header, frames)
    }

    pub fn public(&self) -> Vec<u8> {
        public(&self.private)
    }
}

/// The number nearest to `near` that ends in these bits.
fn complete(low: u64, bits: u32, near: u64) -> u64 {
    let modulus = 1 << bits;
    let at = |turn: u64| (turn * modulus) + low;
    let turn = near / modulus;
    let candidates = [turn.saturating_sub(1), turn, turn + 1].map(at);
    candidates.into_iter().min_by_key(|candidate| candidate.abs_diff(near)).unwrap()
}

fn read(input: &mut &[u8]) -> u64 {
    let length = 1 << (input[0] >> 6);
    let bytes = take(input, length);
    bytes[1..].iter().fold(u64::from(bytes[0] & 0x3f), |n, byte| n << 8 | u64::from(*byte))
}

fn take<'a>(input: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(length);
    *input = rest;
    taken
}
