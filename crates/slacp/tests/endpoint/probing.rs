//! Sessions that measure their paths with padding before there is data.

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::star::{Star, config, terminal};
use slacp::{Config, Endpoint, Event, Rate, SessionId};

const DELAY: Duration = Duration::from_millis(300);
const TERMINALS: u32 = 40;
const STEP: Duration = Duration::from_millis(50);

/// A hub that measures its rates, and terminals that start at once.
fn crowd(rate: Rate) -> Star {
    let mut star = Star::new(&Config::new(rate), TERMINALS, DELAY);
    for n in 1..=TERMINALS {
        let address = SocketAddr::from(([198, 51, 100, n as u8], 1024));
        star.add(terminal(config(), n, 1), address);
    }
    star
}

/// The padding that the hub has sent in each of its sessions, in bytes.
fn padding(star: &mut Star) -> BTreeMap<SessionId, u64> {
    let up = star.nodes[0].events.iter().filter(|(.., event)| matches!(event, Event::Up { .. }));
    let ids: Vec<SessionId> = up.map(|(_, id, _)| *id).collect();
    let hub: &Endpoint = star.hub();
    ids.into_iter().filter_map(|id| Some((id, hub.stats(id)?.padding_bytes))).collect()
}

#[test]
fn the_sessions_of_a_hub_take_turns_at_measuring() {
    let mut star = crowd(Rate::auto());
    let mut before = padding(&mut star);
    let mut most = 0;
    for _ in 0..2400 {
        star.run_for(STEP);
        let now = padding(&mut star);
        let grown = |(id, bytes): &(&SessionId, &u64)| before.get(id).unwrap_or(&0) < bytes;
        most = most.max(now.iter().filter(grown).count());
        before = now;
    }
    assert_eq!(most, 4, "sessions that measure at the same time");
    assert_eq!(before.len(), TERMINALS as usize);
    // The links of this network have no limit: no train finds it, and the last is as any other.
    let (least, most) = (before.values().min().unwrap(), before.values().max().unwrap());
    assert!(*least > 100_000 && *most < 4_000_000, "{least} to {most} bytes");
}

/// A terminal that starts again and again, and never has data: each of its sessions would measure the
/// path anew.
#[test]
fn a_terminal_that_comes_and_goes_gets_its_share_of_padding_in_all() {
    for (share, last_measures) in [(0.0, false), (0.02, false), (1.0, true)] {
        let mut measuring = Config::new(Rate::auto());
        measuring.padding_share = share;
        let mut star = Star::new(&measuring, 1, DELAY);
        let mut sessions = BTreeMap::new();
        for life in 1..=10 {
            star.add(terminal(config(), 1, life), SocketAddr::from(([198, 51, 100, 1], 1024)));
            star.run_for(Duration::from_secs(120));
            let session = star.nodes[0].session().unwrap();
            let stats = star.hub().stats(session).unwrap();
            sessions.insert(session, (stats.padding_bytes, stats.bytes_sent));
            // Two measurements in advance.
            let advance = 800_000.max(2 * sessions.values().next().unwrap().1);
            let sent: u64 = sessions.values().map(|(_, sent)| sent).sum();
            let padded: u64 = sessions.values().map(|(padded, _)| padded).sum();
            let most = advance as f64 + share * sent as f64;
            assert!(padded as f64 <= most, "{padded} of {sent} bytes, share {share}");
        }
        println!("share {share}: {sessions:?}");
        assert_eq!(sessions.len(), 10);
        let last = sessions.values().last().unwrap().0;
        assert_eq!(last > 100_000, last_measures, "{last} in the last session, share {share}");
    }
}

#[test]
fn a_configuration_may_forbid_padding() {
    let mut star = crowd(Rate::Auto { ceiling: None, probe: false });
    star.run_for(Duration::from_secs(60));
    let sent = padding(&mut star);
    assert!(sent.len() == TERMINALS as usize && sent.values().all(|bytes| *bytes == 0), "{sent:?}");
}
