//! What would keep a gateway from working on this machine, and how to mend it.
//!
//! Nothing is changed, and no privilege is needed: what only root could find out
//! is tried in a network namespace of our own, or said to be unknown.

mod configured;
mod knock;
mod machine;
mod reach;
mod refused;
mod trial;

use std::path::Path;

use serde::{Deserialize, Serialize};

/// What came of looking at one thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Finding {
    /// What was looked at.
    pub check: String,
    /// How it is.
    pub verdict: Verdict,
    /// What was found.
    pub text: String,
    /// How to mend it, if it is not well.
    pub mend: Option<String>,
}

/// How a thing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// A gateway works, but not as well as it could, or it is not known.
    Warn,
    /// A gateway does not work.
    Fail,
}

impl Verdict {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
        }
    }
}

impl Finding {
    fn ok(check: &str, text: impl Into<String>) -> Self {
        Self { check: check.to_owned(), verdict: Verdict::Ok, text: text.into(), mend: None }
    }

    fn warn(check: &str, text: impl Into<String>, mend: impl Into<String>) -> Self {
        let mend = Some(mend.into());
        Self { check: check.to_owned(), verdict: Verdict::Warn, text: text.into(), mend }
    }

    fn fail(check: &str, text: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { verdict: Verdict::Fail, ..Self::warn(check, text, mend) }
    }
}

/// Looks at the machine, and at the configuration if there is one. To be called
/// while the process has one thread: parts of it are tried in children.
pub fn examine(config: Option<&Path>) -> Vec<Finding> {
    let mut findings = machine::examine();
    findings.push(trial::interception());
    if let Some(path) = config {
        findings.extend(configured::examine(path));
    }
    findings
}
