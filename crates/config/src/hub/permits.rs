//! The terminals that a hub permits: the sections `[[terminal]]` of its file, and permits, which are
//! files of their own in a directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pep::accounting::VolumeDefaults;
use pep::egress::EgressRules;
use pep::keys::format_public_key;
use pep::routes::TerminalQuota;
use slacp::{PublicKey, Rate};
use units::BitRate;

use crate::file::{FileError, FileKind};
use crate::hub::terminal_list::TerminalList;
use crate::hub::terminal_section::PermittedTerminalSection;
use crate::values::source::ConfigFile;
use crate::{HubConfig, PermitDefaults, PermittedTerminal};

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
        let mut list = terminals_of(config);
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

/// Creates a list with the terminals of a hub's file.
fn terminals_of(config: &HubConfig) -> TerminalList<'_> {
    let needs_networks = config.tunnel.is_some() && config.transparent;
    let links = Some(&config.links[..]);
    let rate = &config.link.rate;
    let classes = Some(&config.classes);
    let mut list = TerminalList::new(&config.defaults, rate, classes, links, needs_networks);
    list.reserve_keys_of_hub(&config.identity, config.next_identity.as_ref());
    for terminal in &config.terminals {
        list.insert(terminal.clone());
    }
    list
}
