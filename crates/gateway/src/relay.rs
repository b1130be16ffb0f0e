//! Relaying of connections: opens or answers streams, and drives the relay ([`pep::relay`]) that joins a
//! TCP connection and a stream of the hop, two TCP connections, or two streams.
//!
//! [`dial`] connects to destinations and [`names`] resolves them. Bytes are copied through [`scratch`]
//! buffers, or spliced through a [`pipe`].

pub(crate) mod dial;
mod end;
pub(crate) mod leg;
pub(crate) mod names;
mod pair;
pub(crate) mod pipe;
pub(crate) mod route;
pub(crate) mod scratch;
mod splice;
pub(crate) mod terms;
pub(crate) mod turns;

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use pep::relay::{LegSide, Relay, RelayProgress};
use slacp::{Destination, ResetReason, SessionId, StreamError, StreamOpening, client_network};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};
use units::Instant;

pub(crate) use self::end::{RelayEnd, SocketEnd};
use self::leg::TcpLeg;
use self::pair::RelayPair;
use crate::figures::connections::{ConnectionOrigin, Registered};
use crate::figures::counters::GatewayCounters;
use crate::hop::{Hop, SessionStream};
use crate::intercept::deferral::DeferredSyn;
use crate::process::clock;
use crate::relay::terms::{Admission, DialPolicy};

/// Time limit and interval of a client that was already answered for another try to open a stream. Within
/// that time, streams at rest return most of their windows (after 2 s).
const ROOM_TIMEOUT: Duration = Duration::from_secs(5);
const ROOM_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Resets a peer's stream with a reason, and counts it as failed.
pub(crate) fn refuse(
    counters: &GatewayCounters,
    stream: SessionStream,
    open: &StreamOpening<Destination>,
    reason: ResetReason,
) {
    counters.traffic.failed.increment();
    counters.reasons.count(reason);
    tracing::debug!(destination = %open.destination, source = %open.source, "{reason:?}");
    stream.reset(reason);
}

/// Opens a stream, waiting up to 5 s for room in the session. Meanwhile the client's own connections that
/// have been idle longest give way.
async fn open_in_time(
    hop: &Hop,
    session: SessionId,
    open: StreamOpening,
    counters: &GatewayCounters,
) -> Result<SessionStream, StreamError> {
    let until = clock::now() + ROOM_TIMEOUT;
    loop {
        let now = clock::now();
        match hop.open(now, session, open) {
            Err(StreamError::NoRoom) if now < until => {
                counters.live.evict_idle(now, Some(client_network(open.source.ip())), 1);
                sleep(ROOM_RETRY_INTERVAL).await;
            }
            opened => return opened,
        }
    }
}

/// Carries an accepted client connection: opens a stream at once and relays until both directions
/// end.
pub(crate) async fn originate(
    hop: Hop,
    session: SessionId,
    socket: TcpStream,
    open: StreamOpening,
    counters: Arc<GatewayCounters>,
) {
    counters.traffic.connections.increment();
    let leg = TcpLeg::new(socket);
    let entry = Registered::new(clock::now(), &counters, session, open, ConnectionOrigin::Here);
    match open_in_time(&hop, session, open, &counters).await {
        Ok(stream) => {
            relay_early(stream, leg, &[], Some(open.destination), &entry, &counters).await;
        }
        Err(error) => {
            counters.traffic.failed.increment();
            counters.count_refusal(clock::now(), open.source.ip(), ResetReason::Limit);
            tracing::debug!(destination = %open.destination, "cannot open a stream: {error}");
        }
    }
}

/// Relays between a client that has been answered and a new stream, until both directions end. `first` is
/// data already received from the client. If the destination cannot be connected, `reported` is entered
/// as refused, so that later connections to it pass.
pub(crate) async fn relay_early(
    stream: SessionStream,
    leg: TcpLeg,
    first: &[u8],
    reported: Option<SocketAddr>,
    entry: &Registered<'_>,
    counters: &GatewayCounters,
) {
    let pair = RelayPair::split(LegSide::Client, leg, stream, first, entry, counters);
    let mut running = RunningRelay::new(Relay::early(), pair);
    let run = async {
        while let Some(reason) = running.until_refused().await {
            if let Some(destination) = reported {
                // Waits until the rules are in force: a client that retries after the reset must pass.
                counters.refusals.report(clock::now(), destination, reason).await;
            }
            running.abort(reason);
        }
    };
    entry.run_until_evicted(run).await;
}

