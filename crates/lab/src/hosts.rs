//! Names of the lab's hosts, for every program in the lab: `/etc/hosts` is
//! covered by another file, in the lab's mount namespace only.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::Node;

const HOSTS: &str = "/etc/hosts";
const SWITCH: &str = "/etc/nsswitch.conf";
/// The first line of a lab's `/etc/hosts`.
const TITLE: &str = "# the hosts of the skyhop lab";
/// A directory that every system has; it is itself again at once.
const WORKSHOP: &str = "/tmp";

/// Makes the hosts' names resolve, by covering `/etc/hosts`, and
/// `/etc/nsswitch.conf` where it would ask others first.
///
/// The covers are files of a tmpfs that is mounted nowhere but in the lab's
/// mount namespace, and gone with it.
pub(crate) fn publish() -> io::Result<()> {
    let before = fs::read_to_string(HOSTS)?;
    if before.starts_with(TITLE) {
        return Ok(()); // by an earlier lab of this process
    }
    let hosts = hosts(&before);
    let switch = fs::read_to_string(SWITCH).map(|switch| files_only(&switch));
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("tmpfs"), WORKSHOP, Some("tmpfs"), flags, Some("mode=755"))?;
    let covered = cover(HOSTS, &hosts).and_then(|()| switch.map_or(Ok(()), |s| cover(SWITCH, &s)));
    // The tmpfs lives on in the covers.
    umount2(WORKSHOP, MntFlags::MNT_DETACH)?;
    covered
}

/// The lab's hosts, then those the machine had.
fn hosts(before: &str) -> String {
    let mut text = TITLE.to_owned() + "\n";
    for node in Node::ALL {
        for address in [&node.address4() as &dyn core::fmt::Display, &node.address6()] {
            let _ = writeln!(text, "{address} {node}");
        }
    }
    text + before
}

/// The same name service switch, but host names come from files alone: a
/// resolver daemon outside the lab would answer that it knows no `server`.
fn files_only(switch: &str) -> String {
    let is_hosts = |line: &str| line.trim_start().starts_with("hosts:");
    let mut text = String::from("hosts: files\n");
    for line in switch.lines().filter(|line| !is_hosts(line)) {
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// Puts a file with this text over `path`.
fn cover(path: &str, text: &str) -> io::Result<()> {
    let file = Path::new(WORKSHOP).join(path.replace('/', "_"));
    fs::write(&file, text)?;
    fs::set_permissions(&file, Permissions::from_mode(0o644))?;
    Ok(mount(Some(&file), path, None::<&str>, MsFlags::MS_BIND, None::<&str>)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_are_named_and_the_old_hosts_kept() {
        let text = hosts("127.0.0.1 localhost\n");
        for line in ["10.2.0.2 server", "fd00:2::2 server", "127.0.0.1 localhost"] {
            assert!(text.lines().any(|each| each == line), "{line} not in {text}");
        }
    }

    #[test]
    fn only_the_hosts_line_is_replaced() {
        let text = files_only("passwd: files systemd\nhosts: resolve [!UNAVAIL=return] files\n");
        assert_eq!(text, "hosts: files\npasswd: files systemd\n");
    }
}
