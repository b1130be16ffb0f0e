//! A malicious peer with a valid key: how much it can make a session hold, and what ends the
//! session.

use core::ops::Range;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng as _};
use units::ByteCount;

use super::*;
use crate::channels::ErrorControl;
use crate::keys::crypto::{BLOCK, PacketCipher, PacketKey};
use crate::keys::phases::KeyLimits;
use crate::recovery::fec::{
    FecBlock, MAX_BLOCK, MAX_REPAIRS, MAX_STRIDE, PendingRepair, REPAIR_HEAD,
};
use crate::spare::ENTRY;
use crate::wire::ecn::EcnCounts;
use crate::wire::frame;
use crate::wire::frame::{
    AckReport, ChannelAnnouncement, ChannelPacket, Frame, PacketPart, RepairFrame, TruncatedOffset,
    write_ack,
};
use crate::wire::packet::{Datagram, TAG, parse};
use crate::{
    ChannelConfig, CloseReason, DownReason, EcnState, Rate, ResetReason, StreamId, StreamOpening,
};

/// Memory limit of the sessions in these tests, per kind.
const MEMORY: u64 = 2_000_000;
/// Bound on the total memory of a session: once each for streams received and sent, twice for data
/// in flight, half for FEC, a quarter for channels; plus two entries for each range of received
/// packets and the queues of four channels.
const BOUND: u64 = 4 * MEMORY + 3 * MEMORY / 4 + (2 << 14) * ENTRY as u64 + 4_000_000;

fn at(ms: u64) -> Instant {
    Instant::from_nanos(1_000_000_000 + ms * 1_000_000)
}

fn config() -> Config {
    // No probes of the path's MTU.
    let (memory, mtu) = (ByteCount::new(MEMORY), 1280);
    let mut config = Config { memory, mtu, ..Config::new(BitRate::from_mbit(50)) };
    let kinds = [ErrorControl::None, ErrorControl::Fec, ErrorControl::Arq, ErrorControl::FecArq];
    for (channel, kind) in (0..).filter_map(ChannelId::new).zip(kinds) {
        config.add_channel(channel, ChannelConfig::new(kind)).unwrap();
    }
    config
}

/// A session on the hub's side.
fn session(config: &Config) -> Session {
    let key = || PacketKey::new(PacketCipher::ChaCha20Poly1305, &[7; 32]);
    let (cipher, chain) = (PacketCipher::ChaCha20Poly1305, Secret::new([7; 32]));
    let keys = HandshakeKeys { cipher, send: key(), recv: key(), name: 1, token: 2, chain };
    let address = SocketAddr::from(([192, 0, 2, 1], 5900));
    let (key, limits) = (PublicKey([1; 32]), limits(config));
    let (rate, times) = (config.rate.initial(), Some(true));
    let (ecn, link_layer, leaving) = (true, true, true);
    let successor = true;
    let peer = Peer {
        key,
        address,
        index: 1,
        limits,
        rate,
        times,
        ecn,
        link_layer,
        leaving,
        successor,
        address_parameter: None,
    };
    Session::new(at(0), config, keys, &peer, true, None, &Secret::new([8; 32]))
}

fn frame(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.write(&mut bytes, true);
    bytes
}

fn ack(range: Range<u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let none = core::iter::empty();
    write_ack(&mut bytes, core::iter::once(range), none, &AckReport::default(), 1400);
    bytes
}

/// Sends everything the session has now; returns the packet numbers.
fn transmit(session: &mut Session, now: Instant) -> Vec<u64> {
    session.handle_timeout(now);
    let (mut out, mut numbers) = (Vec::new(), Vec::new());
    let mut number = session.first().sender.sent.next_number();
    while session.transmit(now, &mut out).is_some() {
        out.clear();
        numbers.push(number);
        number = session.first().sender.sent.next_number();
    }
    numbers
}

/// Sends everything the session has now; returns its sizes on the wire.
fn sizes(session: &mut Session, now: Instant) -> Vec<u64> {
    session.handle_timeout(now);
    let mut out = Vec::new();
    let sent = core::iter::from_fn(|| {
        out.clear();
        session.transmit(now, &mut out).map(|sent| sent.size.get())
    });
    sent.collect()
}

