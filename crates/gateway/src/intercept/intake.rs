//! Intake of clients' new connections: switches interception on while they can be carried.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use config::{InterceptConfig, SideConfig};
use control::status::{InterceptionStatus, UnansweredStatus};
use pep::admission::{AnswerWatch, BypassClock, BypassReason};
use pep::traffic::{Prefix, TrafficPolicy};
use units::Instant;

use crate::figures::counters::GatewayCounters;
use crate::intercept::answer_tap::LoggedPacket;
use crate::intercept::netfilter::Scope;
use crate::intercept::{ClientArrival, IntakeEvent, Interception};
use crate::process::clock;
use crate::process::error::RunError;

/// Time in which new connections pass unaccelerated after the process ran out of descriptors.
const RECOVERY: Duration = Duration::from_secs(1);

/// Interception, switched on and off as the hop and the process allow.
pub(crate) struct Intake {
    interception: Interception,
    counters: Arc<GatewayCounters>,
    /// The scope that the rules in the kernel have now.
    scope: Scope,
    bypass: BypassClock,
    answers: AnswerWatch,
    /// Possible reasons why clients get no answers; empty while all get answers.
    suspects: String,
}

impl Intake {
    /// Creates an intake that intercepts nothing yet.
    pub(crate) fn new(
        now: Instant,
        interception: Interception,
        counters: Arc<GatewayCounters>,
    ) -> Self {
        let bypass = BypassClock::new(now, BypassReason::PeerUnreachable);
        counters.refusals.enable();
        Self {
            interception,
            counters,
            scope: Scope::Nothing,
            bypass,
            answers: AnswerWatch::default(),
            suspects: String::new(),
        }
    }

    /// Waits for the next connection, or for a change that requires [`Self::set_scope`]. Cancel-safe.
    pub(crate) async fn next(&mut self) -> IntakeEvent {
        tokio::select! {
            arrived = self.interception.next() => arrived,
            // The caller then calls `set_scope`, which applies the change.
            () = self.counters.refusals.changed() => IntakeEvent::Nothing,
            () = clock::sleep_until(self.bypass.paused_until()) => IntakeEvent::Nothing,
            () = clock::sleep_until(self.answers.next_timeout()) => IntakeEvent::Nothing,
        }
    }

    /// Handles an event. Returns the new connection, if it is one and the client may have another. If the
    /// process has run out of descriptors, further connections pass unaccelerated for a while.
    pub(crate) fn handle(&mut self, now: Instant, arrived: IntakeEvent) -> Option<ClientArrival> {
        match arrived {
            IntakeEvent::Connection(arrival) => {
                let client = arrival.open().source.ip();
                if self.counters.live.admits(now, client) {
                    return Some(arrival);
                }
                self.counters.traffic.failed.increment();
                self.counters.refusals.pass_client(now, client);
                // Instead of being reset, further ones reach their servers without us.
                tracing::debug!("{client} is at its share of connections: further ones pass");
                arrival.dismiss();
            }
            IntakeEvent::Nothing => {}
            IntakeEvent::Seen(sightings) => {
                sightings.into_iter().for_each(|packet| self.record_sighting(now, packet));
            }
            IntakeEvent::Exhausted(error) => {
                self.counters.exhausted.increment();
                // One line for each pause, not for each failed accept.
                if self.bypass.paused_until().is_none() {
                    tracing::warn!("new connections pass unaccelerated for a while: {error}");
                }
                self.pause(now, RECOVERY, BypassReason::Descriptors);
            }
        }
        None
    }

    fn record_sighting(&mut self, now: Instant, packet: LoggedPacket) {
        match packet {
            LoggedPacket::Syn { source, destination } => {
                self.answers.handle_syn(now, source, destination);
            }
            LoggedPacket::Answer { source, destination } => {
                self.answers.handle_answer(now, source, destination);
            }
            // Answers may be among the lost packets, so the SYNs before count neither way.
            LoggedPacket::Gap => self.answers.forget(),
        }
    }

    /// Finds clients that get no answers. Returns whether the set of clients that pass for that reason has
    /// changed.
    fn check_answers(&mut self, now: Instant) -> bool {
        self.answers.handle_timeout(now);
        let changed = self.answers.take_change(now);
        if let Some(clients) = &changed {
            self.suspects = if clients.is_empty() {
                String::new()
            } else {
                self.interception.possible_causes()
            };
            log_unanswered(clients, &self.suspects);
            self.interception.set_unanswered(clients.clone());
        }
        if let Some(pause) = self.answers.take_pause() {
            tracing::warn!(
                "no client is answered, and several were redirected: all new connections pass \
                 unaccelerated for {} s: {}",
                pause.as_secs(),
                self.suspects
            );
            self.pause(now, pause, BypassReason::Unanswered);
        }
        changed.is_some()
    }

