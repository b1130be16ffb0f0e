//! Checks of the machine for `[bundles]`.

use std::path::Path;

use config::{BundlesConfig, BundlesTls};
use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access};
use units::ByteCount;

use super::CheckFinding;
use crate::network::presence;

/// Checks store, inbox, port and certificates. `is_running`: a gateway with this configuration runs and so
/// occupies the port.
pub(super) fn examine(config: &BundlesConfig, is_running: bool) -> Vec<CheckFinding> {
    let mut findings = vec![store(&config.store, config.agent.limits.bytes)];
    findings.extend(config.keys.inbox.as_deref().map(inbox));
    if let Some(address) = config.listen.filter(|_| !is_running)
        && let Err(error) = presence::try_listen(address)
    {
        let what = format!("TCP {address} for other nodes: {error}");
        findings.push(CheckFinding::fail("bundles", what, "change `listen` in [bundles]"));
    }
    findings.extend(config.tls.as_ref().map(tls));
    findings
}

/// Checks the certificates for sessions with other nodes.
fn tls(config: &BundlesTls) -> CheckFinding {
    match crate::services::bundles::secure::check(config) {
        Ok(()) => {
            let shown = config.files.certificate.display();
            CheckFinding::ok("bundles", format!("{shown} can be used for TLS with other nodes"))
        }
        Err(error) => {
            let mend = "give `certificate` and `key` of [bundles] PEM files of one pair, and \
                        `authorities` one of those that certify the others";
            CheckFinding::fail("bundles", error, mend)
        }
    }
}

fn may_write(path: &Path) -> bool {
    access(path, AccessFlags::W_OK | AccessFlags::X_OK).is_ok()
}

fn store(path: &Path, size: ByteCount) -> CheckFinding {
    // The gateway creates missing directories, so the nearest one that exists is checked.
    let Some(there) = path.ancestors().find(|path| path.exists()) else {
        return CheckFinding::fail("bundles", format!("there is no {}", path.display()), "make it");
    };
    if !there.is_dir() || !may_write(there) {
        let what = format!("this user cannot write to {} for the store", there.display());
        return CheckFinding::fail("bundles", what, "make the directory, for the gateway's user");
    }
    // Bundles already stored count towards `size`.
    let used = held(path);
    let free = statvfs(there)
        .map_or(0, |disk| disk.blocks_available().saturating_mul(disk.fragment_size()));
    if free.saturating_add(used) < size.get() {
        let what = format!(
            "{} has {} left, `size` is {size}: bundles are refused when the disk is full",
            there.display(),
            ByteCount::new(free)
        );
        return CheckFinding::warn("bundles", what, "make room, or lower `size` in [bundles]");
    }
    CheckFinding::ok("bundles", format!("{} has room for {size}", there.display()))
}

/// Bytes that the store occupies already.
fn held(path: &Path) -> u64 {
    let files = std::fs::read_dir(path.join("held")).into_iter().flatten().flatten();
    files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
}

fn inbox(path: &Path) -> CheckFinding {
    let mend = "make the directory, writable for the gateway's user";
    if !path.is_dir() {
        return CheckFinding::fail(
            "bundles",
            format!("no directory {} for the inbox", path.display()),
            mend,
        );
    }
    if !may_write(path) {
        let what = format!("this user cannot write to the inbox {}", path.display());
        return CheckFinding::fail("bundles", what, mend);
    }
    CheckFinding::ok("bundles", format!("files appear in {}", path.display()))
}

#[cfg(test)]
mod tests {
    use config::TlsFiles;

    use super::*;
    use crate::config::whole_file::{self, PRIVATE};

    fn texts(findings: &[CheckFinding]) -> Vec<String> {
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn certificates_for_other_nodes_are_tried() {
        let made = rcgen::generate_simple_self_signed(["ship".to_owned()]).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let [certificate, key] = ["certificate", "key"].map(|name| directory.path().join(name));
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        let pem = made.signing_key.serialize_pem();
        whole_file::replace(&key, pem.as_bytes(), PRIVATE).unwrap();
        let with = |authorities: &Path| {
            let files = TlsFiles { certificate: certificate.clone(), key: key.clone() };
            let (authorities, names) = (authorities.to_owned(), Vec::new());
            tls(&BundlesTls { files, authorities, names }).to_string()
        };
        let (good, bad) = (with(&certificate), with(&key));
        assert!(good.contains("can be used for TLS with other nodes"), "{good}");
        assert!(bad.contains("key has no certificate of an authority"), "{bad}");
    }

    #[test]
    fn a_store_wants_a_directory_and_room() {
        let directory = tempfile::tempdir().unwrap();
        let small = ByteCount::new(1_000_000);
        let fine = store(&directory.path().join("not/yet/there"), small).to_string();
        assert!(fine.contains("has room for 1 MB"), "{fine}");
        let much = store(directory.path(), ByteCount::new(u64::MAX)).to_string();
        assert!(much.contains("refused when the disk is full"), "{much}");
        let file = directory.path().join("file");
        std::fs::write(&file, "x").unwrap();
        let none = store(&file.join("store"), small).to_string();
        assert!(none.contains("cannot write"), "{none}");
        let [here, gone] = [inbox(directory.path()), inbox(&file)];
        let said = texts(&[here, gone]);
        assert!(said[0].contains("files appear") && said[1].contains("no directory"), "{said:?}");
    }
}
