//! The accounts of a hub's terminals as a table.

use std::fmt::Write as _;

use report::{TableColumn, TextTable};
use units::ByteCount;

use super::{AccountStatus, UsageStatus};

/// Formats a row for each terminal and class, and a line for each quota.
pub fn accounts_text(accounts: &[AccountStatus]) -> String {
    let names = ["to", "from", "packets to", "packets from", "connections"].map(TableColumn::right);
    let mut table = TextTable::new(
        [TableColumn::left("terminal"), TableColumn::left("class")].into_iter().chain(names),
    );
    for account in accounts {
        for (class, usage) in &account.classes {
            let UsageStatus { bytes_to, bytes_from, packets_to, packets_from, connections } = usage;
            table.row([
                account.name().to_owned(),
                class.clone(),
                ByteCount::new(*bytes_to).to_string(),
                ByteCount::new(*bytes_from).to_string(),
                packets_to.to_string(),
                packets_from.to_string(),
                connections.to_string(),
            ]);
        }
    }
    let mut text = table.to_string();
    accounts.iter().for_each(|account| text += &quota(account));
    text
}

fn quota(account: &AccountStatus) -> String {
    let Some(volume) = account.quota_bytes else { return String::new() };
    let Some(period) = &account.quota_period else { return String::new() };
    let used = ByteCount::new(account.quota_used_bytes.unwrap_or_default());
    let name = account.name();
    let mut text = format!("{name}: {used} of {} per {period}", ByteCount::new(volume));
    if let Some(then) = &account.exhausted {
        let _ = write!(text, ", used up: {then}");
    }
    text + "\n"
}

impl AccountStatus {
    /// The name of the terminal, or its key if it is no longer permitted.
    pub(crate) fn name(&self) -> &str {
        if self.terminal.is_empty() { &self.key } else { &self.terminal }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_row_for_each_class_and_a_line_for_each_quota() {
        let usage = UsageStatus { bytes_to: 1500, connections: 2, ..UsageStatus::default() };
        let ship = AccountStatus {
            terminal: "ship-1".to_owned(),
            classes: ["bulk", "default"].map(|name| (name.to_owned(), usage)).into(),
            quota_bytes: Some(3000),
            quota_period: Some("month".to_owned()),
            quota_used_bytes: Some(3000),
            exhausted: Some("256 kbit/s".to_owned()),
            ..AccountStatus::default()
        };
        let gone = AccountStatus { key: "KEY".to_owned(), ..ship.clone() };
        let gone = AccountStatus { terminal: String::new(), quota_bytes: None, ..gone };
        let text = accounts_text(&[ship, gone]);
        assert_eq!(text.lines().filter(|line| line.contains("1.5 kB")).count(), 4, "{text}");
        assert!(text.contains("ship-1: 3 kB of 3 kB per month, used up: 256 kbit/s\n"), "{text}");
        assert!(!text.contains("KEY: "), "{text}");
    }
}
