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
    use std::future::Future;
    use std::net::UdpSocket;
    use std::pin::pin;

    use super::*;

    /// Datagrams that are answered at once wake a thread that gathers once per pause at most.
    #[test]
    fn what_comes_is_gathered() {
        let [near, far] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        near.connect(far.local_addr().unwrap()).unwrap();
        near.set_nonblocking(true).unwrap();
        far.connect(near.local_addr().unwrap()).unwrap();
        let echo = thread::spawn(move || {
            for _ in 0..200 {
                far.recv(&mut [0]).unwrap();
                far.send(&[7]).unwrap();
            }
        });
        let runtime = start(true).unwrap();
        let begin = clock::now();
        let looks = runtime.block_on(async {
            let near = tokio::net::UdpSocket::from_std(near).unwrap();
            let mut talk = pin!(async {
                for _ in 0..200 {
                    near.send(&[7]).await.unwrap();
                    near.recv(&mut [0]).await.unwrap();
                }
            });
            let mut looks = 0;
            std::future::poll_fn(|context| {
                looks += 1;
                talk.as_mut().poll(context)
            })
            .await;
            looks
        });
        echo.join().unwrap();
        let pauses = clock::now().saturating_since(begin).as_nanos() / PAUSE.as_nanos();
        assert!(looks <= pauses + 2, "{looks} looks in {pauses} pauses");
    }
}
