//! Each end of a connection sees the other end as it was, and no data is lost.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::channel;
use std::thread;

use lab::Node;
use nix::sys::socket::{setsockopt, sockopt};

use crate::LOSSY;
use crate::common::{as_each_user, as_myself};
use crate::inside::{
    accept, addresses, assert_reset, assert_same, connect, listen, payload, read_all, reset,
};

/// Takes a while on the links of these tests, and fits into the windows.
const MUCH: usize = 5_000_000;
const PORT: u16 = 4000;
/// Nothing listens on this port.
const CLOSED: u16 = 4001;

#[test]
fn a_server_may_answer_after_the_clients_end() {
    as_each_user(|runner| runner.inside(&LOSSY, "endings::inside_a_server_answers_after_the_end"));
}

pub(crate) fn inside_a_server_answers_after_the_end() {
    let listener = listen(PORT);
    for address in addresses(PORT) {
        let mut client = connect(address);
        let sent = payload(MUCH);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut server = accept(&listener);
                let received = read_all(&server);
                server.write_all(&received).unwrap();
            });
            client.write_all(&sent).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            assert_same(&read_all(&client), &sent);
        });
    }
}

#[test]
fn a_client_may_go_on_after_the_servers_end() {
    as_myself(|runner| runner.inside(&LOSSY, "endings::inside_the_server_ends_first"));
}

pub(crate) fn inside_the_server_ends_first() {
    let listener = listen(PORT);
    for address in addresses(PORT) {
        let mut client = connect(address);
        let sent = payload(MUCH);
        thread::scope(|scope| {
            let server = scope.spawn(|| {
                let mut server = accept(&listener);
                server.write_all(b"bye").unwrap();
                server.shutdown(Shutdown::Write).unwrap();
                read_all(&server)
            });
            assert_same(&read_all(&client), b"bye");
            client.write_all(&sent).unwrap();
            drop(client);
            assert_same(&server.join().unwrap(), &sent);
        });
    }
}

#[test]
fn a_refused_connection_is_reset() {
    as_each_user(|runner| runner.inside(&LOSSY, "endings::inside_a_closed_port_refuses"));
}

pub(crate) fn inside_a_closed_port_refuses() {
    // A port that refused passes unaccelerated for a while.
    addresses(CLOSED).into_iter().for_each(|address| assert_refused_or_reset(address, b""));
    for address in addresses(CLOSED + 1) {
        assert_refused_or_reset(address, b"a request");
    }
}

#[test]
fn an_unreachable_destination_resets_the_connection() {
    as_myself(|runner| runner.inside(&LOSSY, "endings::inside_nobody_has_this_address"));
}

pub(crate) fn inside_nobody_has_this_address() {
    // On the server's LAN, where the hub's ARP requests stay unanswered.
    let nobody4 = Ipv4Addr::from_bits(Node::Server.address4().to_bits() + 75);
    let nobody6 = Ipv6Addr::from_bits(Node::Server.address6().to_bits() + 75);
    let nobody: [IpAddr; 2] = [nobody4.into(), nobody6.into()];
    thread::scope(|scope| {
        for address in nobody {
            scope.spawn(move || assert_refused_or_reset(SocketAddr::new(address, 80), b"GET /"));
        }
    });
}

/// The gateway has answered for the destination before asking it, so only a reset can report the
/// failure. Never a clean end.
fn assert_refused_or_reset(address: SocketAddr, request: &[u8]) {
    let mut client = connect(address);
    match client.write_all(request) {
        Ok(()) => assert_reset(&client),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

#[test]
fn a_reset_in_mid_transfer_reaches_the_other_end() {
    as_each_user(|runner| runner.inside(&LOSSY, "endings::inside_either_end_resets"));
}

pub(crate) fn inside_either_end_resets() {
    let listener = listen(PORT);
    for address in addresses(PORT) {
        let open = || (connect(address), accept(&listener));
        let (client, server) = open();
        reset_while_receiving(client, server);
        let (client, server) = open();
        reset_while_receiving(server, client);
        let (client, server) = open();
        reset_while_sending(client, &server);
        let (client, server) = open();
        reset_while_sending(server, &client);
    }
}

/// One end sends endlessly; the other closes.
pub(crate) fn reset_while_receiving(mut quitter: TcpStream, mut sender: TcpStream) {
    let sending = thread::spawn(move || {
        let part = payload(100_000);
        let failed = (0..10_000).find_map(|_| sender.write_all(&part).err());
        failed.expect("nobody took a gigabyte").kind()
    });
    quitter.read_exact(&mut [0; 200_000]).unwrap();
    reset(quitter);
    let error = sending.join().unwrap();
    // EPIPE: the reset arrived between two writes.
    assert!(matches!(error, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error:?}");
}

/// One end breaks off; the other must not mistake what it received for everything.
pub(crate) fn reset_while_sending(mut quitter: TcpStream, receiver: &TcpStream) {
    quitter.write_all(&payload(200_000)).unwrap();
    reset(quitter);
    assert_reset(receiver);
}

#[test]
fn a_slow_reader_loses_nothing_though_the_sender_closes_at_once() {
    as_each_user(|runner| runner.inside(&LOSSY, "endings::inside_the_sender_has_left_long_ago"));
}

pub(crate) fn inside_the_sender_has_left_long_ago() {
    let listener = listen(PORT);
    for address in addresses(PORT) {
        let client = connect(address);
        setsockopt(&client, sockopt::RcvBuf, &8_192).unwrap();
        // The pair holds it all: a window is 1¼ round trips of the rate, 1.5 MB.
        let sent = payload(1_000_000);
        let (closed, is_closed) = channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut server = accept(&listener);
                server.write_all(&sent).unwrap();
                drop(server);
                closed.send(()).unwrap();
            });
            is_closed.recv().unwrap();
            let mut back = Vec::new();
            let mut part = [0; 1000];
            loop {
                let count = (&client).read(&mut part).unwrap();
                if count == 0 {
                    break;
                }
                back.extend_from_slice(&part[..count]);
            }
            assert_same(&back, &sent);
        });
    }
}
