//! Generates the test vectors of the wire format (`tests/vectors/slacp-2.toml`): what this crate
//! sends for given keys, seeds and contents.
//!
//! `SKYHOP_VECTORS=write cargo test -p skyhop-slacp --lib vectors` rewrites the file.
//! `tests/spec/vectors.rs` computes the same from `docs/slacp.md` without this crate.

use core::fmt::Write;
use core::time::Duration;
use std::fs;
use std::net::SocketAddr;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use snow::HandshakeState;
use units::BitRate;

use crate::ChannelId;
use crate::keys::crypto::{PacketCipher, PacketKey};
use crate::keys::handshake::knock::KnockKey;
use crate::keys::handshake::{
    self, HandshakeParams, InitiationMessage, Responder, UnsupportedParameter,
};
use crate::keys::phases::HandshakeKeys;
use crate::keys::phases::{KeyPhases, expand};
use crate::keys::secret::{Secret, draw};
use crate::recovery::fec::{self, FecBlock, FecDecoder, PendingRepair};
use crate::streams::flow::PeerLimits;
use crate::wire::ecn::EcnCounts;
use crate::wire::frame::{
    self, AckReport, ChannelAnnouncement, ChannelPacket, CompressedPacket, ContextPacket, Frame,
    PacketPart, RepairFrame, ReportedTimes, TruncatedOffset,
};
use crate::wire::open::OpeningFeatures;
use crate::wire::packet::{self, INITIATION_BODY, Index, PacketHeader};
use crate::wire::profile::{HeaderProfile, InnerProtocol};
use crate::{
    CloseReason, Destination, Host, HostName, KeyPair, ResetReason, StreamId, StreamOpening,
};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/slacp-2.toml");

const HEAD: &str = "\
# Test vectors of SLACP version 2 (docs/slacp.md). Bytes are in hexadecimal.
# Made by `SKYHOP_VECTORS=write cargo test -p skyhop-slacp --lib vectors`.
";

#[test]
fn the_committed_vectors_match_what_is_sent() {
    let made = made();
    if std::env::var("SKYHOP_VECTORS").is_ok_and(|wish| wish == "write") {
        return fs::write(FILE, made).unwrap();
    }
    let committed = fs::read_to_string(FILE).unwrap();
    for (made, committed) in made.lines().zip(committed.lines()) {
        assert_eq!(made, committed, "the wire has changed");
    }
    assert_eq!(made.len(), committed.len(), "the wire has changed");
}

fn made() -> String {
    let mut file = File(HEAD.to_owned());
    file.identities();
    file.handshake();
    file.cookie();
    file.answers();
    file.rekey();
    file.packets();
    file.frames();
    file.blocks();
    file.0
}

/// A TOML file under construction.
struct File(String);

impl File {
    fn section(&mut self, name: &str, comment: &str) -> &mut Self {
        self.0.push('\n');
        comment.lines().for_each(|line| writeln!(self.0, "# {line}").unwrap());
        writeln!(self.0, "[{name}]").unwrap();
        self
    }

    fn item(&mut self, name: &str) -> &mut Self {
        writeln!(self.0, "\n[[{name}]]").unwrap();
        self
    }

    fn hex(&mut self, key: &str, bytes: &[u8]) -> &mut Self {
        writeln!(self.0, "{key} = \"{}\"", hex(bytes)).unwrap();
        self
    }

    fn list(&mut self, key: &str, items: &[Vec<u8>]) -> &mut Self {
        writeln!(self.0, "{key} = [").unwrap();
        items.iter().for_each(|bytes| writeln!(self.0, "    \"{}\",", hex(bytes)).unwrap());
        writeln!(self.0, "]").unwrap();
        self
    }

    fn text(&mut self, key: &str, text: &str) -> &mut Self {
        writeln!(self.0, "{key} = \"{text}\"").unwrap();
        self
    }

    fn flag(&mut self, key: &str, flag: bool) -> &mut Self {
        writeln!(self.0, "{key} = {flag}").unwrap();
        self
    }

