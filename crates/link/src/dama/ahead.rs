//! The queue in front of a terminal, as the gateway there reports it.
//!
//! A gateway that keeps the queue out of the modem has to report its length, or the terminal
//! requests capacity only for the few packets that it holds. The reported bytes count like cells in
//! the MAC buffer.
//!
//! Each byte counts once: bytes that enter the terminal are subtracted from the report, also those
//! of a packet that did not wait in the gateway, until the next report corrects it.

use core::time::Duration;

use units::Instant;

use super::frames::Cell;

/// Time after which a report expires that is not renewed, so that a dead gateway holds no capacity.
pub const BACKLOG_LASTS: Duration = Duration::from_secs(3);

/// The reported queue in front of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ReportedQueue {
    bytes: u64,
    /// Time at which the report expires.
    until: Instant,
    /// Bytes by which reports have raised it since the last opportunity to request capacity.
    came: u64,
    /// Bytes that have entered the terminal since then.
    entered: u64,
}

/// The reported queue in cells, as a request needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReportedCells {
    /// Waiting in front of the terminal.
    pub(super) waiting: u32,
    /// New there since the last opportunity.
    pub(super) came: u32,
    /// Of the cells that have entered the terminal since then, those that had been reported before.
    pub(super) entered: u32,
}

impl ReportedQueue {
    /// Replaces the report.
    pub(super) fn set(&mut self, now: Instant, bytes: u64) {
        self.expire(now);
        self.came = self.came.saturating_add(bytes.saturating_sub(self.bytes));
        (self.bytes, self.until) = (bytes, now + BACKLOG_LASTS);
    }

    /// Subtracts a packet that enters the terminal.
    pub(super) fn enter(&mut self, len: usize) {
        let known = self.bytes.min(len as u64);
        self.bytes -= known;
        self.entered = self.entered.saturating_add(known);
    }

    /// Returns true if nothing waits according to the last report.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns the cells for a request, and starts counting anew.
    pub(super) fn take(&mut self, now: Instant, cell: Cell) -> ReportedCells {
        self.expire(now);
        let cells = |bytes: u64| {
            let payload = u64::from(cell.payload.max(1));
            u32::try_from(bytes.div_ceil(payload)).unwrap_or(u32::MAX)
        };
        ReportedCells {
            waiting: cells(self.bytes),
            came: cells(core::mem::take(&mut self.came)),
            entered: cells(core::mem::take(&mut self.entered)),
        }
    }

    fn expire(&mut self, now: Instant) {
        if self.until <= now {
            self.bytes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn cells(waiting: u32, came: u32, entered: u32) -> ReportedCells {
        ReportedCells { waiting, came, entered }
    }

    #[test]
    fn what_enters_the_terminal_comes_out_of_the_statement() {
        let mut ahead = ReportedQueue::default();
        ahead.set(at(0), 4_800);
        assert_eq!(ahead.take(at(1), Cell::ATM), cells(100, 100, 0));
        ahead.enter(480);
        ahead.enter(480);
        assert_eq!(ahead.take(at(2), Cell::ATM), cells(80, 0, 20));
        // The gateway repeats what is left: nothing is new.
        ahead.set(at(3), 3_840);
        assert_eq!(ahead.take(at(4), Cell::ATM), cells(80, 0, 0));
        ahead.enter(100_000);
        assert!(ahead.is_empty());
        assert_eq!(ahead.take(at(5), Cell::ATM), cells(0, 0, 80));
    }

    #[test]
    fn a_statement_that_is_not_renewed_is_forgotten() {
        let mut ahead = ReportedQueue::default();
        ahead.set(at(0), 480);
        assert_eq!(ahead.take(at(2_999), Cell::ATM).waiting, 10);
        assert_eq!(ahead.take(at(3_000), Cell::ATM).waiting, 0);
        assert!(ahead.is_empty());
        ahead.set(at(4_000), 480);
        assert_eq!(ahead.take(at(4_001), Cell::ATM), cells(10, 10, 0));
        ahead.set(at(4_002), 0);
        assert!(ahead.is_empty());
    }
}
