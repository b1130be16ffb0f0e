//! A hub's accounts: the traffic of its terminals, kept in a file, and what their quotas change.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use config::PermittedTerminal;
use control::protocol::{CarriedUsage, ControlRequest};
use control::status::{AccountStatus, UsageStatus};
use pep::accounting::{
    ExhaustedAction, Ledger, PeriodUsage, QuotaChange, TerminalAccount, TrafficUsage, VolumeQuota,
};
use pep::timing::Periodic;
use serde::{Deserialize, Serialize};
use slacp::PublicKey;
use units::Instant;

use super::control_socket::ControlClient;
use crate::config::keys::{format_public_key, parse_public_key};
use crate::config::whole_file::{self, PRIVATE};
use crate::hop::Hop;
use crate::process::clock;

/// Version of the file format.
const FORMAT: u32 = 1;
/// Maximum file size in bytes: more than 65,536 terminals with ten classes each.
const MAX_FILE: u64 = 256 << 20;
/// Rows of a request to another process: at most 50 kB.
const MAX_ROWS: usize = 100;
/// Interval for saving accounts: at most this much is lost when a machine fails.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);

/// The accounts of a hub, and their file.
pub(crate) struct TerminalAccounts {
    ledger: Ledger,
    names: BTreeMap<PublicKey, String>,
    /// `None` keeps them in memory only.
    file: Option<PathBuf>,
    save: Periodic,
    /// Writes the file: the disk may take longer than a hub may pause.
    writer: Option<JoinHandle<()>>,
}

impl TerminalAccounts {
    /// Continues the accounts in the directory `state`. A damaged file is moved aside.
    pub(crate) fn open(now: Instant, state: Option<&Path>) -> Self {
        let file = state.map(|directory| directory.join("hub-accounts.json"));
        let accounts = file.as_deref().map(load).unwrap_or_default();
        Self {
            ledger: Ledger::new(accounts),
            names: BTreeMap::new(),
            file,
            save: Periodic::new(SAVE_INTERVAL, now + SAVE_INTERVAL),
            writer: None,
        }
    }

    /// Applies the names and quotas of the permitted terminals.
    pub(crate) fn configure(&mut self, terminals: &[PermittedTerminal]) {
        self.names =
            terminals.iter().map(|terminal| (terminal.key, terminal.name.clone())).collect();
        let quota = |terminal: &PermittedTerminal| Some((terminal.key, terminal.volume.clone()?));
        let quotas: BTreeMap<PublicKey, VolumeQuota> = terminals.iter().filter_map(quota).collect();
        self.ledger.configure(quotas);
    }

    /// Adds the traffic of the sessions since the last call. Returns the terminals whose quota is
    /// used up from now on, or no longer.
    pub(crate) fn follow(&mut self, hop: &Hop) -> Vec<QuotaChange> {
        let unix = clock::unix_seconds();
        for (key, class, usage) in hop.take_usage() {
            self.ledger.record(unix, key, &class, &usage);
        }
        self.ledger.follow(unix)
    }

    /// Adds the traffic that another process of this hub has carried.
    ///
    /// # Errors
    /// A key is invalid.
    pub(crate) fn add(&mut self, carried: Vec<CarriedUsage>) -> Result<(), String> {
        let unix = clock::unix_seconds();
        for CarriedUsage { key, class, usage } in carried {
            let key = parse_public_key(&key).map_err(|error| error.to_string())?;
            self.ledger.record(unix, key, &class, &usage.into());
        }
        Ok(())
    }

    /// The name of a permitted terminal.
    pub(crate) fn name(&self, key: &PublicKey) -> Option<&str> {
        self.names.get(key).map(String::as_str)
    }

    /// The terms of a terminal whose quota is used up; `None` if it is not.
    pub(crate) fn exhausted(&self, key: &PublicKey) -> Option<&ExhaustedAction> {
        self.ledger.exhausted(key)
    }

    /// Begins to save the accounts, if it is time and they have changed.
    pub(crate) fn save_if_due(&mut self, now: Instant) {
        if self.save.is_due(now) && self.writer.as_ref().is_none_or(JoinHandle::is_finished) {
            self.begin_saving();
        }
    }

    /// Saves the accounts if they have changed, and waits for the disk.
    pub(crate) fn save(&mut self) {
        // An older text must not be written after this one.
        self.wait();
        self.begin_saving();
        self.wait();
    }

