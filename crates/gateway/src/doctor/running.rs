//! The gateway that runs on this machine, compared with the examined file.

use std::path::Path;

use config::{ControlPath, OperationConfig, TerminalConfig};
use control::Role;
use control::protocol::{ControlAnswer, ControlRequest};
use control::status::{GatewayStatus, SessionStatus};
use slacp::PublicKey;

use super::{CheckFinding, hub};
use crate::config::keys::format_public_key;
use crate::operate::control_socket::{ControlClient, default_directories};
use crate::services::rotation::HubKeys;

const CHECK: &str = "running";

/// The gateway that answers on the control socket of a configuration.
pub(super) enum RunningGateway {
    /// No gateway answers, or none with this role.
    NoGateway,
    /// A gateway with the examined file, or the same identity.
    SameFile(Box<GatewayStatus>),
    /// A gateway with another file, whose status does not apply to this one.
    OtherFile(Box<GatewayStatus>),
}

impl RunningGateway {
    /// Looks for a running gateway of this role. `identity`: the public key in the file.
    pub(super) fn find(
        operation: &OperationConfig,
        role: Role,
        identity: Option<&PublicKey>,
    ) -> Self {
        let Some(status) = ask(operation, role) else { return Self::NoGateway };
        match is_of(&status, operation.file.as_deref(), identity) {
            true => Self::SameFile(Box::new(status)),
            false => Self::OtherFile(Box::new(status)),
        }
    }

    /// Returns the status of the gateway, if it runs with the examined file.
    pub(super) fn own(&self) -> Option<&GatewayStatus> {
        match self {
            Self::SameFile(status) => Some(status),
            Self::NoGateway | Self::OtherFile(_) => None,
        }
    }

    /// Reports the running gateway, with a warning if it runs with another file.
    pub(super) fn finding(&self) -> Option<CheckFinding> {
        match self {
            Self::NoGateway => None,
            Self::SameFile(status) => Some(CheckFinding::ok(CHECK, describe(status))),
            Self::OtherFile(status) => Some(CheckFinding::warn(
                CHECK,
                format!("{}: not with this file, which is examined by itself", describe(status)),
                "give the file that it runs with, or restart it with this one",
            )),
        }
    }
}

fn describe(status: &GatewayStatus) -> String {
    let role = status.role.as_str();
    let pid = status.pid;
    let from = status.file.as_ref().map(|file| format!(", {file}")).unwrap_or_default();
    let with = match status.role {
        Role::Solo => format!("{} connections", status.memory.connections),
        Role::Hub | Role::Terminal => format!("{} sessions", status.sessions.len()),
    };
    format!("a {role} runs (pid {pid}{from}), with {with}")
}

/// Returns whether a gateway runs with this file, by its key or else by its path. A gateway of an earlier
/// version, which reports neither, is assumed to.
fn is_of(status: &GatewayStatus, file: Option<&Path>, identity: Option<&PublicKey>) -> bool {
    match (identity, &status.key) {
        (Some(identity), Some(key)) => *key == format_public_key(identity),
        _ => match (file, &status.file) {
            (Some(file), Some(running)) => file.canonicalize().is_ok_and(|file| {
                Path::new(running).canonicalize().is_ok_and(|running| running == file)
            }),
            _ => true,
        },
    }
}

fn ask(operation: &OperationConfig, role: Role) -> Option<GatewayStatus> {
    let name = format!("{}.sock", role.as_str());
    let paths = match &operation.control {
        ControlPath::At(path) => vec![path.clone()],
        ControlPath::Usual => default_directories().iter().map(|at| at.join(&name)).collect(),
        ControlPath::None => Vec::new(),
    };
    let mut control = paths.iter().find_map(|path| ControlClient::connect(path).ok())?;
    match control.ask(&ControlRequest::Status { connections: false }).ok()? {
        ControlAnswer::Status(status) => Some(*status),
        _ => None,
    }
}

/// Checks that the hubs in a terminal's file answer: by the sessions of the running terminal, otherwise by
/// probes.
pub(super) fn hubs(config: &TerminalConfig, running: &RunningGateway) -> Vec<CheckFinding> {
    let keys = HubKeys::load(config);
    let hub_keys: Vec<PublicKey> = config.hubs.iter().map(|hub| keys.current(&hub.key)).collect();
    let written: Vec<String> = hub_keys.iter().map(format_public_key).collect();
    let sessions = running.own().map_or(&[][..], |status| &status.sessions);
    let mut findings = Vec::new();
    if sessions.iter().any(|session| !written.contains(&session.key)) {
        let what = "the terminal runs with the key of another hub than this file has";
        findings.push(CheckFinding::warn(CHECK, what, "restart it to use this file"));
    }
    for ((hub, key), written) in config.hubs.iter().zip(hub_keys).zip(&written) {
        let answers = sessions.iter().any(|session| session.key == *written && session.reachable);
        findings.push(if answers {
            CheckFinding::ok(
                "hub",
                format!("{} answers the running terminal", hub.address.as_str()),
            )
        } else {
            hub::check(config, hub, key)
        });
    }
    findings
}

/// Warns of sessions whose configured or reported rate exceeds the link.
pub(super) fn rates(status: &GatewayStatus) -> Vec<CheckFinding> {
    let exceeds = |session: &&SessionStatus| {
        session.overload.is_some() || session.rate_state.as_deref() == Some("tripped")
    };
    let mend = "set `rate` to what the link carries, or to \"auto\"";
    let found = status.sessions.iter().filter(exceeds);
    let finding = |session: &SessionStatus| {
        CheckFinding::warn("rate", format!("{}: {}", session.peer, session.verdict), mend)
    };
    found.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use slacp::KeyPair;

    use super::*;

    #[test]
    fn a_gateway_is_of_the_file_with_its_key_or_for_want_of_one_with_its_path() {
        let key = |seed| KeyPair::from_private([seed; 32]).public();
        let with_key = |seed| GatewayStatus {
            key: Some(format_public_key(&key(seed))),
            file: Some("/etc/skyhop/hub.toml".to_owned()),
            ..GatewayStatus::default()
        };
        assert!(is_of(&with_key(1), None, Some(&key(1))));
        assert!(!is_of(&with_key(2), Some(Path::new("/etc/skyhop/hub.toml")), Some(&key(1))));
        assert!(is_of(&GatewayStatus::default(), None, Some(&key(1))), "an earlier version");

        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, "").unwrap();
            path
        };
        let (this, other) = (path("a.toml"), path("b.toml"));
        let solo =
            GatewayStatus { file: Some(this.display().to_string()), ..GatewayStatus::default() };
        assert!(is_of(&solo, Some(&directory.path().join("./a.toml")), None));
        assert!(!is_of(&solo, Some(&other), None));
    }
}
