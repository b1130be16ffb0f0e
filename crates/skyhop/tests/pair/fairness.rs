//! Clients of one terminal share what it can carry.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use lab::{LAN_DEVICE, Node, find_netns};
use nix::sys::signal::Signal;
use os::netlink::RouteSocket;
use socket2::{Domain, Socket, Type};

use crate::bare;
use crate::common::as_myself;
use crate::gateways::{Keys, listen_on};
use crate::inside::{Mirror, PATIENCE, exchange, wait_until};
use crate::operate::{Sockets, status};

const PORT: u16 = 4000;
const SILENT_PORT: u16 = 6881;
const OWN_PORT: u16 = 4001;
/// Another client on the lab's client.
const GREEDY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 0, 3));

#[test]
fn connections_of_one_client_to_a_silent_server_leave_other_clients_theirs() {
    as_myself(|runner| runner.inside(bare(), "fairness::inside_a_greedy_client"));
}

pub(crate) fn inside_a_greedy_client() {
    let (mirror, keys, sockets) = (Mirror::start(PORT), Keys::new(1), Sockets::new());
    let hub = keys.hub(&sockets.key("hub"), "");
    let own = format!("max_connections = 24\n{}", sockets.key("terminal"));
    let terminal = keys.terminal(1, &own, "");
    let server = |port| SocketAddr::from((Node::Server.address4(), port));
    let _silent = find_netns(Node::Server).unwrap().run(|| silent(server(SILENT_PORT))).unwrap();
    let add = || RouteSocket::open()?.add_address(LAN_DEVICE, GREEDY, 24);
    find_netns(Node::Client).unwrap().run(add).unwrap();
    let connect = |to| find_netns(Node::Client).unwrap().run(|| connect_from_greedy(to));

    let held: Vec<Socket> = (0..24).filter_map(|_| connect(server(SILENT_PORT)).ok()).collect();
    assert!(held.len() >= 21, "seven eighths are carried: {}", held.len());
    // The other client is carried as before.
    for _ in 0..2 {
        exchange(&mut mirror.connect_carried());
    }
    let status = status(&sockets.path("terminal"));
    assert_eq!(status["interception"]["on"], true, "{status:#}");
    // More of the greedy one passes unaccelerated: the server sees its address.
    let listener = listen_on(Node::Server, server(OWN_PORT));
    listener.set_nonblocking(true).unwrap();
    wait_until(PATIENCE, || {
        let _passing = connect(server(OWN_PORT));
        listener.accept().is_ok_and(|(_, peer)| peer.ip() == GREEDY)
    });
    drop(held);
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

/// A listener whose queue is full, so that its host answers no further SYN; and what fills it.
fn silent(address: SocketAddr) -> io::Result<(Socket, Vec<TcpStream>)> {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    listener.bind(&address.into())?;
    listener.listen(0)?;
    let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(300)).ok();
    Ok((listener, std::iter::from_fn(connect).collect()))
}

fn connect_from_greedy(to: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(GREEDY, 0).into())?;
    socket.connect_timeout(&to.into(), Duration::from_millis(500))?;
    Ok(socket)
}
