//! Packets carry the code point of the class whose data they hold.

use core::time::Duration;
use std::net::SocketAddr;

use slacp::{
    ChannelConfig, ChannelId, ClassConfig, Config, Endpoint, ErrorControl, Event, KeyPair,
    SessionId,
};
use units::{BitRate, Instant, Machine};

const EF: u8 = 46;
const CS6: u8 = 48;
const VOICE: usize = 100;
const BULK: usize = 1000;

fn channel(number: u8) -> ChannelId {
    ChannelId::new(number).unwrap()
}

/// Bulk on channel 0, voice on channel 1, whose class is marked with `voice`.
fn config(voice: u8) -> Config {
    let mut config = Config::new(BitRate::from_mbit(2));
    let class = ClassConfig { dscp: voice, weight: 10, ..ClassConfig::default() };
    let class = config.add_class(class).unwrap();
    let plain = ChannelConfig::new(ErrorControl::Arq);
    config.add_channel(channel(0), plain).unwrap();
    config.add_channel(channel(1), ChannelConfig { class, ..plain }).unwrap();
    config
}

fn address(n: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, n], 5900))
}

/// What a side has sent: code point, and bytes of the datagram.
type Sent = Vec<(u8, usize)>;

/// A hub that sends voice and bulk to a terminal for two seconds; every 50th datagram is lost.
/// Returns what each of them has sent, and how many packets of each channel have arrived.
fn run(voice: u8) -> ([Sent; 2], [usize; 2]) {
    let keys = [1, 2].map(|n| KeyPair::from_private([n; 32]));
    let [hub_key, key] = keys.each_ref().map(KeyPair::public);
    let [at_hub, at_terminal] = keys;
    let hub = Endpoint::hub(config(voice), at_hub, vec![key], [1; 32]);
    let addresses = vec![address(0)];
    let terminal = Endpoint::terminal(config(voice), at_terminal, hub_key, addresses, [2; 32]);
    let (mut sides, mut sent) = ([hub, terminal], [Vec::new(), Vec::new()]);
    let (mut session, mut arrived): (Option<SessionId>, _) = (None, [0; 2]);
    for ms in 0..4_000 {
        let now = Instant::from_nanos(1_000_000_000) + Duration::from_millis(ms);
        while let Some((id, event)) = sides[0].poll_event() {
            session = session.or_else(|| matches!(event, Event::Up { .. }).then_some(id));
        }
        if let Some(id) = session.filter(|_| ms < 2_000) {
            let offer = |number, size| (channel(number), vec![0x45; size]);
            let voice = ms.is_multiple_of(20).then(|| offer(1, VOICE));
            for (channel, packet) in [offer(0, BULK)].into_iter().chain(voice) {
                sides[0].send_packet(now, id, channel, &packet).unwrap();
            }
        }
        for from in 0..2 {
            sides[from].handle_timeout(now);
            let mut buf = Vec::new();
            while sides[from].poll_transmit(now, &mut buf).is_some() {
                sent[from].push((sides[from].transmit_dscp(), buf.len()));
                if !sent[from].len().is_multiple_of(50) {
                    sides[1 - from].handle_datagram(now, address(from as u8), &mut buf);
                }
            }
        }
        while let Some((_, channel, _)) = sides[1].poll_packet() {
            arrived[usize::from(channel.number())] += 1;
        }
    }
    (sent, arrived)
}

#[test]
fn packets_of_a_marked_class_hold_nothing_else() {
    let ([hub, terminal], arrived) = run(EF);
    let of =
        |sent: &Sent, mark| -> Sent { sent.iter().copied().filter(|it| it.0 == mark).collect() };
    // A voice packet is a datagram of its own, retransmissions are control.
    let voice = of(&hub, EF);
    assert!((90..=100).contains(&voice.len()), "{}", voice.len());
    assert!(voice.iter().all(|(_, len)| *len < VOICE + 80), "{voice:?}");
    assert!(of(&hub, 0).len() > 150 && of(&hub, CS6).iter().any(|(_, len)| *len > VOICE));
    assert_eq!(of(&hub, 0).len() + of(&hub, CS6).len() + voice.len(), hub.len());
    // The terminal acknowledges, and probes its path with large packets.
    let others = terminal.iter().filter(|(mark, len)| *mark != CS6 && *len < 1200);
    assert_eq!((others.count(), of(&terminal, EF).len()), (0, 0));
    assert!(arrived[1] >= 95, "{arrived:?}");
}

#[test]
fn without_marks_packets_are_filled() {
    let ([hub, terminal], arrived) = run(0);
    assert!(hub.iter().chain(&terminal).all(|(dscp, _)| *dscp == 0));
    assert!(hub.iter().filter(|(_, len)| *len < BULK).count() < 60, "{hub:?}");
    assert!(arrived[1] >= 95, "{arrived:?}");
}

#[test]
fn a_code_point_has_six_bits() {
    let error = config_with(64).unwrap_err().to_string();
    assert!(error.contains("64") && error.contains("0 to 63"), "{error}");
}

fn config_with(dscp: u8) -> Result<slacp::ClassId, slacp::ConfigError> {
    let class = ClassConfig { dscp, ..ClassConfig::default() };
    Config::new(BitRate::from_mbit(1)).add_class(class)
}
