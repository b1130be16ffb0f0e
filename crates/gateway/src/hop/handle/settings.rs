//! What is set while the endpoint runs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use pep::traffic::{Classes, Definition};
use slacp::{
    AggregateId, ClassId, ClassRates, CloseReason, Contact, Farewell, KeyPair, PathKey, PathMemory,
    PublicKey, Rate, RateError, SessionId, SessionShare, Sibling,
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
    /// As [`Endpoint::set_rate`].
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

    /// Ends the rate that [`Self::set_rate`] has set for a session.
    ///
    /// # Errors
    /// As [`Endpoint::expire_rate`].
    pub(crate) fn expire_rate(&self, now: Instant, session: SessionId) -> Result<(), RateError> {
        let accepted = self.lock(session).endpoint.expire_rate(now, session);
        self.notify_driver(session);
        accepted
    }

    /// Sets the source of the rate. Returns whether all sessions accepted it.
    pub(crate) fn configure_rate(&self, now: Instant, rate: &Rate) -> bool {
        let mut taken = true;
        self.command(|endpoint| taken &= endpoint.configure_rate(now, rate.clone()));
        taken
    }

    /// Replaces the classes; `packets` gives them channels. Existing traffic stays in the class of
    /// the same name, or moves to the default one.
    ///
    /// # Errors
    /// What is wrong with a class; then nothing changes.
    pub(crate) fn configure_classes(&self, now: Instant, given: &Classes) -> Result<(), String> {
        let before = self.0.classes.read().clone();
        // Only its classes and channels are used.
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

    /// Sets the terminals to serve.
    pub(crate) fn set_allowed(&self, now: Instant, allow: &[PublicKey]) {
        self.command(|endpoint| endpoint.set_allowed(now, allow.to_vec()));
    }

    /// Sets the keys that a hub answers to.
    pub(crate) fn set_identities(&self, identities: &[KeyPair]) {
        self.command(|endpoint| endpoint.set_identities(identities.to_vec()));
    }

    /// Tells terminals of an earlier process that their sessions are lost.
    pub(crate) fn call(&self, contacts: Vec<Contact>) {
        self.part(0).endpoint.call(contacts);
        self.notify_drivers();
    }

    /// Sets which sessions are another process's at the same address.
    pub(crate) fn set_sibling(&self, now: Instant, sibling: Option<&Sibling>) {
        self.command(|endpoint| endpoint.set_sibling(now, sibling.cloned()));
    }

    /// Tells a terminal's endpoint which key will replace a hub's.
    pub(crate) fn set_next_hub_key(&self, hub: PublicKey, next: Option<PublicKey>) {
        self.command(|endpoint| endpoint.set_next_hub_key(hub, next));
    }

    /// Tells a terminal's endpoint at which addresses to try a hub.
    pub(crate) fn set_hub(&self, hub: PublicKey, addresses: &[SocketAddr]) {
        self.command(|endpoint| endpoint.set_hub(hub, addresses.to_vec()));
    }

    /// Sets whether a terminal is to have a session with a hub.
    pub(crate) fn want_hub(&self, hub: PublicKey, wanted: bool) {
        self.command(|endpoint| endpoint.want_hub(hub, wanted));
    }

    /// Asks a session's peer whether it is there. Ignored for a session that has ended.
    pub(crate) fn ask(&self, now: Instant, session: SessionId) {
        let _ = self.lock(session).endpoint.ask(now, session);
        self.notify_driver(session);
    }

    /// Closes a session. Ignored for one that has ended.
    pub(crate) fn close(&self, now: Instant, session: SessionId) {
        let _ = self.lock(session).endpoint.close(now, session, CloseReason::Shutdown);
        self.notify_driver(session);
    }

    /// Tells all peers that this side is about to stop.
    pub(crate) fn announce(&self, now: Instant, farewell: Farewell) {
        self.command(|endpoint| endpoint.announce(now, farewell));
    }

    /// Sets which terminals share a forward link.
    pub(crate) fn set_aggregates(&self, now: Instant, of: &BTreeMap<PublicKey, AggregateId>) {
        self.command(|endpoint| endpoint.set_aggregates(now, of.clone()));
    }

    /// Sets the memory limit of these terminals, from their next session on.
    pub(crate) fn set_memory(&self, memory: &BTreeMap<PublicKey, ByteCount>) {
        self.command(|endpoint| endpoint.set_memory(memory.clone()));
    }

    /// Sets the rates of these terminals' own on links, from their next session on.
    pub(crate) fn set_link_rates(&self, rates: &BTreeMap<PublicKey, BTreeMap<u8, Rate>>) {
        self.command(|endpoint| endpoint.set_link_rates(rates.clone()));
    }

    /// Uses no more than this portion of rates that are not measured.
    pub(crate) fn set_portion(&self, now: Instant, portion: f64) {
        self.command(|endpoint| endpoint.set_portion(now, portion));
    }

    /// Sets a session's share of the rate. Ignored for a session that has ended.
    pub(crate) fn set_share(&self, now: Instant, session: SessionId, share: SessionShare) {
        let _ = self.lock(session).endpoint.set_share(now, session, share);
        self.notify_driver(session);
    }

    /// Gives classes of a session rates of their own, by name; what is `None` is as configured for
    /// all. Ignored for a session that has ended.
    pub(crate) fn set_class_rates(
        &self,
        now: Instant,
        session: SessionId,
        own: &BTreeMap<String, ClassRates>,
    ) {
        let classes = self.0.classes.read().clone();
        let of_class = |(class, id): (&Definition, ClassId)| {
            let own = own.get(&class.name).copied().unwrap_or_default();
            (id, own.or(class.share.rates()))
        };
        let rates: Vec<(ClassId, ClassRates)> = classes.all().map(of_class).collect();
        let _ = self.lock(session).endpoint.set_class_rates(now, session, &rates);
        self.notify_driver(session);
    }

    /// Restores what an earlier gateway learnt about paths.
    pub(crate) fn remember(&self, now: Instant, memories: &[(PathKey, PathMemory)]) {
        for mut state in self.each() {
            for (path, memory) in memories {
                state.endpoint.remember(now, *path, *memory);
            }
        }
    }
}
