//! The runtimes of a gateway, each of one thread.
//!
//! To wake up costs more than to handle a packet. So a thread that gathers sleeps until `PAUSE` after
//! its last wake-up, whatever happens meanwhile, and then handles everything at once. What comes after a
//! longer silence is handled immediately.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use units::Instant;

use crate::clock;

/// Shortest time between two wake-ups of a thread that gathers: two packets at 50 Mbit/s. Less than the
/// pacer lets a late driver catch up (4 ms), and than the jitter of any modem.
const PAUSE: Duration = Duration::from_micros(500);

/// Creates a runtime for the calling thread.
///
/// # Errors
/// If the process has no descriptor left.
pub fn start(gathers: bool) -> io::Result<Runtime> {
    let mut builder = Builder::new_current_thread();
    builder.enable_all();
    if gathers {
        let woken = Arc::new(AtomicU64::new(0));
        let wakes = woken.clone();
        builder.on_thread_unpark(move || wakes.store(clock::now().as_nanos(), Ordering::Relaxed));
        builder.on_thread_park(move || {
            let woken = Instant::from_nanos(woken.load(Ordering::Relaxed));
            thread::sleep((woken + PAUSE).saturating_since(clock::now()));
        });
    }
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thousand datagrams, one every 50 µs, wake one that gathers once per pause at most.
    #[test]
    fn datagrams_are_gathered() {
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_nonblocking(true).unwrap();
        let to = receiver.local_addr().unwrap();
        let runtime = start(true).unwrap();
        let before = clock::now();
        let sending = thread::spawn(move || {
            for _ in 0..1000 {
                sender.send_to(&[7], to).unwrap();
                thread::sleep(Duration::from_micros(50));
            }
        });
        let wake_ups = runtime.block_on(async move {
            let receiver = tokio::net::UdpSocket::from_std(receiver).unwrap();
            let (mut wake_ups, mut got) = (0, 0);
            while got < 1000 {
                receiver.readable().await.unwrap();
                wake_ups += 1;
                while receiver.try_recv(&mut [0]).is_ok() {
                    got += 1;
                }
            }
            wake_ups
        });
        sending.join().unwrap();
        let most = clock::now().saturating_since(before).as_nanos() / PAUSE.as_nanos() + 2;
        assert!(wake_ups <= most, "{wake_ups} of at most {most}");
    }
}
