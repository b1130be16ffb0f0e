//! The gateway pair on machines that are set up as real ones are: bridges, NAT, several routers and
//! routing tables, firewalls. One table: without the pair, and through it.

use std::process::ExitCode;

use os::testkit::skip;

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../pair/inside.rs"]
mod inside;
mod matrix;
mod probe;
mod rows;
mod world;

fn main() -> ExitCode {
    // With `cargo test NAME`, other tests are wanted.
    if std::env::args().skip(1).any(|argument| !argument.starts_with('-')) {
        return ExitCode::SUCCESS;
    }
    if let Some(missing) = world::missing() {
        skip(missing);
        return ExitCode::SUCCESS;
    }
    if let Err(error) = lab::enter() {
        skip(error);
        return ExitCode::SUCCESS;
    }
    let all_as_expected = matrix::run("").expect("namespaces");
    if all_as_expected { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
