//! Calls, by which a hub tells terminals that their sessions are lost (`docs/slacp.md`, Lost sessions).

use core::time::Duration;

use units::Instant;

use super::Hub;
use crate::TerminalContact;
use crate::session::group::EndpointCore;
use crate::wire::packet::{self, PacketHeader};

/// Interval between calls, by which a hub tells terminals that their sessions are lost: no faster than
/// it serves those who ask then.
const CALL_EVERY: Duration = Duration::from_millis(1);
/// The most calls that are made up for after a pause.
const MAX_CALL_BURST: u32 = 50;

impl Hub {
    /// Tells these terminals that their sessions are lost, in turn.
    pub(crate) fn call(&mut self, contacts: Vec<TerminalContact>) {
        // Shorter keepalives would find the loss as soon, but double what idle terminals cost.
        self.calls = contacts.into();
    }

    /// Makes the calls that are due.
    pub(super) fn follow_calls(&mut self, core: &mut EndpointCore, now: Instant) {
        self.next_call = self.next_call.max(now - CALL_EVERY * MAX_CALL_BURST);
        while self.next_call <= now && core.has_answer_room() {
            let Some(contact) = self.calls.pop_front() else { return };
            self.next_call += CALL_EVERY;
            let hint = packet::unknown(&PacketHeader::of(contact.index, contact.number));
            for own in &self.identities {
                let sealed = own.knock_key.seal_answer(hint.clone(), None);
                core.queue_answer(contact.address, sealed);
            }
        }
    }
}
