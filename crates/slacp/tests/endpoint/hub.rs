//! A hub shares its rate among several terminals.

use core::time::Duration;
use std::net::SocketAddr;

use slacp::{
    ChannelConfig, ChannelId, ClassConfig, ClassId, ClassRates, CloseReason, Config, Endpoint,
    ErrorControl, Event, KeyPair, Rate, RateState, SessionId, SessionShare,
};
use units::{BitRate, Instant, Machine};

const TERMINALS: u8 = 3;

fn key(seed: u8) -> KeyPair {
    KeyPair::from_private([seed; 32])
}

/// The address of terminal `n`, or of the hub, which is number 0.
fn address(n: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, n], 5900))
}

fn channel() -> ChannelId {
    ChannelId::new(0).unwrap()
}

/// The channel of the class "voice".
fn voice_channel() -> ChannelId {
    ChannelId::new(1).unwrap()
}

/// A configuration with a second class, and that class.
fn with_voice() -> (Config, ClassId) {
    let mut config = Config::new(BitRate::from_mbit(10));
    let plain = ChannelConfig::new(ErrorControl::None);
    config.add_channel(channel(), plain).unwrap();
    let class = config.add_class(ClassConfig::default()).unwrap();
    config.add_channel(voice_channel(), ChannelConfig { class, ..plain }).unwrap();
    (config, class)
}

fn config() -> Config {
    with_voice().0
}

/// A hub and its terminals on links without delay or limit.
struct Star {
    now: Instant,
    hub: Endpoint,
    terminals: Vec<Endpoint>,
    /// The hub's sessions, by terminal.
    sessions: Vec<SessionId>,
    /// Maximum size of a datagram that reaches each terminal.
    largest: Vec<usize>,
    /// One in this many datagrams reaches each terminal.
    one_in: Vec<u64>,
    /// Datagrams of the hub so far.
    departed: u64,
}

impl Star {
    fn new() -> Self {
        Self::with(BitRate::from_mbit(10).into())
    }

    /// With a hub that gets its rate from `rate`.
    fn with(rate: Rate) -> Self {
        let allow = (1..=TERMINALS).map(|n| key(n).public()).collect();
        let mut config_of_hub = config();
        config_of_hub.rate = rate;
        let hub = Endpoint::hub(config_of_hub, key(100), allow, [1; 32]);
        let terminal = |n| {
            let hub = key(100).public();
            Endpoint::terminal(config(), key(n), hub, vec![address(0)], [n; 32])
        };
        let now = Instant::from_nanos(1_000_000_000);
        let terminals = (1..=TERMINALS).map(terminal).collect();
        let largest = vec![usize::MAX; usize::from(TERMINALS)];
        let one_in = vec![1; usize::from(TERMINALS)];
        let sessions = Vec::new();
        let mut star = Self { now, hub, terminals, sessions, largest, one_in, departed: 0 };
        (0..10).for_each(|_| star.step());
        let mut up = Vec::new();
        while let Some((session, event)) = star.hub.poll_event() {
            if let Event::Up { address, .. } = event {
                up.push((address, session));
            }
        }
        up.sort();
        star.sessions = up.into_iter().map(|(_, session)| session).collect();
        assert_eq!(star.sessions.len(), usize::from(TERMINALS));
        star
    }

    /// Advances time by a millisecond.
    fn step(&mut self) {
        self.now += Duration::from_millis(1);
        let mut buf = Vec::new();
        self.hub.handle_timeout(self.now);
        for (n, terminal) in (1..).zip(&mut self.terminals) {
            terminal.handle_timeout(self.now);
            while terminal.poll_transmit(self.now, &mut buf).is_some() {
                self.hub.handle_datagram(self.now, address(n), &mut buf);
            }
        }
        while let Some(to) = self.hub.poll_transmit(self.now, &mut buf) {
            let SocketAddr::V4(to) = to else { panic!() };
            let n = usize::from(to.ip().octets()[3]) - 1;
            self.departed += 1;
            if buf.len() <= self.largest[n] && self.departed.is_multiple_of(self.one_in[n]) {
                self.terminals[n].handle_datagram(self.now, address(0), &mut buf);
            }
        }
    }

