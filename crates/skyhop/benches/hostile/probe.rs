//! The honest client: a verified download, and round trips beside it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::inside::{Mirror, addresses, connect, listen, payload};

const PING_PORT: u16 = 7000;
const DOWNLOAD_PORT: u16 = 7001;
/// Length of the part that the download repeats: no packet, no buffer has it.
const PERIOD: usize = 65_521;
/// Interval of the pings.
const EVERY: Duration = Duration::from_millis(20);

/// A download that goes on until the program ends, if no byte is wrong.
pub(crate) struct Download {
    bytes: Arc<AtomicU64>,
    client: JoinHandle<()>,
}

impl Download {
    pub(crate) fn begin() -> Self {
        let listener = listen(DOWNLOAD_PORT);
        thread::spawn(move || {
            let (mut server, _) = listener.accept().expect("the client comes");
            let part = payload(PERIOD);
            while server.write_all(&part).is_ok() {}
        });
        let (mut client, bytes) =
            (connect(addresses(DOWNLOAD_PORT)[0]), Arc::<AtomicU64>::default());
        let counted = Arc::clone(&bytes);
        let client = thread::spawn(move || {
            let (expected, mut buffer, mut at) = (payload(PERIOD).repeat(2), vec![0; PERIOD], 0);
            while let Ok(count @ 1..) = client.read(&mut buffer) {
                assert!(buffer[..count] == expected[at..][..count], "the download is damaged");
                at = (at + count) % PERIOD;
                counted.fetch_add(count as u64, Ordering::Relaxed);
            }
            panic!("the download has ended");
        });
        Self { bytes, client }
    }

    /// Fails if it has ended.
    pub(crate) fn assert_goes_on(&self) {
        assert!(!self.client.is_finished(), "the download has ended");
    }

    /// Its rate within the next time.
    pub(crate) fn mbit_within(&self, time: Duration) -> f64 {
        let (before, begin) = (self.bytes.load(Ordering::Relaxed), Instant::now());
        thread::sleep(time);
        let bytes = self.bytes.load(Ordering::Relaxed) - before;
        bytes as f64 * 8e-6 / begin.elapsed().as_secs_f64()
    }
}

/// Bytes that come back, one every 20 ms.
pub(crate) struct Pings(Arc<Mutex<Vec<f64>>>);

impl Pings {
    pub(crate) fn begin() -> Self {
        let (trips, mirror) = (Arc::<Mutex<Vec<f64>>>::default(), Mirror::start(PING_PORT));
        let (socket, noted) = (mirror.connect_carried(), Arc::clone(&trips));
        socket.set_nodelay(true).expect("a TCP connection");
        let back = socket.try_clone().expect("a descriptor");
        let sent = Arc::<Mutex<Vec<Instant>>>::default();
        let times = Arc::clone(&sent);
        thread::spawn(move || send(socket, &sent));
        thread::spawn(move || {
            receive(back, &times, &noted);
            panic!("the pings have ended");
        });
        Self(trips)
    }

    /// The round trips since the last call, sorted, in milliseconds.
    pub(crate) fn take(&self) -> Vec<f64> {
        let mut trips = std::mem::take(&mut *self.0.lock().expect("nobody panics"));
        trips.sort_by(f64::total_cmp);
        trips
    }
}

fn send(mut socket: TcpStream, sent: &Mutex<Vec<Instant>>) {
    loop {
        sent.lock().expect("nobody panics").push(Instant::now());
        if socket.write_all(&[1]).is_err() {
            return;
        }
        thread::sleep(EVERY);
    }
}

fn receive(mut socket: TcpStream, sent: &Mutex<Vec<Instant>>, trips: &Mutex<Vec<f64>>) {
    let (mut buffer, mut count) = ([0; 64], 0);
    while let Ok(came @ 1..) = socket.read(&mut buffer) {
        let (now, sent) = (Instant::now(), sent.lock().expect("nobody panics"));
        let of = |sent: &Instant| (now - *sent).as_secs_f64() * 1e3;
        trips.lock().expect("nobody panics").extend(sent[count..count + came].iter().map(of));
        count += came;
    }
}