/// Carries a connection whose client is answered only after the far side has connected. The stream
/// is reset if the client gives up meanwhile.
pub(crate) async fn originate_deferred(
    hop: Hop,
    session: SessionId,
    mut deferred: DeferredSyn,
    counters: Arc<GatewayCounters>,
) {
    counters.traffic.connections.increment();
    let open = deferred.open();
    let entry = Registered::new(clock::now(), &counters, session, open, ConnectionOrigin::Here);
    let stream = match open_in_time(&hop, session, open, &counters).await {
        Ok(stream) => stream,
        Err(error) => {
            counters.traffic.failed.increment();
            counters.count_refusal(clock::now(), open.source.ip(), ResetReason::Limit);
            return tracing::debug!(destination = %open.destination, "cannot open a stream: {error}");
        }
    };
    if let Err(reason) = stream.accepted().await {
        counters.traffic.failed.increment();
        counters.count_refusal(clock::now(), open.source.ip(), reason);
        tracing::debug!(destination = %open.destination, "the peer cannot connect: {reason:?}");
        return deferred.refuse(reason);
    }
    // The SYN may no longer be pending, for instance because the rules were set anew.
    if deferred.reinject()
        && let Some(socket) = deferred.socket().await
    {
        let leg = TcpLeg::new(socket);
        return relay(stream, LegSide::Client, leg, &[], entry, &counters).await;
    }
    counters.traffic.reset.increment();
}

/// Carries a stream opened by the peer: connects to the first of `addresses` that answers, and
/// relays until both directions end.
pub(crate) async fn answer(
    stream: SessionStream,
    open: StreamOpening<Destination>,
    addresses: Vec<SocketAddr>,
    admission: Admission,
    policy: DialPolicy,
    counters: Arc<GatewayCounters>,
) {
    counters.traffic.connections.increment();
    let entry =
        Registered::new(clock::now(), &counters, stream.session(), open.clone(), admission.origin);
    let caller = policy.caller(&open);
    let connect = |address, time_limit| dial::connect(address, caller, time_limit);
    let connected = tokio::select! {
        connected = names::connect_any(addresses, policy.timeout, connect) => connected,
        reason = stream.reset_by_peer() => {
            counters.reasons.count(reason);
            return counters.traffic.reset.increment();
        }
    };
    match connected {
        Ok(socket) => {
            let leg = TcpLeg::new(socket);
            // If the stream was reset meanwhile, dropping the leg resets the server's connection.
            if stream.accept().is_ok() {
                relay(stream, LegSide::Server, leg, &[], entry, &counters).await;
            }
        }
        Err(error) => {
            counters.traffic.failed.increment();
            let reason = dial::reset_reason(&error);
            counters.reasons.count(reason);
            tracing::debug!(destination = %open.destination, "cannot connect: {error}");
            stream.reset(reason);
        }
    }
}

/// Relays between a TCP connection on this side and a stream until both directions end. `first` is data
/// already received from the client.
pub(crate) async fn relay(
    stream: SessionStream,
    side: LegSide,
    leg: TcpLeg,
    first: &[u8],
    entry: Registered<'_>,
    counters: &GatewayCounters,
) {
    let pair = RelayPair::split(side, leg, stream, first, &entry, counters);
    entry.run_until_evicted(RunningRelay::new(Relay::default(), pair).run()).await;
}

/// Relays between a client's and a server's TCP connection, without a hop. `first` is data already
/// received from the client.
pub(crate) async fn direct(
    client: impl Into<RelayEnd>,
    server: impl Into<RelayEnd>,
    first: &[u8],
    entry: Registered<'_>,
    counters: &GatewayCounters,
) {
    let pair = RelayPair::direct(client.into(), server.into(), first, &entry, counters);
    entry.run_until_evicted(RunningRelay::new(Relay::default(), pair).run()).await;
}

