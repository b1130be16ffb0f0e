//! Without its hub a terminal lets connections pass; with it, it intercepts them.

use core::time::Duration;
use std::time::Instant;

use nix::sys::signal::Signal;

use crate::bare;
use crate::common::as_each_user;
use crate::inside::{Mirror, PATIENCE, Pair, assert_reset, exchange};

const PORT: u16 = 4000;
/// Two round trips to the server.
const NO_ANSWER: Duration = Duration::from_millis(200);

#[test]
fn connections_pass_while_there_is_no_hub() {
    as_each_user(|runner| runner.inside(bare(), "fail_open::inside_the_hub_comes_and_goes"));
}

pub(crate) fn inside_the_hub_comes_and_goes() {
    let (mirror, pair) = (Mirror::start(PORT), Pair::new());
    let mut terminal = pair.terminal();
    mirror.assert_passes_by();

    let hub = pair.hub();
    terminal.wait_for("session up with the hub");
    terminal.wait_for("ready");
    let mut held = mirror.connect_carried();
    exchange(&mut held);

    hub.end_by(Signal::SIGKILL);
    // Connections intercepted before the terminal notices get no answer.
    wait_until(&mirror, false);
    terminal.wait_for("hub unreachable: new connections pass unaccelerated");
    mirror.assert_passes_by();

    let hub = pair.hub();
    terminal.wait_for("session up with the hub");
    wait_until(&mirror, true);
    // The new hub does not know this connection.
    assert_reset(&held);

    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
    mirror.assert_passes_by();
}

/// Connects repeatedly until connections are, or are not, carried.
fn wait_until(mirror: &Mirror, carried: bool) {
    let began = Instant::now();
    while mirror.try_connect(NO_ANSWER).is_none_or(|(_, is)| is != carried) {
        assert!(began.elapsed() < PATIENCE, "carried is not {carried}");
    }
}
