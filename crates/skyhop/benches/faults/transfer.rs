//! Transfers with every byte verified, and the arrival times of the bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::inside::{addresses, listen};

/// Longer than any fault.
const PATIENCE: Duration = Duration::from_secs(150);
/// Averaging time of a rate.
const WINDOW: Duration = Duration::from_secs(1);
/// Fraction of the previous rate that counts as full.
const FULL: f64 = 0.95;

/// Arrival times and sizes, in order.
#[derive(Clone, Default)]
pub(crate) struct Arrivals(Arc<Mutex<Vec<(Instant, usize)>>>);

impl Arrivals {
    fn note(&self, bytes: usize) {
        self.0.lock().expect("nobody panics").push((Instant::now(), bytes));
    }

    /// Merges several transfers into one.
    pub(crate) fn together(several: &[Self]) -> Self {
        let mut all: Vec<_> = several.iter().flat_map(Self::all).collect();
        all.sort_by_key(|(at, _)| *at);
        Self(Arc::new(Mutex::new(all)))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.all().iter().map(|(_, bytes)| bytes).sum()
    }

    /// Time from `begin` to the first arrival.
    pub(crate) fn first_after(&self, begin: Instant) -> Option<Duration> {
        let first = self.all().iter().map(|(at, _)| *at).find(|at| *at >= begin)?;
        Some(first - begin)
    }

    /// Time from `begin` until the rate is again as high as before `old`, and stays so for a
    /// second.
    pub(crate) fn full_after(&self, old: Instant, begin: Instant) -> Option<Duration> {
        let all = self.all();
        let within = |from: Instant| {
            let of_window = all.iter().filter(|(at, _)| *at >= from && *at < from + WINDOW);
            of_window.map(|(_, bytes)| bytes).sum::<usize>()
        };
        let enough = FULL * within(old - WINDOW) as f64;
        let starts = all.iter().map(|(at, _)| *at).filter(|at| *at >= begin);
        let mut full = starts.filter(|at| within(*at) as f64 >= enough);
        full.next().map(|at| at - begin)
    }

    fn all(&self) -> Vec<(Instant, usize)> {
        self.0.lock().expect("nobody panics").clone()
    }
}

/// A transfer in progress. Panics on a wrong byte or a wrong end.
pub(crate) struct Transfer {
    pub(crate) arrivals: Arrivals,
    ends: [JoinHandle<()>; 2],
}

impl Transfer {
    /// Starts a transfer on this port of the server: `content` and a FIN, down or up.
    pub(crate) fn begin(port: u16, content: Arc<[u8]>, down: bool) -> Self {
        let listener = listen(port);
        let client = connect(addresses(port)[0]);
        let (server, _) = listener.accept().expect("the client comes");
        patient(&server);
        let (from, to) = if down { (server, client) } else { (client, server) };
        let arrivals = Arrivals::default();
        let sent = content.clone();
        let sends = thread::spawn(move || send(from, &sent));
        let noted = arrivals.clone();
        let receives = thread::spawn(move || receive(to, &content, &noted));
        Self { arrivals, ends: [sends, receives] }
    }

    /// Waits until both ends have seen the proper end.
    pub(crate) fn finish(self) {
        self.ends.into_iter().for_each(|end| end.join().expect("the transfer is whole"));
    }
}

/// A connection whose peer may stay silent for long.
pub(crate) fn connect(to: SocketAddr) -> TcpStream {
    let socket = crate::inside::connect(to);
    patient(&socket);
    socket
}

fn patient(socket: &TcpStream) {
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket.set_write_timeout(Some(PATIENCE)).expect("a timeout");
}

fn send(mut socket: TcpStream, content: &[u8]) {
    socket.write_all(content).expect("it is taken");
    socket.shutdown(Shutdown::Write).expect("a FIN");
    let end = socket.read(&mut [0]).expect("the peer's FIN");
    assert_eq!(end, 0, "the peer says something");
}

fn receive(mut socket: TcpStream, content: &[u8], arrivals: &Arrivals) {
    let (mut buffer, mut got) = (vec![0; 1 << 16], 0);
    loop {
        let count = socket.read(&mut buffer).expect("data or a FIN");
        if count == 0 {
            break;
        }
        let expected = content.get(got..got + count);
        assert!(expected == Some(&buffer[..count]), "wrong bytes after {got}");
        got += count;
        arrivals.note(count);
    }
    assert_eq!(got, content.len(), "bytes came");
}
