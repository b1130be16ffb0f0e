//! The interface between a role and its services.

use std::future::{Future, pending};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use config::{HubConfig, PermittedTerminal, SoloConfig, TerminalConfig};
use control::status::GatewayStatus;
use futures_util::future::select_all;
use pep::accounting::ExhaustedAction;
use pep::routes::TerminalSites;
use slacp::{Destination, Event, PublicKey, ResetReason, SessionId, StreamOpening};
use tokio::task::JoinSet;
use units::Instant;

use crate::config::permits::TerminalPermits;
use crate::figures::counters::GatewayCounters;
use crate::hop::peers::PeerTable;
use crate::hop::{Hop, SessionStream};
use crate::intercept::ClientArrival;
use crate::operate::accounts::TerminalAccounts;
use crate::operate::control_socket::ControlCall;
use crate::process::error::RunError;
use crate::relay;
use crate::relay::dial::Dialer;
use crate::relay::route::ClientRoute;
use crate::relay::terms::{Admission, DialPolicy};

/// A feature of a gateway. Its role hands it streams, sessions, requests and the time. By default, each
/// method does nothing.
pub(crate) trait Service: Send {
    /// Begins, once everything of the role is there.
    fn start(&mut self, _: &mut Surroundings<'_>) {}

    /// Waits until [`Self::work`] has something to do. Cancel-safe.
    fn next(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(pending())
    }

    /// Does what [`Self::next`] has waited for.
    fn work(&mut self, _: &mut Surroundings<'_>) {}

    /// Returns `true` if the service answers peers' streams to this destination.
    fn answers(&self, _: &Destination) -> bool {
        false
    }

    /// Answers a stream to a destination of [`Self::answers`].
    fn answer(
        &mut self,
        role: &mut Surroundings<'_>,
        stream: SessionStream,
        open: &StreamOpening<Destination>,
    ) {
        role.refuse(stream, open, ResetReason::Prohibited);
    }

    /// Returns `true` if the service carries out HTTP exchanges for terminals ([`Destination::Exchange`]).
    fn has_exchanges(&self) -> bool {
        false
    }

    /// Carries out an exchange that the role has admitted.
    fn exchange(&mut self, role: &mut Surroundings<'_>, admitted: Admitted) {
        role.refuse(admitted.stream, &admitted.open, ResetReason::Prohibited);
    }

    /// Follows an event of a session with a terminal.
    fn handle_session(&mut self, _: &mut Surroundings<'_>, _: SessionId, _: &Event) {}

    /// Follows the exhaustion or the renewal of the quota of a session's terminal. On a hub only.
    fn follow_quota(&mut self, _: &mut Surroundings<'_>, _: SessionId) {}

    /// Follows a change of the permitted terminals. On a hub only.
    fn follow_permits(&mut self, _: &mut Surroundings<'_>) {}

    /// Follows a terminal's uplink. Called after every event, so mostly nothing has changed.
    fn follow_uplink(&mut self, _: &mut Surroundings<'_>) {}

    /// Takes a client's intercepted connection, or returns it.
    fn take(&mut self, _: &mut Surroundings<'_>, arrival: ClientArrival) -> Option<ClientArrival> {
        Some(arrival)
    }

    /// Ports whose connections are intercepted although no hub can be reached.
    fn offline_ports(&self) -> &[u16] {
        &[]
    }

    /// Returns `true` if DNS questions are to be redirected to the service now.
    fn takes_questions(&self, _: &Surroundings<'_>) -> bool {
        false
    }

    /// Does what is due twice a second.
    fn housekeep(&mut self, _: &mut Surroundings<'_>) {}

    /// Answers an operator's request, or returns it.
    fn answer_operator(&mut self, call: ControlCall) -> Option<ControlCall> {
        Some(call)
    }

    /// Adds its part to the status.
    fn add_status(&self, _: &Surroundings<'_>, _: &mut GatewayStatus) {}

    /// Applies a changed configuration. One that the role refuses never comes here.
    ///
    /// # Errors
    /// If a setting cannot be applied.
    fn configure(&mut self, _: &mut Surroundings<'_>, _: Config<'_>) -> Result<(), RunError> {
        Ok(())
    }

    /// Hands over to a successor process what only one process can have. This one carries its connections on,
    /// for the given time at most. Returns `true` if the service goes on.
    fn release(&mut self, _: &mut Surroundings<'_>, _: Duration) -> bool {
        true
    }

    /// The network device that a successor process gets, while this one uses it, too.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    fn share_device(&self) -> io::Result<Option<SharedDevice>> {
        Ok(None)
    }

    /// Leaves everything but the present connections to the successor process, which has taken over.
    fn give_way(&mut self) {}

    /// Begins to stop, while there are connections. Returns `true` if the service is needed until they end.
    fn stop(&mut self) -> bool {
        false
    }
}

/// The parts of a role that a service may use during a call.
pub(crate) struct Surroundings<'a> {
    pub(crate) now: Instant,
    /// The hop; `None` on a solo gateway.
    pub(crate) hop: Option<&'a Hop>,
    pub(crate) counters: &'a Arc<GatewayCounters>,
    /// Work for clients and peers, which ends with the gateway.
    pub(crate) relays: &'a mut JoinSet<()>,
    pub(crate) peers: &'a mut PeerTable,
    pub(crate) uplink: Uplink,
    /// On a hub: its terminals.
    pub(crate) hub: Option<HubSide<'a>>,
    /// On a terminal: the keys of its hubs.
    pub(crate) keys: Option<&'a mut dyn LearnKeys>,
}

impl<'a> Surroundings<'a> {
    /// Refuses a peer's stream, and counts the reason.
    pub(crate) fn refuse(
        &self,
        stream: SessionStream,
        open: &StreamOpening<Destination>,
        reason: ResetReason,
    ) {
        relay::refuse(self.counters, stream, open, reason);
    }

    /// On a hub: its hop and its terminals.
    pub(crate) fn hub(&self) -> Option<(&Hop, &HubSide<'a>)> {
        self.hop.zip(self.hub.as_ref())
    }

    /// The terminal of a session, on a hub.
    pub(crate) fn terminal(&self, session: SessionId) -> Option<&PermittedTerminal> {
        self.hub.as_ref()?.sites.of(session)
    }
}

/// The hub that gets new connections of a terminal's clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Uplink {
    /// The session with the hub in use.
    pub(crate) session: Option<SessionId>,
    /// `true` while that hub answers.
    pub(crate) answers: bool,
    /// `true` while that hub answers and takes new connections.
    pub(crate) is_good: bool,
    /// `true` while new connections are carried: this gateway is below its limits, and not about to stop.
    pub(crate) is_open: bool,
}

impl Uplink {
    /// The session, if the hub answers.
    pub(crate) fn reachable(&self) -> Option<SessionId> {
        self.session.filter(|_| self.is_good)
    }

    pub(crate) fn route(&self) -> ClientRoute {
        ClientRoute { hub: self.reachable(), by_name: self.is_open }
    }
}

/// The terminals of a hub.
pub(crate) struct HubSide<'a> {
    pub(crate) sites: &'a TerminalSites,
    pub(crate) permits: &'a TerminalPermits,
    /// Set by a service that has changed a permit.
    pub(crate) is_permit_changed: &'a mut bool,
    pub(crate) dial: DialPolicy,
    pub(crate) accounts: Option<&'a TerminalAccounts>,
}

impl HubSide<'_> {
    /// Returns `true` if nothing is carried for a session's terminal, because its quota is used up.
    pub(crate) fn is_blocked(&self, session: SessionId) -> bool {
        let account = self.accounts.zip(self.sites.of(session));
        let exhausted = account.and_then(|(accounts, terminal)| accounts.exhausted(&terminal.key));
        exhausted == Some(&ExhaustedAction::Block)
    }
}

/// A network device that two processes use.
pub(crate) struct SharedDevice {
    pub(crate) name: String,
    pub(crate) descriptor: OwnedFd,
}

/// The keys of a terminal's hubs.
pub(crate) trait LearnKeys {
    /// Stores the key that the hub of this session announces as its next one.
    ///
    /// # Errors
    /// The key cannot be stored, or the session is not with a hub in use.
    fn learn(
        &mut self,
        now: Instant,
        session: SessionId,
        key: PublicKey,
    ) -> Result<(), ResetReason>;
}

/// An exchange that a hub has admitted.
pub(crate) struct Admitted {
    pub(crate) stream: SessionStream,
    pub(crate) open: StreamOpening<Destination>,
    /// Permitted addresses of its host.
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) admission: Admission,
}

/// The configuration of a role.
#[derive(Clone, Copy)]
pub(crate) enum Config<'a> {
    Hub(&'a HubConfig),
    Terminal(&'a TerminalConfig),
    Solo {
        config: &'a SoloConfig,
        /// Dialer of the connections to servers.
        dialer: &'a Dialer,
    },
}

/// The services of a role.
#[derive(Default)]
pub(crate) struct Services {
    services: Vec<Box<dyn Service>>,
    /// Index of the service to poll first: each in its turn, so that a busy one holds up no other.
    first: usize,
}

/// A service that has work to do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ready(usize);

impl Services {
    pub(crate) fn add(&mut self, service: Option<impl Service + 'static>) {
        self.services.extend(service.map(|service| Box::new(service) as Box<dyn Service>));
    }

    /// Waits until a service has work to do. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Ready {
        let count = self.services.len();
        if count == 0 {
            return pending().await;
        }
        self.first = (self.first + 1) % count;
        let (later, sooner) = self.services.split_at_mut(self.first);
        let all = sooner.iter_mut().chain(later).map(|service| service.next());
        // Of services that are ready at once, `select_all` returns the first in this order.
        let ((), index, _) = select_all(all).await;
        Ready((self.first + index) % count)
    }

    pub(crate) fn start(&mut self, role: &mut Surroundings<'_>) {
        self.each(|service| service.start(role));
    }

    pub(crate) fn work(&mut self, role: &mut Surroundings<'_>, Ready(index): Ready) {
        self.services[index].work(role);
    }

    /// Returns `true` if a service answers peers' streams to this destination.
    pub(crate) fn answers(&self, destination: &Destination) -> bool {
        self.services.iter().any(|service| service.answers(destination))
    }

    /// Answers a peer's stream, or refuses it if it is for none of the services.
    pub(crate) fn answer(
        &mut self,
        role: &mut Surroundings<'_>,
        stream: SessionStream,
        open: &StreamOpening<Destination>,
    ) {
        let mut services = self.services.iter_mut();
        match services.find(|service| service.answers(&open.destination)) {
            Some(service) => service.answer(role, stream, open),
            None => role.refuse(stream, open, ResetReason::Prohibited),
        }
    }

    pub(crate) fn has_exchanges(&self) -> bool {
        self.services.iter().any(|service| service.has_exchanges())
    }

    pub(crate) fn exchange(&mut self, role: &mut Surroundings<'_>, admitted: Admitted) {
        match self.services.iter_mut().find(|service| service.has_exchanges()) {
            Some(service) => service.exchange(role, admitted),
            None => role.refuse(admitted.stream, &admitted.open, ResetReason::Prohibited),
        }
    }

    pub(crate) fn handle_session(
        &mut self,
        role: &mut Surroundings<'_>,
        session: SessionId,
        event: &Event,
    ) {
        self.each(|service| service.handle_session(role, session, event));
    }

    pub(crate) fn follow_quota(&mut self, role: &mut Surroundings<'_>, session: SessionId) {
        self.each(|service| service.follow_quota(role, session));
    }

    pub(crate) fn follow_permits(&mut self, role: &mut Surroundings<'_>) {
        self.each(|service| service.follow_permits(role));
    }

    pub(crate) fn follow_uplink(&mut self, role: &mut Surroundings<'_>) {
        self.each(|service| service.follow_uplink(role));
    }

    /// Lets the services take a client's connection; returns it if none does.
    pub(crate) fn take(
        &mut self,
        role: &mut Surroundings<'_>,
        arrival: ClientArrival,
    ) -> Option<ClientArrival> {
        self.services.iter_mut().try_fold(arrival, |arrival, service| service.take(role, arrival))
    }

    pub(crate) fn offline_ports(&self) -> Vec<u16> {
        self.services.iter().flat_map(|service| service.offline_ports()).copied().collect()
    }

    pub(crate) fn take_questions(&self, role: &Surroundings<'_>) -> bool {
        self.services.iter().any(|service| service.takes_questions(role))
    }

    pub(crate) fn housekeep(&mut self, role: &mut Surroundings<'_>) {
        self.each(|service| service.housekeep(role));
    }

    /// Lets the services answer an operator; returns the call if none does.
    pub(crate) fn answer_operator(&mut self, call: ControlCall) -> Option<ControlCall> {
        self.services.iter_mut().try_fold(call, |call, service| service.answer_operator(call))
    }

    pub(crate) fn add_status(&self, role: &Surroundings<'_>, status: &mut GatewayStatus) {
        self.services.iter().for_each(|service| service.add_status(role, status));
    }

    pub(crate) fn configure(
        &mut self,
        role: &mut Surroundings<'_>,
        config: Config<'_>,
    ) -> Result<(), RunError> {
        self.services.iter_mut().try_for_each(|service| service.configure(role, config))
    }

    pub(crate) fn release(&mut self, role: &mut Surroundings<'_>, within: Duration) {
        self.services.retain_mut(|service| service.release(role, within));
    }

    pub(crate) fn share_device(&self) -> io::Result<Option<SharedDevice>> {
        let mut devices = self.services.iter().map(|service| service.share_device());
        devices.find(|device| !matches!(device, Ok(None))).unwrap_or(Ok(None))
    }

    pub(crate) fn give_way(&mut self) {
        self.each(|service| service.give_way());
    }

    /// Ends the services, except those that are needed until all connections have ended.
    pub(crate) fn stop(&mut self) {
        self.services.retain_mut(|service| service.stop());
    }

    fn each(&mut self, work: impl FnMut(&mut Box<dyn Service>)) {
        self.services.iter_mut().for_each(work);
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::Mutex;

    use control::protocol::ControlRequest;

    use super::*;
    use crate::testkit::{Hops, without_hop};

    /// A service that records what it gets.
    struct Recorder {
        name: &'static str,
        /// Whether it has work at all times.
        is_busy: bool,
        /// Whether it goes on when another process takes over.
        stays: bool,
        calls: Arc<Mutex<Vec<String>>>,
    }

    impl Recorder {
        fn record(&self, call: &str) {
            self.calls.lock().unwrap().push(format!("{}: {call}", self.name));
        }
    }

    impl Service for Recorder {
        fn next(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
            if self.is_busy { Box::pin(ready(())) } else { Box::pin(pending()) }
        }

        fn work(&mut self, _: &mut Surroundings<'_>) {
            self.record("works");
        }

        fn answers(&self, destination: &Destination) -> bool {
            matches!(destination, Destination::Bundles) && self.is_busy
        }

        fn answer(
            &mut self,
            role: &mut Surroundings<'_>,
            stream: SessionStream,
            open: &StreamOpening<Destination>,
        ) {
            self.record("answers");
            role.refuse(stream, open, ResetReason::Limit);
        }

        fn answer_operator(&mut self, call: ControlCall) -> Option<ControlCall> {
            self.record("is asked");
            (!self.is_busy).then_some(call)
        }

        fn release(&mut self, _: &mut Surroundings<'_>, _: Duration) -> bool {
            self.stays
        }
    }

    fn recorders(of: [(&'static str, bool, bool); 3]) -> (Services, Arc<Mutex<Vec<String>>>) {
        let (mut services, calls) = (Services::default(), Arc::default());
        for (name, is_busy, stays) in of {
            services.add(Some(Recorder { name, is_busy, stays, calls: Arc::clone(&calls) }));
        }
        (services, calls)
    }

    fn alone<R>(work: impl FnOnce(&mut Surroundings<'_>) -> R) -> R {
        without_hop(&Arc::default(), Uplink::default(), work)
    }

    #[tokio::test]
    async fn a_busy_service_holds_up_no_other() {
        let (mut services, calls) =
            recorders([("a", true, true), ("idle", false, true), ("b", true, true)]);
        for _ in 0..6 {
            let ready = services.next().await;
            alone(|role| services.work(role, ready));
        }
        let calls = calls.lock().unwrap();
        let works = |name: &str| calls.iter().filter(|call| call.starts_with(name)).count();
        assert!(works("a") >= 2 && works("b") >= 2, "{calls:?}");
        assert_eq!(works("idle"), 0);
    }

    #[tokio::test]
    async fn streams_and_requests_go_to_the_first_service_that_takes_them() {
        let (mut services, calls) =
            recorders([("idle", false, true), ("a", true, true), ("b", true, true)]);
        let mut hops = Hops::new();
        let source = ([192, 0, 2, 1], 40_000).into();
        for (destination, is_taken) in
            [(Destination::Bundles, true), (Destination::Resolver, false)]
        {
            let [_, far] = hops.open();
            assert_eq!(services.answers(&destination), is_taken);
            let open = StreamOpening { destination, source, dscp: None };
            alone(|role| services.answer(role, far, &open));
        }
        let (call, _answer) = ControlCall::new(ControlRequest::Accounts);
        assert!(services.answer_operator(call).is_none());
        assert_eq!(*calls.lock().unwrap(), ["a: answers", "idle: is asked", "a: is asked"]);
    }

    #[tokio::test]
    async fn a_service_that_only_one_process_can_have_ends_when_another_takes_over() {
        let (mut services, calls) =
            recorders([("store", true, false), ("a", true, true), ("b", true, true)]);
        alone(|role| services.release(role, Duration::ZERO));
        let (call, _answer) = ControlCall::new(ControlRequest::Accounts);
        assert!(services.answer_operator(call).is_none());
        assert_eq!(*calls.lock().unwrap(), ["a: is asked"]);
        services.stop();
        assert!(services.services.is_empty());
    }
}
