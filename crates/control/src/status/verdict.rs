//! Assessment of a session in one sentence, shared by text, log and dashboard.

use serde::{Deserialize, Serialize};
use units::BitRate;

use super::SessionStatus;

/// Loss rate above which a session gets a warning.
const LOSS: f64 = 0.1;
/// Queueing delay above which a session gets a warning, in milliseconds.
const QUEUE_MS: f64 = 500.0;

/// State of a session at a glance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Health {
    /// The session works as expected.
    #[default]
    Good,
    /// The session works, but not at its best.
    Warn,
    /// The session does not work, or far from its best.
    Bad,
}

/// A rate that exceeds the link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct OverloadStatus {
    /// The configured or reported rate.
    pub rate_bit_s: u64,
    /// Rate that the link carries of it.
    pub carries_bit_s: u64,
    /// Share of the bytes that are lost, 0 to 1.
    pub loss: f64,
    /// Current round-trip time, with the queue.
    pub rtt_ms: f64,
    /// Shortest round-trip time so far.
    pub base_rtt_ms: f64,
}

impl From<&slacp::Overload> for OverloadStatus {
    fn from(overload: &slacp::Overload) -> Self {
        Self {
            rate_bit_s: overload.rate.bits_per_second(),
            carries_bit_s: overload.carries.bits_per_second(),
            loss: overload.loss,
            rtt_ms: overload.rtt.as_secs_f64() * 1e3,
            base_rtt_ms: overload.base_rtt.as_secs_f64() * 1e3,
        }
    }
}

impl OverloadStatus {
    /// Describes the overload in a sentence. `source`: origin of the rate, such as `configured`.
    pub fn sentence(&self, source: &str) -> String {
        format!(
            "loss {:.0} %, RTT {:.0} instead of {:.0} ms: the {source} rate of {} exceeds the link, \
             which carries about {}",
            self.loss * 100.0,
            self.rtt_ms,
            self.base_rtt_ms,
            bit_rate(self.rate_bit_s),
            bit_rate(self.carries_bit_s)
        )
    }
}

/// Rounds a rate to three digits, since more would suggest a precision that was not measured.
fn bit_rate(rate: u64) -> BitRate {
    let unit = 10u64.pow(rate.max(1).ilog10().saturating_sub(2));
    BitRate::from_bits_per_second((rate + unit / 2) / unit * unit)
}

impl SessionStatus {
    /// Returns the origin of a rate that is not measured, as an adjective.
    pub(crate) fn rate_adjective(&self) -> &'static str {
        if self.told_bit_s.is_some() { "reported" } else { "configured" }
    }

    /// Sets `health` and `verdict` from the other fields.
    pub fn judge(&mut self) {
        (self.health, self.verdict) = self.judgement();
    }

    fn judgement(&self) -> (Health, String) {
        let source = self.rate_adjective();
        // By severity: the first problem found is the one to show.
        if !self.reachable {
            return (Health::Bad, "does not answer: its connections are frozen".to_owned());
        }
        if self.rate_state.as_deref() == Some("tripped") {
            let rate = BitRate::from_bits_per_second(self.rate_bit_s);
            let what = format!("most of what is sent at the {source} rate is lost");
            return (Health::Bad, format!("{what}: sending at {rate} instead; check `rate`"));
        }
        if let Some(overload) = &self.overload {
            return (Health::Bad, overload.sentence(source));
        }
        if let Some(then) = &self.exhausted {
            return (Health::Warn, format!("quota used up: {then}"));
        }
        if self.loss > LOSS {
            let loss = self.loss * 100.0;
            return (Health::Warn, format!("loses {loss:.0} % of the packets, which are repaired"));
        }
        if self.queue_ms > QUEUE_MS {
            let wait = self.queue_ms;
            return (Health::Warn, format!("packets wait {wait:.0} ms in the path"));
        }
        if self.over_tcp {
            return (Health::Warn, "works over TCP, because UDP is blocked".to_owned());
        }
        (Health::Good, "works".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(change: impl FnOnce(&mut SessionStatus)) -> (Health, String) {
        let mut session = SessionStatus { reachable: true, ..SessionStatus::default() };
        change(&mut session);
        session.judge();
        (session.health, session.verdict)
    }

    #[test]
    fn the_gravest_fact_is_the_verdict() {
        assert_eq!(judged(|_| {}), (Health::Good, "works".to_owned()));
        let overload = OverloadStatus {
            rate_bit_s: 50_000_000,
            carries_bit_s: 20_012_345,
            loss: 0.583,
            rtt_ms: 1201.0,
            base_rtt_ms: 600.0,
        };
        let (health, verdict) =
            judged(|session| (session.overload, session.loss) = (Some(overload), 0.58));
        assert_eq!(health, Health::Bad);
        assert_eq!(
            verdict,
            "loss 58 %, RTT 1201 instead of 600 ms: the configured rate of 50 Mbit/s exceeds the \
             link, which carries about 20 Mbit/s"
        );
        let reported =
            judged(|session| (session.overload, session.told_bit_s) = (Some(overload), Some(1))).1;
        assert!(reported.contains("the reported rate of"), "{reported}");
        let (health, verdict) = judged(|session| (session.loss, session.over_tcp) = (0.2, true));
        assert_eq!(
            (health, &verdict[..]),
            (Health::Warn, "loses 20 % of the packets, which are repaired")
        );
        let (health, verdict) =
            judged(|session| (session.reachable, session.overload) = (false, Some(overload)));
        assert!(health == Health::Bad && verdict.starts_with("does not answer"), "{verdict}");
        let tripped = judged(|session| session.rate_state = Some("tripped".to_owned()));
        assert!(tripped.0 == Health::Bad && tripped.1.contains("check `rate`"), "{tripped:?}");
    }
}