/// Delivers a sealed packet to the session.
fn deliver(session: &mut Session, now: Instant, number: u64, frames: &[u8]) {
    deliver_with(session, now, number, Ecn::NotEct, frames);
}

fn deliver_with(session: &mut Session, now: Instant, number: u64, ecn: Ecn, frames: &[u8]) {
    let header = PacketHeader::new(1, number, 0, false);
    let mut packet = Vec::new();
    header.write(&mut packet);
    packet.extend_from_slice(frames);
    let key = PacketKey::new(PacketCipher::ChaCha20Poly1305, &[7; 32]);
    key.seal(number, 0..header.len(), &mut packet);
    assert!(session.handle_packet(now, session.address(), ecn, &header, &mut packet));
}

#[test]
fn a_closing_session_sends_close_alone_and_takes_nothing_else() {
    let mut session = session(&config());
    session.send_packet(at(0), ChannelId(1), &[0x45; 1000]).unwrap();
    session.close(at(1), CloseReason::Shutdown);
    assert!(!session.is_usable() && !session.is_over() && session.poll_event().is_none());
    // A CLOSE of one byte, or two with its reason.
    let close = sizes(&mut session, at(1));
    assert!(close.len() == 1 && close[0] < 28 + 40, "{close:?}");
    deliver(&mut session, at(2), 0, &frame(&Frame::Settled(7)));
    assert_eq!(failure(&session), None, "a violation is no longer noticed");
    let later: usize = (2..1000).map(|ms| sizes(&mut session, at(ms)).len()).sum();
    assert_eq!(later, 2, "copies after 50 and 150 ms");
    deliver(&mut session, at(1000), 1, &frame(&Frame::Ping));
    assert!(sizes(&mut session, at(1099)).is_empty());
    assert_eq!(sizes(&mut session, at(1100)).len(), 1, "a peer that keeps sending hears again");
    deliver(&mut session, at(1101), 2, &frame(&Frame::Close(CloseReason::Shutdown)));
    assert!(session.is_over());
    assert!(sizes(&mut session, at(1200)).is_empty());
    assert_eq!((session.poll_timeout(), session.send_time()), (None, None));
}

#[test]
fn a_closed_session_sends_nothing() {
    let mut session = session(&config());
    session.send_packet(at(0), ChannelId(1), &[0x45; 1000]).unwrap();
    deliver(&mut session, at(1), 0, &frame(&Frame::Close(CloseReason::Shutdown)));
    assert!(session.is_over() && !session.is_usable());
    assert!(sizes(&mut session, at(2)).is_empty());
    session.close(at(3), CloseReason::Violation);
    assert!(session.is_over() && sizes(&mut session, at(3)).is_empty());
    let end = session.take_end();
    assert_eq!(end, Some(DownReason::ClosedByPeer(CloseReason::Shutdown)));
}

/// A session whose packet 0 was sent at 1 ms and is not acknowledged, until it is unreachable; and
/// when that was, in milliseconds.
fn unreachable() -> (Session, u64) {
    let mut session = session(&config());
    session.ping();
    transmit(&mut session, at(1));
    let noticed = (2..10_000).find(|ms| {
        transmit(&mut session, at(*ms));
        !session.is_connected()
    });
    assert_eq!(session.poll_event(), Some(Event::Unreachable));
    (session, noticed.unwrap())
}

#[test]
fn during_an_outage_only_probes_leave() {
    let (mut session, noticed) = unreachable();
    session.send_packet(at(noticed), ChannelId(1), &[0x45; 1000]).unwrap();
    let sent: Vec<u64> =
        (noticed..noticed + 5000).flat_map(|ms| sizes(&mut session, at(ms))).collect();
    assert!(!sent.is_empty() && sent.iter().all(|size| *size < 200), "{sent:?}");
    assert!(session.is_usable() && !session.is_connected());
}

