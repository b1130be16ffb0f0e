//! Accounts of all terminals, and their volume quotas.

use std::collections::BTreeMap;

use slacp::PublicKey;

use super::{ExhaustedAction, RenewalPeriod, TrafficUsage, VolumeQuota};

/// Maximum number of accounts. Beyond it, accounts of terminals without a quota are dropped, the least
/// recently used first.
const ACCOUNTS_MAX: usize = 65_536;
/// Maximum number of classes in an account; further ones count as [`OTHER_CLASSES`]. A hub has at most 32
/// at a time, but classes may be renamed.
pub const CLASSES_MAX: usize = 64;
/// Name for classes beyond the maximum.
pub const OTHER_CLASSES: &str = "(others)";

/// Account of a terminal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TerminalAccount {
    /// Usage by class name since the account was opened.
    pub classes: BTreeMap<String, TrafficUsage>,
    /// Time of the last use, in Unix seconds.
    pub last_used: u64,
    /// The quota period being counted; `None` without a quota.
    pub counted: Option<PeriodUsage>,
}

/// Usage in a quota period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeriodUsage {
    /// The quota's period when it was counted; another one begins anew.
    pub period: RenewalPeriod,
    /// Number of the period ([`RenewalPeriod::number`]).
    pub number: u64,
    /// Bytes used in the period, in both directions.
    pub used: u64,
    /// Number and usage of the previous period, in case the clock returns to it.
    pub before: Option<(u64, u64)>,
}

impl TerminalAccount {
    /// Usage of all classes together.
    pub fn total(&self) -> TrafficUsage {
        let mut total = TrafficUsage::default();
        self.classes.values().for_each(|usage| total.add(usage));
        total
    }
}

impl PeriodUsage {
    /// Moves on to the period that the clock shows.
    ///
    /// The clock may step. If it was ahead and returns, usage counted in the wrong period is added to the
    /// one it returns to. If it is behind, as on a machine without a battery-backed clock before it has
    /// synchronised, the period stays: a restart does not renew a quota.
    fn follow(&mut self, number: u64) {
        if number > self.number {
            self.before = Some((self.number, self.used));
            (self.number, self.used) = (number, 0);
            return;
        }
        let Some((earlier, used)) = self.before.filter(|(earlier, _)| *earlier <= number) else {
            return;
        };
        // The clock has returned: it was ahead, and what was used then belongs to the earlier period.
        if number < self.number {
            self.number = number;
            if earlier == number {
                self.used = self.used.saturating_add(used);
                self.before = None;
            }
        }
    }
}

/// A terminal whose quota has just been used up, or renewed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaChange {
    /// Public key of the terminal.
    pub key: PublicKey,
    /// Treatment of the terminal; `None` restores its usual share.
    pub now: Option<ExhaustedAction>,
}

/// All accounts of a hub.
#[derive(Debug, Default)]
pub struct Ledger {
    accounts: BTreeMap<PublicKey, TerminalAccount>,
    quotas: BTreeMap<PublicKey, VolumeQuota>,
    /// Terminals whose quota is used up.
    exhausted: BTreeMap<PublicKey, ExhaustedAction>,
    /// `true` if an account has changed since the last [`Self::changed_accounts`].
    changed: bool,
}

impl Ledger {
    /// Continues the accounts of an earlier run.
    pub fn new(accounts: BTreeMap<PublicKey, TerminalAccount>) -> Self {
        Self { accounts, ..Self::default() }
    }

    /// Replaces the quotas of all terminals.
    pub fn configure(&mut self, quotas: BTreeMap<PublicKey, VolumeQuota>) {
        self.quotas = quotas;
    }

