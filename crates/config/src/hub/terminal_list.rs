//! A list of permitted terminals that do not contradict each other.

use std::collections::{BTreeMap, BTreeSet};

use pep::accounting::VolumeDefaults;
use pep::egress::EgressRules;
use pep::routes::{PermittedTerminal, TerminalQuota};
use pep::traffic::{Prefix, PrefixMap, TrafficClasses};
use slacp::{KeyPair, PublicKey, Rate};
use units::BitRate;

use crate::file::FileError;
use crate::file::place::{KeyContext, quoted};
use crate::file::text::Text;
use crate::hop::links::{self, LinkConfig};
use crate::hub::limits;
use crate::hub::shared_name::{carrier, name_of};
use crate::hub::terminal_section::PermittedTerminalSection;
use crate::traffic::{egress, guarantees};
use crate::values::PublicKeyText;
use crate::values::identity::public_key;

/// Default settings of terminals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermitDefaults {
    /// Section `[egress]`.
    pub egress: EgressRules,
    /// Section `[limits]`.
    pub quota: TerminalQuota,
    /// Key `carrier`.
    pub carrier: Option<String>,
    /// Keys `quota`, `quota_period` and `quota_then` of section `[limits]`.
    pub volume: VolumeDefaults,
}

/// A list of terminals that do not contradict each other.
pub(crate) struct TerminalList<'a> {
    defaults: &'a PermitDefaults,
    rate: &'a Rate,
    /// The hub's classes; `None` if they are not known, so that any name is accepted.
    classes: Option<&'a TrafficClasses>,
    /// The hub's links; `None` if they are not known, so that any name is accepted.
    links: Option<&'a [LinkConfig]>,
    /// True if every terminal needs networks.
    needs_networks: bool,
    pub(crate) terminals: Vec<PermittedTerminal>,
    names: BTreeSet<String>,
    keys: BTreeMap<PublicKey, String>,
    /// Networks, with the names of their terminals.
    networks: PrefixMap<String>,
    /// Sum of the rates guaranteed to terminals so far, in bit/s.
    guaranteed: u64,
}

impl<'a> TerminalList<'a> {
    pub(crate) fn new(
        defaults: &'a PermitDefaults,
        rate: &'a Rate,
        classes: Option<&'a TrafficClasses>,
        links: Option<&'a [LinkConfig]>,
        needs_networks: bool,
    ) -> Self {
        Self {
            defaults,
            rate,
            classes,
            links,
            needs_networks,
            terminals: Vec::new(),
            names: BTreeSet::new(),
            keys: BTreeMap::new(),
            networks: PrefixMap::default(),
            guaranteed: 0,
        }
    }

    /// Reserves the hub's own keys, which no terminal may have.
    pub(crate) fn reserve_keys_of_hub(&mut self, identity: &KeyPair, next: Option<&KeyPair>) {
        let keys = [Some(identity), next].into_iter().flatten().map(KeyPair::public);
        self.keys.extend(keys.map(|key| (key, "the hub itself".to_owned())));
    }

    /// Adds a terminal, unless it contradicts an earlier one.
    pub(crate) fn add(
        &mut self,
        place: &KeyContext<'_>,
        raw: PermittedTerminalSection,
    ) -> Result<(), FileError> {
        let quota = limits::of_terminal(place, self.defaults.quota, &raw)?;
        let volume = limits::volume_of_terminal(place, &self.defaults.volume, &raw, self.classes)?;
        let classes = limits::class_rates(place, &raw.classes, self.classes)?;
        let links = links::of_terminal(place, raw.links, self.links)?;
        let name =
            raw.name.ok_or_else(|| place.missing_key("name", "a name for log and status"))?;
        let is_new = !self.names.contains(&name);
        place.check(is_new, "name", quoted(&name), "a name that no earlier terminal has")?;
        let key = self.key(place, raw.key, raw.invite)?;
        self.check_networks(place, &name, &raw.networks)?;
        let carrier = carrier(place, raw.carrier)?.or_else(|| self.defaults.carrier.clone());
        self.check_guarantee(place, &name, quota.share.guaranteed, carrier.is_some())?;
        let networks = raw.networks.into_iter().map(|network| network.0).collect();
        let egress = egress::of_terminal(place, &self.defaults.egress, raw.reach, raw.deny)?;
        let cache = name_of(place, "cache", "the name of a cache, like \"fleet\"", raw.cache)?;
        let expires = raw.expires.map(|expires| expires.0);
        let invited = raw.invite.is_some();
        // Only now, so that a refused terminal leaves nothing in the list.
        self.insert(PermittedTerminal {
            name,
            key,
            networks,
            address: None,
            egress,
            carrier,
            cache,
            quota,
            classes,
            links,
            volume,
            expires,
            invited,
        });
        Ok(())
    }

