//! Rows of the status text for terminals without a session.

use super::super::{AbsentStatus, StrangerStatus};
use super::{row, seconds};

/// Maximum rows of each kind. The JSON output has all.
const MOST: usize = 20;

pub(super) fn rows(text: &mut String, absent: &[AbsentStatus], strangers: &[StrangerStatus]) {
    for terminal in absent.iter().take(MOST) {
        row(text, "absent", &absence(terminal));
    }
    more(text, "absent", absent.len());
    for stranger in strangers.iter().take(MOST) {
        row(text, "refused", &refusal(stranger));
    }
    more(text, "refused", strangers.len());
}

fn more(text: &mut String, name: &str, count: usize) {
    if count > MOST {
        row(text, name, &format!("{} more: see skyhop status --json", count - MOST));
    }
}

fn absence(terminal: &AbsentStatus) -> String {
    let name = &terminal.peer;
    match (terminal.silent_s, &terminal.why) {
        (Some(silent), Some(why)) => format!("{name}, last heard {} ago: {why}", seconds(silent)),
        _ => format!("{name}, never heard"),
    }
}

fn refusal(stranger: &StrangerStatus) -> String {
    let StrangerStatus { address, attempts, .. } = stranger;
    let why = match &stranger.key {
        Some(key) => format!("its key {key} is not permitted here"),
        None => "it asks for a hub with another key".to_owned(),
    };
    let last = seconds(stranger.last_s);
    format!("a terminal at {address}: {why}; asked {attempts} times, last {last} ago")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_without_a_session_have_their_reason() {
        let peer = |name: &str| AbsentStatus { peer: name.to_owned(), ..AbsentStatus::default() };
        let why = Some("it stopped answering".to_owned());
        let lost = AbsentStatus { silent_s: Some(60.0), why, ..peer("ship-1") };
        let at = |key: Option<&str>| StrangerStatus {
            address: "192.0.2.7:4500".to_owned(),
            key: key.map(str::to_owned),
            attempts: 3,
            last_s: 2.0,
            ..StrangerStatus::default()
        };
        let mut text = String::new();
        rows(&mut text, &[lost, peer("ship-2")], &[at(Some("AbC=")), at(None)]);
        let expected = "  absent   ship-1, last heard 60 s ago: it stopped answering\n  \
             absent   ship-2, never heard\n  \
             refused  a terminal at 192.0.2.7:4500: its key AbC= is not permitted here; asked 3 \
             times, last 2 s ago\n  \
             refused  a terminal at 192.0.2.7:4500: it asks for a hub with another key; asked 3 \
             times, last 2 s ago\n";
        assert_eq!(text, expected);
        text.clear();
        rows(&mut text, &vec![peer("x"); MOST + 2], &[]);
        assert!(text.ends_with("absent   2 more: see skyhop status --json\n"), "{text}");
    }
}
