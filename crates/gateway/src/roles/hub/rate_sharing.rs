//! While an upgraded hub has two processes, these share its rate: does what [`pep::rates::handover`] decides.

use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use control::protocol::{ControlAnswer, ControlRequest};
use pep::rates::handover::{HALF, ProcessNeed, RateDivision, UsageMeter};
use units::Instant;

use crate::hop::Hop;
use crate::operate::control_socket::ControlClient;

/// The rate sharing of one of the two processes.
#[derive(Default)]
pub(super) struct RateSharing {
    /// The division of the rate, which the next process decides.
    sharing: RateDivision,
    used: UsageMeter,
    /// The portion of the rate that this process may use; `None` for all of it.
    portion: Option<f64>,
    /// The former process's question to the next one, which waits on a thread of its own.
    asking: Option<JoinHandle<Option<f64>>>,
}

impl RateSharing {
    /// Begins to share with another process, half for each.
    pub(super) fn begin(&mut self, now: Instant, hop: &Hop) {
        self.used.since(now, hop.spent());
        self.set(now, hop, HALF);
    }

    /// Takes the whole rate back after the other process has ended.
    pub(super) fn end(&mut self, now: Instant, hop: &Hop) {
        hop.set_portion(now, 1.0);
        *self = Self::default();
    }

    /// Answers the former process with the portion that it may use from now on. `live`: number of this
    /// process's connections.
    pub(super) fn answer(
        &mut self,
        now: Instant,
        hop: &Hop,
        former: ProcessNeed,
        live: usize,
    ) -> f64 {
        let used = self.own_use(now, hop);
        let portion = self.sharing.handle(former, used, live as u64);
        self.set(now, hop, self.sharing.own());
        portion
    }

    /// Reports this process's use to the next one, at its control socket `to`, and follows its last answer.
    /// Without an answer, the portion stays as it is.
    pub(super) fn tell(&mut self, now: Instant, hop: &Hop, live: usize, to: Option<PathBuf>) {
        if let Some(asking) = self.asking.take_if(|asking| asking.is_finished())
            && let Ok(Some(portion)) = asking.join()
        {
            self.set(now, hop, portion);
        }
        // One question at a time.
        let Some(to) = to.filter(|_| self.asking.is_none()) else { return };
        let need = ProcessNeed {
            portion: self.portion.unwrap_or(1.0),
            used: self.own_use(now, hop),
            connections: live as u64,
        };
        // The next process may be slow to answer, and this thread moves packets.
        self.asking = Some(thread::spawn(move || ask(&to, need)));
    }

    fn own_use(&mut self, now: Instant, hop: &Hop) -> f64 {
        // `spent` is link time at the portion; this is the share of the whole rate.
        self.used.since(now, hop.spent()) * self.portion.unwrap_or(1.0)
    }

    fn set(&mut self, now: Instant, hop: &Hop, portion: f64) {
        if self.portion.replace(portion) != Some(portion) {
            tracing::debug!("this process uses {:.0} % of the rate", portion * 100.0);
            hop.set_portion(now, portion);
        }
    }
}

fn ask(to: &Path, need: ProcessNeed) -> Option<f64> {
    let ProcessNeed { portion, used, connections } = need;
    let request = ControlRequest::Portion { portion, used, connections };
    match ControlClient::connect(to).and_then(|mut control| control.ask(&request)) {
        Ok(ControlAnswer::Portion(portion)) => Some(portion),
        Ok(other) => {
            tracing::debug!("the next process answers {other:?}");
            None
        }
        Err(error) => {
            tracing::debug!("the next process does not share the rate: {error}");
            None
        }
    }
}
