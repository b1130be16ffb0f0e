//! The network control centre: allocates each superframe to the terminals.
//!
//! In this order, each within what the ones before leave: CRA, RBDC, VBDC, FCA (SLACP paper §4; EN
//! 301 790 §6.6). Free capacity goes first to terminals with a forecast. The centre receives
//! requests and is called once per superframe; its decision depends on nothing else.
//!
//! Every slot is accounted for: the grants of a superframe never exceed it, nor those of a terminal
//! what its transmitter can send. Requests hold until they are granted (volumes), replaced or timed
//! out (rates). Fractions of slots are kept as credit, so that a rate of less than a slot per
//! superframe gets its slots, too.
//!
//! Not modelled: the terminals' signal quality; log-on; a plan that gets lost.

mod fill;
mod rtt_aware;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use super::config::{Allocation, CapacityPolicy, DamaConfig, FreeCapacity, SharingRule};
use super::frames::{Frames, SlotFraction};
use super::request::{TerminalRequest, VolumeRequest, coded_rate, coded_volume};

/// The slots of a superframe that a terminal is granted, by their kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SlotGrant {
    /// Index of the terminal in the configuration, from 0.
    pub terminal: u32,
    /// Slots of the constant rate.
    pub cra: u32,
    /// Slots for requested rates, which hold until they time out.
    pub rbdc: u32,
    /// Slots for requested volumes, each of which is granted once.
    pub vbdc: u32,
    /// Slots of free capacity, for a forecast or given away.
    pub fca: u32,
}

impl SlotGrant {
    /// Returns the sum of all kinds.
    pub fn slots(&self) -> u32 {
        self.cra + self.rbdc + self.vbdc + self.fca
    }
}

#[derive(Debug, Clone, Copy)]
enum GrantKind {
    Cra,
    Rbdc,
    Vbdc,
    Fca,
}

/// The account of a terminal: its limits, requests and credits.
#[derive(Debug, Clone, Copy, Default)]
struct Account {
    cra: SlotFraction,
    cra_credit: SlotFraction,
    /// The ceiling of its rate requests.
    most_rate: SlotFraction,
    /// The requested rate; 0 if none holds.
    rate: SlotFraction,
    rate_credit: SlotFraction,
    /// The first superframe in which the requested rate no longer holds.
    expires: u64,
    /// Maximum number of cells in one volume request.
    most_volume: u32,
    /// Cells that it gets before any terminal gets more than its own first cells.
    first_volume: u32,
    /// Cells requested and not yet granted.
    volume: u32,
    /// Superframe from which on the volume request no longer holds, with [`CapacityPolicy::RttAware`].
    volume_expires: u64,
    /// Cells of its forecast that were not granted yet.
    foreseen: u32,
    weight: u32,
    /// Maximum number of slots per superframe.
    most: u32,
    /// Its grant in the superframe being allocated.
    grant: SlotGrant,
}

/// The network control centre: allocates superframe after superframe.
#[derive(Debug)]
pub struct Ncc {
    frames: Frames,
    /// Slots of a superframe that can be granted.
    capacity: u32,
    /// Of these, the slots that one terminal can use.
    most_of_one: u32,
    policy: CapacityPolicy,
    allocation: Allocation,
    rate_time_out: u64,
    accounts: Vec<Account>,
    /// Terminals with CRA, in order.
    guaranteed: Vec<u32>,
    /// Terminals whose requested rate holds.
    requesting_rates: BTreeSet<u32>,
    /// Terminals with a volume outstanding.
    requesting_volumes: BTreeSet<u32>,
    /// Terminals with a forecast outstanding.
    forecasting: BTreeSet<u32>,
    /// Where each round robin begins.
    turns: RoundRobins,
    /// Slots left in the superframe being allocated.
    room: u32,
    /// Terminals with a grant in that superframe.
    granted_terminals: Vec<u32>,
}

#[derive(Debug, Default)]
struct RoundRobins {
    guaranteed: usize,
    rate: u32,
    volume: u32,
    /// A terminal, and the number of its first cells that it did not get for lack of room.
    owed: Option<(u32, u32)>,
    foreseen: u32,
    free: u32,
}