    /// Applies reloaded interfaces and policies.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn configure(
        &mut self,
        config: &InterceptConfig,
        policies: &[TrafficPolicy],
    ) -> Result<(), RunError> {
        self.interception.configure(config, policies);
        // Operators reload after a repair, so all clients get another chance.
        self.answers.reset();
        self.bypass.resume(BypassReason::Unanswered);
        self.interception.apply_scope(&self.scope)
    }

    /// Starts or stops the redirection of DNS queries to the resolver.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn redirect_queries(&mut self, answer: bool) -> Result<(), RunError> {
        if !self.interception.redirect_queries(answer) {
            return Ok(());
        }
        self.interception.apply_scope(&self.scope)
    }

    /// Applies TCP settings to connections accepted from now on.
    pub(crate) fn prepare(&self, side: &SideConfig) {
        self.interception.prepare(side);
    }

    /// Lets new connections pass unaccelerated for the duration of `pause`.
    pub(crate) fn pause(&mut self, now: Instant, pause: Duration, why: BypassReason) {
        self.bypass.pause(now, pause, why);
    }

    /// Sets the scope of interception, or the reason to intercept nothing. A pause overrides the scope.
    /// While the peer cannot be reached, the scope is `offline`. Existing connections are kept.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn set_scope(
        &mut self,
        now: Instant,
        wanted: Result<Scope, BypassReason>,
        offline: Scope,
    ) -> Result<(), RunError> {
        // Before the bypass is decided: it may pause interception.
        let others_pass = self.check_answers(now);
        let bypass = self.bypass.set(now, wanted.as_ref().err().copied());
        let wanted = match (wanted, bypass) {
            (Ok(wanted), None) => wanted,
            (_, Some(BypassReason::PeerUnreachable)) => offline,
            _ => Scope::Nothing,
        };
        let refused = self.counters.refusals.take_change(now);
        if wanted != self.scope || refused.is_some() || others_pass {
            refused.into_iter().for_each(|refused| self.interception.set_exemptions(refused));
            self.interception.apply_scope(&wanted)?;
            self.scope = wanted;
            // Only now: the connections that wait for this reset their clients, which then try again.
            self.counters.refusals.mark_applied();
        }
        Ok(())
    }

    /// Restores removed rules and routes, and follows changes of routes to clients and of bridges.
    pub(crate) fn follow_routes(&mut self) {
        let v6_differs = self.interception.follow_routes();
        let lans_differ = self.interception.follow_lans();
        if !v6_differs && !lans_differ {
            return;
        }
        match self.interception.apply_scope(&self.scope) {
            Ok(()) if v6_differs => self.interception.log_v6(),
            Ok(()) => {}
            Err(error) => tracing::warn!("{error}"),
        }
    }

    /// Returns the state of interception, with its history.
    pub(crate) fn status(&self, now: Instant) -> InterceptionStatus {
        let clients = self.answers.clients() as u64;
        let unanswered =
            (clients > 0).then(|| UnansweredStatus { clients, suspects: self.suspects.clone() });
        let shared = self.interception.shared_interfaces();
        let refusals = self.interception.refusals();
        InterceptionStatus { unanswered, shared, refusals, ..self.bypass.history(now).into() }
    }

    /// Number of connections and datagrams decided by each policy.
    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        self.interception.counts()
    }

    /// Returns whether new connections are intercepted. Ports alone, the scope without a hub, do not count.
    pub(crate) fn is_on(&self) -> bool {
        !matches!(self.scope, Scope::Nothing | Scope::Ports(_))
    }
}

/// Logs the clients that pass because they get no answers.
fn log_unanswered(clients: &[Prefix], suspects: &str) {
    match clients {
        [] => tracing::info!("clients that were not answered are intercepted again"),
        [first, ..] => tracing::warn!(
            "{} clients (such as {first}) were redirected and never answered: they pass unaccelerated: \
             {suspects}",
            clients.len()
        ),
    }
}

