//! Trial of interception in a new network namespace, which leaves the machine unchanged.

use std::io;

use config::InterceptConfig;
use nix::sched::{CloneFlags, unshare};
use os::netlink::RouteSocket;
use os::{namespace, process};

use super::CheckFinding;
use crate::intercept::Interception;
use crate::intercept::netfilter::Scope;
use crate::process::refusal::{LATER, without_v6};

const CHECK: &str = "interception";
const MEND: &str = "the kernel needs nftables with tproxy and socket matching (modules nft_tproxy \
                    and nft_socket; CONFIG_NFT_TPROXY, CONFIG_NFT_SOCKET)";

/// Installs everything that a terminal installs, in an empty namespace.
pub(super) fn interception() -> CheckFinding {
    // In a child process, so that this one stays in its namespaces.
    match process::in_child(attempt) {
        Ok(text) if text == "ok" => CheckFinding::ok(
            CHECK,
            "nftables, tproxy, rules and routes work (tried in a namespace)",
        ),
        Ok(text) => match text.split_once(": ") {
            Some(("namespace", why)) => CheckFinding::warn(
                CHECK,
                format!("unknown: no namespace to try it in: {why}"),
                MEND,
            ),
            Some(("refused", why)) => CheckFinding::fail(CHECK, why, MEND),
            _ => CheckFinding::warn(CHECK, text, LATER),
        },
        Err(_) => CheckFinding::warn(CHECK, "unknown: it could not be tried", MEND),
    }
}

fn attempt() -> String {
    if let Err(why) = enter_namespace() {
        return format!("namespace: {why}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let tried = runtime.map_err(|error| error.to_string()).and_then(|runtime| {
        runtime.block_on(async {
            let config =
                InterceptConfig { interfaces: vec!["lo".to_owned()], ..InterceptConfig::nowhere() };
            let interception = Interception::install(&config, &[], None);
            let mut interception = interception.map_err(|error| error.to_string())?;
            interception.apply_scope(&Scope::Everything).map_err(|error| error.to_string())?;
            Ok(interception.without_v6().map_or_else(|| "ok".to_owned(), without_v6))
        })
    });
    tried.unwrap_or_else(|error| format!("refused: {error}"))
}

/// Enters a new network namespace with loopback up, as root of a user namespace if necessary.
fn enter_namespace() -> io::Result<()> {
    if unshare(CloneFlags::CLONE_NEWNET).is_err() {
        namespace::enter_user()?;
        unshare(CloneFlags::CLONE_NEWNET)?;
    }
    RouteSocket::open()?.bring_up("lo", None, true)
}