#[test]
fn a_peer_that_was_silent_gets_data_on_trial_until_it_acknowledges_none() {
    let (mut session, noticed) = unreachable();
    let back = noticed + 5000;
    session.send_packet(at(back), ChannelId(1), &[0x45; 1000]).unwrap();
    session.take_authentic(at(back), 0, &frame(&Frame::Ping));
    assert!(!session.is_connected() && !session.first().outage.is_frozen());
    assert!(sizes(&mut session, at(back)).iter().any(|size| *size > 1000));
    let end = (back..back + 10_000).find(|ms| {
        transmit(&mut session, at(*ms));
        session.first().outage.is_frozen()
    });
    assert!(end.is_some() && !session.is_connected(), "{end:?}");
}

#[test]
fn only_an_acknowledgement_of_what_was_sent_during_it_ends_an_outage() {
    let (mut session, noticed) = unreachable();
    session.take_authentic(at(noticed), 0, &ack(0..1));
    assert!(!session.is_connected(), "packet 0 was sent before");
    let probes: Vec<u64> =
        (noticed..noticed + 3000).flat_map(|ms| transmit(&mut session, at(ms))).collect();
    let newest = *probes.last().unwrap();
    session.take_authentic(at(noticed + 3000), 1, &ack(newest..newest + 1));
    assert!(session.is_connected());
    assert_eq!(session.poll_event(), Some(Event::Reachable));
}

#[test]
fn an_outage_that_lasts_too_long_ends_the_session() {
    let (mut session, noticed) = unreachable();
    let end = noticed + config().give_up.as_millis() as u64;
    session.handle_timeout(at(end - 1));
    assert!(session.is_usable());
    session.handle_timeout(at(end));
    assert!(session.is_over());
    assert_eq!(session.take_end(), Some(DownReason::GivenUp));
}

fn failure(session: &Session) -> Option<String> {
    session.stats().failure.map(|failure| failure.to_string())
}

fn closed_for(frames: &[u8]) -> Option<String> {
    let mut session = session(&config());
    session.ping();
    transmit(&mut session, at(1));
    session.take_authentic(at(2), 5, frames);
    let failed = failure(&session);
    assert_eq!(failed.is_some(), session.take_end() == Some(DownReason::Violation));
    failed
}

#[test]
fn contradictions_end_the_session() {
    assert_eq!(closed_for(&ack(0..1)), None);
    let unsent = closed_for(&ack(0..2)).unwrap();
    assert_eq!(unsent, "packet 1 is acknowledged, but 1 has not been sent yet");
    assert_eq!(closed_for(&frame(&Frame::Settled(5))), None);
    let settled = closed_for(&frame(&Frame::Settled(6))).unwrap();
    assert_eq!(settled, "packet 5 settles all packets below 6");
    let twice = closed_for(&[ack(0..1), ack(0..1)].concat()).unwrap();
    assert_eq!(twice, "two acknowledgements in one packet");
    assert!(closed_for(&[0x7f]).unwrap().starts_with("malformed frame"));
}

#[test]
fn a_peer_that_acknowledges_ahead_of_what_comes_is_found_out() {
    let mut session = session(&config());
    for n in 0..4096 {
        session.ping();
        transmit(&mut session, at(n));
        // Anything in flight may have been lost.
        session.take_authentic(at(n), n, &ack(0..session.first().sender.sent.next_number()));
        if !session.is_usable() {
            assert!(failure(&session).unwrap().ends_with("was skipped"));
            return;
        }
    }
    panic!("no number was skipped");
}

/// Delivers a packet with `frames` to a session every millisecond, with numbers `step` apart. The
/// session must survive within its memory bound.
fn flooded(step: u64, packets: u64, frames: impl Fn(u64) -> Vec<u8>) -> Session {
    let mut session = session(&config());
    for n in 0..packets {
        session.take_authentic(at(n), n * step, &frames(n));
        transmit(&mut session, at(n));
        assert!(session.is_usable(), "{:?}", failure(&session));
        let held = session.stats().held.get();
        assert!(held <= BOUND, "{held} bytes after {n} packets");
    }
    session
}

#[test]
fn blocks_that_never_complete_take_no_more_than_half_the_memory() {
    let shard = [7; 1200];
    let repair = |n: u64| {
        let distance = (n + 1).min(300);
        RepairFrame {
            distance,
            stride: 1,
            count: distance as usize % 200 + 1,
            repairs: 250,
            index: 3,
            shard: &shard,
        }
    };
    // Every second number never arrives.
    let session = flooded(2, 20_000, |n| frame(&Frame::Repair(repair(n))));
    assert!(session.first().receiver.decoder.held() as u64 <= MEMORY / 2);
}