/// Waits for the next event of an optional intake; for ever without an intake.
pub(crate) async fn next(intake: &mut Option<Intake>) -> IntakeEvent {
    match intake {
        Some(intake) => intake.next().await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use slacp::{ResetReason, StreamOpening};
    use tokio::net::TcpStream;

    use super::*;
    use crate::figures::connections::ArrivingConnection;
    use crate::intercept::listener::AcceptedConnection;
    use crate::testkit::in_namespace;

    /// Runs `work` with an intake of clients on the loopback device.
    fn with_intake(work: impl FnOnce(Intake) + Send + 'static) {
        in_namespace(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let interfaces = vec!["lo".to_owned()];
                let config = InterceptConfig { interfaces, ..InterceptConfig::nowhere() };
                let interception = Interception::install(&config, &[], None).unwrap();
                work(Intake::new(Instant::ZERO, interception, Arc::default()));
            });
        });
    }

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// A new connection of a client.
    fn arrival(client: IpAddr) -> IntakeEvent {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        let socket = TcpStream::from_std(socket).unwrap();
        let (source, destination) = ((client, 4000).into(), ([192, 0, 2, 1], 80).into());
        let open = StreamOpening { destination, source, dscp: None };
        IntakeEvent::Connection(ClientArrival::Connection(AcceptedConnection { socket, open }))
    }

    #[test]
    fn connections_are_intercepted_exactly_while_someone_wants_them() {
        with_intake(|mut intake| {
            assert!(!intake.is_on());
            let status = intake.status(at(0));
            assert_eq!((status.on, status.why), (false, Some(BypassReason::PeerUnreachable)));
            intake.set_scope(at(1000), Ok(Scope::Everything), Scope::Nothing).unwrap();
            assert!(intake.is_on() && intake.status(at(1000)).on);
            intake.set_scope(at(3000), Err(BypassReason::Draining), Scope::Nothing).unwrap();
            let status = intake.status(at(4500));
            assert_eq!((status.on, status.why), (false, Some(BypassReason::Draining)));
            assert!(!intake.is_on() && (status.since_s - 1.5).abs() < 1e-9);
            // No network is served: nothing is taken, and nobody is to blame.
            intake.set_scope(at(5000), Ok(Scope::Nothing), Scope::Nothing).unwrap();
            assert_eq!((intake.is_on(), intake.status(at(5000)).why), (false, None));
        });
    }

    #[test]
    fn without_descriptors_connections_pass_for_a_second_whoever_wants_them() {
        with_intake(|mut intake| {
            intake.set_scope(at(0), Ok(Scope::Everything), Scope::Nothing).unwrap();
            for ms in [0, 500] {
                let error = std::io::Error::from_raw_os_error(libc::EMFILE);
                assert!(intake.handle(at(ms), IntakeEvent::Exhausted(error)).is_none());
            }
            assert_eq!(intake.counters.exhausted.get(), 2);
            for (ms, on) in [(500, false), (1499, false), (1500, true)] {
                intake.set_scope(at(ms), Ok(Scope::Everything), Scope::Nothing).unwrap();
                assert_eq!(intake.is_on(), on, "{ms}");
            }
            let bypassed = &intake.status(at(2000)).bypassed;
            let row = bypassed.iter().find(|row| row.why == BypassReason::Descriptors).unwrap();
            assert_eq!((row.times, row.total_s), (1, 1.0));
        });
    }

    #[test]
    fn a_client_with_its_share_of_the_connections_passes_and_others_are_carried() {
        with_intake(|mut intake| {
            let counters = intake.counters.clone();
            counters.live.set_limit(16);
            let [greedy, other] = [1, 2].map(|host| IpAddr::from([10, 0, 0, host]));
            let mut held = Vec::new();
            for _ in 0..20 {
                if intake.handle(at(0), arrival(greedy)).is_some() {
                    held.push(ArrivingConnection::new(counters.clone(), greedy));
                }
            }
            assert_eq!((held.len(), counters.traffic.failed.get()), (14, 6));
            assert!(intake.handle(at(0), arrival(other)).is_some());
            let passing = counters.refusals.take_change(at(0)).map(|exempt| exempt.clients);
            assert_eq!(passing, Some(vec![greedy]));
        });
    }

    #[test]
    fn a_refusal_is_answered_once_the_table_lets_its_destination_pass() {
        with_intake(|mut intake| {
            let counters = intake.counters.clone();
            let to = ([192, 0, 2, 1], 80).into();
            let mut report = Box::pin(counters.refusals.report(at(0), to, ResetReason::Refused));
            let mut poll = || {
                let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                report.as_mut().poll(&mut context).is_ready()
            };
            assert!(!poll());
            intake.set_scope(at(0), Ok(Scope::Everything), Scope::Nothing).unwrap();
            assert!(poll());
        });
    }
}