    /// Offers packets of `size` bytes to a terminal's session at the hub.
    fn offer(&mut self, terminal: usize, size: usize, count: usize) {
        (0..count).for_each(|_| self.offer_on(channel(), terminal, size));
    }

    fn offer_on(&mut self, channel: ChannelId, terminal: usize, size: usize) {
        let packet = vec![0x45; size];
        self.hub.send_packet(self.now, self.sessions[terminal], channel, &packet).unwrap();
    }

    /// Gives the class "voice" of one session rates of its own.
    fn set_voice(&mut self, terminal: usize, rates: ClassRates) {
        let (_, voice) = with_voice();
        self.hub.set_class_rates(self.now, self.sessions[terminal], &[(voice, rates)]).unwrap();
    }

    fn voice_sent(&self, terminal: usize) -> f64 {
        let (_, voice) = with_voice();
        self.hub.class_stats(self.sessions[terminal], voice).unwrap().bytes_sent as f64
    }

    fn bytes_sent(&self) -> Vec<f64> {
        let stats = self.sessions.iter().map(|session| self.hub.stats(*session).unwrap());
        stats.map(|stats| stats.bytes_sent as f64).collect()
    }
}

#[test]
fn terminals_share_the_rate_and_the_sparse_one_waits_its_turn() {
    let mut star = Star::new();
    let before = star.bytes_sent();
    for ms in 0..4000 {
        star.offer(0, 1400, 1);
        star.offer(1, 300, 4);
        if ms % 20 == 0 {
            star.offer(2, 200, 1);
        }
        star.step();
        let sparse = star.hub.channel_stats(star.sessions[2], channel()).unwrap();
        // One packet of each other terminal takes 2.4 ms; a step is 1 ms.
        assert!(sparse.queue_wait <= Duration::from_millis(3), "{sparse:?} at {ms} ms");
    }
    let sent: Vec<f64> =
        star.bytes_sent().iter().zip(before).map(|(after, before)| after - before).collect();
    println!("{sent:?}");
    let ratio = sent[0] / sent[1];
    assert!((0.8..1.25).contains(&ratio), "{sent:?}");
    let mbit = sent.iter().sum::<f64>() * 8.0 / 4e6;
    assert!((9.9..10.1).contains(&mbit), "{mbit}");
}

fn weighted(weight: u32) -> SessionShare {
    SessionShare { weight, ..SessionShare::default() }
}

/// What the sessions of two terminals send, in Mbit/s of a hub's 10, if both always have packets and
/// the path of the second one carries at most 1280 bytes.
fn sent(shares: [SessionShare; 2]) -> [f64; 2] {
    let mut star = Star::new();
    star.largest[1] = 1280 - 28;
    for (session, share) in star.sessions.iter().zip(shares) {
        star.hub.set_share(star.now, *session, share).unwrap();
    }
    let offer = |star: &mut Star| {
        (0..2).for_each(|terminal| star.offer(terminal, 1400, 2));
        star.step();
    };
    // Until the first path is known to carry 1500 bytes.
    (0..2000).for_each(|_| offer(&mut star));
    let before = star.bytes_sent();
    (0..4000).for_each(|_| offer(&mut star));
    let sent: Vec<f64> =
        star.bytes_sent().iter().zip(before).map(|(after, before)| after - before).collect();
    [sent[0], sent[1]].map(|bytes| bytes * 8.0 / 4e6)
}

#[test]
fn sessions_share_by_bytes_and_weights_not_by_packets() {
    for (weights, want) in [([1, 1], 0.5), ([3, 1], 0.75), ([1, 4], 0.2)] {
        let [first, second] = sent(weights.map(weighted));
        let got = first / (first + second);
        assert!((got - want).abs() < 0.01, "{weights:?}: {got}");
    }
}

