//! Servers, hubs and links that go away.

use std::io::Read;
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use lab::Node;
use nix::sys::signal::Signal;

use super::server::Server;
use super::{Client, HIT, LINK, PORT, assert_hits_are_fast, get, terminal, timed};
use crate::common::as_each_user;
use crate::inside::{Gateway, Pair};
use crate::operate::Sockets;

/// How long a server may take that is asked without the hop while something is stored.
const PATIENCE: Duration = Duration::from_secs(3);
/// What a hub may do: relay streams, or fetch.
const HUBS: [&str; 2] = ["", "[http]\n"];

#[test]
fn without_a_hub_clients_get_what_is_stored_and_the_rest_straight() {
    as_each_user(|runner| runner.inside(&LINK, "http::gone::inside_the_hub_is_gone"));
}

pub(crate) fn inside_the_hub_is_gone() {
    let server = Server::start(PORT);
    for (round, hub) in HUBS.into_iter().enumerate() {
        let (pair, sockets) = (Pair::new(), Sockets::new());
        let hub = pair.hub_with_keys(&sockets.key("hub"), hub);
        let terminal = terminal(&pair, &sockets, "");
        hub_is_gone(&server, hub, terminal, round);
    }
}

fn hub_is_gone(server: &Server, hub: Gateway, mut terminal: Gateway, round: usize) {
    let [kept, old, mute, also_mute, new] =
        ["fresh", "old", "mute", "mute/too", "fresh-new"].map(|name| format!("/{name}/{round}"));
    for target in [&kept, &old, &mute, &also_mute] {
        assert!(!get(target).is_hit());
    }
    hub.end_by(Signal::SIGKILL);
    // Asked over a hop whose hub is gone: when that is known, the cache will do.
    let asked = thread::spawn(move || get(&old));
    assert_hits_are_fast(&kept);
    terminal.wait_for("hub unreachable");
    let stale = asked.join().unwrap();
    assert_eq!((stale.status, stale.is_hit()), (200, true));
    let other = get(&new);
    assert_eq!((other.status, other.is_hit()), (200, false));
    assert_hits_are_fast(&kept);
    assert!(get(&new).is_hit());
    assert_eq!(server.asked(&kept).len(), 1);
    // The server is silent, as all are when the link is gone. Only the first client waits for that.
    let (took, stale) = timed(|| get(&mute));
    assert!(stale.is_hit() && took >= PATIENCE && took < 2 * PATIENCE, "{took:?}");
    let (took, stale) = timed(|| get(&also_mute));
    assert!(stale.is_hit() && took < 10 * HIT, "{took:?}");
    // Whatever ends the terminal, connections pass.
    terminal.end_by(Signal::SIGKILL);
    assert!(!get(&kept).is_hit());
    assert_eq!(server.asked(&kept)[1].peer, IpAddr::from(Node::Client.address4()));
}

#[test]
fn an_answer_that_its_server_cuts_off_arrives_as_far_as_it_came() {
    as_each_user(|runner| runner.inside(&LINK, "http::gone::inside_answers_are_cut_off"));
}

pub(crate) fn inside_answers_are_cut_off() {
    let server = Server::start(PORT);
    for hub in HUBS {
        let (pair, sockets) = (Pair::new(), Sockets::new());
        let hub = pair.hub_with_keys(&sockets.key("hub"), hub);
        let terminal = terminal(&pair, &sockets, "");
        for target in ["/cut", "/cut/private"] {
            for _ in 0..2 {
                let mut client = Client::new();
                client.say(&format!("GET {target} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
                let mut came = String::new();
                // An end, not a reset, which could have overtaken what came.
                client.0.read_to_string(&mut came).unwrap();
                assert!(came.ends_with(&target.repeat(10_000)), "{} bytes", came.len());
            }
        }
        terminal.end_by(Signal::SIGTERM);
        hub.end_by(Signal::SIGTERM);
    }
    // Nothing of it was stored.
    assert_eq!(server.asked("/cut").len(), 2 * HUBS.len());
}