    /// Adds what a terminal has used in a class. `unix_seconds` is the wall-clock time.
    pub fn record(&mut self, unix_seconds: u64, key: PublicKey, class: &str, usage: &TrafficUsage) {
        // An idle terminal needs no account.
        if *usage == TrafficUsage::default() {
            return;
        }
        self.changed = true;
        let account = self.accounts.entry(key).or_default();
        account.last_used = unix_seconds;
        let known = account.classes.contains_key(class);
        let room = known || account.classes.len() < CLASSES_MAX;
        let name = if room { class } else { OTHER_CLASSES };
        account.classes.entry(name.to_owned()).or_default().add(usage);
        if let Some(quota) = self.quotas.get(&key) {
            let entry = count(account, quota.period, unix_seconds);
            entry.used = entry.used.saturating_add(usage.bytes());
        }
    }

    /// Advances to this wall-clock time. Returns the terminals whose treatment changes; each change is
    /// returned once.
    pub fn follow(&mut self, unix_seconds: u64) -> Vec<QuotaChange> {
        let mut changes = Vec::new();
        for (key, quota) in &self.quotas {
            let account = self.accounts.get_mut(key);
            let used = account.map_or(0, |account| count(account, quota.period, unix_seconds).used);
            let now = (used >= quota.volume.get()).then(|| quota.then.clone());
            changes.extend(set(&mut self.exhausted, *key, now));
        }
        // Terminals whose quota was taken away.
        let without = |key: &&PublicKey| !self.quotas.contains_key(key);
        let gone: Vec<PublicKey> = self.exhausted.keys().filter(without).copied().collect();
        changes.extend(gone.into_iter().filter_map(|key| set(&mut self.exhausted, key, None)));
        self.keep_within_bounds();
        changes
    }

    /// Treatment of a terminal whose quota is used up; `None` while it is not.
    pub fn exhausted(&self, key: &PublicKey) -> Option<&ExhaustedAction> {
        self.exhausted.get(key)
    }

    /// The quota of a terminal; `None` if its volume is not limited.
    pub fn quota(&self, key: &PublicKey) -> Option<&VolumeQuota> {
        self.quotas.get(key)
    }

    /// All accounts, of terminals with and without a quota.
    pub fn accounts(&self) -> &BTreeMap<PublicKey, TerminalAccount> {
        &self.accounts
    }

    /// All accounts, if one has changed since the last call.
    pub fn changed_accounts(&mut self) -> Option<&BTreeMap<PublicKey, TerminalAccount>> {
        core::mem::take(&mut self.changed).then_some(&self.accounts)
    }

    fn keep_within_bounds(&mut self) {
        while self.accounts.len() > ACCOUNTS_MAX {
            // An account with a quota stays, or its terminal would get the quota again.
            let idle = self.accounts.iter().filter(|(key, _)| !self.quotas.contains_key(*key));
            let oldest = idle.min_by_key(|(_, account)| account.last_used).map(|(key, _)| *key);
            let Some(oldest) = oldest else { break };
            self.accounts.remove(&oldest);
        }
    }
}

/// The entry for the period of the clock. It may be of a later period if the clock was set back.
fn count(
    account: &mut TerminalAccount,
    period: RenewalPeriod,
    unix_seconds: u64,
) -> &mut PeriodUsage {
    let number = period.number(unix_seconds);
    // Usage of another kind of period is not comparable, so counting starts anew.
    account.counted = account.counted.filter(|entry| entry.period == period);
    let fresh = PeriodUsage { period, number, used: 0, before: None };
    let entry = account.counted.get_or_insert(fresh);
    entry.follow(number);
    entry
}

fn set(
    exhausted: &mut BTreeMap<PublicKey, ExhaustedAction>,
    key: PublicKey,
    now: Option<ExhaustedAction>,
) -> Option<QuotaChange> {
    if exhausted.get(&key) == now.as_ref() {
        return None;
    }
    match &now {
        Some(then) => _ = exhausted.insert(key, then.clone()),
        None => _ = exhausted.remove(&key),
    }
    Some(QuotaChange { key, now })
}

#[cfg(test)]
mod tests;