#[test]
fn sessions_have_guarantees_and_maxima() {
    let rate = |mbit: u64| Some(BitRate::from_mbit(mbit));
    let guaranteed = |mbit| SessionShare { guaranteed: rate(mbit), ..weighted(1) };
    let at_most = |mbit| SessionShare { maximum: rate(mbit), ..weighted(1) };
    for (shares, want) in [
        // What the guarantee leaves is shared by weight.
        ([guaranteed(6), weighted(1)], [8.0, 2.0]),
        ([guaranteed(6), weighted(3)], [7.0, 3.0]),
        // Beyond the rate, guarantees are scaled.
        ([guaranteed(30), guaranteed(10)], [7.5, 2.5]),
        ([at_most(2), weighted(1)], [2.0, 8.0]),
        // A maximum holds on an idle link, too.
        ([at_most(2), at_most(3)], [2.0, 3.0]),
        ([SessionShare { maximum: rate(6), ..guaranteed(5) }, weighted(9)], [5.5, 4.5]),
    ] {
        let got = sent(shares);
        let good = got.iter().zip(want).all(|(got, want)| (got - want).abs() < 0.1);
        assert!(good, "{shares:?}: {got:?}, not {want:?}");
    }
}

/// Mbit/s of voice and of everything that each session sends, if the first two have voice of
/// 0.8 Mbit/s (100 packets of 1000 bytes a second) beside bulk without end, and the third one has bulk
/// and nine times the weight; and how long voice of the first one waits at most.
fn sent_with_voice(rates: [ClassRates; 2]) -> ([f64; 2], Vec<f64>, Duration) {
    let mut star = Star::new();
    (0..2).for_each(|n| star.set_voice(n, rates[n]));
    star.hub.set_share(star.now, star.sessions[2], weighted(9)).unwrap();
    let (mut longest, mut voice, mut all) = (Duration::ZERO, [0.0; 2], Vec::new());
    for ms in 0..6000 {
        if ms == 2000 {
            (voice, all) = ([0, 1].map(|n| star.voice_sent(n)), star.bytes_sent());
        }
        (0..3).for_each(|terminal| star.offer(terminal, 1400, 1));
        if ms % 10 == 0 {
            (0..2).for_each(|terminal| star.offer_on(voice_channel(), terminal, 1000));
        }
        star.step();
        let stats = star.hub.channel_stats(star.sessions[0], voice_channel()).unwrap();
        longest = longest.max(stats.queue_wait);
    }
    let mbit = |now: f64, before: f64| (now - before) * 8.0 / 4e6;
    let voice = [0, 1].map(|n| mbit(star.voice_sent(n), voice[n]));
    (
        voice,
        star.bytes_sent().iter().zip(all).map(|(now, before)| mbit(*now, before)).collect(),
        longest,
    )
}

/// A class's guarantee counts against other sessions, too, and in that session alone.
#[test]
fn classes_have_guarantees_and_maxima_in_each_session() {
    let rate = |kbit: u64| Some(BitRate::from_bits_per_second(kbit * 1000));
    let none = ClassRates::default();
    let guaranteed = ClassRates { guaranteed: rate(1000), ..none };
    let ([first, second], all, longest) = sent_with_voice([guaranteed, none]);
    println!("{first:.2} {second:.2}, {all:.2?}, {longest:?}");
    // Packets of the hop are 56 bytes longer.
    let offered = 0.8 * 1.056;
    assert!((first - offered).abs() < 0.02, "{first}");
    // A step is 1 ms, a packet of another session takes 1.2.
    assert!(longest <= Duration::from_millis(4), "{longest:?}");
    // The other one has half of its session's eleventh of the rest.
    let part = (10.0 - offered) / 11.0;
    assert!((second - part / 2.0).abs() < 0.05, "{second} of {part}");
    for (got, wanted) in all.iter().zip([offered + part, part, 9.0 * part]) {
        assert!((got - wanted).abs() < 0.15, "{all:?}, not {wanted}");
    }
    let at_most = ClassRates { maximum: rate(200), ..none };
    let ([first, second], ..) = sent_with_voice([at_most, none]);
    // Its turn comes late now and then, and bursts are of 4 ms.
    assert!((0.15..=0.2).contains(&first) && second > 0.4, "{first} {second}");
}