impl Ncc {
    /// A centre that has not received any requests.
    pub fn new(config: &DamaConfig) -> Self {
        let frames = config.frames;
        let account = |index: usize| {
            let terminal = &config.terminals[index];
            let most = frames.slots_per_terminal();
            let ceiling =
                terminal.ceiling.map_or(most, |rate| SlotFraction::of(rate, &frames).whole());
            Account {
                cra: SlotFraction::of(terminal.cra, &frames),
                most_rate: SlotFraction::of(terminal.rbdc, &frames),
                most_volume: terminal.vbdc,
                first_volume: terminal.vbdc_first,
                weight: terminal.weight.max(1),
                // A ceiling below a slot per superframe would shut the terminal out.
                most: most.min(ceiling.max(1)),
                ..Account::default()
            }
        };
        let accounts: Vec<_> = (0..config.terminals.len()).map(account).collect();
        let with_cra = |(index, account): (usize, &Account)| {
            (account.cra > SlotFraction::default()).then_some(index as u32)
        };
        Self {
            frames,
            capacity: config.capacity(),
            most_of_one: frames.slots_per_terminal(),
            policy: config.requests.policy,
            allocation: config.allocation,
            rate_time_out: config.requests.rate_time_out.into(),
            guaranteed: accounts.iter().enumerate().filter_map(with_cra).collect(),
            accounts,
            requesting_rates: BTreeSet::new(),
            requesting_volumes: BTreeSet::new(),
            forecasting: BTreeSet::new(),
            turns: RoundRobins::default(),
            room: 0,
            granted_terminals: Vec::new(),
        }
    }

    /// Changes the number of slots of a superframe that can be granted, and of those to one
    /// terminal.
    pub fn set_capacity(&mut self, capacity: u32, most_of_one: u32) {
        (self.capacity, self.most_of_one) = (capacity, most_of_one);
    }

    /// Returns the number of slots that a terminal can have in a superframe.
    fn most(&self, terminal: u32) -> u32 {
        self.accounts[terminal as usize].most.min(self.most_of_one)
    }

    /// Handles a terminal's request, which is known from the allocation of `superframe` on. It is
    /// cut to the terminal's limits; a request of an unknown terminal is ignored.
    pub fn handle_request(&mut self, superframe: u64, terminal: u32, request: TerminalRequest) {
        let Some(account) = self.accounts.get_mut(terminal as usize) else { return };
        if let Some(rate) = request.rate {
            // As the message carries it (EN 301 790 §8.5.3).
            account.rate = SlotFraction::of(coded_rate(rate), &self.frames).min(account.most_rate);
            account.expires = superframe.saturating_add(self.rate_time_out);
            if account.rate == SlotFraction::default() {
                self.requesting_rates.remove(&terminal);
            } else {
                self.requesting_rates.insert(terminal);
            }
        }
        if let Some(volume) = request.volume {
            let limited = |cells: u32| coded_volume(cells.min(account.most_volume));
            account.volume = match volume {
                VolumeRequest::More(cells) => account.volume.saturating_add(limited(cells)),
                VolumeRequest::All(cells) => limited(cells),
            };
            account.volume_expires = superframe.saturating_add(rtt_aware::VOLUME_LASTS);
            if account.volume == 0 {
                self.requesting_volumes.remove(&terminal);
            } else {
                self.requesting_volumes.insert(terminal);
            }
        }
        if let Some(cells) = request.foreseen {
            account.foreseen = coded_volume(cells.min(account.most_volume));
            if account.foreseen == 0 {
                self.forecasting.remove(&terminal);
            } else {
                self.forecasting.insert(terminal);
            }
        }
    }

    /// Returns the cells that a terminal has requested and not been granted.
    pub fn outstanding(&self, terminal: u32) -> u32 {
        self.accounts.get(terminal as usize).map_or(0, |account| account.volume)
    }

    /// Allocates the next superframe. The grants are in no particular order, one per terminal.
    pub fn allocate(&mut self, superframe: u64) -> Vec<SlotGrant> {
        self.room = self.capacity;
        self.granted_terminals.clear();
        self.forget_rates(superframe);
        // In the order of priority: each kind within what the ones before leave (SLACP paper §4).
        self.grant_guaranteed();
        match self.policy {
            CapacityPolicy::Classic => {
                self.grant_rates();
                self.grant_volumes();
            }
            CapacityPolicy::RttAware => self.grant_fitting(superframe),
        }
        self.grant_foreseen();
        self.grant_free();
        let accounts = &mut self.accounts;
        let taken = |index: &u32| core::mem::take(&mut accounts[*index as usize].grant);
        let grants: Vec<_> = self.granted_terminals.iter().map(taken).collect();
        debug_assert!(
            grants.iter().map(|grant| u64::from(grant.slots())).sum::<u64>()
                <= u64::from(self.capacity),
            "more than there is was granted"
        );
        grants
    }

