//! A server has two addresses, and nothing listens on the one that clients try first. They find the
//! other (Happy Eyeballs, RFC 8305), although they are answered at once.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::thread;

use lab::{LAN_DEVICE, Node};
use nix::sys::signal::Signal;

use crate::bare;
use crate::common::{as_each_user, is_present, skip, text};
use crate::gateways::{Keys, both, listen_on};
use crate::inside::{Gateway, PATIENCE, accept, assert_reset, connect};

const PORT: u16 = 4300;

#[test]
fn a_client_finds_the_address_that_answers_after_one_that_refused() {
    if !is_present("curl") {
        return skip("curl is missing");
    }
    as_each_user(|runner| runner.inside(bare(), "eyeballs::inside_an_address_refuses"));
}

pub(crate) fn inside_an_address_refuses() {
    let keys = Keys::new(1);
    let (hub, terminal) = (keys.hub("", ""), keys.terminal(1, "", ""));
    find_the_other_address(PORT);
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);

    let config = format!("[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]\n");
    let mut solo = Gateway::start(Node::Terminal, "solo", &config);
    solo.wait_for("ready");
    find_the_other_address(PORT + 1);
    solo.end_by(Signal::SIGTERM);
}

/// The server listens on this port of its IPv4 address only.
fn find_the_other_address(port: u16) {
    let [v4, v6] = both(Node::Server, port);
    serve(listen_on(Node::Server, v4));
    assert_reset(&connect(v6));
    let refused = TcpStream::connect_timeout(&v6, PATIENCE).map_err(|error| error.kind());
    assert_eq!(refused.err(), Some(io::ErrorKind::ConnectionRefused));
    let output = curl(v4, v6);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text(&output.stdout), "here");
}

/// curl tries the IPv6 address of a name first.
fn curl(v4: SocketAddr, v6: SocketAddr) -> Output {
    let addresses = format!("twin.invalid:{}:[{}],{}", v4.port(), v6.ip(), v4.ip());
    let url = format!("http://twin.invalid:{}/", v4.port());
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--globoff", "--max-time", "20", "--resolve", &addresses, &url]);
    curl.output().unwrap()
}

/// Answers each client, which must come through the pair.
fn serve(listener: TcpListener) {
    thread::spawn(move || {
        loop {
            let mut client = accept(&listener);
            let _ = client.read(&mut [0; 1000]);
            client
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\nhere")
                .unwrap();
        }
    });
}
