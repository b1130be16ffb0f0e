//! Commands that change settings of the running endpoint.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use pep::traffic::{ClassDefinition, TrafficClasses};
use slacp::{
    AggregateId, ClassId, ClassRates, CloseReason, KeyPair, PathKey, PathMemory, PublicKey, Rate,
    RateError, SessionId, SessionShare, SiblingProcess, StopAnnouncement, TerminalContact,
};
use units::{BitRate, ByteCount, Instant};

use super::Hop;

impl Hop {
    /// Ends all sessions; the peers learn of it within 150 ms.
    pub(crate) fn shut_down(&self, now: Instant) {
        self.command(|endpoint| endpoint.shut_down(now));
    }

    /// Sets a session's rate, as reported by its modem.
    ///
    /// # Errors
    /// As [`slacp::Endpoint::set_rate`].
    pub(crate) fn set_rate(
        &self,
        now: Instant,
        session: SessionId,
        rate: BitRate,
        valid_for: Duration,
    ) -> Result<(), RateError> {
        let accepted = self.lock(session).endpoint.set_rate(now, session, rate, valid_for);
        self.notify_driver(session);
        accepted
    }

    /// Ends the validity of a rate set by [`Self::set_rate`].
    ///
    /// # Errors
    /// As [`slacp::Endpoint::expire_rate`].
    pub(crate) fn expire_rate(&self, now: Instant, session: SessionId) -> Result<(), RateError> {
        let accepted = self.lock(session).endpoint.expire_rate(now, session);
        self.notify_driver(session);
        accepted
    }

    /// Applies a reloaded `rate`. Returns false if some sessions keep theirs until they are set up again.
    pub(crate) fn configure_rate(&self, now: Instant, rate: &Rate) -> bool {
        let mut taken = true;
        self.command(|endpoint| taken &= endpoint.configure_rate(now, rate.clone()));
        taken
    }

    /// Replaces the classes. Existing traffic stays in the class
    /// of the same name, or moves to the default class.
    ///
    /// # Errors
    /// The class that is invalid, and why; then nothing changes.
    pub(crate) fn configure_classes(
        &self,
        now: Instant,
        given: &TrafficClasses,
    ) -> Result<(), String> {
        let before = self.0.classes.read().clone();
        // Only its classes and channels are used, not the rate.
        let mut link = slacp::Config::new(BitRate::from_bits_per_second(0));
        let classes = before
            .succeeded_by(given.definitions(), &mut link)
            .map_err(|(name, error)| format!("class {name:?}: {error}"))?;
        let successor = |id| classes.successor(&before, id);
        for mut state in self.each() {
            state.endpoint.configure_classes(now, &link, successor);
            state.follow_classes(|id| successor(id).unwrap_or(ClassId::DEFAULT));
        }
        self.0.classes.set(classes);
        self.notify_drivers();
        Ok(())
    }

    /// Sets the permitted terminals. Sessions of all others end.
    pub(crate) fn set_allowed(&self, now: Instant, allow: &[PublicKey]) {
        self.command(|endpoint| endpoint.set_allowed(now, allow.to_vec()));
    }

    /// Sets the keys under which a hub answers handshakes.
    pub(crate) fn set_identities(&self, identities: &[KeyPair]) {
        self.command(|endpoint| endpoint.set_identities(identities.to_vec()));
    }

    /// Notifies the terminals of an earlier process that their sessions are lost.
    pub(crate) fn notify_lost_sessions(&self, contacts: Vec<TerminalContact>) {
        self.part(0).endpoint.call(contacts);
        self.notify_drivers();
    }

    /// Sets the share of session indices that belongs to another process at the same address.
    pub(crate) fn set_sibling(&self, now: Instant, sibling: Option<&SiblingProcess>) {
        self.command(|endpoint| endpoint.set_sibling(now, sibling.cloned()));
    }

    /// Sets the key that will replace a hub's, on a terminal.
    pub(crate) fn set_next_hub_key(&self, hub: PublicKey, next: Option<PublicKey>) {
        self.command(|endpoint| endpoint.set_next_hub_key(hub, next));
    }

