//! While an upgraded hub has two processes, these share its rate: does what [`pep::handover`] decides.

use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use pep::handover::{HALF, ProcessNeed, RateDivision, UsageMeter};
use units::Instant;

use crate::hop::Hop;
use crate::operate::control::{ControlAnswer, ControlClient, ControlRequest};

/// Either process's part.
#[derive(Default)]
pub(super) struct RateSharing {
    /// What the next process has decided.
    sharing: RateDivision,
    used: UsageMeter,
    /// The portion of the rate in use, if it is not the whole.
    portion: Option<f64>,
    /// The question of the former process, which the next one may take its time to answer.
    asking: Option<JoinHandle<Option<f64>>>,
}

impl RateSharing {
    /// There are two processes from now on.
    pub(super) fn begin(&mut self, now: Instant, hop: &Hop) {
        self.used.since(now, hop.spent());
        self.set(now, hop, HALF);
    }

    /// There is no other process any more.
    pub(super) fn end(&mut self, now: Instant, hop: &Hop) {
        hop.set_portion(now, 1.0);
        *self = Self::default();
    }

    /// Answers the former process.
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

    /// Tells the next process, at this control socket, what this one uses, and follows its last answer.
    /// Without one, the portion stays as it is.
    pub(super) fn tell(&mut self, now: Instant, hop: &Hop, live: usize, to: Option<PathBuf>) {
        if let Some(asking) = self.asking.take_if(|asking| asking.is_finished())
            && let Ok(Some(portion)) = asking.join()
        {
            self.set(now, hop, portion);
        }
        let Some(to) = to.filter(|_| self.asking.is_none()) else { return };
        let need = ProcessNeed {
            portion: self.portion.unwrap_or(1.0),
            used: self.own_use(now, hop),
            connections: live as u64,
        };
        self.asking = Some(thread::spawn(move || ask(&to, need)));
    }

    fn own_use(&mut self, now: Instant, hop: &Hop) -> f64 {
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
