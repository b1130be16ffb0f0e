//! Checks that a gateway can work on this machine, with suggested fixes.
//!
//! The checks change nothing and need no privilege: those that need root run in a network namespace of
//! their own, or are reported as unknown.

mod absent;
mod bundles;
mod configured;
mod hub;
mod intercepted;
mod machine;
mod protocols;
mod reach;
mod refused;
mod running;
mod topic;
mod trial;
mod uplink;

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use configured::interface_names;
pub use topic::{explain, topics};
pub use uplink::clients_interface;

/// Result of one check, with a fix if it is not ok.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CheckFinding {
    /// Name of the check, such as `kernel`.
    pub check: String,
    /// Severity; a failure makes `skyhop doctor` exit with code 1.
    pub verdict: FindingSeverity,
    /// Description of the result in a few words, without the fix.
    pub text: String,
    /// Suggested fix; `None` if the verdict is ok.
    pub mend: Option<String>,
    /// Section of docs/ about it, such as `troubleshooting.md#udp-is-blocked`; `None` if the verdict is
    /// ok.
    pub see: Option<String>,
}

/// Severity of a finding, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingSeverity {
    /// The requirement is met; nothing is to be done.
    Ok,
    /// A gateway works, but not at its best, or the state is unknown.
    Warn,
    /// A gateway cannot work until this is fixed.
    Fail,
}

impl FindingSeverity {
    /// Returns the word printed in front of a finding.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
        }
    }
}

/// Formats the finding as a line, a second one with the fix, and a third with the command that explains it.
impl fmt::Display for CheckFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<5} {:<14} {}", self.verdict.as_str(), self.check, self.text)?;
        if let Some(mend) = &self.mend {
            write!(f, "\n{:<20} -> {mend}", "")?;
        }
        if let Some(see) = &self.see {
            let section = see.split_once('#').map_or(see.as_str(), |(_, section)| section);
            write!(f, "\n{:<20}    skyhop doctor --explain {section}", "")?;
        }
        Ok(())
    }
}

impl CheckFinding {
    fn ok(check: &str, text: impl Into<String>) -> Self {
        Self {
            check: check.to_owned(),
            verdict: FindingSeverity::Ok,
            text: text.into(),
            mend: None,
            see: None,
        }
    }

    fn warn(check: &str, text: impl Into<String>, mend: impl Into<String>) -> Self {
        Self {
            check: check.to_owned(),
            verdict: FindingSeverity::Warn,
            text: text.into(),
            mend: Some(mend.into()),
            see: Some(topic::page_of(check)),
        }
    }

    fn fail(check: &str, text: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { verdict: FindingSeverity::Fail, ..Self::warn(check, text, mend) }
    }
}

/// Checks the machine, and the configuration file if one is given. Call it while the process is
/// single-threaded: some checks fork.
pub fn examine(config: Option<&Path>) -> Vec<CheckFinding> {
    let mut findings = machine::examine();
    findings.push(trial::interception());
    if let Some(path) = config {
        findings.extend(configured::examine(path));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_a_line_and_its_remedy_another_in_the_same_column() {
        let finding = CheckFinding::fail("port", "is taken", "change `listen`");
        let text = finding.to_string();
        let [first, second, third] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
        assert!(first.starts_with("FAIL  port ") && first.ends_with("is taken"), "{text}");
        assert_eq!(second.trim_start(), "-> change `listen`");
        assert_eq!(first.find("is taken"), second.find("->"));
        let named = third.trim_start().strip_prefix("skyhop doctor --explain ").unwrap();
        assert!(explain(named).is_some(), "{text}");
        assert_eq!(CheckFinding::ok("port", "is free").to_string().lines().count(), 1);
    }

    #[test]
    fn verdicts_are_ordered_by_severity_so_that_the_worst_is_the_greatest() {
        let all = [FindingSeverity::Ok, FindingSeverity::Warn, FindingSeverity::Fail];
        assert!(all.is_sorted());
        let finding = CheckFinding::warn("x", "y", "z");
        let json = serde_json::to_string(&finding).unwrap();
        assert!(json.contains("\"warn\""), "{json}");
        assert_eq!(serde_json::from_str::<CheckFinding>(&json).unwrap(), finding);
    }

    #[test]
    fn a_missing_file_is_a_finding_and_not_a_failure_of_the_check() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("no.toml");
        let [finding] = &configured::examine(&path)[..] else { panic!("one finding") };
        assert_eq!(
            (finding.verdict, finding.check.as_str()),
            (FindingSeverity::Fail, "configuration")
        );
        assert!(finding.text.contains("no.toml"), "{finding}");
    }
}
