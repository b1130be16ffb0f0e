//! Everything that users of TCP rely on, in each combination: client to server and server to
//! client, IPv4 and IPv6, early and deferred answers. All connections of a combination exist at the
//! same time. The same through a solo gateway, whose own machine is a client too.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lab::{HOP_DEVICE, LAN_DEVICE, Node, find_netns};
use nix::sys::signal::Signal;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Socket, Type};

use crate::common::{as_each_user, as_myself};
use crate::endings::{reset_while_receiving, reset_while_sending};
use crate::gateways::{Keys, accept_any, both, connect_from};
use crate::inside::{Gateway, PATIENCE, assert_reset, assert_same, payload, read_all, reset};
use crate::unread::assert_nothing_is_overtaken;
use crate::{bare, lossless};

/// Round-trip time of the hop.
const RTT: Duration = Duration::from_millis(100);
/// Time limit of the gateways for connecting to a destination.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const LENGTH: usize = 300_000;
/// The next unused port.
static PORTS: AtomicU16 = AtomicU16::new(5000);
/// Number of refused connections among as many live ones.
const CROWD: usize = 40;

#[test]
fn tcp_is_tcp_when_answered_early() {
    as_myself(|runner| runner.inside(bare(), "semantics::inside_early"));
}

#[test]
fn tcp_is_tcp_when_the_answer_is_deferred() {
    as_each_user(|runner| runner.inside(bare(), "semantics::inside_deferred"));
}

pub(crate) fn inside_early() {
    check(false);
}

pub(crate) fn inside_deferred() {
    check(true);
}

#[test]
fn a_hub_that_dies_is_in_no_deferred_connection_s_way() {
    as_myself(|runner| runner.inside(bare(), "semantics::inside_the_hub_dies"));
}

/// The SYN withheld by the terminal is lost; the client retransmits it, and it passes
/// unaccelerated.
pub(crate) fn inside_the_hub_dies() {
    let keys = Keys::new(1);
    let hub = keys.hub("", "");
    let terminal = keys.terminal(1, "", "answer = \"deferred\"");
    hub.end_by(Signal::SIGKILL);
    thread::scope(|scope| {
        for address in both(Node::Server, 0) {
            let (from, to) = (Node::Client, Node::Server);
            let cell = Cell { from, to, ip: address.ip(), deferred: true };
            scope.spawn(move || {
                let (listener, address) = cell.listen(1);
                let mut caller = cell.connect(address);
                let (mut listening, peer) = accept_any(&listener);
                assert_eq!(peer.ip(), caller.local_addr().unwrap().ip(), "there is no hub");
                exchange(&mut caller, &mut listening, b"hello");
            });
        }
    });
    terminal.end_by(Signal::SIGTERM);
}

#[test]
fn tcp_is_tcp_through_a_gateway_alone() {
    as_myself(|runner| runner.inside(lossless(), "semantics::inside_alone_early"));
}

#[test]
fn tcp_is_tcp_through_a_gateway_alone_that_defers() {
    as_each_user(|runner| runner.inside(lossless(), "semantics::inside_alone_deferred"));
}

pub(crate) fn inside_alone_early() {
    check_alone("early");
}

pub(crate) fn inside_alone_deferred() {
    check_alone("deferred");
}

fn check_alone(answer: &str) {
    // Pipes kept for later connections.
    const PIPES: usize = 2 * 16;
    let config = format!(
        "connect_timeout = \"{} s\"\n[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]\n\
         own_traffic = true\nanswer = \"{answer}\"\n",
        CONNECT_TIMEOUT.as_secs()
    );
    let mut solo = Gateway::start(Node::Terminal, "solo", &config);
    solo.wait_for("ready");
    let cells: Vec<Cell> = [Node::Client, Node::Terminal]
        .into_iter()
        .flat_map(|from| {
            both(Node::Server, 0).map(|address| Cell {
                from,
                to: Node::Server,
                ip: address.ip(),
                deferred: answer == "deferred",
            })
        })
        .collect();
    check_cells(&cells, &[&solo], PIPES);
    let told = solo.end_with(Signal::SIGTERM);
    let counted = told.split("connections ").nth(1).and_then(|rest| rest.split(' ').next());
    // Each cell has at least this many live connections. Refused ones may have passed
    // unaccelerated.
    let live = CROWD * cells.len();
    assert!(
        counted.and_then(|count| count.parse().ok()).is_some_and(|n: usize| n > live),
        "{told}"
    );
}

