//! The control sockets of different users do not conflict.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Child, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use serde_json::Value;

use super::shared::Shared;
use crate::common::{Remains, as_myself, assert_refused, skip, text};

/// Users of one machine: two who run labs, and a hostile one.
const USERS: [u32; 3] = [0, 65534, 1234];
const HOSTILE: u32 = 1001;

fn where_users_can_be_played(check: impl Fn(&Shared)) {
    as_myself(|_| {
        if !Uid::effective().is_root() {
            return skip("only root can play several users");
        }
        check(&Shared::new());
    });
}

/// A lab of this user with gateways, which queries them when its input ends.
fn asking(shared: &Shared, user: u32) -> (Child, BufReader<impl Read + use<>>) {
    let asks = "echo ready; read line; exec \"$SKYHOP\" status --json";
    let mut command = shared.skyhop(user);
    command.args(["lab", "run", "geo", "--gateways", "--", "sh", "-c", asks]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut lab = command.spawn().unwrap();
    let mut output = BufReader::new(lab.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n", "user {user}");
    (lab, output)
}

#[test]
fn places_that_somebody_else_took_change_nothing_for_the_labs_of_all_users() {
    where_users_can_be_played(|shared| {
        let taken: Vec<String> = USERS.iter().map(|user| format!("skyhop-{user}")).collect();
        for name in &taken {
            let path = shared.tmp().as_ref().join(name);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
            chown(&path, Some(HOSTILE), Some(HOSTILE)).unwrap();
        }
        // Two labs of each user, all at once.
        let users = USERS.iter().chain(&USERS);
        let labs: Vec<_> = users.map(|user| (user, asking(shared, *user))).collect();
        for (user, (mut lab, output)) in labs {
            drop(lab.stdin.take());
            let gateways: Value = serde_json::from_reader(output).unwrap_or_default();
            let roles: Vec<_> =
                gateways.as_array().into_iter().flatten().map(|one| &one["role"]).collect();
            assert_eq!(roles, ["hub", "terminal"], "user {user}");
            assert!(lab.wait().unwrap().success(), "user {user}");
        }
        let mut left = shared.litter();
        left.sort();
        let mut taken = taken;
        taken.sort();
        assert_eq!(left, taken);
        for name in taken {
            let inside = fs::read_dir(shared.tmp().as_ref().join(name)).unwrap();
            assert_eq!(inside.count(), 0);
        }
    });
}

#[test]
fn a_lab_with_gateways_leaves_nothing_where_all_may_write_even_if_killed() {
    where_users_can_be_played(|shared| {
        for user in USERS {
            for signal in [Signal::SIGTERM, Signal::SIGKILL] {
                let (mut lab, _output) = asking(shared, user);
                let remains = Remains::of(lab.id());
                kill(Pid::from_raw(lab.id() as i32), signal).unwrap();
                lab.wait().unwrap();
                remains.assert_gone();
                assert_eq!(shared.litter(), [""; 0], "user {user}, {signal}");
            }
        }
    });
}

#[test]
fn a_lab_that_stays_is_remembered_where_only_its_user_may_write() {
    where_users_can_be_played(|shared| {
        let lab = |home: &str, arguments: &[&str]| {
            let mut command = shared.skyhop(1234);
            command.env("HOME", home).arg("lab").args(arguments).output().unwrap()
        };
        let refused = lab("/nonexistent", &["up", "geo"]);
        assert_refused(&refused, &["no private directory", "/run/skyhop", "set SKYHOP_STATE_DIR"]);
        assert_eq!(shared.litter(), [""; 0]);

        let home = shared.tmp().as_ref().join("home");
        fs::create_dir(&home).unwrap();
        fs::set_permissions(&home, Permissions::from_mode(0o755)).unwrap();
        chown(&home, Some(1234), Some(1234)).unwrap();
        for (arguments, said) in
            [(["up", "geo"], "lab geo is up"), (["status", "geo"], "geo"), (["down", "geo"], "")]
        {
            let output = lab("/tmp/home", &arguments);
            assert!(output.status.success(), "{arguments:?}: {output:?}");
            assert!(text(&output.stdout).contains(said), "{arguments:?}: {output:?}");
        }
        assert_eq!(shared.litter(), ["home"]);
        assert!(home.join(".local/state/skyhop").exists());
    });
}
