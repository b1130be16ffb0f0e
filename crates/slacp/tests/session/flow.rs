//! Limits on what streams hold, whatever readers, peers and packets do (`docs/slacp.md`, Flow
//! control).

use core::time::Duration;

use crate::hop::{Hop, Host, Plan, TERMINAL};
use crate::pair::{Pair, address, pass};
use slacp::{Config, Rate, ReadOutcome, StreamId};
use units::{BitRate, ByteCount, Machine};

/// Test data by offset. Offsets with equal compact forms have different bytes.
fn byte(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// A download whose data is verified.
struct Download {
    pair: Pair,
    id: StreamId,
    written: u64,
    read: u64,
}

impl Download {
    fn new(config: Config) -> Self {
        let mut pair = Pair::with(config);
        let id = pair.open();
        Self { pair, id, written: 0, read: 0 }
    }

    fn write_to(&mut self, end: u64) {
        while self.written < end {
            let piece: Vec<u8> = (self.written..end).take(60_000).map(byte).collect();
            let count = self.pair.hub.write(self.pair.ids[1], self.id, &piece).unwrap();
            self.written += count as u64;
            if count < piece.len() {
                return;
            }
        }
    }

    /// Reads all that is available, up to offset `end`.
    fn read_to(&mut self, end: u64) {
        let mut piece = vec![0; 60_000];
        while self.read < end {
            let most = piece.len().min((end - self.read) as usize);
            let read = self.pair.terminal.read(self.pair.ids[0], self.id, &mut piece[..most]);
            let ReadOutcome::Data(count) = read.expect("the session lives") else { return };
            let right = (self.read..).map(byte).take(count).eq(piece[..count].iter().copied());
            assert!(right, "other bytes than were sent at {}", self.read);
            self.read += count as u64;
        }
    }

    /// Data the terminal has or misses and has not read.
    fn held(&self) -> u64 {
        let stats = self.pair.terminal.stream_stats(self.pair.ids[0], self.id);
        stats.expect("the stream lives").held_to_read
    }

    /// Delivers what the hub has to send, except datagram `withheld`, which is returned. Delivers
    /// the answers too if `answered`.
    fn pass(&mut self, withheld: Option<usize>, answered: bool) -> Option<Vec<u8>> {
        let pair = &mut self.pair;
        pair.now += Duration::from_millis(5);
        pair.hub.handle_timeout(pair.now);
        let (mut datagram, mut count, mut kept) = (Vec::new(), 0, None);
        while pair.hub.poll_transmit(pair.now, &mut datagram).is_some() {
            if withheld == Some(count) {
                kept = Some(datagram.clone());
            } else {
                pair.terminal.handle_datagram(pair.now, address(), &mut datagram);
            }
            count += 1;
        }
        if answered {
            pass(pair.now, &mut pair.terminal, &mut pair.hub);
        }
        kept
    }
}

/// The period of compact offsets, in bytes.
const COMPACT: u64 = 1 << 26;

/// Delivers a packet after its stream has moved on by `moved` bytes, none of them read or
/// acknowledged, as happens within a round trip of a fast link.
fn a_late_packet_changes_nothing(window: u64, moved: u64) {
    let mut config = Config::new(BitRate::from_mbit(40_000));
    config.memory = ByteCount::new(window * 10);
    config.stream_window = ByteCount::new(window);
    let mut download = Download::new(config);
    download.write_to(500_000);
    while download.read < 500_000 {
        download.pass(None, true);
        download.read_to(u64::MAX);
    }
    // Little is in flight when it is sent, so its offset is compact.
    download.write_to(1_500_000);
    let mut late = download.pass(Some(20), false).expect("a packet is withheld");
    for _ in 0..1000 {
        download.write_to(500_000 + moved);
        download.pass(None, false);
    }
    assert!(download.held() >= moved, "{}", download.held());
    let pair = &mut download.pair;
    pair.terminal.handle_datagram(pair.now, address(), &mut late);
    for _ in 0..1000 {
        download.read_to(u64::MAX);
        download.write_to(moved + 10_000_000);
        download.pass(None, true);
    }
    assert_eq!(download.read, moved + 10_000_000, "all comes");
}

#[test]
fn a_packet_that_its_stream_has_left_behind_does_not_end_the_session() {
    a_late_packet_changes_nothing(64_000_000, COMPACT / 2 + 5_000_000);
}

#[test]
fn a_packet_that_its_stream_has_left_behind_overwrites_no_good_bytes() {
    a_late_packet_changes_nothing(160_000_000, COMPACT + 10_000_000);
}

/// A download whose reader takes only what fits in the buffers of a client that does not read.
fn stalled(bytes: u64) -> Plan {
    Plan { stalls_after: Some(500_000), ..Plan::new(100, bytes) }
}

/// Duration of a 1 MB download after `others` have stalled.
fn fresh_download(others: usize, per: f64, configure: fn(&mut Config)) -> Duration {
    let mut plans = vec![stalled(20_000_000); others];
    plans.push(Plan::new(100, 1_000_000));
    let mut hop = Hop::geo(per, 1);
    hop.configure = configure;
    let mut net = hop.connected(&plans);
    // One after the other, so that each has the link to itself at first.
    for plan in 0..others {
        let now = net.now();
        net.peers_mut()[TERMINAL].open(now, plan).unwrap();
        net.run_for(Duration::from_millis(600)).unwrap();
    }
    net.run_for(Duration::from_secs(60)).unwrap();
    let start = net.now();
    let id = net.peers_mut()[TERMINAL].open(start, others).unwrap();
    let done = |hosts: &mut [Host]| hosts[TERMINAL].flows[&id].received == 1_000_000;
    let end = net.run_until(done, start + Duration::from_secs(60)).unwrap();
    end.saturating_since(start)
}

#[test]
fn a_download_beside_six_or_sixty_stalled_ones_takes_what_it_takes_alone() {
    let auto = |config: &mut Config| config.rate = Rate::auto();
    let told = |_: &mut Config| {};
    let cases = [(told as fn(&mut Config), vec![60]), (auto, vec![6, 60])];
    for (configure, numbers) in cases {
        let alone = fresh_download(0, 0.0, configure);
        for others in numbers {
            let time = fresh_download(others, 0.0, configure);
            println!("{time:?} beside {others} stalled, {alone:?} alone");
            assert!(time <= alone * 11 / 10, "{time:?} beside {others} stalled, {alone:?} alone");
        }
    }
}

#[test]
fn an_upload_goes_on_beside_one_that_could_take_all_memory() {
    let small = |config: &mut Config| {
        config.memory = ByteCount::new(16_000_000);
        config.stream_window = config.memory;
    };
    let plans = [
        Plan { stalled: true, ..Plan::new(30_000_000, 100) },
        Plan::new(20_000_000, 100),
        Plan { stalled: true, ..Plan::new(30_000_000, 100) },
        Plan::new(20_000_000, 100),
    ];
    let mut net = Hop { configure: small, ..Hop::geo(0.0, 1) }.connected(&plans);
    let start = net.now();
    let ids: Vec<StreamId> =
        (0..4).map(|plan| net.peers_mut()[TERMINAL].open(start, plan).unwrap()).collect();
    let done = |hosts: &mut [Host]| [1, 3].iter().all(|i| hosts[TERMINAL].flows[&ids[*i]].closed);
    net.run_until(done, start + Duration::from_secs(120)).unwrap();
}

/// Reads everything the hub has on a stream; returns how much.
fn drain(pair: &mut Pair, id: StreamId) -> u64 {
    let (mut piece, mut count) = (vec![0; 60_000], 0);
    while let Ok(ReadOutcome::Data(read)) = pair.hub.read(pair.ids[1], id, &mut piece) {
        count += read as u64;
    }
    count
}

#[test]
fn an_upload_that_stopped_for_want_of_memory_goes_on_when_others_are_read() {
    let mut config = Config::new(BitRate::from_mbit(1000));
    config.memory = ByteCount::new(16_000_000);
    config.stream_window = config.memory;
    let mut pair = Pair::with(config);
    let [unread, other] = [(); 2].map(|()| pair.open());
    let piece = vec![7; 1_000_000];
    for _ in 0..13 {
        pair.terminal.write(pair.ids[0], unread, &piece).unwrap();
        pair.exchange();
    }
    let mut read = 0;
    for round in 0..1000 {
        if round == 30 {
            assert!(drain(&mut pair, unread) > 0);
        }
        pair.terminal.write(pair.ids[0], other, &piece).unwrap();
        pair.exchange();
        read += drain(&mut pair, other);
        if read > 30_000_000 {
            return;
        }
    }
    panic!("{read} bytes");
}