#[test]
fn tcp_is_tcp_through_two_gateways_with_a_stack() {
    as_myself(|runner| runner.inside(lossless(), "semantics::inside_stack_early"));
}

#[test]
fn tcp_is_tcp_through_two_gateways_with_a_stack_that_defer() {
    as_each_user(|runner| runner.inside(lossless(), "semantics::inside_stack_deferred"));
}

pub(crate) fn inside_stack_early() {
    check_stack("early");
}

pub(crate) fn inside_stack_deferred() {
    check_stack("deferred");
}

/// Solo gateways on both sides of the satellite with TCP of their own between them.
fn check_stack(answer: &str) {
    let config = format!(
        "connect_timeout = \"{} s\"\ncontrol = \"none\"\n[intercept]\n\
         interfaces = [\"{LAN_DEVICE}\"]\nanswer = \"{answer}\"\n[wan]\nstack = \"skyhop\"\n\
         interfaces = [\"{HOP_DEVICE}\"]\n",
        CONNECT_TIMEOUT.as_secs()
    );
    let mut gateways =
        [Node::Terminal, Node::Hub].map(|node| Gateway::start(node, "solo", &config));
    gateways.iter_mut().for_each(|gateway| gateway.wait_for("ready"));
    let ways = [(Node::Client, Node::Server), (Node::Server, Node::Client)];
    let cells: Vec<Cell> = ways
        .into_iter()
        .flat_map(|(from, to)| {
            let deferred = answer == "deferred";
            both(to, 0).map(|address| Cell { from, to, ip: address.ip(), deferred })
        })
        .collect();
    let [terminal, hub] = &gateways;
    check_cells(&cells, &[terminal, hub], 0);
    gateways.into_iter().for_each(|gateway| gateway.end_by(Signal::SIGTERM));
}