    /// Adds a terminal that is known not to contradict another.
    pub(crate) fn insert(&mut self, terminal: PermittedTerminal) {
        self.names.insert(terminal.name.clone());
        self.keys.insert(terminal.key, terminal.name.clone());
        for network in &terminal.networks {
            self.networks.insert(*network, terminal.name.clone());
        }
        if let Some(guaranteed) = terminal.quota.share.guaranteed {
            self.guaranteed += guaranteed.bits_per_second();
        }
        self.terminals.push(terminal);
    }

    /// Returns the key of the terminal or of its invitation.
    fn key(
        &self,
        place: &KeyContext<'_>,
        key: Option<Text<PublicKeyText>>,
        invite: Option<Text<PublicKeyText>>,
    ) -> Result<PublicKey, FileError> {
        let (name, key) = match (key, invite) {
            (Some(_), Some(_)) => {
                let expected = "no such key: the terminal has a `key` already";
                return Err(place.wrong_value("invite", "…", expected));
            }
            (None, Some(invite)) => ("invite", Some(invite)),
            (key, None) => ("key", key),
        };
        let key = public_key(place, name, key)?;
        if let Some(other) = self.keys.get(&key) {
            let problem = format!("{other} has the same key: expected another");
            return Err(place.unreadable(name, problem));
        }
        Ok(key)
    }

    /// Checks that networks do not overlap with those of other terminals. Without networks the tunnel translates
    /// clients to an address of the terminal's, so that the hub cannot connect with theirs.
    fn check_networks(
        &self,
        place: &KeyContext<'_>,
        name: &str,
        networks: &[Text<Prefix>],
    ) -> Result<(), FileError> {
        if self.needs_networks && networks.is_empty() {
            let expected = format!(
                "the addresses behind {name}, like [\"10.1.0.0/16\"], which `transparent` needs with \
                 [tunnel]"
            );
            return Err(place.missing_key("networks", &expected));
        }
        for (index, Text(network)) in networks.iter().enumerate() {
            if let Some((theirs, other)) = self.networks.overlapping(*network) {
                let expected =
                    format!("networks that do not overlap: {other} already has {theirs}");
                return Err(place.wrong_value(
                    &format!("networks.{index}"),
                    quoted(network),
                    expected,
                ));
            }
        }
        Ok(())
    }

    /// Checks that the hub's rate carries the guarantees of its terminals. If each session measures a
    /// rate of its own, not together with others on a `carrier`, nothing can be guaranteed.
    fn check_guarantee(
        &self,
        place: &KeyContext<'_>,
        name: &str,
        guaranteed: Option<BitRate>,
        on_carrier: bool,
    ) -> Result<(), FileError> {
        let Some(guaranteed) = guaranteed else { return Ok(()) };
        if let Rate::Auto { .. } = self.rate
            && !on_carrier
        {
            let expected =
                "no such key, or a `carrier`, or a `rate` of the hub other than \"auto\"";
            return Err(place.wrong_value("guaranteed", quoted(guaranteed), expected));
        }
        guarantees::fits(place, self.rate, self.guaranteed, name, guaranteed).map(drop)
    }
}
