//! The allocation of the policy `rtt-aware`.
//!
//! Terminals are fitted one after the other into 90 % of the capacity: with all that they
//! requested, else with their rate, else with a slot of it. What is missing is then made up from
//! the rest, the smallest first, so that a large request does not keep out small ones.

use super::{GrantKind, Ncc};
use crate::dama::frames::SlotFraction;

/// Superframes for which a volume request holds; terminals repeat theirs before.
pub(super) const VOLUME_LASTS: u64 = 7;

/// The part of the capacity, in tenths, into which whole requests are fitted.
const TARGET_LOAD: u32 = 9;

impl Ncc {
    pub(super) fn grant_fitting(&mut self, superframe: u64) {
        self.forget_volumes(superframe);
        let asking = self.requesting_rates.union(&self.requesting_volumes).copied().collect();
        let terminals = super::in_turn(&asking, self.turns.rate);
        self.turns.rate = super::next_turn(&terminals);
        // A tenth is held back for `grant_missing`.
        let reserve = self.room - self.room / 10 * TARGET_LOAD;
        let mut missing = Vec::new();
        for terminal in terminals {
            let account = &mut self.accounts[terminal as usize];
            let due = SlotFraction(account.rate_credit.0 + account.rate.0);
            let rate = due.whole();
            let volume = account.volume;
            account.rate_credit = SlotFraction(due.0 - SlotFraction::from_slots(rate).0);
            let left = self.room.saturating_sub(reserve);
            let (fits_rate, fits_volume) = match left {
                left if rate.saturating_add(volume) <= left => (rate, volume),
                left if rate <= left => (rate, 0),
                left => (rate.min(left).min(1), 0),
            };
            let given = self.grant_slots(terminal, GrantKind::Rbdc, fits_rate);
            self.grant_volume(terminal, fits_volume);
            missing.push((rate - given, terminal));
        }
        self.grant_missing(missing);
        let accounts = &self.accounts;
        self.requesting_volumes.retain(|index| accounts[*index as usize].volume > 0);
    }

    /// Grants the missing parts of rates and volumes, the smallest first.
    fn grant_missing(&mut self, mut missing: Vec<(u32, u32)>) {
        let volume = |ncc: &Self, terminal: u32| ncc.accounts[terminal as usize].volume;
        missing.sort_by_key(|(rate, terminal)| rate.saturating_add(volume(self, *terminal)));
        for (rate, terminal) in missing {
            self.grant_slots(terminal, GrantKind::Rbdc, rate);
            self.grant_volume(terminal, u32::MAX);
        }
    }

    fn forget_volumes(&mut self, superframe: u64) {
        let accounts = &mut self.accounts;
        self.requesting_volumes.retain(|index| {
            let account = &mut accounts[*index as usize];
            if account.volume_expires <= superframe {
                account.volume = 0;
            }
            account.volume > 0
        });
    }
}