#[test]
fn numbers_left_out_take_memory_up_to_a_bound() {
    let session = flooded(2, 40_000, |_| frame(&Frame::Ping));
    assert!(session.first().receiver.received.held() <= (1 << 14) * ENTRY);
    flooded(1 << 30, 10_000, |_| frame(&Frame::Ping));
}

#[test]
fn pings_and_challenges_get_no_more_answers_than_are_due() {
    let mut session = session(&config());
    let floods: Vec<u8> = (0..100).flat_map(|n| frame(&Frame::PathChallenge(n))).collect();
    let mut answers = 0;
    for n in 0..1000 {
        session.take_authentic(at(n), n, &floods);
        answers += transmit(&mut session, at(n)).len();
    }
    // At most eight are queued.
    assert!(answers <= 8 * 1000 + 10, "{answers}");
    let mut session = flooded(1, 1, |_| frame(&Frame::Ping));
    let acknowledgements = (1..10_000).map(|n| {
        session.take_authentic(at(n), n, &frame(&Frame::Ping));
        transmit(&mut session, at(n)).len()
    });
    // One in 25 ms, plus this side's own PINGs.
    assert!(acknowledgements.sum::<usize>() <= 10_000 / 25 * 2);
}

#[test]
fn parts_of_packets_that_never_become_whole_take_what_came_of_them() {
    let packet = |n: u64| {
        let part = Some(PacketPart { offset: (n % 100 * 600) as usize, total: 65_535 });
        let sequence = TruncatedOffset::new(n * 7);
        let channel = ChannelId(n as u8 % 4);
        ChannelPacket { channel, lane: (n / 4 % 64) as u8, sequence, part, data: &[1] }
    };
    let session = flooded(1, 200, |n| frame(&Frame::Packet(packet(n))));
    assert!(session.shared.inbound.held() < 200 * 5 * ENTRY, "{}", session.shared.inbound.held());
    let session = flooded(1, 50_000, |n| frame(&Frame::Packet(packet(n))));
    assert!(session.shared.inbound.held() as u64 <= MEMORY / 4);
}

#[test]
fn a_peer_that_acknowledges_nothing_is_sent_no_more_than_memory_allows() {
    let give_up = Duration::from_secs(7200);
    let mut session = session(&Config { give_up, ..config() });
    let (mut now, mut longest) = (0, 0);
    for n in 0.. {
        let _ = session.send_packet(at(now), ChannelId(1), &[0x45; 1000]);
        // The peer shows that it is alive.
        session.take_authentic(at(now), n, &frame(&Frame::Ping));
        if !session.is_usable() {
            break;
        }
        transmit(&mut session, at(now));
        longest = longest.max(session.first().sender.sent.held() as u64);
        if now == 20_000 {
            assert!(longest < MEMORY * 8 / 5, "{longest} bytes");
        }
        now += if now < 20_000 { 1 } else { 100 };
    }
    // Probes and acknowledgements go on for at least ten minutes.
    assert!(longest < MEMORY * 2 + 10_000 && now > 600_000, "{longest} bytes in {now} ms");
    assert!(failure(&session).unwrap().contains("are not acknowledged"));
}

#[test]
fn streams_opened_and_reset_for_ever_have_no_more_answered_than_streams_are_allowed() {
    let config = Config { max_streams: 100, ..config() };
    let mut session = session(&config);
    let address = SocketAddr::from(([192, 0, 2, 7], 80));
    let open = Box::new(StreamOpening { destination: address.into(), source: address, dscp: None });
    for n in 0..10_000 {
        let stream = StreamId(2 * n);
        let opened = frame(&Frame::Open {
            stream,
            window: 1000,
            credit: 0,
            compressed: false,
            open: open.clone(),
        });
        let reset = frame(&Frame::Reset { stream, reason: ResetReason::Reset, sent: 0 });
        // Nothing is sent meanwhile.
        session.take_authentic(at(n), n, &[opened, reset].concat());
        while session.poll_event().is_some() {}
        assert!(session.stats().held.get() < 1_000_000, "{n}: {:?}", session.stats());
        if !session.is_usable() {
            assert!(n >= 4 * 100, "after {n} streams");
            return;
        }
    }
    panic!("the session goes on: {:?}", session.stats());
}

