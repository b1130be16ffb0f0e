//! The terminals that a hub permits: the sections `[[terminal]]` of its file, and permits, which are
//! files of their own in a directory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use pep::accounting::{ExhaustedAction, RenewalPeriod, VolumeDefaults};
use pep::egress::{EgressRules, EgressTarget};
use pep::keys::format_public_key;
use pep::routes::TerminalQuota;
use pep::traffic::{Prefix, PrefixMap, TrafficClasses};
use schemars::JsonSchema;
use serde::Deserialize;
use slacp::{KeyPair, PublicKey, Rate};
use units::{BitRate, ByteCount, UnixTime};

use crate::bounded::{Memory, Number};
use crate::file::place::{KeyContext, quoted};
use crate::file::text::Text;
use crate::file::{FileError, FileKind};
use crate::gateway_file::ConfigFile;
use crate::hub::{carrier, name_of};
use crate::identity::public_key;
use crate::limits::OwnRatesSection;
use crate::values::{PublicKeyText, RateChoice};
use crate::{
    HubConfig, LinkConfig, PermitDefaults, PermittedTerminal, egress, guarantees, limits, links,
};

/// A terminal that may connect.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(
    rename = "PermittedTerminal",
    title = "A terminal of a skyhop hub",
    extend("oneOf" = [{ "required": ["key"] }, { "required": ["invite"] }])
)]
pub(crate) struct PermittedTerminalSection {
    /// A unique name for logs and status. In a permit, by default that of its file or etcd key.
    pub(crate) name: Option<String>,
    /// The terminal's public key, which no other terminal has. Give either this or `invite`.
    pub(crate) key: Option<Text<PublicKeyText>>,
    /// The public key of an invitation, in place of a `key` that the terminal is yet to send with `skyhop enrol
    /// join`; see [Let terminals join a hub](enrol.md).
    pub(crate) invite: Option<Text<PublicKeyText>>,
    /// A date, or a date and time in UTC such as `"2027-01-31T12:00:00Z"`, from which the terminal or its
    /// invitation is no longer served. Default: never.
    #[schemars(extend("examples" = ["2027-01-31", "2027-01-31T12:00:00Z"]))]
    pub(crate) expires: Option<Text<UnixTime>>,
    /// Addresses of the terminal's clients (prefixes), which must not overlap with another terminal's. With
    /// `[tunnel]` every terminal needs some; with `[intercept]` or `transparent`, at least one.
    #[serde(default)]
    #[schemars(extend("examples" = [["10.1.0.0/16", "fd00:1::/64"]]))]
    pub(crate) networks: Vec<Text<Prefix>>,
    /// Destinations that this terminal may reach, instead of those of `[egress]`.
    pub(crate) reach: Option<Vec<Text<EgressTarget>>>,
    /// Destinations that this terminal may not reach, in addition to those of `[egress]`.
    #[serde(default)]
    pub(crate) deny: Vec<Text<EgressTarget>>,
    /// As `carrier` of the hub, for one terminal, on a hub with several carriers or beams. With a name that no
    /// other terminal has, it shares with no other. Default: `carrier` of the hub.
    #[schemars(length(min = 1))]
    pub(crate) carrier: Option<String>,
    /// With `[http] cache`: terminals with the same name share what is stored, and can find out by response times
    /// what the others have asked for. Without a name, a terminal shares with no other. See [A cache at the
    /// hub](http.md#a-cache-at-the-hub).
    #[schemars(length(min = 1))]
    pub(crate) cache: Option<String>,
    /// The terminal's share of the hub's rate, relative to other terminals while they want more than there is.
    /// Others use what it leaves. With `rate = "auto"` it applies among terminals with the same `carrier`;
    /// without one, each terminal measures its own rate.
    #[serde(default)]
    pub(crate) weight: Number<1, 1000, 1>,
    /// A rate towards the terminal that the hub serves before others share by weight; others use what it leaves.
    /// At most `maximum`. With `rate = "auto"` it needs a `carrier`. A fixed `rate` must carry all guarantees
    /// together; beyond a reported or measured one they are scaled.
    #[schemars(extend("examples" = ["1 Mbit/s"]))]
    pub(crate) guaranteed: Option<Text<BitRate>>,
    /// A rate towards the terminal that the hub does not exceed, even if the rest is unused; bursts of 4 ms. All
    /// packets of the session count, with their headers.
    #[schemars(extend("examples" = ["2 Mbit/s"]))]
    pub(crate) maximum: Option<Text<BitRate>>,
    /// Rates of classes towards the terminal, such as `classes.voice = { guaranteed = "64 kbit/s" }`. What is
    /// missing is as in `[[class]]`.
    #[serde(default)]
    pub(crate) classes: BTreeMap<String, OwnRatesSection>,
    /// The hub's rates towards the terminal on [links](links.md#rates), such as `links = { leo = "5 Mbit/s" }`: a
    /// rate or `"auto"`, from its next session on. What is missing is as in `[[link]]`.
    #[serde(default)]
    pub(crate) links: BTreeMap<String, Text<RateChoice>>,
    /// As `memory` of the hub, for one terminal, from its next session on; its `stream_window` is no larger.
    /// Default: `memory` of the hub.
    pub(crate) memory: Option<Memory>,
    /// `max_connections` of `[limits]` for one terminal. Default: as there.
    pub(crate) max_connections: Option<Number<1, 65_536>>,
    /// `connections_per_second` of `[limits]` for one terminal. Default: as there.
    pub(crate) connections_per_second: Option<Number<1, 1_000_000>>,
    /// `lookups` of `[limits]` for one terminal. Default: as there.
    pub(crate) lookups: Option<Number<1, 128>>,
    /// `quota` of `[limits]` for one terminal. Default: as there.
    #[schemars(extend("examples" = ["50 GB"]))]
    pub(crate) quota: Option<Text<ByteCount>>,
    /// `quota_period` of `[limits]` for one terminal. Default: as there.
    #[schemars(extend("examples" = ["month", "day", "168 h"]))]
    pub(crate) quota_period: Option<Text<RenewalPeriod>>,
    /// `quota_then` of `[limits]` for one terminal. Default: as there.
    #[schemars(extend("examples" = ["block", "256 kbit/s", "bulk"]))]
    pub(crate) quota_then: Option<Text<ExhaustedAction>>,
}

