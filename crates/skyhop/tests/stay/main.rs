//! Detached labs (`skyhop lab up`) and larger ones (a star, a terrestrial link), with the real
//! binary and real kernels.
//!
//! Functions named `inside_…` are [programs](common::program) that tests run in a lab.

#[path = "../common/mod.rs"]
mod common;

mod larger;
mod stays;
mod terminal;
mod up;

use self::common::program::{Program, programs, run};

const PROGRAMS: &[Program] = programs![
    larger::inside_three_clients_transfer_at_once,
    larger::inside_client3_is_two_hops_away,
    larger::inside_two_downloads_share_8_mbit,
    larger::inside_both_clients_are_answered_at_once,
    larger::inside_server_is_160_ms_away,
    larger::inside_500_kb_take_a_second,
    larger::inside_both_clients_echo,
    up::inside_server_is_100_ms_away,
    up::inside_server_answers
];

/// Runs the program that a test has started in a lab.
#[test]
fn program() {
    run(PROGRAMS);
}