#[test]
fn held_memory_counts_fec_channels_and_data_in_flight() {
    const SIZE: usize = 1000;
    let grows_by = |size: usize, what: &dyn Fn(&mut Session)| {
        let mut session = session(&config());
        let before = session.stats().held.get();
        what(&mut session);
        let grown = session.stats().held.get() - before;
        assert!(grown >= size as u64, "{grown} of {size} bytes");
    };
    let send = |session: &mut Session| {
        session.send_packet(at(1), ChannelId(2), &[0x45; SIZE]).unwrap();
    };
    grows_by(SIZE, &send);
    grows_by(SIZE, &|session| {
        send(session);
        assert_eq!(transmit(session, at(1)).len(), 1);
        assert_eq!(session.shared.outbound.held(), 0, "it is under way");
    });
    let (distance, shard) = (100, &[7; SIZE][..]);
    let repair = RepairFrame { distance, stride: 1, count: 50, repairs: 3, index: 0, shard };
    grows_by(SIZE, &|session| session.take_authentic(at(1), 100, &frame(&Frame::Repair(repair))));
    let part = Some(PacketPart { offset: 0, total: 2 * SIZE });
    let (sequence, data) = (TruncatedOffset::new(0), &[7; SIZE][..]);
    let packet = || ChannelPacket { channel: ChannelId(0), lane: 0, sequence, part, data };
    grows_by(SIZE, &|session| session.take_authentic(at(1), 0, &frame(&Frame::Packet(packet()))));
    grows_by(999 * ENTRY, &|session| {
        (0..1000).for_each(|n| session.take_authentic(at(n), 2 * n, &frame(&Frame::Ping)));
    });
}

#[test]
fn a_frame_that_cannot_leave_waits_once_however_often_it_is_asked_for() {
    let mut session = session(&config());
    let frames = [Frame::Accept(StreamId(0)), Frame::Accept(StreamId(2))];
    let before = session.shared.streams.overhead();
    for _ in 0..1000 {
        frames.iter().for_each(|frame| session.shared.streams.on_control_lost(frame.clone()));
    }
    assert_eq!(session.shared.streams.overhead() - before, 2 * size_of::<Frame>());
}

#[test]
fn a_terminal_that_never_renews_the_keys_is_shown_out() {
    let limits = KeyLimits { sealed: 100, forged: 50 };
    let config = Config { key_limits: limits, ..config() };
    let mut hub = session(&config);
    for n in 0..99 {
        hub.ping();
        assert_eq!(transmit(&mut hub, at(n)).len(), 1);
    }
    assert!(hub.is_usable());
    hub.ping();
    transmit(&mut hub, at(100));
    assert_eq!(hub.take_end(), Some(DownReason::Violation));
    assert!(failure(&hub).unwrap().starts_with("100 packets are sealed with one key"));
}

#[test]
fn forgeries_beyond_the_integrity_limit_end_the_session() {
    let limits = KeyLimits { sealed: 100, forged: 50 };
    let config = Config { key_limits: limits, ..config() };
    let mut hub = session(&config);
    let header = PacketHeader::new(1, 7, 0, false);
    let mut forged = Vec::new();
    header.write(&mut forged);
    forged.extend([3; 40]);
    for n in 0..49 {
        assert!(!hub.handle_packet(
            at(n),
            hub.address(),
            Ecn::NotEct,
            &header,
            &mut forged.clone()
        ));
    }
    assert!(hub.is_usable());
    hub.handle_packet(at(50), hub.address(), Ecn::NotEct, &header, &mut forged);
    assert_eq!(hub.take_end(), Some(DownReason::Violation));
}

/// Sends random frames of every kind that makes a session hold state, most of them valid.
struct Adversary {
    rng: ChaCha20Rng,
    number: u64,
    /// Numbers of the packets received so far.
    came: Vec<u64>,
}

