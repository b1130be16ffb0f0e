//! The choice between contention and assignment.

use core::fmt;
use core::str::FromStr;

use units::ByteCount;

use crate::SettingError;
use crate::text::{SettingKind, values};

const KIND: SettingKind = SettingKind {
    what: "limit of contention",
    expected: "\"[head=15kB] [backlog=15kB] [load=0.5]\": bytes, and bursts per slot, above 0",
};

/// The way in which a packet gets capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessChoice {
    /// Sent at once in a contention block.
    Contention,
    /// Requested from the hub and sent in assigned slots.
    Assignment,
}

/// Limits of [`choose`]. Text: `"head=15kB backlog=15kB load=0.5"`, each with this default.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AccessLimits {
    /// Bytes of a traffic burst that may go by contention before the rest waits for its assignment.
    pub head: ByteCount,
    /// Greatest backlog of a terminal that uses contention. With more the assignment is worth its
    /// delay, and contention would take many blocks.
    pub backlog: ByteCount,
    /// Load of the contention channel from which everything waits for assignments, in bursts per
    /// slot.
    pub load: f64,
}

impl Default for AccessLimits {
    /// A head of 15 kB: ten datagrams of 1,500 bytes, which Kuhn et al. 2013 measure to arrive up to
    /// 500 ms earlier by contention. The backlog (15 kB) and the load (0.5 bursts per slot, suitable
    /// for CRDSA) are assumptions: the papers give no numbers that hold for every network.
    fn default() -> Self {
        Self { head: ByteCount::new(15_000), backlog: ByteCount::new(15_000), load: 0.5 }
    }
}

impl AccessLimits {
    fn read(text: &str) -> Option<Self> {
        let usual = Self::default();
        let [head, backlog, load] = values(text, ["head", "backlog", "load"])?;
        let bytes = |text: Option<&str>, usual| {
            text.map_or(Some(usual), |text| {
                text.parse().ok().filter(|bytes| *bytes > ByteCount::ZERO)
            })
        };
        let positive = |load: &f64| *load > 0.0 && load.is_finite();
        Some(Self {
            head: bytes(head, usual.head)?,
            backlog: bytes(backlog, usual.backlog)?,
            load: load.map_or(Some(usual.load), |text| text.parse().ok().filter(positive))?,
        })
    }
}

impl FromStr for AccessLimits {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        KIND.read(text, Self::read)
    }
}

impl fmt::Display for AccessLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Spaces separate the words, so sizes are written without them.
        let word = |bytes: ByteCount| bytes.to_string().replace(' ', "");
        write!(f, "head={} backlog={} load={}", word(self.head), word(self.backlog), self.load)
    }
}

/// Chooses contention for the head of a traffic burst, assignment for the rest, and for everything
/// once the contention channel is loaded.
///
/// N. Kuhn, H. C. Bui, J. Lacan, J. Radzik, E. Lochin, "On the trade-off between spectrum efficiency
/// with dedicated access and short end-to-end transmission delays with random access in DVB-RCS2",
/// ACM LCDNet 2013 (arXiv:1301.5931), find that random access delivers the first ten datagrams of a
/// TCP flow up to 500 ms earlier, and uses capacity worse and less reliably under load. Their paper
/// of 2015 (Annals of Telecommunications, doi:10.1007/s12243-015-0467-6) therefore proposes to
/// select the access by "the dynamic load of the network and the sequence number of the TCP
/// segments". This is that rule. Assumptions of ours:
///
/// - a traffic burst instead of a flow: a long connection that was silent begins again as a short
///   one does, so `sent` counts from the last time the queue was empty;
/// - the limit on the backlog;
/// - the load is that of [`super::LoadControl::load`], as announced by the hub. One that is not a
///   number counts as too high.
///
/// `backlog` are the bytes that wait in the terminal, `sent` those that this traffic burst has sent
/// either way. The choice holds for the next packet. The owner requests capacity for the rest of
/// the traffic burst at once, not when its head is sent: the assignment takes a round trip.
pub fn choose(
    backlog: ByteCount,
    sent: ByteCount,
    load: f64,
    limits: &AccessLimits,
) -> AccessChoice {
    if load < limits.load && sent < limits.head && backlog <= limits.backlog {
        AccessChoice::Contention
    } else {
        AccessChoice::Assignment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(backlog: u64, sent: u64, load: f64) -> AccessChoice {
        let limits =
            AccessLimits { head: ByteCount::new(3000), backlog: ByteCount::new(6000), load: 0.5 };
        choose(ByteCount::new(backlog), ByteCount::new(sent), load, &limits)
    }

    #[test]
    fn text_is_read_back_or_refused() {
        let text = "head=192B backlog=1.5kB load=0.3";
        let limits: AccessLimits = text.parse().unwrap();
        assert_eq!((limits.head, limits.load), (ByteCount::new(192), 0.3));
        assert_eq!(limits.to_string(), text);
        assert_eq!("".parse(), Ok(AccessLimits::default()));
        let written = AccessLimits::default().to_string();
        assert_eq!(written.parse(), Ok(AccessLimits::default()));
        for wrong in ["head=0", "load=0", "load=NaN", "load=inf", "backlog=x", "15kB", "tail=1"] {
            let error = wrong.parse::<AccessLimits>().unwrap_err().to_string();
            assert!(error.contains("is not a valid limit of contention: expected"), "{error}");
        }
    }

    #[test]
    fn each_limit_alone_decides() {
        assert_eq!(at(6000, 2999, 0.499), AccessChoice::Contention);
        assert_eq!(at(6001, 2999, 0.499), AccessChoice::Assignment);
        assert_eq!(at(6000, 3000, 0.499), AccessChoice::Assignment);
        assert_eq!(at(6000, 2999, 0.5), AccessChoice::Assignment);
        assert_eq!(at(0, 0, f64::NAN), AccessChoice::Assignment);
    }

    #[test]
    fn the_head_of_a_burst_goes_by_contention() {
        let mtu = 1500;
        let by: Vec<_> = (0..4).map(|packet| at((4 - packet) * mtu, packet * mtu, 0.1)).collect();
        let early = AccessChoice::Contention;
        let late = AccessChoice::Assignment;
        assert_eq!(by, [early, early, late, late]);
    }
}
