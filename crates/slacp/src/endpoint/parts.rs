//! A hub in several parts, each an endpoint for a thread of its own ([`crate::wire::parts`]).
//!
//! They share the rate of the link (`fixed`, and as reported by a modem) without asking each other
//! before each packet: their owner keeps until when all of them together have used it ([`use_link`]),
//! and the one that is ahead in virtual time lets the others go first.
//!
//! [`use_link`]: crate::use_link

use core::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use units::Instant;

use super::{Endpoint, EndpointRole};
use crate::keys::secret::{Secret, draw};
use crate::session::group::{EndpointCore, STEPS};
use crate::setup::gate::AdmissionGate;
use crate::setup::hub::Hub;
use crate::wire::parts::{HubPart, InitiationHandover};
use crate::{Config, KeyPair, PublicKey};

/// The use that a part of a hub makes of the shared link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkUse {
    /// Link time of all its packets so far, at the rate that the parts share.
    pub spent: Duration,
    /// Virtual start time of its next packet in start-time fair queueing; `None` if nothing may
    /// leave now but for the link. 0 while a guarantee puts it first.
    pub turn: Option<u64>,
}

impl Endpoint {
    /// A hub in `parts`, between 1 and [`MOST_PARTS`](crate::MAX_PARTS), each of which has
    /// sessions of its own. The other arguments are as for [`Self::hub`]. Commands about terminals
    /// go to all parts, the first one first. Datagrams go to the part that [`crate::part_of`]
    /// returns, initiations from there to the one of [`Self::poll_handover`].
    pub fn hub_in_parts(
        config: &Config,
        identity: &KeyPair,
        allow: &[PublicKey],
        seed: [u8; 32],
        parts: u8,
    ) -> Vec<Self> {
        if parts <= 1 {
            return vec![Self::hub(config.clone(), identity.clone(), allow.to_vec(), seed)];
        }
        let mut rng = ChaCha20Rng::from_seed(*Secret::new(seed));
        // One secret, so that each part accepts the cookies of the others.
        let cookies = draw(&mut rng);
        let part = |part: HubPart| {
            let mut core = EndpointCore::new(config.clone(), identity.clone(), *draw(&mut rng));
            core.set_part(part);
            let gate = AdmissionGate::with_secret(config.handshakes_per_second, &cookies);
            let hub = Hub::new(identity.clone(), allow.to_vec(), gate);
            let hub = if part.number == 0 { hub.divided_into(parts) } else { hub };
            Self { core, role: EndpointRole::Hub(Box::new(hub)) }
        };
        HubPart::all(parts).map(part).collect()
    }

    /// Returns the next initiation for another part of the hub.
    pub fn poll_handover(&mut self) -> Option<InitiationHandover> {
        self.core.handovers.pop_front()
    }

    /// Handles an initiation that the first part of the hub has passed on.
    pub fn handle_handover(&mut self, now: Instant, handover: &InitiationHandover) {
        self.core.now = now;
        if let EndpointRole::Hub(hub) = &mut self.role {
            hub.handle_handover(&mut self.core, now, handover);
        }
        self.core.settle();
    }

    /// Updates a part's view of the shared link: all parts together have used it until `free_at`,
    /// and `turn_of_others` is the least [`LinkUse::turn`] of the others. Returns its own use.
    pub fn share_link(
        &mut self,
        now: Instant,
        free_at: Instant,
        turn_of_others: Option<u64>,
    ) -> LinkUse {
        self.core.now = now;
        self.core.share_link(now, free_at, turn_of_others)
    }

    /// The use that this part has made of the link.
    pub fn link_use(&self) -> LinkUse {
        self.core.link_use()
    }
}

impl EndpointCore {
    fn share_link(&mut self, now: Instant, free_at: Instant, others: Option<u64>) -> LinkUse {
        self.sessions.catch_up(now, others);
        let used = self.link_use();
        self.link.update_shared_use(free_at, (used.turn, others), STEPS);
        used
    }

    fn link_use(&self) -> LinkUse {
        LinkUse { spent: self.link.spent(), turn: self.sessions.next_turn() }
    }
}