impl Adversary {
    fn below(&mut self, end: u64) -> u64 {
        self.rng.next_u64() % end
    }

    fn number(&mut self) -> u64 {
        let jump = match self.below(100) {
            0 => self.below(1 << 31),
            1..5 => self.below(1000),
            5..30 => 2,
            _ => 1,
        };
        self.number += jump;
        self.number
    }

    fn frame(&mut self) -> Vec<u8> {
        match self.below(10) {
            0 if !self.came.is_empty() => {
                let place = self.below(self.came.len() as u64) as usize;
                ack(self.came[place]..self.came[place] + 1)
            }
            1 => {
                let behind = self.below(5000);
                frame(&Frame::Settled(self.number.saturating_sub(behind)))
            }
            2 => frame(&Frame::PathChallenge(self.below(9))),
            3 => frame(&Frame::Mark),
            4 => {
                let deadline = Duration::from_millis(self.below(10_000));
                let channel = ChannelId(self.below(5) as u8);
                frame(&Frame::Channel(ChannelAnnouncement { channel, deadline }))
            }
            5..8 => self.packet(),
            _ => frame(&Frame::Ping),
        }
    }

    fn packet(&mut self) -> Vec<u8> {
        let data = vec![1; 1 + self.below(200) as usize];
        let offset = self.below(60_000) as usize;
        let part = (self.below(2) == 0).then(|| PacketPart { offset, total: offset + 1000 });
        let sequence = TruncatedOffset::new(self.below(1 << 20));
        let (channel, lane) = (ChannelId(self.below(5) as u8), self.below(64) as u8);
        let mut bytes = Vec::new();
        Frame::Packet(ChannelPacket { channel, lane, sequence, part, data: &data })
            .write(&mut bytes, false);
        bytes
    }

    fn repair(&mut self) -> Vec<u8> {
        let shard = vec![self.below(256) as u8; 2 * (1 + self.below(600) as usize)];
        let (count, repairs) =
            (1 + self.below(MAX_BLOCK as u64), 1 + self.below(MAX_REPAIRS as u64));
        let strides = if self.below(9) == 0 { MAX_STRIDE } else { 3 };
        let stride = 1 + self.below(strides);
        let distance = 1 + (count - 1) * stride + self.below(20);
        let index = self.below(repairs) as usize;
        let [count, repairs] = [count, repairs].map(|n| n as usize);
        frame(&Frame::Repair(RepairFrame {
            distance,
            stride,
            count,
            repairs,
            index,
            shard: &shard,
        }))
    }

    fn frames(&mut self) -> Vec<u8> {
        let (mut frames, mut acknowledged) = (Vec::new(), false);
        for _ in 0..self.below(6) {
            let next = self.frame();
            let is_ack = frame::is_ack(next[0]);
            if !(is_ack && acknowledged) {
                frames.extend(next);
                acknowledged |= is_ack;
            }
        }
        if self.below(2) == 0 {
            frames.extend(self.repair());
        }
        frames
    }
}

#[test]
fn whatever_a_peer_sends_a_session_stays_within_its_bound() {
    let mut longest = 0;
    for seed in 0..20 {
        let rng = ChaCha20Rng::seed_from_u64(seed);
        let mut adversary = Adversary { rng, number: 0, came: Vec::new() };
        let mut session = session(&config());
        for n in 0..3000 {
            let now = at(n);
            let number = adversary.number();
            let frames = adversary.frames();
            session.take_authentic(now, number, &frames);
            assert!(session.is_usable(), "seed {seed}, packet {n}: {:?}", failure(&session));
            if n % 3 == 0 {
                let _ = session.send_packet(now, ChannelId(n as u8 % 4), &[0x45; 700]);
            }
            adversary.came.extend(transmit(&mut session, now));
            let held = session.stats().held.get();
            assert!(held <= BOUND, "seed {seed}, packet {n}: {held} bytes");
            longest = longest.max(held);
        }
        while session.shared.inbound.poll().is_some() {}
    }
    assert!(longest > MEMORY / 4, "{longest} bytes: the adversary is too kind");
}