    fn begin_saving(&mut self) {
        let Some(file) = self.file.clone() else { return };
        let Some(accounts) = self.ledger.changed_accounts() else { return };
        let text = format(accounts, &self.names);
        self.writer = Some(thread::spawn(move || {
            if let Err(error) = whole_file::replace(&file, &text, PRIVATE) {
                tracing::warn!("cannot save {}: {error}", file.display());
            }
        }));
    }

    fn wait(&mut self) {
        if let Some(writer) = self.writer.take() {
            // Fails only if the writer has panicked.
            let _ = writer.join();
        }
    }

    /// All accounts, for status reports.
    pub(crate) fn status(&self) -> Vec<AccountStatus> {
        self.ledger.accounts().iter().map(|(key, account)| self.row(key, account)).collect()
    }

    fn row(&self, key: &PublicKey, account: &TerminalAccount) -> AccountStatus {
        let quota = self.ledger.quota(key);
        let counted = account.counted.filter(|_| quota.is_some());
        AccountStatus {
            terminal: self.names.get(key).cloned().unwrap_or_default(),
            key: format_public_key(key),
            last_used_unix_s: account.last_used,
            classes: classes(account),
            quota_bytes: quota.map(|quota| quota.volume.get()),
            quota_period: quota.map(|quota| quota.period.to_string()),
            quota_used_bytes: quota.map(|_| counted.map_or(0, |entry| entry.used)),
            exhausted: self.ledger.exhausted(key).map(ExhaustedAction::to_string),
        }
    }
}

/// Reports this process's traffic to its successor, which has the accounts.
#[derive(Default)]
pub(crate) struct UsageForwarder(Option<JoinHandle<()>>);

impl UsageForwarder {
    /// Reports the traffic since the last report, in the background.
    pub(crate) fn follow(&mut self, hop: &Hop, to: PathBuf) {
        // The traffic stays in the counters until the earlier report is delivered.
        if self.0.as_ref().is_some_and(|sending| !sending.is_finished()) {
            return;
        }
        let row = |(key, class, used): (PublicKey, String, TrafficUsage)| {
            (used != TrafficUsage::default()).then(|| CarriedUsage {
                key: format_public_key(&key),
                class,
                usage: UsageStatus::new(&used),
            })
        };
        let rows: Vec<CarriedUsage> = hop.take_usage().into_iter().filter_map(row).collect();
        if !rows.is_empty() {
            self.0 = Some(thread::spawn(move || send(&rows, &to)));
        }
    }

    /// Reports the rest, and waits until it is delivered.
    pub(crate) fn finish(&mut self, hop: &Hop, to: PathBuf) {
        self.wait();
        self.follow(hop, to);
        self.wait();
    }

    fn wait(&mut self) {
        // Fails only if the sender has panicked.
        self.0.take().into_iter().for_each(|sending| _ = sending.join());
    }
}

fn send(rows: &[CarriedUsage], to: &Path) {
    for rows in rows.chunks(MAX_ROWS) {
        let carried = ControlRequest::Carried(rows.to_vec());
        if let Err(error) = ControlClient::connect(to).and_then(|mut control| control.ask(&carried))
        {
            tracing::warn!("the accounts lack the traffic of {} terminals: {error}", rows.len());
        }
    }
}

fn classes(account: &TerminalAccount) -> BTreeMap<String, UsageStatus> {
    account.classes.iter().map(|(name, used)| (name.clone(), UsageStatus::new(used))).collect()
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AccountFile {
    skyhop_accounts: u32,
    terminals: Vec<AccountEntry>,
}

/// An account in the file. The name is for human readers.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AccountEntry {
    key: String,
    name: String,
    last_used_unix_s: u64,
    classes: BTreeMap<String, UsageStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    counted: Option<QuotaPeriod>,
}

/// Volume used in a period.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuotaPeriod {
    period: String,
    number: u64,
    used_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<(u64, u64)>,
}

fn load(file: &Path) -> BTreeMap<PublicKey, TerminalAccount> {
    match whole_file::read(file, MAX_FILE).and_then(|text| parse(&text)) {
        Ok(accounts) => accounts,
        Err(error) => {
            let aside = file.with_extension("damaged");
            tracing::error!("{}: {error}; kept as {}", file.display(), aside.display());
            // If this fails, too, the next save replaces the damaged file.
            let _ = std::fs::rename(file, aside);
            BTreeMap::new()
        }
    }
}

