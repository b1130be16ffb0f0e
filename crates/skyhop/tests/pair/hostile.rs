//! Peers that make a hub work: no turn of its thread takes longer than its watchdog permits, and what others
//! do goes on. How well, `benches/hostile` measures.

use std::time::Duration;

use crate::common::as_myself;

#[path = "../../benches/hostile/bad_questions.rs"]
mod bad_questions;
#[path = "../../benches/hostile/empty_frames.rs"]
mod empty_frames;
#[path = "../../benches/hostile/hellos.rs"]
mod hellos;
#[path = "../../benches/hostile/keepalives.rs"]
mod keepalives;
#[path = "../../benches/hostile/openings.rs"]
mod openings;
#[path = "../../benches/hostile/peer.rs"]
pub(crate) mod peer;
#[path = "../../benches/hostile/probe.rs"]
mod probe;
#[allow(dead_code, reason = "a benchmark uses the rest")]
#[path = "../../benches/hostile/scene.rs"]
pub(crate) mod scene;
#[path = "../../benches/hostile/thief.rs"]
mod thief;

use self::scene::{Case, Times};

const LINK: [&str; 8] =
    ["--rate", "50Mbit/s", "--return-rate", "50Mbit/s", "--delay", "10ms", "--terminals", "2"];
const TIMES: Times = Times {
    settle: Duration::from_millis(200),
    alone: Duration::from_millis(200),
    beside: Duration::from_secs(4),
};
/// Lines that both gateways may log: 200 of a place in the code, and some more.
const MOST_LOGGED: f64 = 500.0;
/// Ends a gateway whose thread is busy for longer, in milliseconds of processor time.
const WATCHED: &str = "SKYHOP_WATCHDOG=50";

fn attack(program: &str) {
    as_myself(|runner| runner.inside_with(&LINK, program, WATCHED));
}

/// Runs a case; a hub that its watchdog has ended serves nobody any more. Returns the number of lines logged.
fn survives(case: &Case) -> f64 {
    let figures = scene::measure(case, &TIMES);
    println!("{}: {figures}", case.name);
    assert!(figures.attack > 0.0, "nothing was sent");
    assert!(figures.logged <= MOST_LOGGED, "{} lines were logged", figures.logged);
    figures.logged
}

/// Lines that a place in the code may log at once: all are used, or nothing was tried.
const LINES_AT_ONCE: f64 = 200.0;

#[test]
fn empty_frames_hold_up_nobody() {
    attack("hostile::inside_empty_frames");
}

pub(crate) fn inside_empty_frames() {
    survives(&empty_frames::CASE);
}

#[test]
fn messages_of_a_byte_hold_up_nobody() {
    attack("hostile::inside_keepalives");
}

pub(crate) fn inside_keepalives() {
    survives(&keepalives::CASE);
}

#[test]
fn openings_hold_up_nobody() {
    attack("hostile::inside_openings");
}

pub(crate) fn inside_openings() {
    survives(&openings::CASE);
}

#[test]
fn hellos_hold_up_nobody() {
    attack("hostile::inside_hellos");
}

pub(crate) fn inside_hellos() {
    survives(&hellos::CASE);
}

#[test]
fn a_thief_of_the_key_takes_no_session_that_works() {
    attack("hostile::inside_thief");
}

pub(crate) fn inside_thief() {
    survives(&thief::CASE);
}

#[test]
fn bad_questions_write_a_bounded_number_of_lines() {
    attack("hostile::inside_bad_questions");
}

pub(crate) fn inside_bad_questions() {
    let logged = survives(&bad_questions::CASE);
    assert!(logged >= LINES_AT_ONCE, "only {logged} lines: nothing warns of them");
}