/// A session with `count` repairs of size `shard` waiting to be sent.
fn with_repairs(rate: Rate, count: usize, shard: usize) -> Session {
    let mut session = session(&Config { rate, ..config() });
    session.ping();
    transmit(&mut session, at(1));
    for index in 0..count {
        let block = FecBlock { base: 0, stride: 1, count: 1 };
        let shard = vec![1; shard];
        session.first_mut().sender.planner.push(PendingRepair {
            block,
            repairs: count,
            index,
            shard,
        });
    }
    session
}

#[test]
fn repairs_too_large_for_the_path_hold_up_nothing() {
    let mut session = with_repairs(BitRate::from_mbit(50).into(), 9, 1400);
    let address = SocketAddr::from(([192, 0, 2, 1], 80));
    let open = StreamOpening { destination: address.into(), source: address, dscp: None };
    session.shared.streams.open(open).unwrap();
    let mut out = Vec::new();
    // The first packet belongs to the stream: a turn without one would be wasted.
    assert!(session.transmit(at(2), &mut out).is_some());
    assert!(
        session.first().sender.planner.next().is_none() && !session.shared.streams.has_urgent()
    );
    session.shared.streams.finish(StreamId(1)).unwrap();
}

#[test]
fn small_packets_do_not_keep_out_a_repair_that_fits_alone() {
    // Room in a packet of 1280 bytes after the headers of IP and UDP, the SLACP header and the tag.
    let most = 1280 - 28 - TAG - PacketHeader::MAX_LEN - REPAIR_HEAD;
    for shard in (most - 12)..=most {
        let mut session = with_repairs(Rate::Auto { ceiling: None, probe: false }, 3, shard);
        let packets = transmit(&mut session, at(2)).len();
        assert!(packets <= 4, "{packets} packets for three repairs of {shard} bytes");
        assert!(session.first().sender.planner.next().is_none());
    }
}

/// The most bytes of frames in a packet of a session of this rate whose link is known to be clean.
fn longest_frames(rate: BitRate) -> usize {
    let mut session = session(&Config { rate: rate.into(), ..config() });
    (0..1000).for_each(|_| session.first_mut().loss.record(at(0), false));
    let address = SocketAddr::from(([192, 0, 2, 1], 80));
    let open = StreamOpening { destination: address.into(), source: address, dscp: None };
    let stream = session.shared.streams.open(open).unwrap();
    assert_eq!(session.shared.streams.write(stream, &[7; 20_000]), Ok(20_000));
    let (mut out, mut longest) = (Vec::new(), 0);
    while session.transmit(at(1), &mut out).is_some() {
        let Some(Datagram::Data(header)) = parse(&out) else { panic!("no packet of data") };
        longest = longest.max(out.len() - header.len() - TAG);
        out.clear();
    }
    longest
}

#[test]
fn packets_of_a_fast_clean_link_end_with_a_whole_block() {
    let [fast, slow] = [1000, 999].map(|mbit| longest_frames(BitRate::from_mbit(mbit)));
    assert!(fast % BLOCK == 0 && slow % BLOCK != 0 && fast >= slow, "{fast}, {slow}");
}

/// A session that measures its rate and has tested its path for ECN, and an acknowledgement of
/// everything it has sent.
fn tested() -> (Session, u64, Vec<u8>) {
    let mut session = session(&Config { rate: Rate::auto(), ..config() });
    for _ in 0..30 {
        session.send_packet(at(0), ChannelId(1), &[0x45; 1000]).unwrap();
    }
    (0..50).for_each(|ms| _ = transmit(&mut session, at(ms)));
    let ect = session.stats().ect_sent;
    assert!((5..=10).contains(&ect), "{ect}");
    let all = ack(0..session.first().sender.sent.next_number());
    (session, ect, all)
}

fn counted(session: &mut Session, number: u64, ect0: u64, ce: u64, ack: &[u8]) -> EcnState {
    let frames = [&frame(&Frame::Ecn(EcnCounts { ect0, ce })), ack].concat();
    session.take_authentic(at(100), number, &frames);
    assert!(session.is_usable(), "no count ends a session");
    session.stats().ecn
}

#[test]
fn true_counts_make_a_path_capable_and_marks_are_passed_on() {
    let (mut session, ect, all) = tested();
    assert_eq!(counted(&mut session, 0, ect - 2, 2, &all), EcnState::Capable);
    assert_eq!(session.stats().ce_reported, 2);
}