fn format(
    accounts: &BTreeMap<PublicKey, TerminalAccount>,
    names: &BTreeMap<PublicKey, String>,
) -> Vec<u8> {
    let counted = |entry: PeriodUsage| QuotaPeriod {
        period: entry.period.to_string(),
        number: entry.number,
        used_bytes: entry.used,
        before: entry.before,
    };
    let kept = |(key, account): (&PublicKey, &TerminalAccount)| AccountEntry {
        key: format_public_key(key),
        name: names.get(key).cloned().unwrap_or_default(),
        last_used_unix_s: account.last_used,
        classes: classes(account),
        counted: account.counted.map(counted),
    };
    let terminals = accounts.iter().map(kept).collect();
    let contents = AccountFile { skyhop_accounts: FORMAT, terminals };
    serde_json::to_vec(&contents).expect("accounts are plain data")
}

fn parse(text: &[u8]) -> io::Result<BTreeMap<PublicKey, TerminalAccount>> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    // There is no file yet.
    if text.is_empty() {
        return Ok(BTreeMap::new());
    }
    let contents: AccountFile = serde_json::from_slice(text).map_err(|e| wrong(e.to_string()))?;
    if contents.skyhop_accounts != FORMAT {
        return Err(wrong(format!("its format is {}, not {FORMAT}", contents.skyhop_accounts)));
    }
    let account = |kept: AccountEntry| {
        let key = parse_public_key(&kept.key).map_err(|e| wrong(e.to_string()))?;
        let counted = |quota: QuotaPeriod| -> io::Result<PeriodUsage> {
            let QuotaPeriod { period, number, used_bytes: used, before } = quota;
            let period = period.parse().map_err(|why: &str| wrong(why.to_owned()))?;
            Ok(PeriodUsage { period, number, used, before })
        };
        let classes = kept.classes.into_iter().map(|(name, used)| (name, used.into())).collect();
        let counted = kept.counted.map(counted).transpose()?;
        Ok::<_, io::Error>((
            key,
            TerminalAccount { classes, last_used: kept.last_used_unix_s, counted },
        ))
    };
    contents.terminals.into_iter().map(account).collect()
}

#[cfg(test)]
mod tests {
    use pep::accounting::RenewalPeriod;

    use super::*;
    use crate::config::keys::PrivateKey;

    fn account() -> TerminalAccount {
        let usage = TrafficUsage {
            bytes_to: 7,
            bytes_from: 1,
            packets_to: 2,
            packets_from: 3,
            connections: 4,
        };
        let period = RenewalPeriod::Every(Duration::from_secs(600));
        TerminalAccount {
            classes: BTreeMap::from([("bulk".to_owned(), usage)]),
            last_used: 1_795_000_000,
            counted: Some(PeriodUsage { period, number: 9, used: 8, before: Some((8, 5)) }),
        }
    }

    #[test]
    fn accounts_are_read_back_and_a_damaged_file_is_kept_aside() {
        let folder = tempfile::tempdir().unwrap();
        let key = PrivateKey::generate().unwrap().public();
        let all =
            BTreeMap::from([(key, account()), (PublicKey([3; 32]), TerminalAccount::default())]);
        let text = format(&all, &BTreeMap::new());
        assert_eq!(parse(&text).unwrap(), all);
        for length in 1..text.len() {
            assert!(parse(&text[..length]).is_err(), "{length}");
        }
        let file = folder.path().join("hub-accounts.json");
        assert_eq!(load(&file), BTreeMap::new(), "there is none");
        std::fs::write(&file, "nonsense").unwrap();
        assert_eq!(load(&file), BTreeMap::new());
        assert!(!file.exists() && folder.path().join("hub-accounts.damaged").exists());
    }

    #[test]
    fn what_was_recorded_outlives_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let open = || TerminalAccounts::open(Instant::ZERO, Some(folder.path()));
        let (key, usage) =
            (PublicKey([1; 32]), TrafficUsage { bytes_to: 5, ..TrafficUsage::default() });
        for run in 1..=3 {
            let mut accounts = open();
            accounts.ledger.record(run, key, "bulk", &usage);
            accounts.save_if_due(Instant::ZERO);
            assert_eq!(open().status().len(), usize::from(run > 1), "not yet saved");
            accounts.save();
            let [row] = &open().status()[..] else { panic!("one account") };
            assert_eq!((row.classes["bulk"].bytes_to, row.last_used_unix_s), (5 * run, run));
        }
    }
}
