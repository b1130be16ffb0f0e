//! The nftables table of a device, which marks the packets that are routed into it.

use std::collections::BTreeMap;
use std::io;

use pep::traffic::{IpFamily, PolicySubject, TrafficPolicy};

use crate::network::namespace_slot::NamespaceSlot;
use crate::network::nft::rule::{BEGUN_OUTSIDE, FirewallMark};
use crate::network::nft::table::{NftChain, NftTable};
use crate::network::nft::{self, policy};
use crate::network::routing;
use crate::network::tun::slot::DeviceSlot;

/// Order of the chains on hooks: after those of interception, whose packets are already marked.
pub(crate) const BEHIND_INTERCEPTION: i32 = 1;

/// The configured rules of a device's table.
pub(crate) trait DeviceRules {
    /// The part of the selected traffic to take at present. The default takes none.
    type Scope: Default;
    /// Counters that a change of the policies does not restart.
    const LASTING_COUNTERS: &'static [&'static str] = &[];

    fn policies(&self) -> &[TrafficPolicy];

    /// What the policies' counters count. Rules that replace others count the same.
    fn counted(&self) -> &'static [PolicySubject];

    /// Builds the chains that decide about packets, callees first. `mark` is the device's.
    fn deciding_chains(&self, scope: &Self::Scope, mark: FirewallMark) -> Vec<NftChain>;

    /// Builds the chains on hooks, whose rules stay the same.
    fn hooks(&self, device: &str, mark: FirewallMark) -> Vec<NftChain>;

    /// Builds the chain on a hook that translates source addresses, if any are to be translated now. Its rules
    /// stay the same.
    fn translation(&self, _device: &str) -> Option<NftChain> {
        None
    }

    fn chains(&self, scope: &Self::Scope, device: &str, slot: DeviceSlot) -> Vec<NftChain> {
        let mut chains = self.deciding_chains(scope, slot.mark());
        chains.extend(self.hooks(device, slot.mark()));
        chains
    }

    /// Formats the whole table in nft syntax, as `nft -f` accepts it.
    fn display(&self, scope: &Self::Scope, device: &str, slot: DeviceSlot) -> String {
        let translation = self.translation(device);
        let of_translation = translation.is_some().then_some(&BEGUN_OUTSIDE);
        let lasting = Self::LASTING_COUNTERS.iter().chain(of_translation);
        let lasting = lasting.map(|counter| (*counter).to_owned());
        let counters = lasting.chain(policy::counters(self.policies(), self.counted()));
        let counters: Vec<String> = counters.collect();
        let mut chains = self.chains(scope, device, slot);
        chains.extend(translation);
        nft::table::display(&slot.table_name(), &counters, &chains)
    }

    /// Formats the routes, rules and table of the first slot, which the only device of a machine gets, in nft
    /// and ip syntax.
    fn print(&self, scope: &Self::Scope, device: &str) -> String {
        let slot = DeviceSlot::new(0);
        let routes = routing::display(slot, device, &IpFamily::BOTH);
        format!("{routes}{}\n", self.display(scope, device, slot))
    }
}

/// A device's table in the kernel. Removed when dropped.
pub(crate) struct DeviceTable<R: DeviceRules> {
    table: NftTable,
    slot: DeviceSlot,
    rules: R,
    /// As set last.
    scope: R::Scope,
    device: String,
    /// Name of the chain that translates source addresses, while there is one.
    translation: Option<&'static str>,
    /// Set once the table has the counter of the translation.
    counts_translation: bool,
}

impl<R: DeviceRules> DeviceTable<R> {
    /// Creates a table for `device` in the first free slot of this network namespace. It takes no traffic
    /// yet.
    ///
    /// # Errors
    /// The kernel's refusal; `PermissionDenied` without CAP_NET_ADMIN.
    pub(crate) fn claim(rules: R, device: &str) -> io::Result<Self> {
        let scope = R::Scope::default();
        let chains = |slot| rules.chains(&scope, device, slot);
        let (slot, table) = NftTable::claim(DeviceSlot::all(), chains)?;
        R::LASTING_COUNTERS.iter().try_for_each(|counter| table.add_counter(counter))?;
        let mut table = Self {
            table,
            slot,
            rules,
            scope,
            device: device.to_owned(),
            translation: None,
            counts_translation: false,
        };
        // Chains that are not on hooks are created empty, but some have rules in any scope.
        table.refill()?;
        Ok(table)
    }

    pub(crate) fn slot(&self) -> DeviceSlot {
        self.slot
    }

    pub(crate) fn scope(&self) -> &R::Scope {
        &self.scope
    }

    /// Takes the traffic of `scope` from now on, and no other. Existing connections are kept.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn set_scope(&mut self, scope: R::Scope) -> io::Result<()> {
        self.scope = scope;
        self.refill()
    }

    /// Applies changed rules. If the policies have changed, their counters restart at 0.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn update(&mut self, change: impl FnOnce(&mut R)) -> io::Result<()> {
        change(&mut self.rules);
        self.refill()
    }

    fn refill(&mut self) -> io::Result<()> {
        let translation = self.rules.translation(&self.device);
        let name = translation.as_ref().map(|chain| chain.name);
        // Before packets are taken, or those would begin connections without a translation.
        if let Some(chain) = translation
            && self.translation.is_none()
        {
            if !self.counts_translation {
                self.table.add_counter(BEGUN_OUTSIDE)?;
                self.counts_translation = true;
            }
            self.table.add(&[chain])?;
            self.translation = name;
        }
        let chains = self.rules.deciding_chains(&self.scope, self.slot.mark());
        self.table.refill(&chains, self.rules.policies(), self.rules.counted())?;
        if name.is_none()
            && let Some(former) = self.translation.take()
        {
            self.table.remove_chain(former)?;
        }
        Ok(())
    }

    /// Reads all counters: what each policy has decided, and the lasting ones.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn counts(&self) -> io::Result<BTreeMap<String, u64>> {
        self.table.counts()
    }
}