    /// Sets the addresses at which a terminal tries a hub.
    pub(crate) fn set_hub(&self, hub: PublicKey, addresses: &[SocketAddr]) {
        self.command(|endpoint| endpoint.set_hub(hub, addresses.to_vec()));
    }

    /// Sets whether a terminal sets up a session with a hub whenever it has none. An existing session goes
    /// on either way.
    pub(crate) fn want_hub(&self, hub: PublicKey, wanted: bool) {
        self.command(|endpoint| endpoint.want_hub(hub, wanted));
    }

    /// Probes whether a session's peer still answers. Ignored for a session that has ended.
    pub(crate) fn probe_peer(&self, now: Instant, session: SessionId) {
        let _ = self.lock(session).endpoint.ask(now, session);
        self.notify_driver(session);
    }

    /// Closes a session. Ignored for a session that has ended.
    pub(crate) fn close(&self, now: Instant, session: SessionId) {
        let _ = self.lock(session).endpoint.close(now, session, CloseReason::Shutdown);
        self.notify_driver(session);
    }

    /// Announces to all peers that this side is about to stop.
    pub(crate) fn announce(&self, now: Instant, farewell: StopAnnouncement) {
        self.command(|endpoint| endpoint.announce(now, farewell));
    }

    /// Sets the forward link of each terminal that shares one (`carrier`).
    pub(crate) fn set_aggregates(&self, now: Instant, of: &BTreeMap<PublicKey, AggregateId>) {
        self.command(|endpoint| endpoint.set_aggregates(now, of.clone()));
    }

    /// Sets the memory limits of terminals, which apply from their next sessions on.
    pub(crate) fn set_memory(&self, memory: &BTreeMap<PublicKey, ByteCount>) {
        self.command(|endpoint| endpoint.set_memory(memory.clone()));
    }

    /// Sets the source addresses of packets from terminals without networks of their own, which apply from their next
    /// sessions on.
    pub(crate) fn set_packet_addresses(&self, addresses: &BTreeMap<PublicKey, Option<Ipv4Addr>>) {
        self.command(|endpoint| endpoint.set_packet_addresses(addresses.clone()));
    }

    /// Sets terminals' own rates by link number, which apply from their next sessions on.
    pub(crate) fn set_link_rates(&self, rates: &BTreeMap<PublicKey, BTreeMap<u8, Rate>>) {
        self.command(|endpoint| endpoint.set_link_rates(rates.clone()));
    }

    /// Limits sending to this portion of configured or reported rates, while another process of the hub
    /// uses the rest. Measured rates are not affected.
    pub(crate) fn set_portion(&self, now: Instant, portion: f64) {
        self.command(|endpoint| endpoint.set_portion(now, portion));
    }

    /// Sets a session's weight, guarantee and maximum. Ignored for a session that has ended.
    pub(crate) fn set_share(&self, now: Instant, session: SessionId, share: SessionShare) {
        let _ = self.lock(session).endpoint.set_share(now, session, share);
        self.notify_driver(session);
    }

    /// Sets a session's own rates of classes, by class name. A rate that is `None` stays as configured for
    /// all sessions. Ignored for a session that has ended.
    pub(crate) fn set_class_rates(
        &self,
        now: Instant,
        session: SessionId,
        own: &BTreeMap<String, ClassRates>,
    ) {
        let classes = self.0.classes.read().clone();
        let of_class = |(class, id): (&ClassDefinition, ClassId)| {
            let own = own.get(&class.name).copied().unwrap_or_default();
            (id, own.or(class.share.rates()))
        };
        let rates: Vec<(ClassId, ClassRates)> = classes.all().map(of_class).collect();
        let _ = self.lock(session).endpoint.set_class_rates(now, session, &rates);
        self.notify_driver(session);
    }

    /// Restores path measurements of an earlier process.
    pub(crate) fn remember(&self, now: Instant, memories: &[(PathKey, PathMemory)]) {
        for mut state in self.each() {
            for (path, memory) in memories {
                state.endpoint.remember(now, *path, *memory);
            }
        }
    }
}