fn check(deferred: bool) {
    let keys = Keys::new(1);
    let setting = format!("connect_timeout = \"{} s\"", CONNECT_TIMEOUT.as_secs());
    let answer = if deferred { "answer = \"deferred\"" } else { "answer = \"early\"" };
    let hub = keys.intercepting_hub(&setting, answer);
    let terminal = keys.terminal(1, &setting, answer);
    let ways = [(Node::Client, Node::Server), (Node::Server, Node::Client)];
    let cells: Vec<Cell> = ways
        .into_iter()
        .flat_map(|(from, to)| {
            both(to, 0).map(|address| Cell { from, to, ip: address.ip(), deferred })
        })
        .collect();
    cells.iter().for_each(Cell::wait_until_carried);
    check_cells(&cells, &[&hub, &terminal], 0);
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

/// Checks every case in every cell. Afterwards the gateways may only keep `kept` descriptors.
fn check_cells(cells: &[Cell], gateways: &[&Gateway], kept: usize) {
    let descriptors = || gateways.iter().map(|gateway| gateway.descriptors());
    let before: Vec<usize> = descriptors().collect();
    thread::scope(|scope| {
        for cell in cells {
            for case in CASES {
                scope.spawn(move || case(cell));
            }
        }
    });
    cells.iter().for_each(Cell::single_bytes_are_not_held_back);
    let began = Instant::now();
    while descriptors().zip(&before).any(|(now, before)| now > before + kept) {
        assert!(began.elapsed() < PATIENCE, "more descriptors than {before:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

const CASES: [fn(&Cell); 16] = [
    Cell::a_reply_after_the_question_s_end,
    Cell::the_listener_ends_first,
    Cell::the_caller_closes_at_once,
    Cell::both_end_at_once,
    Cell::a_slow_caller_loses_nothing,
    Cell::a_slow_listener_loses_nothing,
    Cell::resets_reach_the_other_end,
    Cell::resets_overtake_nothing,
    Cell::refusals_are_refusals,
    Cell::unreachable_is_unreachable,
    Cell::silence_is_silence,
    Cell::a_late_answer_is_one_connection,
    Cell::data_may_come_with_the_syn,
    Cell::refusals_disturb_nobody,
    Cell::a_caller_may_vanish,
    Cell::idle_connections_live,
];

/// Connections from one host to another, of one IP version.
struct Cell {
    from: Node,
    to: Node,
    /// Address of the listening host.
    ip: IpAddr,
    deferred: bool,
}

impl Cell {
    fn address(&self) -> SocketAddr {
        SocketAddr::new(self.ip, PORTS.fetch_add(1, Ordering::Relaxed))
    }

    /// A listener with this backlog.
    fn listen(&self, room: i32) -> (TcpListener, SocketAddr) {
        let address = self.address();
        let listen = || {
            let listener = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
            listener.bind(&address.into()).unwrap();
            listener.listen(room).unwrap();
            TcpListener::from(listener)
        };
        (find_netns(self.to).unwrap().run(listen), address)
    }

    fn connect(&self, address: SocketAddr) -> TcpStream {
        connect_from(self.from, address)
    }

    fn try_connect(&self, address: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
        find_netns(self.from).unwrap().run(|| TcpStream::connect_timeout(&address, patience))
    }

    /// Both ends of a carried connection.
    fn connection(&self) -> (TcpStream, TcpStream) {
        let (listener, address) = self.listen(1);
        let caller = self.connect(address);
        let (listening, peer) = accept_any(&listener);
        // A gateway's own connections look the same when they pass.
        let passed_by =
            self.from != Node::Terminal && peer.ip() == caller.local_addr().unwrap().ip();
        assert!(!passed_by, "it passed the gateways by");
        (caller, listening)
    }

    /// A gateway in service may not know its peer yet.
    fn wait_until_carried(&self) {
        let (listener, address) = self.listen(1);
        let began = Instant::now();
        loop {
            let Ok(caller) = self.try_connect(address, PATIENCE) else { continue };
            if accept_any(&listener).1.ip() != caller.local_addr().unwrap().ip() {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{address} is not carried");
        }
    }

    fn a_reply_after_the_question_s_end(&self) {
        let (mut caller, mut listening) = self.connection();
        caller.write_all(b"question").unwrap();
        caller.shutdown(Shutdown::Write).unwrap();
        assert_same(&read_all(&listening), b"question");
        let reply = payload(LENGTH);
        thread::scope(|scope| {
            scope.spawn(move || listening.write_all(&reply).unwrap());
            assert_same(&read_all(&caller), &payload(LENGTH));
        });
    }

    fn the_listener_ends_first(&self) {
        let (mut caller, mut listening) = self.connection();
        listening.write_all(b"bye").unwrap();
        listening.shutdown(Shutdown::Write).unwrap();
        assert_same(&read_all(&caller), b"bye");
        thread::scope(|scope| {
            scope.spawn(move || caller.write_all(&payload(LENGTH)).unwrap());
            assert_same(&read_all(&listening), &payload(LENGTH));
        });
    }

    fn the_caller_closes_at_once(&self) {
        let (mut caller, listening) = self.connection();
        caller.write_all(&payload(LENGTH)).unwrap();
        drop(caller);
        assert_same(&read_all(&listening), &payload(LENGTH));
    }

    fn both_end_at_once(&self) {
        let (caller, listening) = self.connection();
        caller.shutdown(Shutdown::Write).unwrap();
        listening.shutdown(Shutdown::Write).unwrap();
        assert_same(&read_all(&caller), b"");
        assert_same(&read_all(&listening), b"");
    }

    fn a_slow_caller_loses_nothing(&self) {
        let (caller, listening) = self.connection();
        read_late(&caller, listening);
    }

    fn a_slow_listener_loses_nothing(&self) {
        let (caller, listening) = self.connection();
        read_late(&listening, caller);
    }

    fn resets_overtake_nothing(&self) {
        assert_nothing_is_overtaken(|| self.connection());
    }

    fn resets_reach_the_other_end(&self) {
        let (caller, listening) = self.connection();
        reset_while_receiving(caller, listening);
        let (caller, listening) = self.connection();
        reset_while_receiving(listening, caller);
        let (caller, listening) = self.connection();
        reset_while_sending(caller, &listening);
        let (caller, listening) = self.connection();
        reset_while_sending(listening, &caller);
        let (caller, listening) = self.connection();
        reset(listening);
        assert_reset(&caller);
    }

    /// Expects that connecting fails: in `connect` with `expected`, or with a reset after the
    /// connection was answered. Returns whether it was answered.
    fn is_answered_and_fails(&self, address: SocketAddr, expected: ErrorKind) -> bool {
        // On a busy machine, refusals take longer than silence lasts.
        let silent = expected == ErrorKind::TimedOut;
        let patience = if silent { CONNECT_TIMEOUT + RTT * 10 } else { PATIENCE };
        match self.try_connect(address, patience) {
            Ok(caller) => {
                caller.set_read_timeout(Some(PATIENCE)).unwrap();
                assert_reset(&caller);
                true
            }
            Err(error) => {
                assert!(error.kind() == expected || is_unnamed(&error), "{error:?}");
                false
            }
        }
    }

    fn assert_fails(&self, address: SocketAddr, expected: ErrorKind) {
        let began = Instant::now();
        let is_answered = self.is_answered_and_fails(address, expected);
        let (from, took) = (self.from, began.elapsed());
        assert_eq!(is_answered, !self.deferred, "{from:?} to {address} after {took:?}");
    }

    /// After other refusals there, the connection may pass unaccelerated.
    fn assert_one_of_many_fails(&self, address: SocketAddr) {
        let is_answered = self.is_answered_and_fails(address, ErrorKind::ConnectionRefused);
        assert!(!(is_answered && self.deferred));
    }

    fn refusals_are_refusals(&self) {
        self.assert_fails(self.address(), ErrorKind::ConnectionRefused);
    }

    /// On the listener's LAN, where the gateway's ARP requests stay unanswered.
    fn unreachable_is_unreachable(&self) {
        let nobody: IpAddr = match self.ip {
            IpAddr::V4(v4) => std::net::Ipv4Addr::from_bits(v4.to_bits() + 75).into(),
            IpAddr::V6(v6) => std::net::Ipv6Addr::from_bits(v6.to_bits() + 75).into(),
        };
        self.assert_fails(SocketAddr::new(nobody, 80), ErrorKind::HostUnreachable);
    }

    /// A listener with a full backlog does not answer; once it has room again, it does.
    fn silent(&self) -> (TcpListener, SocketAddr, TcpStream) {
        let (listener, address) = self.listen(0);
        let own = find_netns(self.to).unwrap().run(|| TcpStream::connect(address).unwrap());
        (listener, address, own)
    }

    fn silence_is_silence(&self) {
        let (_listener, address, _own) = self.silent();
        self.assert_fails(address, ErrorKind::TimedOut);
    }

    /// The caller's kernel retransmits its SYN meanwhile.
    fn a_late_answer_is_one_connection(&self) {
        let (listener, address, _own) = self.silent();
        thread::scope(|scope| {
            let calling = scope.spawn(|| self.try_connect(address, PATIENCE).unwrap());
            thread::sleep(RTT * 15);
            accept_any(&listener);
            let (mut listening, _) = accept_any(&listener);
            let mut caller = calling.join().unwrap();
            listening.write_all(b"at last").unwrap();
            let mut heard = [0; 7];
            caller.read_exact(&mut heard).unwrap();
            assert_eq!(&heard, b"at last");
        });
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "another one");
    }

    /// TCP Fast Open without a cookie (RFC 7413 §4.1.3, as Linux permits).
    fn data_may_come_with_the_syn(&self) {
        let (listener, address) = self.listen(1);
        let caller = find_netns(self.from).unwrap().run(|| {
            // Enables the client, without requiring a cookie.
            fs::write("/proc/sys/net/ipv4/tcp_fastopen", "5").unwrap();
            let caller = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
            let sent = caller.send_to_with_flags(b"early", &address.into(), libc::MSG_FASTOPEN);
            assert_eq!(sent.unwrap(), 5);
            TcpStream::from(caller)
        });
        caller.shutdown(Shutdown::Write).unwrap();
        let (mut listening, _) = accept_any(&listener);
        assert_same(&read_all(&listening), b"early");
        listening.write_all(b"reply").unwrap();
        drop(listening);
        caller.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_same(&read_all(&caller), b"reply");
    }

    fn refusals_disturb_nobody(&self) {
        let (listener, address) = self.listen(CROWD as i32);
        let closed = self.address();
        let mut live: Vec<_> =
            (0..CROWD).map(|_| (self.connect(address), accept_any(&listener).0)).collect();
        thread::scope(|scope| {
            for _ in 0..CROWD {
                scope.spawn(|| self.assert_one_of_many_fails(closed));
            }
        });
        for (number, (caller, listening)) in (0u8..).zip(&mut live) {
            caller.write_all(&[number]).unwrap();
            let mut heard = [0];
            listening.read_exact(&mut heard).unwrap();
            assert_eq!(heard, [number]);
            listening.write_all(&[!number]).unwrap();
        }
        for (number, (caller, _)) in (0u8..).zip(&mut live) {
            let mut heard = [0];
            caller.read_exact(&mut heard).unwrap();
            assert_eq!(heard, [!number]);
        }
    }

    /// A host that has forgotten the connection sends a RST when it receives data.
    fn a_caller_may_vanish(&self) {
        let (caller, mut listening) = self.connection();
        find_netns(self.from).unwrap().run(|| vanish(caller));
        listening.write_all(&payload(1000)).unwrap();
        let error = listening.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }

    /// Some proxies drop them after two seconds.
    fn idle_connections_live(&self) {
        let (mut caller, mut listening) = self.connection();
        thread::sleep(Duration::from_secs(3));
        exchange(&mut caller, &mut listening, b"still");
        exchange(&mut listening, &mut caller, b"here");
    }

    /// Two bytes in two writes, answered by two: a delay by Nagle's algorithm, delayed ACKs or
    /// corking would take 40 ms or more.
    fn single_bytes_are_not_held_back(&self) {
        const TURNS: usize = 9;
        const TRIES: usize = 15;
        let (mut caller, mut listening) = self.connection();
        let mut medians = Vec::new();
        while medians.len() < TRIES {
            let mut times: Vec<Duration> = Vec::new();
            for _ in 0..TURNS {
                let began = Instant::now();
                exchange(&mut caller, &mut listening, b"ab");
                exchange(&mut listening, &mut caller, b"cd");
                times.push(began.elapsed());
            }
            times.sort();
            assert!(times[0] >= RTT, "faster than light: {times:?}");
            medians.push(times[TURNS / 2]);
            if medians.last() < Some(&(RTT + Duration::from_millis(25))) {
                return;
            }
        }
        panic!("{medians:?}");
    }
}

/// Sends bytes from one end to the other, each in its own write.
fn exchange(from: &mut TcpStream, to: &mut TcpStream, bytes: &[u8]) {
    from.set_nodelay(true).unwrap();
    for byte in bytes {
        from.write_all(&[*byte]).unwrap();
    }
    let mut heard = vec![0; bytes.len()];
    to.read_exact(&mut heard).unwrap();
    assert_eq!(heard, bytes);
}

/// The sender has closed before the reader begins, and the reader is slow.
fn read_late(mut reader: &TcpStream, mut sender: TcpStream) {
    setsockopt(reader, sockopt::RcvBuf, &8_192).unwrap();
    sender.write_all(&payload(LENGTH)).unwrap();
    drop(sender);
    let (mut back, mut part) = (Vec::new(), [0; 1000]);
    loop {
        match reader.read(&mut part).unwrap() {
            0 => break,
            count => back.extend_from_slice(&part[..count]),
        }
    }
    assert_same(&back, &payload(LENGTH));
}

/// Closes a socket silently: the kernel forgets the connection.
pub(crate) fn vanish(socket: TcpStream) {
    setsockopt(&socket, sockopt::TcpRepair, &1).unwrap();
    drop(socket);
}

/// Whether a connection failed for a reason that the standard library could not read: the kernel
/// closes the socket of a failed connection before or after it sets the error, and a look in
/// between finds none.
fn is_unnamed(error: &io::Error) -> bool {
    error.raw_os_error().is_none() && error.kind() != ErrorKind::TimedOut
}
