//! Scripted tests, segment by segment, each with the section of the standard
//! that it checks.

mod acks;
mod kit;
mod opening;
mod recovery;
mod sharing;
mod snack;
mod spurious;
mod states;
mod transactions;
mod windows;

use tcp::cc::ControllerSpec;
use tcp::{AckCounting, Config, LossDetector};

/// The TCP of RFC 2581 and 793: no options, an initial window of `window` segments.
pub(crate) fn plain(window: u32) -> Config {
    Config {
        mss: 1000,
        initial_window: window,
        receive_buffer: units::ByteCount::new(20_000),
        window_scaling: false,
        timestamps: false,
        sack: false,
        dsack: false,
        nagle: false,
        counting: AckCounting::Bytes { limit: Some(1) },
        detection: LossDetector::DupAcks,
        prr: None,
        limited_transmit: false,
        frto: false,
        eifel: false,
        dsack_undo: false,
        controller: controller("newreno"),
        ..Config::default()
    }
}

pub(crate) fn controller(text: &str) -> ControllerSpec {
    text.parse().unwrap()
}