    fn number(&mut self, key: &str, number: u64) -> &mut Self {
        writeln!(self.0, "{key} = {number}").unwrap();
        self
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes `first`, `first` + 1 and so on.
fn bytes<const N: usize>(first: u8) -> [u8; N] {
    core::array::from_fn(|n| first.wrapping_add(n as u8))
}

const TERMINAL_INDEX: Index = 0x0102_0304;
const HUB_INDEX: Index = 0xa1b2_c3d4;
const COOKIE: [u8; 16] = *b"a cookie, opaque";

fn terminal() -> KeyPair {
    KeyPair::from_private(bytes(0x20))
}

fn hub() -> KeyPair {
    KeyPair::from_private(bytes(0x40))
}

fn params(present: Option<u64>, times: bool) -> HandshakeParams {
    let limits = PeerLimits::new(256 << 20, 64 << 20, 65_536);
    HandshakeParams {
        limits: PeerLimits { channels: 0b1011, openings: OpeningFeatures(3), ..limits },
        rate: BitRate::from_mbit(50),
        present,
        times: Some(times),
        aes: true,
        ecn: false,
        link_layer: false,
        leaving: false,
        successor: false,
        links: None,
        join: None,
        succeeds: None,
        address: None,
    }
}

/// A generator, and the ephemeral key that a handshake draws from it.
fn generator(seed: u8) -> (ChaCha20Rng, [u8; 32]) {
    let rng = ChaCha20Rng::from_seed([seed; 32]);
    let mut ephemeral = [0; 32];
    ChaCha20Rng::from_seed(*draw(&mut rng.clone())).fill_bytes(&mut ephemeral);
    (rng, ephemeral)
}

/// The hub's side of a handshake, exposing the keys.
fn observed(prologue: &[u8], seed: u8, first: &[u8], answer: &[u8]) -> HandshakeState {
    let hub = hub();
    let builder = handshake::builder(&hub, prologue, &mut generator(seed).0);
    let mut state = builder.build_responder().unwrap();
    let mut out = [0; 512];
    state.read_message(first, &mut out).unwrap();
    state.write_message(answer, &mut out).unwrap();
    state
}

fn prologue(cookie: &[u8; 16]) -> Vec<u8> {
    [&b"SLACP"[..], &[packet::VERSION], cookie].concat()
}

/// The result of a handshake: its hash, both keys, and the chaining key.
struct Outcome {
    hash: Vec<u8>,
    up: [u8; 32],
    down: [u8; 32],
    chain: [u8; 32],
}

impl Outcome {
    fn of(mut state: HandshakeState) -> Self {
        let hash = state.get_handshake_hash().to_vec();
        let (up, down) = state.dangerously_get_raw_split();
        let [chain] = expand(&hash, &[up, down].concat(), b"SLACP chain");
        Self { hash, up, down, chain: *chain }
    }
}

/// Runs the handshake of [`File::handshake`].
fn outcome() -> Outcome {
    let knock_key = KnockKey::new(hub().public());
    let message = first_message(&knock_key, &[0; 16]).0;
    let noise = &message[INITIATION_BODY..message.len() - 16];
    let answer = params(None, true).encode();
    Outcome::of(observed(&prologue(&[0; 16]), 2, noise, &answer))
}

/// An initiation, its knock, and its ephemeral key.
fn first_message(knock_key: &KnockKey, cookie: &[u8; 16]) -> (Vec<u8>, [u8; 16], [u8; 32]) {
    let (mut rng, ephemeral) = generator(if *cookie == [0; 16] { 1 } else { 3 });
    let params = params(Some(0x1234_5678), false).encode();
    let message =
        InitiationMessage::new(&terminal(), knock_key, TERMINAL_INDEX, &params, cookie, &mut rng);
    let knock = knock_key.check(&message.datagram).unwrap();
    (message.datagram, knock, ephemeral)
}

impl File {
    fn identities(&mut self) {
        let knock = [&b"SLACP knock"[..], &hub().public().0].concat();
        self.section("identities", "Static keys (X25519), and the key of knocks and tags.")
            .hex("terminal_private", &bytes::<32>(0x20))
            .hex("terminal_public", &terminal().public().0)
            .hex("hub_private", &bytes::<32>(0x40))
            .hex("hub_public", &hub().public().0)
            .hex("knock_key", &knock);
    }

    fn handshake(&mut self) {
        let knock_key = KnockKey::new(hub().public());
        let (first, knock, ephemeral) = first_message(&knock_key, &[0; 16]);
        let (mut rng, hub_ephemeral) = generator(2);
        let responder = Responder::read(&hub(), &first, &mut rng).unwrap();
        let ours = params(None, true);
        let cipher = ours.cipher(responder.params.as_ref().unwrap());
        let (second, keys) = responder.answer(HUB_INDEX, TERMINAL_INDEX, &ours, cipher);
        let outcome = outcome();
        assert_eq!((cipher, *keys.chain), (PacketCipher::Aes256Gcm, outcome.chain));
        self.section(
            "handshake",
            "An initiation without a cookie, and its response. Both sides say that AES is fast.",
        )
        .hex("prologue", &prologue(&[0; 16]))
        .hex("terminal_ephemeral", &ephemeral)
        .hex("hub_ephemeral", &hub_ephemeral)
        .number("terminal_index", TERMINAL_INDEX.into())
        .number("hub_index", HUB_INDEX.into())
        .hex("terminal_parameters", &params(Some(0x1234_5678), false).encode())
        .hex("initiation", &first)
        .hex("knock", &knock)
        .hex("hub_parameters", &ours.encode())
        .hex("response", &second)
        .hex("hash", &outcome.hash)
        .number("name", keys.name)
        .number("token", keys.token)
        .hex("terminal_to_hub", &outcome.up)
        .hex("hub_to_terminal", &outcome.down)
        .hex("chain", &outcome.chain);
    }

    fn cookie(&mut self) {
        let knock_key = KnockKey::new(hub().public());
        let (_, knock, _) = first_message(&knock_key, &[0; 16]);
        let request = knock_key.cookie_request(TERMINAL_INDEX, &COOKIE, &knock);
        let (second, second_knock, ephemeral) = first_message(&knock_key, &COOKIE);
        assert!(Responder::read(&hub(), &second, &mut generator(4).0).is_ok());
        self.section(
            "cookie",
            "The hub's request in answer to the initiation above, and what it is answered with.",
        )
        .hex("cookie", &COOKIE)
        .hex("request", &request)
        .hex("prologue", &prologue(&COOKIE))
        .hex("terminal_ephemeral", &ephemeral)
        .hex("initiation", &second)
        .hex("knock", &second_knock);
    }

    /// Answers other than a response that sets up a session.
    fn answers(&mut self) {
        let knock_key = KnockKey::new(hub().public());
        let mut foreign = vec![1, 9, 0xe1, 0xe2];
        foreign.extend(bytes::<60>(0));
        let knock = knock_key.seal(&mut foreign);
        let versions = knock_key.versions([0xe1, 0xe2], &knock);
        self.section("versions", "The answer to an initiation of version 9.")
            .hex("initiation", &foreign)
            .hex("versions", &versions);

        let header = PacketHeader { phase: true, ..PacketHeader::new(HUB_INDEX, 70_000, 0, true) };
        let mut packet = Vec::new();
        header.write(&mut packet);
        let unknown = knock_key.seal_answer(packet::unknown(&header), None);
        self.section(
            "unknown",
            "The answer to a packet with this header, whose session is not there.",
        )
        .hex("header", &packet)
        .hex("unknown", &unknown);

        let (mut rng, ephemeral) = generator(5);
        let message = InitiationMessage::new(
            &terminal(),
            &knock_key,
            TERMINAL_INDEX,
            &[33, 1],
            &[0; 16],
            &mut rng,
        );
        let (mut rng, hub_ephemeral) = generator(6);
        let responder = Responder::read(&hub(), &message.datagram, &mut rng).unwrap();
        let refusal = responder.refusal(TERMINAL_INDEX, UnsupportedParameter { parameter: 33 });
        self.section(
            "refusal",
            "The answer to an initiation with parameter 33, which must be understood.",
        )
        .hex("terminal_ephemeral", &ephemeral)
        .hex("hub_ephemeral", &hub_ephemeral)
        .hex("terminal_parameters", &[33, 1])
        .hex("initiation", &message.datagram)
        .hex("hub_parameters", &[6, 33])
        .hex("response", &refusal);
    }

    fn rekey(&mut self) {
        let outcome = outcome();
        let (terminal_seed, hub_seed) = (Secret::new([7; 32]), Secret::new([8; 32]));
        let private = |seed: &Secret| *draw(&mut ChaCha20Rng::from_seed(**seed));
        let keys = |send: &[u8; 32], recv: &[u8; 32]| {
            let cipher = PacketCipher::Aes256Gcm;
            let [send, recv] = [send, recv].map(|key| PacketKey::new(cipher, key));
            HandshakeKeys {
                cipher,
                send,
                recv,
                name: 1,
                token: 2,
                chain: Secret::new(outcome.chain),
            }
        };
        let mut terminal = KeyPhases::new(keys(&outcome.up, &outcome.down), true, &terminal_seed);
        let mut hub = KeyPhases::new(keys(&outcome.down, &outcome.up), false, &hub_seed);
        let offer = terminal.offer().unwrap();
        let Frame::Rekey { key: up_half, .. } = offer else { panic!() };
        let answer = hub.on_rekey(1, up_half).unwrap().unwrap();
        let Frame::Rekey { key: down_half, .. } = answer else { panic!() };
        terminal.on_rekey(1, down_half).unwrap();
        self.section("rekey", "The first change of keys in the session of the handshake above.")
            .hex("chain_before", &outcome.chain)
            .hex("terminal_private", &private(&terminal_seed))
            .hex("terminal_public", &up_half)
            .hex("terminal_frame", &written(&offer, false))
            .hex("hub_private", &private(&hub_seed))
            .hex("hub_public", &down_half)
            .hex("hub_frame", &written(&answer, false));
        let shared = snow_shared(&private(&terminal_seed), &down_half);
        let input = [shared, up_half, down_half].concat();
        let [up, down, chain] = expand(&outcome.chain, &input, b"SLACP keys");
        let header = PacketHeader { phase: true, ..PacketHeader::new(HUB_INDEX, 9, 0, false) };
        let mut packet = Vec::new();
        header.write(&mut packet);
        packet.extend(written(&Frame::Ping, false));
        terminal.seal(9, 0..header.len(), &mut packet);
        assert!(
            PacketKey::new(PacketCipher::Aes256Gcm, &up)
                .open(9, header.len(), &mut packet.clone())
                .is_some()
        );
        self.hex("shared", &shared)
            .hex("terminal_to_hub", &*up)
            .hex("hub_to_terminal", &*down)
            .hex("chain_after", &*chain)
            .hex("first_packet", &packet);
    }

    fn packets(&mut self) {
        self.0.push_str("\n# Sealed packets to the hub. Every packet below `acknowledged` is known to have come.\n");
        let key = outcome().up;
        let ping = written(&Frame::Ping, false);
        let data: [u8; 100] = bytes(0x80);
        let stream = Frame::Stream {
            stream: StreamId(6),
            offset: TruncatedOffset::compact(1000),
            fin: false,
            data: &data,
        };
        let several = [written(&Frame::Settled(16_384), false), written(&stream, true)].concat();
        for (name, cipher) in [
            ("ChaCha20-Poly1305", PacketCipher::ChaCha20Poly1305),
            ("AES-256-GCM", PacketCipher::Aes256Gcm),
        ] {
            for (number, known, source, phase, frames) in [
                (0, 0, false, false, &ping),
                (126, 0, true, false, &several),
                (1000, 0, false, true, &ping),
                (70_000, 0, true, true, &ping),
                (0x1234_5678_9abc, 0x1234_5678_9a00, false, false, &ping),
                (40_000_000, 0, false, false, &ping),
            ] {
                let header =
                    PacketHeader { phase, ..PacketHeader::new(HUB_INDEX, number, known, source) };
                let mut packet = Vec::new();
                header.write(&mut packet);
                packet.extend(frames);
                PacketKey::new(cipher, &key).seal(number, 0..header.len(), &mut packet);
                self.item("packet")
                    .text("cipher", name)
                    .hex("key", &key)
                    .number("number", number)
                    .number("acknowledged", known)
                    .flag("source", source)
                    .flag("phase", phase)
                    .hex("header", &packet[..header.len()])
                    .hex("frames", frames)
                    .hex("datagram", &packet);
            }
        }
    }

    fn frames(&mut self) {
        self.0
            .push_str("\n# Frames. `last`: the last of its packet, so that it needs no length.\n");
        for (name, frame) in frames() {
            self.frame(name, &frame, false);
            if written(&frame, true) != written(&frame, false) {
                self.frame(name, &frame, true);
            }
        }
        for (name, frame) in compact_frames() {
            self.frame(name, &frame, true);
        }
        for (name, bytes) in acks() {
            assert!(matches!(frame::read(&mut &bytes[..]), Ok(Some(Frame::Ack(_)))), "{name}");
            self.item("frame").text("fields", name).flag("last", false).hex("bytes", &bytes);
        }
    }

    fn frame(&mut self, name: &str, frame: &Frame, last: bool) {
        let bytes = written(frame, last);
        assert_eq!(frame::read(&mut &bytes[..]), Ok(Some(frame.clone())), "{name}");
        self.item("frame").text("fields", name).flag("last", last).hex("bytes", &bytes);
    }

    fn blocks(&mut self) {
        self.0.push_str("\n# Blocks: the frames of their packets, the shards, the repairs, and the REPAIR frames in\n");
        self.0.push_str(
            "# the packets from `number` on. `lost` are restored from the last of the repairs.\n",
        );
        for (base, stride, repairs, lengths, lost) in [
            (0, 1, 1, &[5][..], &[0][..]),
            (10, 2, 2, &[40, 0, 63], &[0, 2]),
            (100, 1, 5, &[7, 8], &[0, 1]),
            (1000, 3, 2, &[90, 30, 31, 62, 10], &[3, 4]),
            (70_000, 1, 3, &[1, 2, 3, 4, 5, 6, 7, 8, 9], &[0, 4, 8]),
        ] {
            self.block(FecBlock { base, stride, count: lengths.len() }, repairs, lengths, lost);
        }
    }

    fn block(&mut self, block: FecBlock, repairs: usize, lengths: &[usize], lost: &[usize]) {
        let source = |n: usize| -> Vec<u8> {
            (0..lengths[n]).map(|at| (n * 16 + at * 7 + 1) as u8).collect()
        };
        let sources: Vec<Vec<u8>> = (0..block.count).map(source).collect();
        let of = |number| &sources[((number - block.base) / block.stride) as usize][..];
        let encoded = fec::encode(block, repairs, of);
        let first = block.last() + 1;
        let frames: Vec<RepairFrame> =
            encoded.iter().map(|pending| repair_frame(pending, first)).collect();
        let mut decoder = FecDecoder::new(1 << 20);
        let kept = block.numbers().enumerate().filter(|(n, _)| !lost.contains(n));
        kept.for_each(|(n, number)| _ = decoder.store(number, &sources[n]));
        let used = frames.iter().rev().take(lost.len());
        let restored: Vec<(u64, Vec<u8>)> =
            used.flat_map(|repair| decoder.repair(first + repair.index as u64, repair)).collect();
        assert_eq!(restored.len(), lost.len());
        assert!(restored.iter().all(|(number, frames)| frames == of(*number)));
        self.item("block")
            .number("base", block.base)
            .number("stride", block.stride)
            .number("count", block.count as u64)
            .number("repairs", repairs as u64)
            .list("packets", &sources)
            .list(
                "repair_shards",
                &frames.iter().map(|repair| repair.shard.to_vec()).collect::<Vec<_>>(),
            )
            .number("number", first)
            .list(
                "repair_frames",
                &frames
                    .iter()
                    .map(|repair| written(&Frame::Repair(*repair), true))
                    .collect::<Vec<_>>(),
            );
        let lost: Vec<String> = lost.iter().map(usize::to_string).collect();
        writeln!(self.0, "lost = [{}]", lost.join(", ")).unwrap();
    }
}

/// The repair frame for a block whose first repair goes in packet `first`.
fn repair_frame(pending: &PendingRepair, first: u64) -> RepairFrame<'_> {
    let PendingRepair { block, repairs, index, shard } = pending;
    RepairFrame {
        distance: first + *index as u64 - block.base,
        stride: block.stride,
        count: block.count,
        repairs: *repairs,
        index: *index,
        shard,
    }
}

fn written(frame: &Frame, last: bool) -> Vec<u8> {
    let mut out = Vec::new();
    frame.write(&mut out, last);
    out
}

fn snow_shared(private: &[u8; 32], public: &[u8; 32]) -> [u8; 32] {
    let mut dh = crate::keys::secret::x25519();
    dh.set(private);
    let mut shared = [0; 32];
    dh.dh(public, &mut shared).unwrap();
    shared
}

/// One frame of each kind and form.
fn frames() -> Vec<(&'static str, Frame<'static>)> {
    let v4: SocketAddr = "192.0.2.1:80".parse().unwrap();
    let v6: SocketAddr = "[2001:db8::1]:443".parse().unwrap();
    let open_as = |destination: Destination, dscp, compressed| Frame::Open {
        stream: StreamId(6),
        window: 20_000,
        credit: 100_000,
        compressed,
        open: Box::new(StreamOpening { destination, source: v6, dscp }),
    };
    let open = |destination, dscp| open_as(destination, dscp, false);
    let stream =
        |stream, offset, fin, data| Frame::Stream { stream: StreamId(stream), offset, fin, data };
    let named = Destination::Name(HostName::new("server.example").unwrap(), 443);
    let packet = |part| {
        let channel = ChannelId::new(3).unwrap();
        Frame::Packet(ChannelPacket {
            channel,
            lane: 63,
            sequence: TruncatedOffset::new(300),
            part,
            data: b"packet",
        })
    };
    vec![
        ("PING", Frame::Ping),
        ("SETTLED number=16384", Frame::Settled(16_384)),
        (
            "OPEN stream=6 window=20000 credit=100000 destination=192.0.2.1:80 source=[2001:db8::1]:443",
            open(v4.into(), None),
        ),
        ("ACCEPT stream=6", Frame::Accept(StreamId(6))),
        (
            "RESET stream=6 sent=1000 reason=1",
            Frame::Reset { stream: StreamId(6), reason: ResetReason::Refused, sent: 1000 },
        ),
        ("SESSION_CREDIT limit=268435456", Frame::SessionCredit(1 << 28)),
        (
            "STREAM_CREDIT stream=6 returns=1 limit=1073741824",
            Frame::StreamCredit { stream: StreamId(6), returns: 1, limit: 1 << 30 },
        ),
        (
            "RETURN stream=6 returns=2 limit=1008000",
            Frame::Return { stream: StreamId(6), returns: 2, limit: 1_008_000 },
        ),
        ("PATH_CHALLENGE token=0102030405060708", Frame::PathChallenge(0x0102_0304_0506_0708)),
        ("PATH_ANSWER token=0102030405060708", Frame::PathAnswer(0x0102_0304_0506_0708)),
        ("CLOSE reason=1", Frame::Close(CloseReason::Violation)),
        ("MARK", Frame::Mark),
        ("ECN ect0=20000 ce=7", Frame::Ecn(EcnCounts { ect0: 20_000, ce: 7 })),
        ("STREAM stream=6 offset=1000", stream(6, TruncatedOffset::full(1000), false, b"data")),
        (
            "STREAM stream=6 offset=1073741825 FIN",
            stream(6, TruncatedOffset::full(1 << 30 | 1), true, b"data"),
        ),
        ("PACKET channel=3 lane=63 sequence=300", packet(None)),
        (
            "PACKET channel=3 lane=63 sequence=300 offset=100 total=106",
            packet(Some(PacketPart { offset: 100, total: 106 })),
        ),
        (
            "CHANNEL channel=3 deadline=1000",
            Frame::Channel(ChannelAnnouncement {
                channel: ChannelId::new(3).unwrap(),
                deadline: Duration::from_secs(1),
            }),
        ),
        (
            "MARKED OPEN stream=6 window=20000 credit=100000 dscp=46 destination=192.0.2.1:80 source=[2001:db8::1]:443",
            open(v4.into(), Some(46)),
        ),
        (
            "MARKED OPEN stream=6 window=20000 credit=100000 dscp=unknown destination=server.example:443 source=[2001:db8::1]:443",
            open(named, None),
        ),
        (
            "MARKED OPEN stream=6 window=20000 credit=100000 dscp=unknown destination=resolver source=[2001:db8::1]:443",
            open(Destination::Resolver, None),
        ),
        (
            "MARKED OPEN stream=6 window=20000 credit=100000 dscp=unknown exchange=192.0.2.1:80 source=[2001:db8::1]:443",
            open(Destination::Exchange(Host::Address(v4)), None),
        ),
        (
            "MARKED OPEN stream=6 window=20000 credit=100000 dscp=unknown destination=bundles source=[2001:db8::1]:443",
            open(Destination::Bundles, None),
        ),
        (
            "MARKED OPEN stream=6 window=20000 credit=100000 dscp=46 destination=192.0.2.1:80 source=[2001:db8::1]:443 COMPRESSED",
            open_as(v4.into(), Some(46), true),
        ),
        (
            "CONTEXT context=7 inner=none channel=3 lane=63 sequence=300",
            context(HeaderProfile::default()),
        ),
        (
            "CONTEXT context=7 inner=rtp stride=160 channel=3 lane=63 sequence=300 COUNTS",
            context(HeaderProfile { inner: InnerProtocol::Rtp, id_counts: true, stride: 160 }),
        ),
        ("COMPRESSED context=7 distance=300", compressed(false)),
        ("COMPRESSED context=7 distance=300 CHANGED", compressed(true)),
    ]
}

fn context(profile: HeaderProfile) -> Frame<'static> {
    let channel = ChannelId::new(3).unwrap();
    let (slot, lane, sequence) = (7, 63, 300);
    Frame::Context(ContextPacket { slot, profile, channel, lane, sequence, data: b"packet" })
}

