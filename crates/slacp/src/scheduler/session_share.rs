//! The share of a session in the link of a hub.

use units::BitRate;

/// The share of a session in the link that all sessions of a hub use. Rates count whole IP packets,
/// including packets without data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionShare {
    /// Weight against other sessions in the rate that the guarantees leave, or in the measured rate
    /// of an aggregate. Default 1; 0 counts as 1.
    pub weight: u32,
    /// Rate served before other sessions while the session has something to send. If the guarantees
    /// exceed the link's rate, they share it in proportion. The guarantees of its classes are part
    /// of it, unless they are larger. Default none.
    ///
    /// Has no effect on a session with a measured rate outside of an aggregate.
    pub guaranteed: Option<BitRate>,
    /// Maximum rate, even when the link is otherwise idle; 4 ms of it may leave at once. Default
    /// none.
    pub maximum: Option<BitRate>,
}

impl SessionShare {
    /// The same share with a maximum of at most this rate, and a guarantee of at most as much.
    #[must_use]
    pub fn at_most(self, rate: BitRate) -> Self {
        let maximum = Some(self.maximum.map_or(rate, |maximum| maximum.min(rate)));
        let guaranteed = self.guaranteed.map(|guaranteed| guaranteed.min(rate));
        Self { guaranteed, maximum, ..self }
    }
}

impl Default for SessionShare {
    fn default() -> Self {
        Self { weight: 1, guaranteed: None, maximum: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_that_is_limited_promises_no_more_than_it_permits() {
        let rate = |mbit| Some(BitRate::from_mbit(mbit));
        let share = SessionShare { weight: 3, guaranteed: rate(4), maximum: rate(8) };
        let limited = |mbit| share.at_most(BitRate::from_mbit(mbit));
        assert_eq!(limited(9), share);
        assert_eq!(limited(5), SessionShare { maximum: rate(5), ..share });
        assert_eq!(limited(2), SessionShare { guaranteed: rate(2), maximum: rate(2), ..share });
        let free = SessionShare::default().at_most(BitRate::from_mbit(1));
        assert_eq!((free.guaranteed, free.maximum), (None, rate(1)));
    }
}