/// Forwards a stream from one peer to the peer of `session`: a connection between clients of two
/// terminals, through the hub.
pub(crate) async fn forward(
    hop: Hop,
    near: SessionStream,
    session: SessionId,
    open: StreamOpening,
    admission: Admission,
    counters: Arc<GatewayCounters>,
) {
    counters.traffic.connections.increment();
    // In the register of connections until this returns.
    let _entry = Registered::new(clock::now(), &counters, near.session(), open, admission.origin);
    let far = match hop.open(clock::now(), session, open) {
        Ok(far) => far,
        Err(error) => {
            counters.traffic.failed.increment();
            counters.reasons.count(ResetReason::Limit);
            tracing::debug!(destination = %open.destination, "cannot open a stream: {error}");
            return near.reset(ResetReason::Limit);
        }
    };
    let pair = RelayPair::forwarded(near, far, &counters);
    RunningRelay::new(Relay::default(), pair).until_refused().await;
}

/// A relay with its legs and timer.
struct RunningRelay<'c> {
    relay: Relay,
    pair: RelayPair<'c>,
    alarm: Option<Pin<Box<Sleep>>>,
    /// The outcome has been counted.
    is_counted: bool,
    /// The acceptance of the far stream has been passed on to the near one, if there are two.
    is_acceptance_passed: bool,
}

impl<'c> RunningRelay<'c> {
    fn new(relay: Relay, pair: RelayPair<'c>) -> Self {
        Self { relay, pair, alarm: None, is_counted: false, is_acceptance_passed: false }
    }

    /// Runs a connection to its end. Not for clients that were answered early.
    async fn run(mut self) {
        self.until_refused().await;
    }

    /// Runs until the connection has ended, or until its client, answered early, is about to be reset for
    /// the returned reason. The caller then calls [`Self::abort`], and this again.
    async fn until_refused(&mut self) -> Option<ResetReason> {
        poll_fn(|context| self.poll(context)).await
    }

    fn abort(&mut self, reason: ResetReason) {
        let mut context = Context::from_waker(Waker::noop());
        self.relay.abort(reason, &mut self.pair.polled(clock::now(), &mut context));
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<ResetReason>> {
        loop {
            let now = clock::now();
            // In other phases a failure changes nothing.
            if self.relay.is_carrying() {
                self.pair.poll_failures(now, &mut self.relay, context);
            }
            if !self.is_acceptance_passed {
                self.is_acceptance_passed = self.pair.poll_acceptance(context).is_ready();
            }
            let progress = self.relay.handle(now, &mut self.pair.polled(now, context));
            self.count();
            match progress {
                RelayProgress::Over => return Poll::Ready(None),
                RelayProgress::Refused(reason) => return Poll::Ready(Some(reason)),
                RelayProgress::Busy => {
                    // The first poll schedules this task behind the others.
                    let _ = pin!(tokio::task::yield_now()).poll(context);
                    return Poll::Pending;
                }
                RelayProgress::Waiting if self.poll_alarm(now, context).is_pending() => {
                    return Poll::Pending;
                }
                RelayProgress::Waiting => {}
            }
        }
    }

    /// Polls the relay's timer. Pending without one, since its other events wake the task.
    fn poll_alarm(&mut self, now: Instant, context: &mut Context<'_>) -> Poll<()> {
        let Some((at, _)) = self.relay.poll_timeout() else { return Poll::Pending };
        let pause = at.saturating_since(now);
        self.alarm.insert(Box::pin(sleep(pause))).as_mut().poll(context)
    }

    fn count(&mut self) {
        let Some(outcome) = self.relay.outcome().filter(|_| !self.is_counted) else { return };
        self.is_counted = true;
        self.pair.count(outcome);
    }
}

#[cfg(test)]
mod direct_tests;
#[cfg(test)]
mod tests;