    /// Grants a terminal up to `wanted` slots; returns their number.
    fn grant_slots(&mut self, terminal: u32, kind: GrantKind, wanted: u32) -> u32 {
        let most = self.most(terminal);
        let account = &mut self.accounts[terminal as usize];
        let had = account.grant.slots();
        // All kinds together stay within what the terminal's transmitter can send.
        let slots = wanted.min(self.room).min(most - had);
        if slots == 0 {
            return 0;
        }
        if had == 0 {
            account.grant.terminal = terminal;
            self.granted_terminals.push(terminal);
        }
        let part = match kind {
            GrantKind::Cra => &mut account.grant.cra,
            GrantKind::Rbdc => &mut account.grant.rbdc,
            GrantKind::Vbdc => &mut account.grant.vbdc,
            GrantKind::Fca => &mut account.grant.fca,
        };
        *part += slots;
        self.room -= slots;
        slots
    }

    fn forget_rates(&mut self, superframe: u64) {
        let accounts = &mut self.accounts;
        self.requesting_rates.retain(|index| {
            let account = &mut accounts[*index as usize];
            let holds = account.expires > superframe;
            if !holds {
                // The fraction of a slot that is still owed ends with the rate.
                (account.rate, account.rate_credit) = Default::default();
            }
            holds
        });
    }

    fn grant_guaranteed(&mut self) {
        let count = self.guaranteed.len();
        if count == 0 {
            return;
        }
        let start = self.turns.guaranteed % count;
        // The start rotates, so that it is not always the same terminal whose slot does not fit.
        self.turns.guaranteed = start + 1;
        for at in (start..count).chain(0..start) {
            let terminal = self.guaranteed[at];
            let account = &self.accounts[terminal as usize];
            // A slot that did not fit because of others' fractions follows in the next superframe.
            let due = SlotFraction(account.cra_credit.0 + account.cra.0);
            let given = self.grant_slots(terminal, GrantKind::Cra, due.whole());
            let account = &mut self.accounts[terminal as usize];
            let left = due.0 - SlotFraction::from_slots(given).0;
            // Bounded: a slot that was not free is not owed for ever.
            account.cra_credit = SlotFraction(left.min(account.cra.0 + SlotFraction::SLOT.0));
        }
    }

    /// Grants requested rates (RBDC). Under overload each terminal gets a part of its rate, and
    /// fractions become credit.
    fn grant_rates(&mut self) {
        let terminals = in_turn(&self.requesting_rates, self.turns.rate);
        self.turns.rate = next_turn(&terminals);
        let demand = |index: &u32| {
            let account = &self.accounts[*index as usize];
            fill::WeightedDemand { wanted: account.rate.0, weight: account.weight.into() }
        };
        let demands: Vec<_> = terminals.iter().map(demand).collect();
        let room = SlotFraction::from_slots(self.room).0;
        let shares = match self.allocation.sharing {
            SharingRule::Proportional => fill::divide_in_proportion(&demands, room),
            SharingRule::Fair => fill::divide_fairly(&demands, room),
        };
        for (terminal, share) in terminals.into_iter().zip(shares) {
            let due = SlotFraction(self.accounts[terminal as usize].rate_credit.0 + share);
            let given = self.grant_slots(terminal, GrantKind::Rbdc, due.whole());
            let left = due.0 - SlotFraction::from_slots(given).0;
            // Bounded, so that at most about one superframe's share is made up after an overload.
            self.accounts[terminal as usize].rate_credit =
                SlotFraction(left.min(share + SlotFraction::SLOT.0));
        }
    }

    /// Grants requested volumes (VBDC): the first few cells of all terminals in turn, then the
    /// rest.
    fn grant_volumes(&mut self) {
        let terminals = in_turn(&self.requesting_volumes, self.turns.volume);
        self.turns.volume = next_turn(&terminals);
        match self.grant_first_cells(&terminals) {
            Some(short) => self.turns.volume = short,
            None => match self.allocation.sharing {
                SharingRule::Proportional => self.grant_rests_in_turn(&terminals),
                SharingRule::Fair => self.grant_rests_fairly(&terminals),
            },
        }
        let accounts = &self.accounts;
        self.requesting_volumes.retain(|index| accounts[*index as usize].volume > 0);
    }

    /// Grants first cells; returns the terminal for which too little was left. It is the first one
    /// next time, with the rest of its first cells; otherwise the same terminals would go without
    /// again.
    fn grant_first_cells(&mut self, terminals: &[u32]) -> Option<u32> {
        let owed = self.turns.owed.take();
        for terminal in terminals {
            let account = &self.accounts[*terminal as usize];
            let most = match owed {
                Some((to, cells)) if to == *terminal => cells,
                _ => account.first_volume,
            };
            let first = account.volume.min(most);
            let given = self.grant_volume(*terminal, first);
            if given < first && self.room == 0 {
                self.turns.owed = Some((*terminal, first - given));
                return Some(*terminal);
            }
        }
        None
    }

