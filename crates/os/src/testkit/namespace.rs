//! Tests in a network namespace of their own.

use std::any::type_name;
use std::panic::resume_unwind;
use std::process::Command;
use std::thread;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::Uid;

use super::{run_in_user_namespace, skip};
use crate::netlink::RouteSocket;

/// Set while a test runs inside a user namespace.
const INSIDE: &str = "SKYHOP_TEST_INSIDE";

/// Runs `work`, the whole body of a test, in an empty network namespace with loopback up;
/// unprivileged users get a user namespace first. Skips the test if neither works.
///
/// # Panics
/// If `work` does.
pub fn in_namespace<F: FnOnce() + Send + 'static>(work: F) {
    if !Uid::effective().is_root() {
        return in_user_namespace(type_name::<F>());
    }
    let inside = thread::spawn(move || {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            return skip(format!("no network namespace: {error}"));
        }
        let loopback = RouteSocket::open().and_then(|mut socket| socket.bring_up("lo", None, true));
        loopback.expect("loopback comes up");
        work();
    });
    inside.join().unwrap_or_else(|panic| resume_unwind(panic));
}

/// Runs the test that contains `closure` again, as root of a user namespace, which only a
/// single-threaded process can enter.
fn in_user_namespace(closure: &str) {
    assert!(std::env::var_os(INSIDE).is_none(), "not root inside the user namespace");
    let path = closure.trim_end_matches("::{{closure}}");
    let (_crate, test) = path.split_once("::").expect("a path begins with the crate");
    let program = std::env::current_exe().expect("the test is a program");
    let mut again = Command::new(program);
    again.args(["--exact", test, "--nocapture"]).env(INSIDE, "1");
    run_in_user_namespace(&mut again);
    match again.output() {
        Ok(output) => {
            let [told, complained] = [output.stdout, output.stderr]
                .map(|text| String::from_utf8_lossy(&text).into_owned());
            let passed = output.status.success() && told.contains("1 passed");
            assert!(passed, "{test}, inside: {told}{complained}");
        }
        Err(error) => skip(format!("no user namespace: {error}")),
    }
}
