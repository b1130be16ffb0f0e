//! What idle sessions hold, fresh and after use, on both sides.

use core::time::Duration;
use std::net::SocketAddr;

use crate::counting::live_bytes;
use crate::star::{Star, terminal};
use slacp::{
    ChannelConfig, ChannelId, ClassConfig, Config, Endpoint, ErrorControl, Event, Rate,
    ReadOutcome, SessionId, StreamId, StreamOpening,
};
use units::BitRate;

/// Maximum memory of an idle session at one side, in bytes.
const PER_SESSION: isize = 17_600;
const SESSIONS: u32 = 60;
/// What each busy stream carries in each direction.
const BYTES: usize = 1_000_000;

/// Classes and channels as a gateway has them by default.
fn config(rate: Rate) -> Config {
    let mut config = Config::new(rate);
    config.aes = true;
    for (n, control) in
        [ErrorControl::FecArq, ErrorControl::Arq, ErrorControl::Fec].iter().enumerate()
    {
        let class = if n == 0 {
            slacp::ClassId::DEFAULT
        } else {
            config.add_class(ClassConfig::default()).unwrap()
        };
        let channel = ChannelConfig { class, ..ChannelConfig::new(*control) };
        config.add_channel(ChannelId::new(n as u8).unwrap(), channel).unwrap();
    }
    config
}

fn address(n: u32) -> SocketAddr {
    SocketAddr::from(((0x0a00_0000 + n).to_be_bytes(), 5900))
}

/// A hub whose sessions have done what a new session does.
fn crowd(config: &Config) -> Star {
    let mut star = Star::new(config, SESSIONS, Duration::from_millis(10));
    for n in 1..=SESSIONS {
        star.add(terminal(config.clone(), n, 1), address(n));
        star.run_for(Duration::from_millis(2));
    }
    star.run_for(Duration::from_secs(20));
    assert_eq!(star.nodes[0].sessions(), SESSIONS as usize);
    star
}

/// Bytes per session that the hub and a terminal free when they are dropped.
fn held(star: &mut Star, config: &Config) -> [isize; 2] {
    let mut freed = |node: usize, by: Endpoint| {
        let before = live_bytes();
        drop(core::mem::replace(&mut star.nodes[node].endpoint, by));
        before - live_bytes()
    };
    let other = || terminal(config.clone(), 1, 1);
    let of_terminals: isize = (1..=SESSIONS).map(|n| freed(n as usize, other())).sum();
    let hub = freed(0, other());
    let mut empty = Star::new(config, SESSIONS, Duration::ZERO);
    let before = live_bytes();
    drop(core::mem::replace(&mut empty.nodes[0].endpoint, other()));
    let without = before - live_bytes();
    [(hub - without) / SESSIONS as isize, of_terminals / SESSIONS as isize]
}

/// A stream of a terminal's session, as both sides know it.
fn open(star: &mut Star, n: usize) -> [(SessionId, StreamId); 2] {
    let session = star.nodes[n].session().unwrap();
    let open = StreamOpening { destination: address(9), source: address(8), dscp: None };
    let stream = star.nodes[n].endpoint.open(star.now, session, open).unwrap();
    star.serve(n);
    star.run_for(Duration::from_millis(100));
    let opened = star.nodes[0].events.iter().rev().find_map(|(_, id, event)| match event {
        Event::Opened { stream, .. } => Some((*id, *stream)),
        _ => None,
    });
    [opened.unwrap(), (session, stream)]
}

/// Carries packets, and [`BYTES`] each way on a stream that then ends.
fn use_session(star: &mut Star, n: usize) {
    let ends = open(star, n);
    let nodes = [0, n];
    let mut left = [BYTES; 2];
    let mut read = [0; 2];
    let mut buffer = vec![7; 1 << 16];
    for ms in 0..100_000 {
        for side in 0..2 {
            let (session, stream) = ends[side];
            let endpoint = &mut star.nodes[nodes[side]].endpoint;
            let most = left[side].min(buffer.len());
            if most > 0 {
                left[side] -= endpoint.write(session, stream, &buffer[..most]).unwrap();
                if left[side] == 0 {
                    endpoint.finish(session, stream).unwrap();
                }
            }
            while let Ok(ReadOutcome::Data(count)) = endpoint.read(session, stream, &mut buffer) {
                read[side] += count;
            }
            if ms < 30 {
                let channel = ChannelId::new((ms % 3) as u8).unwrap();
                endpoint.send_packet(star.now, session, channel, &[0x45; 1000]).unwrap();
            }
            star.serve(nodes[side]);
        }
        if read == [BYTES; 2] {
            break;
        }
        star.run_for(Duration::from_millis(1));
    }
    assert_eq!(read, [BYTES; 2]);
}

#[test]
fn an_idle_session_is_small_before_and_after_use() {
    let fixed = Rate::from(BitRate::from_mbit(100));
    for (name, rate) in [("fixed", fixed), ("auto", Rate::auto())] {
        let config = config(rate);
        let fresh = held(&mut crowd(&config), &config);
        println!("{name}: fresh, hub and terminal: {fresh:?} bytes");
        let mut star = crowd(&config);
        for n in 1..=SESSIONS as usize {
            use_session(&mut star, n);
        }
        star.run_for(Duration::from_secs(60));
        while star.hub().poll_packet().is_some() {}
        star.nodes.iter_mut().for_each(|node| while node.endpoint.poll_packet().is_some() {});
        let used = held(&mut star, &config);
        println!("{name}: used, hub and terminal: {used:?} bytes");
        for held in [fresh, used].concat() {
            assert!(held <= PER_SESSION, "{held} bytes");
        }
    }
}