/// The terminals of a hub with permits.
#[derive(Debug, Default)]
pub struct PermittedTerminals {
    /// Terminals of the hub's file, then those of the permits, in the order given.
    pub terminals: Vec<PermittedTerminal>,
    /// Path of the permit of each terminal that has one, by name.
    pub paths: BTreeMap<String, PathBuf>,
    /// Permits that are not valid or contradict earlier ones, with the error.
    pub refused: Vec<(PathBuf, FileError)>,
}

impl PermittedTerminals {
    /// Reads permits for a hub with this configuration. A permit without a name gets that of its file. A
    /// refused permit does not affect the others.
    pub fn read(config: &HubConfig, permits: &[ConfigFile<'_>]) -> Self {
        let mut list = TerminalList::of(config);
        let mut paths = BTreeMap::new();
        let mut refused = Vec::new();
        for file in permits {
            let name = file.path.file_stem().unwrap_or_default().to_string_lossy();
            let read = file.parse(FileKind::Permit, |place, raw: PermittedTerminalSection| {
                let named = || name.into_owned();
                let raw =
                    PermittedTerminalSection { name: raw.name.or_else(|| Some(named())), ..raw };
                list.add(place, raw)
            });
            let path = file.path.to_owned();
            match (read, list.terminals.last()) {
                // The terminal of the permit that was just read.
                (Ok(()), Some(added)) => drop(paths.insert(added.name.clone(), path)),
                (Ok(()), None) => {}
                (Err(error), _) => refused.push((path, error)),
            }
        }
        Self { terminals: list.terminals, paths, refused }
    }

    /// Returns the text of a permit with the terminal's key in place of its invitation, and without
    /// `expires`. Everything else stays as written.
    ///
    /// # Errors
    /// If the permit does not have this invitation, or the result would not be valid.
    pub fn enrol(
        path: &Path,
        text: &str,
        invitation: &PublicKey,
        key: &PublicKey,
    ) -> Result<String, FileError> {
        let begins = |line: &str, key: &str| {
            let rest = line.trim_start().strip_prefix(key);
            rest.is_some_and(|rest| rest.trim_start().starts_with('='))
        };
        // Edited as text, which keeps comments and the order of the keys.
        let mut enrolled = String::new();
        for line in text.lines().filter(|line| !begins(line, "expires")) {
            match begins(line, "invite") && line.contains(&format_public_key(invitation)) {
                true => enrolled += &format!("key = \"{}\"\n", format_public_key(key)),
                false => enrolled.extend([line, "\n"]),
            }
        }
        let file = ConfigFile { path, text: &enrolled, regular: true };
        file.parse(FileKind::Permit, |place, raw: PermittedTerminalSection| match raw.invite {
            // `invite` is still there if its line was not found above.
            Some(_) => Err(place.unreadable("invite", "this is not the invitation that was used")),
            None => Ok(()),
        })?;
        Self::check(&file)?;
        Ok(enrolled)
    }

    /// Checks one permit by itself, without the hub's settings and the permits of other terminals.
    ///
    /// # Errors
    /// If it is not valid.
    pub fn check(file: &ConfigFile<'_>) -> Result<(), FileError> {
        let defaults = PermitDefaults {
            egress: EgressRules::everywhere(),
            quota: TerminalQuota::default(),
            carrier: None,
            volume: VolumeDefaults::default(),
        };
        // The hub's rate is not known here; with a reported rate, any guarantee is accepted.
        let rate = Rate::Modem { initial: BitRate::default() };
        let mut list = TerminalList::new(&defaults, &rate, None, None, false);
        file.parse(FileKind::Permit, |place, raw: PermittedTerminalSection| {
            // The name may be that of the file, which cannot be wrong.
            list.add(
                place,
                PermittedTerminalSection { name: raw.name.or_else(|| Some(String::new())), ..raw },
            )
        })
    }
}

/// A list of terminals that do not contradict each other.
pub(crate) struct TerminalList<'a> {
    defaults: &'a PermitDefaults,
    rate: &'a Rate,
    /// The hub's classes; `None` if they are not known, so that any name is accepted.
    classes: Option<&'a TrafficClasses>,
    /// The hub's links; `None` if they are not known, so that any name is accepted.
    links: Option<&'a [LinkConfig]>,
    /// True if there is a tunnel, which needs networks of every terminal.
    tunnel: bool,
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
        tunnel: bool,
    ) -> Self {
        Self {
            defaults,
            rate,
            classes,
            links,
            tunnel,
            terminals: Vec::new(),
            names: BTreeSet::new(),
            keys: BTreeMap::new(),
            networks: PrefixMap::default(),
            guaranteed: 0,
        }
    }

    /// Creates a list with the terminals of a hub's file.
    fn of(config: &'a HubConfig) -> Self {
        let rate = &config.link.rate;
        let tunnel = config.tunnel.is_some();
        let links = Some(&config.links[..]);
        let mut list = Self::new(&config.defaults, rate, Some(&config.classes), links, tunnel);
        list.reserve_keys_of_hub(&config.identity, config.next_identity.as_ref());
        for terminal in &config.terminals {
            list.insert(terminal.clone());
        }
        list
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

    fn insert(&mut self, terminal: PermittedTerminal) {
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

    /// Checks that networks do not overlap with those of other terminals. The tunnel drops packets of a
    /// terminal without networks, so with a tunnel every terminal needs some.
    fn check_networks(
        &self,
        place: &KeyContext<'_>,
        name: &str,
        networks: &[Text<Prefix>],
    ) -> Result<(), FileError> {
        if self.tunnel && networks.is_empty() {
            let expected = format!(
                "the addresses behind {name}, like [\"10.1.0.0/16\"], which [tunnel] needs"
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
