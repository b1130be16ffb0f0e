//! The runtimes of a gateway, each with a single thread.
//!
//! Waking up costs more than handling a packet. So a thread that gathers sleeps until `PAUSE` after its last
//! wake-up, whatever arrives meanwhile, and then handles everything at once. After a longer silence, input
//! is handled immediately.

#[cfg(any(test, debug_assertions))]
pub(crate) mod watchdog;

use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::io;
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinError, JoinSet};
use units::Instant;

use crate::process::clock;

/// Minimum time between two wake-ups of a thread that gathers: two packets at 50 Mbit/s. It is below the
/// 4 ms that the pacer lets a late driver catch up, and below the jitter of any modem.
const PAUSE: Duration = Duration::from_micros(500);

thread_local! {
    /// End of the pause that this thread makes before it waits for input; zero if it does not gather.
    static PAUSE_ENDS: Cell<Instant> = const { Cell::new(Instant::ZERO) };
    /// Tasks to wake at the end of the pause.
    static WAITING: RefCell<Vec<Waker>> = const { RefCell::new(Vec::new()) };
}

/// Creates a runtime for the calling thread. With `gathers`, it wakes up at most every 0.5 ms.
///
/// # Errors
/// If the process has no descriptor left.
pub fn start(gathers: bool) -> io::Result<Runtime> {
    let mut builder = Builder::new_current_thread();
    builder.enable_all();
    if gathers {
        // Halves the processor time of a terminal at 50 Mbit/s: 33.7 to 15.9 s/GB.
        builder.on_thread_unpark(|| PAUSE_ENDS.set(clock::now() + PAUSE));
        builder.on_thread_park(|| {
            thread::sleep(PAUSE_ENDS.get().saturating_since(clock::now()));
            // Everything that has come during the pause is handled in the next turn.
            WAITING.take().into_iter().for_each(Waker::wake);
        });
    }
    let runtime = builder.build()?;
    #[cfg(any(test, debug_assertions))]
    watchdog::start(&runtime);
    Ok(runtime)
}

/// Returns whether the calling thread, once idle, pauses until `time` or longer. Then [`pause`] serves as a
/// timer without a system call.
pub(crate) fn pauses_until(time: Instant) -> bool {
    time <= PAUSE_ENDS.get()
}

/// Waits until the calling thread has paused, or the task is woken otherwise. A thread that is always busy
/// does not pause.
pub(crate) async fn pause() {
    let mut waits = false;
    poll_fn(|context| {
        if std::mem::replace(&mut waits, true) {
            return Poll::Ready(());
        }
        WAITING.with_borrow_mut(|waiting| {
            if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                waiting.push(context.waker().clone());
            }
        });
        Poll::Pending
    })
    .await;
}

/// Waits until one of the tasks has completed; for ever without tasks. Logs tasks that panic. Cancel-safe.
pub(crate) async fn joined<T: 'static>(tasks: &mut JoinSet<T>) -> T {
    loop {
        match tasks.join_next().await {
            Some(Ok(done)) => return done,
            Some(Err(error)) => log_panic(Err(error)),
            None => return pending().await,
        }
    }
}

/// Logs a panic in a connection's task.
pub(crate) fn log_panic(ended: Result<(), JoinError>) {
    // A task whose connection gave way to another was cancelled, which is no error.
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!("dropped a connection: {error}");
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::net::UdpSocket;
    use std::pin::pin;

    use super::*;

    /// Nothing else wakes these tasks.
    #[test]
    fn a_pause_ends_for_all_who_wait() {
        let runtime = start(true).unwrap();
        let wait = || async {
            for _ in 0..10 {
                let ends = PAUSE_ENDS.get();
                assert!(pauses_until(ends) && !pauses_until(ends + Duration::from_nanos(1)));
                pause().await;
                assert!(clock::now() >= ends);
            }
        };
        let both = async { tokio::join!(tokio::spawn(wait()), tokio::spawn(wait())) };
        let (one, other) = runtime.block_on(both);
        one.unwrap();
        other.unwrap();
        assert!(WAITING.take().is_empty());
    }

    #[test]
    fn a_thread_that_does_not_gather_does_not_pause() {
        start(false).unwrap().block_on(async { assert!(!pauses_until(clock::now())) });
    }

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
            poll_fn(|context| {
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
