//! Makes the names of the lab's hosts resolve for every program in it, by mounting a file over
//! `/etc/hosts` in the lab's mount namespace.
//!
//! A name has an IPv4 and an IPv6 address. Programs prefer IPv4, as RFC 6724 prescribes for private
//! IPv6 addresses, so a server that listens on IPv4 alone is found.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::mount::{MsFlags, mount};

use crate::Node;
use crate::environment::scratch;

const HOSTS: &str = "/etc/hosts";
const SWITCH: &str = "/etc/nsswitch.conf";
const ORDER: &str = "/etc/gai.conf";
/// The first line of a lab's `/etc/hosts`.
const TITLE: &str = "# the hosts of the skyhop lab\n";
/// The line after the lab's hosts.
const END: &str = "# the hosts of the machine\n";
/// The default policy table of RFC 6724 §2.1, for libraries that still have that of RFC 3484, which
/// does not rank private addresses lower.
const PRECEDENCES: &str = "\
precedence ::1/128 50
precedence ::/0 40
precedence ::ffff:0:0/96 35
precedence 2002::/16 30
precedence 2001::/32 5
precedence fc00::/7 3
precedence ::/96 1
precedence fec0::/10 1
precedence 3ffe::/16 1
";
/// Makes the hosts' names resolve by mounting over `/etc/hosts` and, if they exist, over
/// `/etc/nsswitch.conf`, which might consult other sources first, and `/etc/gai.conf`.
///
/// The mounted [`scratch`] files are visible only in the lab and disappear with it.
pub(crate) fn publish(terminals: u8) -> io::Result<()> {
    let before = fs::read_to_string(HOSTS)?;
    let hosts = hosts(terminals, os::has_ipv6(), &before);
    if hosts == before {
        return Ok(()); // by an earlier lab of this process
    }
    let switch = fs::read_to_string(SWITCH).map(|switch| files_only(&switch));
    // The file system stays alive through these mounts.
    scratch::with_file_system(|workshop| {
        mount_over(workshop, HOSTS, &hosts)?;
        if let Ok(switch) = switch {
            mount_over(workshop, SWITCH, &switch)?;
        }
        if fs::exists(ORDER)? { mount_over(workshop, ORDER, PRECEDENCES) } else { Ok(()) }
    })
}

/// Returns the text of the lab's hosts, with IPv6 if `v6`, followed by the machine's own without
/// those of an earlier lab.
fn hosts(terminals: u8, v6: bool, before: &str) -> String {
    let earlier = before.starts_with(TITLE).then(|| before.split_once(END)).flatten();
    let machine = earlier.map_or(before, |(_, machine)| machine);
    let mut text = TITLE.to_owned();
    for node in Node::of_lab(terminals) {
        let _ = writeln!(text, "{} {node}", node.address4());
        if v6 {
            let _ = writeln!(text, "{} {node}", node.address6());
        }
    }
    text + END + machine
}

/// Restricts the name service switch to files for host names: a resolver daemon outside the lab
/// would answer that there is no `server`.
fn files_only(switch: &str) -> String {
    let is_hosts = |line: &str| line.trim_start().starts_with("hosts:");
    let mut text = String::from("hosts: files\n");
    for line in switch.lines().filter(|line| !is_hosts(line)) {
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// Mounts a file with this text over `path`.
fn mount_over(workshop: &Path, path: &str, text: &str) -> io::Result<()> {
    let file = workshop.join(path.replace('/', "_"));
    fs::write(&file, text)?;
    fs::set_permissions(&file, Permissions::from_mode(0o644))?;
    Ok(mount(Some(&file), path, None::<&str>, MsFlags::MS_BIND, None::<&str>)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_are_named_and_the_old_hosts_kept() {
        let text = hosts(2, true, "127.0.0.1 localhost\n");
        for line in
            ["10.2.0.2 server", "fd00:2::2 server", "10.102.0.2 client2", "127.0.0.1 localhost"]
        {
            assert!(text.lines().any(|each| each == line), "{line} not in {text}");
        }
    }

    #[test]
    fn a_later_lab_takes_the_place_of_an_earlier_one() {
        let machine = "127.0.0.1 localhost\n";
        let one = hosts(1, true, machine);
        let three = hosts(3, true, machine);
        assert_eq!(hosts(1, true, &three), one);
        assert_eq!(hosts(3, true, &one), three);
        assert!(three.contains(" client3\n") && !three.contains("client4"), "{three}");
    }

    #[test]
    fn without_ipv6_names_have_one_address() {
        let text = hosts(1, false, "");
        assert!(text.contains("10.2.0.2 server\n") && !text.contains("fd00"), "{text}");
    }

    #[test]
    fn only_the_hosts_line_is_replaced() {
        let text = files_only("passwd: files systemd\nhosts: resolve [!UNAVAIL=return] files\n");
        assert_eq!(text, "hosts: files\npasswd: files systemd\n");
    }
}
