//! A hub with several workers: two of its terminals are on different threads.

use std::thread;

use lab::{LAN_DEVICE, Node, find_netns};
use nix::sys::signal::Signal;

use crate::common::as_myself;
use crate::directions::wait_until;
use crate::gateways::{Keys, both};
use crate::inside::Gateway;
use crate::tunnel::{PORT as UDP_PORT, client, echo_on, wait_for_answer};
use crate::{bare, lossless, shares};

const PORT: u16 = 4150;
const WORKERS: &str = "mesh = true\nworkers = 2";

fn options(link: &[&'static str]) -> Vec<&'static str> {
    link.iter().copied().chain(["--terminals", "2"]).collect()
}

/// Two clients, each behind a terminal of its own.
fn client_hosts() -> [Node; 2] {
    [1, 2].map(|number| Node::client(number).unwrap())
}

#[test]
fn connections_cross_a_hub_with_workers_in_all_directions() {
    as_myself(|runner| runner.inside(&options(bare()), "workers::inside_all_directions"));
}

pub(crate) fn inside_all_directions() {
    let keys = Keys::new(2);
    let sections = format!("[tunnel]\n[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]\n");
    let mut hub = keys.hub(WORKERS, &sections);
    let terminals = [1, 2].map(|number| keys.terminal(number, "", "\n[tunnel]\n"));
    [1, 2].iter().for_each(|number| hub.wait_for(&format!("session up with {number}")));
    all_directions();
    packets_cross();
    // A hub that was killed is found again, by each terminal on its worker.
    hub.end_by(Signal::SIGKILL);
    let mut hub = keys.hub(WORKERS, &sections);
    [1, 2].iter().for_each(|number| hub.wait_for(&format!("session up with {number}")));
    all_directions();
    terminals.into_iter().for_each(|terminal| terminal.end_by(Signal::SIGTERM));
    [1, 2].iter().for_each(|number| hub.wait_for(&format!("session with {number} over")));
    hub.end_by(Signal::SIGTERM);
}

/// Data goes both ways between the server and each client, and between the clients, at once.
fn all_directions() {
    let [one, other] = client_hosts();
    let pairs = [(one, Node::Server), (other, Node::Server), (one, other), (other, one)];
    let from_hub = [(Node::Server, one), (Node::Server, other)];
    thread::scope(|scope| {
        for (port, (from, to)) in (PORT..).zip(pairs.into_iter().chain(from_hub)) {
            scope.spawn(move || {
                both(to, port).into_iter().for_each(|address| wait_until(from, to, address, true));
            });
        }
    });
}

/// Packets that are not split cross, too.
fn packets_cross() {
    echo_on(Node::Server);
    for host in client_hosts() {
        for server in both(Node::Server, UDP_PORT) {
            find_netns(host).unwrap().run(|| wait_for_answer(&client(server)));
        }
    }
}

#[test]
fn terminals_on_different_workers_share_the_rate_as_their_sections_say() {
    as_myself(|runner| runner.inside(&options(lossless()), "workers::inside_shares"));
}

pub(crate) fn inside_shares() {
    shares::by_weight_and_guarantee("workers = 2\n");
}

#[test]
fn a_second_hub_cannot_take_the_port_of_one_with_workers() {
    as_myself(|runner| runner.inside(bare(), "workers::inside_a_second_hub"));
}

pub(crate) fn inside_a_second_hub() {
    let keys = Keys::new(1);
    let hub = keys.hub(WORKERS, "");
    let mut second = Gateway::start(Node::Hub, "hub", &keys.hub_config(WORKERS, ""));
    second.wait_for("Address already in use");
    hub.end_by(Signal::SIGTERM);
}
