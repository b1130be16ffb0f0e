//! Two machines with the same key, and machines that restart.

use core::time::Duration;
use std::net::SocketAddr;

use crate::star::{Star, config, public, terminal};
use slacp::{Event, Notice};
use units::Instant;

const DELAY: Duration = Duration::from_millis(300);

fn address(machine: u8) -> SocketAddr {
    SocketAddr::from(([198, 51, 100, machine], 5900))
}

/// A hub, and a machine with key number 1.
fn served() -> Star {
    let mut star = Star::new(&config(), 1, DELAY);
    star.add(terminal(config(), 1, 1), address(1));
    star.run_for(Duration::from_secs(100));
    assert_eq!(star.nodes[0].sessions(), 1);
    star
}

/// When the hub's sessions came up after `since`.
fn ups(star: &Star, since: Instant) -> Vec<(Duration, SocketAddr)> {
    let events = star.nodes[0].events.iter().filter(|(time, ..)| *time >= since);
    let up = events.filter_map(|(time, _, event)| match event {
        Event::Up { address, .. } => Some((time.saturating_since(since), *address)),
        _ => None,
    });
    up.collect()
}

fn notices(star: &mut Star) -> Vec<Notice> {
    core::iter::from_fn(|| star.hub().poll_notice()).collect()
}

#[test]
fn of_two_machines_with_one_key_one_keeps_its_session_and_the_owner_hears_of_it() {
    let mut star = served();
    let begin = star.now;
    star.add(terminal(config(), 1, 2), address(2));
    star.run_for(Duration::from_secs(3600));
    // The newcomer may be the same machine after a restart, so it is admitted and the other one
    // refused.
    let ups = ups(&star, begin);
    assert!(matches!(ups[..], [(_, at)] if at == address(2)), "{ups:?}");
    let notices = notices(&mut star);
    assert!((10..25).contains(&notices.len()), "{}", notices.len());
    let told = Notice::SharedKey { key: public(1), served: address(2), refused: address(1) };
    assert!(notices.iter().all(|notice| *notice == told), "{notices:?}");
    // The machine that is served was never interrupted.
    let downs = star.nodes[2].events.iter().filter(|(.., event)| matches!(event, Event::Down(_)));
    assert_eq!(downs.count(), 0);
}

#[test]
fn the_other_machine_is_served_when_the_first_dies() {
    let mut star = served();
    star.add(terminal(config(), 1, 2), address(2));
    star.run_for(Duration::from_secs(600));
    let begin = star.now;
    star.kill(2);
    star.run_for(Duration::from_secs(60));
    let ups = ups(&star, begin);
    assert!(matches!(ups[..], [(_, at)] if at == address(1)), "{ups:?}");
    println!("served {:?} after the other died", ups[0].0);
}

#[test]
fn a_machine_that_restarts_is_served_at_once_and_soon_if_it_goes_on_restarting() {
    let mut star = served();
    for restart in 0..5 {
        let begin = star.now;
        star.add(terminal(config(), 1, 2 + restart), address(1));
        star.run_for(Duration::from_secs(10));
        let ups = ups(&star, begin);
        // A round trip and a half. Later restarts have to wait while the dead session is asked, for
        // the time of two answers.
        let limit = Duration::from_millis(if restart == 0 { 920 } else { 4000 });
        println!("restart {restart}: {ups:?}");
        assert!(ups.len() == 1 && ups[0].0 <= limit, "restart {restart}: {ups:?}");
    }
    assert_eq!(notices(&mut star), []);
}
