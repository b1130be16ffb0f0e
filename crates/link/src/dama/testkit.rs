//! The SLACP paper's return link, for tests.

use core::time::Duration;

use units::{BitRate, ByteCount};

use super::{
    Allocation, CapacityPolicy, Cell, ClassCapacities, DamaConfig, Frames, MacLimit,
    RequestSettings, RequestTransport, TerminalConfig,
};
use crate::{Discipline, LossModel, QueueLimit};

pub(super) const FRAME: Duration = Duration::from_millis(53);
pub(super) const DELAY: Duration = Duration::from_millis(250);

pub(super) fn bits(rate: u64) -> BitRate {
    BitRate::from_bits_per_second(rate)
}

/// A terminal with a constant rate and a ceiling for requested ones, in bit/s, and the most cells
/// of a volume request.
pub(super) fn terminal(cra: u64, rbdc: u64, vbdc: u32) -> TerminalConfig {
    TerminalConfig {
        cra: bits(cra),
        rbdc: bits(rbdc),
        vbdc,
        vbdc_first: 3,
        categories: ClassCapacities::default(),
        ceiling: None,
        weight: 1,
        mac: MacLimit::Cells(600),
        flow_control: false,
        queue: QueueLimit::Bytes(ByteCount::new(40_000)),
        discipline: Discipline::DropTail,
        loss: LossModel::None,
        outages: Vec::new(),
    }
}

/// One carrier of 128 kbit/s: 16 cells in a frame of 53 ms, so that a cell per frame is 8 kbit/s.
pub(super) fn config(terminals: Vec<TerminalConfig>) -> DamaConfig {
    DamaConfig {
        frames: Frames::new(FRAME, 2, 1, bits(128_000), Cell::ATM).unwrap(),
        rate: None,
        delay: DELAY.into(),
        forward_delay: DELAY,
        processing: Duration::ZERO,
        requests: RequestSettings {
            policy: CapacityPolicy::Classic,
            period: 10,
            rate_time_out: 12,
            scheduling_latency: 2,
            volume_time_out: 100,
            transport: RequestTransport::Assigned,
            robust: false,
        },
        allocation: Allocation::default(),
        random_access: None,
        terminals,
    }
}