#[test]
fn counts_that_cannot_be_true_end_ecn_but_not_the_session() {
    let most = crate::wire::varint::MAX;
    let (_, ect, _) = tested();
    for (ect0, ce) in [(0, 0), (ect - 1, 0), (ect + 1, 0), (ect, 1), (0, most), (most, most)] {
        let (mut session, _, all) = tested();
        assert_eq!(counted(&mut session, 0, ect0, ce, &all), EcnState::Failed, "{ect0} {ce}");
        assert_eq!(session.stats().ce_reported, 0);
        session.send_packet(at(200), ChannelId(1), &[0x45; 1000]).unwrap();
        (200..250).for_each(|ms| _ = transmit(&mut session, at(ms)));
        assert_eq!(session.stats().ect_sent, ect);
    }
}

#[test]
fn counts_that_decrease_end_ecn_unless_they_are_old() {
    let (mut session, ect, all) = tested();
    assert_eq!(counted(&mut session, 5, ect - 2, 2, &all), EcnState::Capable);
    assert_eq!(counted(&mut session, 4, ect - 3, 0, &all), EcnState::Capable);
    assert_eq!(counted(&mut session, 6, ect - 1, 1, &all), EcnState::Failed);
}

#[test]
fn an_acknowledgement_grows_by_three_bytes_twice_if_a_codepoint_came() {
    let mut session = session(&config());
    let mut number = 0;
    let mut answer = |ecn| {
        let (now, ping) = (at(number * 1000), frame(&Frame::Ping));
        deliver_with(&mut session, now, number, ecn, &ping);
        number += 1;
        // Bytes in the session's first acknowledgements differ by nothing else.
        sizes(&mut session, now + Duration::from_millis(25))[0]
    };
    let plain = answer(Ecn::NotEct);
    let codepoints =
        [Ecn::Ce, Ecn::NotEct, Ecn::NotEct, Ecn::Ect0, Ecn::Ect0, Ecn::Ect1, Ecn::Ect1];
    let grown = codepoints.map(|ecn| answer(ecn) - plain);
    assert_eq!(grown, [3, 3, 0, 3, 3, 3, 0]);
}

/// One packet of the hop takes it whole, also the first, which announces its channel. A little more is
/// cut in two.
#[test]
fn the_longest_whole_packet_is_not_split() {
    for link_layer in [false, true] {
        let mut session = session(&Config { link_layer, ..config() });
        let longest = session.longest_whole_packet();
        assert!(longest >= 1_200, "{longest} of 1280");
        for (ms, more, packets) in [(0, 0, 1), (1_000, 0, 1), (2_000, 100, 2)] {
            session.send_packet(at(ms), ChannelId(1), &vec![0x45; longest + more]).unwrap();
            let sizes = [ms, ms + 10].map(|ms| sizes(&mut session, at(ms))).concat();
            let carrying = sizes.iter().filter(|size| **size > 100).count();
            assert_eq!(carrying, packets, "{link_layer}, {more}: {sizes:?}");
        }
    }
}

/// A newcomer with its key must not displace it while the other one is silent.
#[test]
fn any_link_of_a_session_shows_that_it_lives() {
    let addresses = [[192u8, 0, 2, 1], [198, 51, 100, 1]].map(|ip| SocketAddr::from((ip, 5900)));
    for living in [0, 1] {
        let [mut session, mut other] = [(); 2].map(|()| session(&config()));
        let mut joining = other.paths.swap_remove(0);
        session.enable_links(0);
        joining.join(1, 2);
        session.join(at(8000), joining);
        for (path, address) in session.paths.iter_mut().zip(addresses) {
            path.remote.address = address;
        }
        let activity = &mut session.paths[living].activity;
        (activity.heard, activity.acknowledged) = (at(7000), at(6000));
        for newcomer in addresses {
            let shown = session.incumbent(newcomer.ip());
            let signs = (shown.heard, shown.acknowledged, shown.is_near);
            assert_eq!(signs, (at(7000), at(6000), true), "link {living}, {newcomer}");
        }
    }
}
