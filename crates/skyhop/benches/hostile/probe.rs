//! The honest client: a download, and round trips beside it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::inside::{Mirror, addresses, connect, listen};

const PING_PORT: u16 = 7000;
const DOWNLOAD_PORT: u16 = 7001;
/// Interval of the pings.
const EVERY: Duration = Duration::from_millis(20);

/// A download that goes on until the program ends.
pub(crate) struct Download(Arc<AtomicU64>);

impl Download {
    pub(crate) fn begin() -> Self {
        let listener = listen(DOWNLOAD_PORT);
        thread::spawn(move || {
            let (mut server, _) = listener.accept().expect("the client comes");
            while server.write_all(&[7; 1 << 16]).is_ok() {}
        });
        let (mut client, bytes) = (connect(addresses(DOWNLOAD_PORT)[0]), Arc::default());
        let download = Self(Arc::clone(&bytes));
        thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(count @ 1..) = client.read(&mut buffer) {
                bytes.fetch_add(count as u64, Ordering::Relaxed);
            }
            panic!("the download has ended");
        });
        download
    }

    /// Its rate within the next time.
    pub(crate) fn mbit_within(&self, time: Duration) -> f64 {
        let (before, begin) = (self.0.load(Ordering::Relaxed), Instant::now());
        thread::sleep(time);
        let bytes = self.0.load(Ordering::Relaxed) - before;
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