fn compressed(has_changed: bool) -> Frame<'static> {
    let data = b"packet";
    Frame::Compressed(CompressedPacket { slot: 7, distance: 300, has_changed, data })
}

fn compact_frames() -> Vec<(&'static str, Frame<'static>)> {
    let stream = |stream, offset, fin| {
        let offset = TruncatedOffset::compact(offset);
        Frame::Stream { stream: StreamId(stream), offset, fin, data: b"data" }
    };
    vec![
        ("compact STREAM stream=6 offset=1000", stream(6, 1000, false)),
        ("compact STREAM stream=14 offset=50331650 FIN", stream(14, (3 << 24) | 2, true)),
        ("compact STREAM stream=15 offset=67108865", stream(15, (1 << 26) | 1, false)),
        ("compact STREAM stream=100 offset=0", stream(100, 0, false)),
    ]
}

fn acks() -> Vec<(&'static str, Vec<u8>)> {
    let held = Duration::from_micros(1500);
    let ack = |times, restored: &[core::ops::Range<u64>]| {
        let mut out = Vec::new();
        let report = AckReport { held, times };
        assert!(frame::write_ack(
            &mut out,
            [90..101, 50..80].into_iter(),
            restored.iter().cloned(),
            &report,
            1000
        ));
        out
    };
    let marks = vec![(100, held), (92, Duration::from_millis(20))];
    let times = ReportedTimes { clock: 0xdead_beef, marks };
    vec![
        ("ACK received=50-79,90-100 held=1500", ack(None, &[])),
        ("ACK received=50-79,90-100 held=1500 restored=95,60-61", ack(None, &[95..96, 60..62])),
        (
            "TIMED ACK received=50-79,90-100 held=1500 clock=deadbeef marks=100:1500,92:20000",
            ack(Some(times), &[]),
        ),
    ]
}