    /// Grants each terminal in turn all that it requested; the first one that gets less is the
    /// first next time.
    fn grant_rests_in_turn(&mut self, terminals: &[u32]) {
        let mut short = None;
        for terminal in terminals {
            self.grant_volume(*terminal, u32::MAX);
            let is_short = self.accounts[*terminal as usize].volume > 0 && self.room == 0;
            short = short.or_else(|| is_short.then_some(*terminal));
        }
        if let Some(terminal) = short {
            self.turns.volume = terminal;
        }
    }

    fn grant_rests_fairly(&mut self, terminals: &[u32]) {
        let demand = |index: &u32| {
            let account = &self.accounts[*index as usize];
            let able = account.volume.min(self.most(*index) - account.grant.slots());
            fill::WeightedDemand { wanted: able.into(), weight: account.weight.into() }
        };
        let demands: Vec<_> = terminals.iter().map(demand).collect();
        for (terminal, cells) in
            terminals.iter().zip(fill::divide_fairly(&demands, self.room.into()))
        {
            self.grant_volume(*terminal, cells as u32);
        }
        // The slots that rounding down has left.
        for terminal in terminals {
            self.grant_volume(*terminal, 1);
        }
    }

    /// Grants up to `most` of the cells that a terminal has requested; returns their number.
    fn grant_volume(&mut self, terminal: u32, most: u32) -> u32 {
        let wanted = self.accounts[terminal as usize].volume.min(most);
        let given = self.grant_slots(terminal, GrantKind::Vbdc, wanted);
        self.accounts[terminal as usize].volume -= given;
        given
    }

    /// Grants forecasts from the slots that are left, in turn.
    fn grant_foreseen(&mut self) {
        // Only from what all requests have left, so that a forecast costs no other terminal
        // anything.
        let terminals = in_turn(&self.forecasting, self.turns.foreseen);
        if self.room == 0 || terminals.is_empty() {
            return;
        }
        self.turns.foreseen = next_turn(&terminals);
        for terminal in terminals {
            let wanted = self.accounts[terminal as usize].foreseen;
            let given = self.grant_slots(terminal, GrantKind::Fca, wanted);
            self.accounts[terminal as usize].foreseen -= given;
        }
        let accounts = &self.accounts;
        self.forecasting.retain(|index| accounts[*index as usize].foreseen > 0);
    }

    /// Grants free capacity (FCA) in chunks, until nothing is left or no terminal can take more.
    fn grant_free(&mut self) {
        let turn = self.turns.free;
        let count = self.accounts.len() as u32;
        match self.allocation.free {
            FreeCapacity::None => {}
            // Without a list of the terminals: usually nothing is left long before all have had a
            // turn.
            FreeCapacity::All { chunk } => {
                let begin = turn.min(count);
                self.grant_free_to(chunk, || (begin..count).chain(0..begin));
            }
            FreeCapacity::Asking { chunk } => {
                let asking =
                    self.requesting_rates.union(&self.requesting_volumes).copied().collect();
                let terminals = in_turn(&asking, turn);
                self.grant_free_to(chunk, || terminals.iter().copied());
            }
        }
    }

    fn grant_free_to<T: Iterator<Item = u32>>(&mut self, chunk: u32, terminals: impl Fn() -> T) {
        let mut last = None;
        loop {
            let before = self.room;
            for terminal in terminals() {
                if self.room == 0 {
                    break;
                }
                if self.grant_slots(terminal, GrantKind::Fca, chunk.max(1)) > 0 {
                    last = Some(terminal);
                }
            }
            // Nothing is left, or no terminal takes any more.
            if self.room == 0 || self.room == before {
                break;
            }
        }
        // The next superframe goes on behind the last terminal that got slots.
        self.turns.free = last.map_or(self.turns.free, |terminal| terminal + 1);
    }
}

/// Returns `terminals` in the order of a round robin that begins at number `turn`.
fn in_turn(terminals: &BTreeSet<u32>, turn: u32) -> Vec<u32> {
    terminals.range(turn..).chain(terminals.range(..turn)).copied().collect()
}

/// Returns the number at which the next round robin begins: after the first terminal of this one.
fn next_turn(terminals: &[u32]) -> u32 {
    terminals.first().map_or(0, |first| first + 1)
}
