//! A reset does not overtake what was sent before it: a kernel keeps what it has received when a RST
//! arrives, and its process still reads that. The same checks run on a direct connection, here, and
//! through every kind of gateway (`semantics`, `proxy`).

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;

use lab::Node;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{TimestampingFlag, setsockopt, sockopt};

use crate::common::as_myself;
use crate::gateways::{accept_any, both, connect_from, listen_on};
use crate::inside::{PATIENCE, payload, reset};
use crate::lossless;

const PORT: u16 = 4000;
const REQUEST: usize = 5000;
/// What is read of it.
const PART: usize = 100;
/// What fits into the first window of a receiver that reads nothing.
const ANSWERS: [usize; 4] = [0, 1, 300, 40_000];
/// What is acknowledged of a transfer that is under way.
const UNDER_WAY: usize = 40_000;
/// More than a receiver takes without reading.
const MUCH: usize = 3_000_000;

#[test]
fn a_direct_connection_delivers_what_precedes_a_reset() {
    as_myself(|runner| runner.inside(lossless(), "unread::inside_direct"));
}

pub(crate) fn inside_direct() {
    for address in both(Node::Server, PORT) {
        let listener = listen_on(Node::Server, address);
        assert_nothing_is_overtaken(|| {
            let caller = connect_from(Node::Client, address);
            (caller, accept_any(&listener).0)
        });
    }
}

/// Either end of a connection breaks it off after it has sent something.
pub(crate) fn assert_nothing_is_overtaken(open: impl Fn() -> (TcpStream, TcpStream)) {
    let swapped = || {
        let (caller, listening) = open();
        (listening, caller)
    };
    for end in [close_with_data_unread, reset] {
        for sent in ANSWERS {
            breaks_off(open(), sent, end);
            breaks_off(swapped(), sent, end);
        }
        breaks_off_in_mid_transfer(open(), end);
        breaks_off_in_mid_transfer(swapped(), end);
    }
}

/// The kernel answers data that nobody will read with a RST (RFC 2525 §2.17).
fn close_with_data_unread(socket: TcpStream) {
    drop(socket);
}

/// Reads a part of a request, and waits until more of it is there.
fn read_a_part(reader: &mut TcpStream, quitter: &mut TcpStream) {
    reader.write_all(&payload(REQUEST)).unwrap();
    let mut part = [0; PART];
    quitter.read_exact(&mut part).unwrap();
    assert_eq!(part[..], payload(REQUEST)[..PART]);
    assert_eq!(quitter.peek(&mut [0]).unwrap(), 1);
}

/// Everything that the quitter's peer has acknowledged is read, and then the reset.
fn breaks_off((mut reader, mut quitter): (TcpStream, TcpStream), sent: usize, end: fn(TcpStream)) {
    read_a_part(&mut reader, &mut quitter);
    let answer = payload(sent);
    if sent > 0 {
        write_reported(&quitter, &answer);
        wait_for_report(&quitter);
        assert_eq!(os::socket::unacknowledged(&quitter).unwrap(), 0);
    }
    end(quitter);
    let read = read_to_the_reset(reader);
    assert!(read == answer, "{} bytes of {sent}", read.len());
}

/// What its peer had acknowledged when the quitter broke off is read, and nothing else than it sent.
fn breaks_off_in_mid_transfer(
    (mut reader, mut quitter): (TcpStream, TcpStream),
    end: fn(TcpStream),
) {
    read_a_part(&mut reader, &mut quitter);
    let answer = payload(MUCH);
    let mut written = UNDER_WAY;
    write_reported(&quitter, &answer[..written]);
    quitter.set_nonblocking(true).unwrap();
    while let Ok(count) = quitter.write(&answer[written..]) {
        written += count;
        if written == MUCH {
            break;
        }
    }
    wait_for_report(&quitter);
    let acknowledged = written - os::socket::unacknowledged(&quitter).unwrap();
    end(quitter);
    let read = read_to_the_reset(reader);
    assert!(read.len() >= acknowledged, "{} of {acknowledged} bytes", read.len());
    assert!(read == answer[..read.len()], "others than were sent");
}

/// Writes, and has the kernel report the acknowledgement of the last byte.
fn write_reported(socket: &TcpStream, data: &[u8]) {
    let report = |acknowledgements| {
        let kind = libc::SOF_TIMESTAMPING_SOFTWARE | libc::SOF_TIMESTAMPING_OPT_TSONLY;
        let flags = TimestampingFlag::from_bits_retain(kind | acknowledgements);
        setsockopt(socket, sockopt::Timestamping, &flags).unwrap();
    };
    report(libc::SOF_TIMESTAMPING_TX_ACK);
    let mut writer = socket;
    writer.write_all(data).unwrap();
    report(0);
}

/// Waits for the report of [`write_reported`], which comes on the socket's error queue.
fn wait_for_report(socket: &TcpStream) {
    let mut waiting = [PollFd::new(socket.as_fd(), PollFlags::empty())];
    let patience = PollTimeout::try_from(PATIENCE).unwrap();
    assert_eq!(poll(&mut waiting, patience), Ok(1), "nothing is acknowledged");
}

/// Reads until the connection is reset.
fn read_to_the_reset(mut reader: TcpStream) -> Vec<u8> {
    let mut data = Vec::new();
    let end = reader.read_to_end(&mut data).map_err(|error| error.kind());
    assert_eq!(end, Err(ErrorKind::ConnectionReset), "after {} bytes", data.len());
    data
}
