//! Tries interception in a network namespace of our own, so that the machine stays unchanged.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use nix::sched::{CloneFlags, unshare};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Gid, Uid, fork, pipe};

use super::Finding;
use crate::config::InterceptConfig;
use crate::interception::Interception;
use crate::netfilter::Scope;
use crate::refusal::{LATER, without_v6};

const CHECK: &str = "interception";
const MEND: &str = "the kernel needs nftables with tproxy and socket matching (modules nft_tproxy \
                    and nft_socket; CONFIG_NFT_TPROXY, CONFIG_NFT_SOCKET)";

/// Installs everything that a terminal does, in an empty namespace.
pub(super) fn interception() -> Finding {
    match in_child(attempt) {
        Some(text) if text == "ok" => {
            Finding::ok(CHECK, "nftables, tproxy, rules and routes work (tried in a namespace)")
        }
        Some(text) => match text.split_once(": ") {
            Some(("namespace", why)) => {
                Finding::warn(CHECK, format!("unknown: no namespace to try it in: {why}"), MEND)
            }
            Some(("refused", why)) => Finding::fail(CHECK, why, MEND),
            _ => Finding::warn(CHECK, text, LATER),
        },
        None => Finding::warn(CHECK, "unknown: it could not be tried", MEND),
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
            let interception = Interception::install(&config, &[]);
            let mut interception = interception.map_err(|error| error.to_string())?;
            interception.take_over(&Scope::Everything).map_err(|error| error.to_string())?;
            Ok(interception.without_v6().map_or_else(|| "ok".to_owned(), without_v6))
        })
    });
    tried.unwrap_or_else(|error| format!("refused: {error}"))
}

/// Enters a new network namespace, as root of a user namespace if necessary.
fn enter_namespace() -> Result<(), String> {
    if unshare(CloneFlags::CLONE_NEWNET).is_err() {
        let (uid, gid) = (Uid::effective(), Gid::effective());
        let flags = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET;
        unshare(flags).map_err(|error| error.to_string())?;
        let write = |name: &str, text: String| {
            fs::write(format!("/proc/self/{name}"), text).map_err(|error| error.to_string())
        };
        write("setgroups", "deny".to_owned())?;
        write("gid_map", format!("0 {gid} 1"))?;
        write("uid_map", format!("0 {uid} 1"))?;
    }
    bring_loopback_up()
}

/// `ip link set lo up`, by ioctl.
fn bring_loopback_up() -> Result<(), String> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").map_err(|error| error.to_string())?;
    // SAFETY: all zeroes is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(*b"lo") {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
    // SAFETY: SIOCSIFFLAGS reads an ifreq.
    let result = unsafe { libc::ioctl(fd, libc::SIOCSIFFLAGS, &raw const request) };
    if result < 0 { Err(std::io::Error::last_os_error().to_string()) } else { Ok(()) }
}

/// Runs `work` in a forked child and returns its output; `None` if the fork fails.
fn in_child(work: fn() -> String) -> Option<String> {
    let (reader, writer): (OwnedFd, OwnedFd) = pipe().ok()?;
    // SAFETY: this process is single-threaded, so the child may call anything.
    match unsafe { fork() }.ok()? {
        ForkResult::Child => {
            drop(reader);
            let _ = File::from(writer).write_all(work().as_bytes());
            // SAFETY: exits the child without running the parent's exit handlers.
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent { child } => {
            drop(writer);
            let mut said = String::new();
            let _ = File::from(reader).read_to_string(&mut said);
            let _ = waitpid(child, None);
            (!said.is_empty()).then_some(said)
        }
    }
}