/// A hub with modem-reported rates. The first session's modem reports `rate` while a packet of that
/// session is being paced.
fn told_while_pacing(rate: BitRate) -> Star {
    let initial = BitRate::from_mbit(10);
    let mut star = Star::with(Rate::Modem { initial });
    star.offer(0, 1400, 20);
    let mut buf = Vec::new();
    while star.hub.poll_transmit(star.now, &mut buf).is_some() {}
    let free = star.hub.poll_timeout().expect("a packet is being paced").0;
    assert!(free > star.now && free < star.now + Duration::from_millis(2));
    star.hub.set_rate(star.now, star.sessions[0], rate, Duration::from_secs(3600)).unwrap();
    star
}

/// Bytes each session sends in the next second while all have packets to send.
fn sent_in_a_second(star: &mut Star) -> Vec<f64> {
    let before = star.bytes_sent();
    for _ in 0..1000 {
        (0..star.sessions.len()).for_each(|terminal| star.offer(terminal, 1000, 1));
        star.step();
    }
    star.bytes_sent().iter().zip(before).map(|(after, before)| after - before).collect()
}

/// The first terminal's path carries a tenth of what is sent to it.
#[test]
fn a_session_whose_breaker_has_tripped_leaves_the_link_to_the_others() {
    let mut star = Star::new();
    star.one_in[0] = 10;
    for _ in 0..35 {
        sent_in_a_second(&mut star);
    }
    let state = |star: &Star, n: usize| star.hub.stats(star.sessions[n]).unwrap().rate_state;
    assert_eq!(state(&star, 0), RateState::Tripped);
    let sent = sent_in_a_second(&mut star);
    println!("{sent:?}");
    assert!(sent[0] < 0.1 * sent[1], "{sent:?}");
    assert!(sent.iter().sum::<f64>() > 0.98 * 1_250_000.0, "{sent:?}");
    assert!((0.9..1.1).contains(&(sent[1] / sent[2])), "{sent:?}");
    assert_eq!([1, 2].map(|n| state(&star, n)), [RateState::Configured; 2]);
}

#[test]
fn rate_0_holds_exactly_one_session_back() {
    let mut star = told_while_pacing(BitRate::from_bits_per_second(0));
    let sent = sent_in_a_second(&mut star);
    println!("{sent:?}");
    // Only acknowledgements and probes; the two others share 10 Mbit/s.
    assert!(sent[0] < 2000.0, "{sent:?}");
    assert!(sent[1] + sent[2] > 0.98 * 1_250_000.0, "{sent:?}");
    assert!((0.9..1.1).contains(&(sent[1] / sent[2])), "{sent:?}");
    let (now, first) = (star.now, star.sessions[0]);
    star.hub.set_rate(now, first, BitRate::from_mbit(10), Duration::from_secs(10)).unwrap();
    assert!(sent_in_a_second(&mut star)[0] > 300_000.0, "it goes on when it is told a rate");
}

#[test]
fn handshakes_go_on_while_a_session_is_at_rate_0() {
    let mut star = told_while_pacing(BitRate::from_bits_per_second(0));
    star.terminals[1] =
        Endpoint::terminal(config(), key(2), key(100).public(), vec![address(0)], [77; 32]);
    (0..10).for_each(|_| star.step());
    assert!(matches!(star.terminals[1].poll_event(), Some((_, Event::Up { .. }))));
}

#[test]
fn a_session_that_ends_at_rate_0_leaves_the_link_to_the_others() {
    let mut star = told_while_pacing(BitRate::from_bits_per_second(0));
    star.hub.close(star.now, star.sessions[0], CloseReason::Prohibited).unwrap();
    star.step();
    star.sessions.remove(0);
    let sent = sent_in_a_second(&mut star);
    assert!(sent[0] + sent[1] > 0.98 * 1_250_000.0, "{sent:?}");
}

/// A packet at 1 bit/s takes hours.
#[test]
fn a_rate_reported_far_too_low_delays_the_others_for_ten_seconds_at_most() {
    let mut star = told_while_pacing(BitRate::from_bits_per_second(1));
    let before = star.bytes_sent();
    (0..10_010).for_each(|_| star.step());
    let after = star.bytes_sent();
    assert!(after[1] > before[1] && after[2] > before[2], "{before:?} {after:?}");
}
