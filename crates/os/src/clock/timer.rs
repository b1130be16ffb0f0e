//! A timer for tokio with a precision of some tens of microseconds. Tokio's own timers count milliseconds, in
//! which a 50 Mbit/s link sends four packets: pacing would become bursts.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tokio::io::unix::AsyncFd;
use units::Instant;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// A single deadline on the clock of [`crate::clock::now`] (timerfd_create(2)).
pub struct Timer {
    fd: AsyncFd<TimerDescriptor>,
    deadline: Option<Instant>,
}

/// Tokio needs the raw descriptor, which nix does not expose.
struct TimerDescriptor(TimerFd);

impl AsRawFd for TimerDescriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl Timer {
    /// A timer without a deadline.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let fd = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        // SAFETY: the descriptor is open, its owner goes into the AsyncFd and is
        // neither replaced nor closed there.
        let fd = unsafe { AsyncFd::register(TimerDescriptor(fd)) }?;
        Ok(Self { fd, deadline: None })
    }

    /// Sets or clears the deadline.
    ///
    /// # Errors
    /// Those of timerfd_settime(2).
    pub fn set(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        if deadline == self.deadline {
            // Saves a system call: drivers set the same deadline after every event.
            return Ok(());
        }
        self.deadline = deadline;
        let Some(at) = deadline else { return Ok(self.fd.get_ref().0.unset()?) };
        // Zero would clear the timer; one nanosecond later is as good.
        let nanos = at.as_nanos().max(1);
        let at = TimeSpec::new(
            i64::try_from(nanos / NANOS_PER_SECOND).unwrap_or(i64::MAX),
            i64::try_from(nanos % NANOS_PER_SECOND).unwrap_or(0),
        );
        let flags = TimerSetTimeFlags::TFD_TIMER_ABSTIME;
        Ok(self.fd.get_ref().0.set(Expiration::OneShot(at), flags)?)
    }

    /// Ensures that there is a deadline between `earliest` and `latest`. If it has to be set, it is
    /// `latest`.
    ///
    /// # Errors
    /// Those of timerfd_settime(2).
    pub fn set_between(&mut self, earliest: Instant, latest: Instant) -> io::Result<()> {
        if self.deadline.is_some_and(|at| (earliest..=latest).contains(&at)) {
            return Ok(());
        }
        self.set(Some(latest))
    }

    /// Waits until the deadline has passed, and clears it.
    ///
    /// # Errors
    /// While the runtime shuts down.
    pub async fn expired(&mut self) -> io::Result<()> {
        self.fd.readable_mut().await?.clear_ready();
        self.deadline = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock;

    #[tokio::test]
    async fn expires_after_its_deadline_again_and_again() {
        let mut timer = Timer::new().unwrap();
        for _ in 0..3 {
            let deadline = clock::now() + Duration::from_micros(200);
            timer.set(Some(deadline)).unwrap();
            timer.expired().await.unwrap();
            assert!(clock::now() >= deadline);
        }
        timer.set(Some(Instant::ZERO)).unwrap();
        timer.expired().await.unwrap();
    }

    #[tokio::test]
    async fn a_deadline_that_is_late_enough_stays() {
        let mut timer = Timer::new().unwrap();
        let at = |us| clock::now() + Duration::from_micros(us);
        let soon = at(100);
        let later = at(200);
        let last = at(300);
        timer.set_between(soon, later).unwrap();
        assert_eq!(timer.deadline, Some(later));
        timer.set_between(later, last).unwrap();
        assert_eq!(timer.deadline, Some(later));
        timer.set_between(last, last).unwrap();
        timer.expired().await.unwrap();
        assert!(clock::now() >= last);
    }
}
