//! The roles of a gateway: hub, terminal and solo.
//!
//! Each is a [`RunningRole`], which [`run`] drives until it is stopped or drained. [`pair`] starts what
//! hub and terminal have in common, and [`gateway`] carries their connections; [`workers`] has the
//! threads of a hub.

mod fallback;
pub(crate) mod gateway;
pub mod hub;
mod hubs;
mod pair;
pub mod solo;
pub mod terminal;
pub(crate) mod workers;

use std::future::Future;
use std::io::{self, Write};
use std::pin::pin;
use std::time::Duration;

use control::protocol::{ControlAnswer, ControlRequest};
use control::status::GatewayStatus;
use pep::rates::handover::ProcessNeed;
use units::Instant;

use crate::operate::control_socket::ControlCall;
use crate::operate::{GatewayOperations, GatewayView, MainTask};
use crate::process::clock;
use crate::process::error::RunError;
use crate::services::{Services, Surroundings};

/// Advice where an upgrade is impossible, within an error.
const RESTART: &str = "restart it, which lets connections end first (systemctl restart, or \
                       `skyhop drain --wait` and a new start)";

/// A gateway in one of its roles. It reads no clock: [`run`] hands it the time.
pub(crate) trait RunningRole {
    /// Event of its main loop besides requests of operators.
    type Event;

    /// The gateway as its operators see it.
    fn view(&self) -> GatewayView<'_>;

    /// Calls `work` with its services and the parts of the gateway that they may use.
    fn with_services<R>(
        &mut self,
        now: Instant,
        ops: &mut GatewayOperations,
        work: impl FnOnce(&mut Services, &mut Surroundings<'_>) -> R,
    ) -> R;

    /// Returns the role's part of the status, without that of its services.
    fn role_status(&self, now: Instant) -> GatewayStatus;

    /// Waits for the next event. Cancel-safe.
    async fn next(&mut self) -> Self::Event;

    /// Handles an event.
    ///
    /// # Errors
    /// If the gateway cannot go on.
    fn handle(
        &mut self,
        now: Instant,
        ops: &mut GatewayOperations,
        event: Self::Event,
    ) -> Result<(), RunError>;

    /// Intercepts connections exactly while that is useful. Returns whether clients are served.
    ///
    /// # Errors
    /// If the kernel refuses a change of the interception.
    fn set_interception(
        &mut self,
        now: Instant,
        ops: &mut GatewayOperations,
    ) -> Result<bool, RunError>;

    /// Does the role's part of the housekeeping.
    fn housekeep(&mut self, now: Instant, ops: &mut GatewayOperations);

    /// Applies the changed configuration file. An invalid one changes nothing.
    ///
    /// # Errors
    /// If the file is invalid, or a setting cannot be applied.
    fn reload(&mut self, now: Instant, ops: &mut GatewayOperations) -> Result<Vec<String>, String>;

    /// Starts another process that is to take this one's place.
    ///
    /// # Errors
    /// The reason for which that is impossible.
    fn upgrade(
        &mut self,
        _: Instant,
        _: &GatewayOperations,
        _: Duration,
    ) -> Result<ControlAnswer, String> {
        Err(format!("only a hub is upgraded while it runs: {RESTART}"))
    }

    /// Prepares to give its place to the process that asks.
    ///
    /// # Errors
    /// The reason for which that is impossible.
    fn hand_over(&mut self, _: Instant, _: &GatewayOperations) -> Result<ControlAnswer, String> {
        Err("only a hub is upgraded while it runs".to_owned())
    }

    /// Shares the rate with the process before it, which has this need. Returns the portion that the former
    /// process may use from now on.
    ///
    /// # Errors
    /// If there is no other process.
    fn share_rate(&mut self, _: Instant, _: ProcessNeed) -> Result<f64, String> {
        Err("there is no other process here".to_owned())
    }

    /// Ends all connections. Interception ends first, so that new connections pass unaccelerated.
    async fn stop(self);
}

/// Runs a gateway until `shutdown` completes or it is drained, then stops it. Prints `ready` on
/// standard output when it first serves clients.
pub(crate) async fn run(
    mut ops: GatewayOperations,
    mut role: impl RunningRole,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let result = serve(&mut ops, &mut role, shutdown).await;
    ops.stop(clock::now(), role.view());
    role.stop().await;
    result
}

async fn serve(
    ops: &mut GatewayOperations,
    role: &mut impl RunningRole,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let mut shutdown = pin!(shutdown);
    let mut now = clock::now();
    let mut serving = role.set_interception(now, ops)?;
    let mut announced = false;
    ops.announce_ready();
    while !ops.is_drained(now, role.view()) {
        if serving && !announced {
            announced = true;
            announce_ready();
        }
        tokio::select! {
            () = &mut shutdown => return Ok(()),
            task = ops.next() => {
                now = clock::now();
                handle_task(now, ops, role, task);
            }
            event = role.next() => {
                now = clock::now();
                role.handle(now, ops, event)?;
            }
        }
        // After each event, since any may change whether connections can be carried.
        serving = role.set_interception(now, ops)?;
    }
    Ok(())
}

/// Handles an operator's request, or does the housekeeping.
fn handle_task(
    now: Instant,
    ops: &mut GatewayOperations,
    role: &mut impl RunningRole,
    task: MainTask,
) {
    match task {
        MainTask::Answer(call) if matches!(call.request, ControlRequest::HandOver) => {
            let answer = role.hand_over(now, ops);
            call.answer(answer.unwrap_or_else(ControlAnswer::Error));
        }
        MainTask::Answer(call)
            if let ControlRequest::Portion { portion, used, connections } = call.request =>
        {
            let answer = role.share_rate(now, ProcessNeed { portion, used, connections });
            call.answer(answer.map_or_else(ControlAnswer::Error, ControlAnswer::Portion));
        }
        MainTask::Answer(call) if let ControlRequest::Upgrade { within_s } = call.request => {
            let within = Duration::try_from_secs_f64(within_s);
            let answer = within
                .map_err(|error| format!("within_s = {within_s}: {error}"))
                .and_then(|within| role.upgrade(now, ops, within));
            call.answer(answer.unwrap_or_else(ControlAnswer::Error));
        }
        MainTask::Answer(call) => answer_call(now, ops, role, call),
        MainTask::Housekeeping => {
            ops.housekeep(now, role.view());
            role.housekeep(now, ops);
            role.with_services(now, ops, |services, role| services.housekeep(role));
        }
    }
}

/// Answers a request that no role treats in its own way: by the operations, else by a service.
fn answer_call(
    now: Instant,
    ops: &mut GatewayOperations,
    role: &mut impl RunningRole,
    call: ControlCall,
) {
    let mut status = role.role_status(now);
    role.with_services(now, ops, |services, role| services.add_status(role, &mut status));
    let call = ops.answer(now, role.view(), status, call);
    let for_service =
        |call| role.with_services(now, ops, |services, _| services.answer_operator(call));
    match call.and_then(for_service) {
        Some(call) if matches!(call.request, ControlRequest::Reload) => {
            let outcome = role.reload(now, ops);
            ops.reloaded(call, outcome);
        }
        Some(call) => {
            let error = no_service(&call.request);
            call.answer(ControlAnswer::Error(error));
        }
        None => {}
    }
}

/// Returns the error for a request that no service answers.
fn no_service(request: &ControlRequest) -> String {
    match request {
        ControlRequest::Bundle(_) => "this gateway has no section [bundles]".to_owned(),
        other => format!("this gateway does not answer {other:?}"),
    }
}

/// Prints `ready`, for which scripts wait.
fn announce_ready() {
    // A closed stdout is no reason to stop.
    let mut stdout = io::stdout().lock();
    let _ = writeln!(stdout, "ready").and_then(|()| stdout.flush());
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use std::sync::Arc;

    use tokio::task::JoinSet;

    use super::*;
    use crate::figures::counters::GatewayCounters;
    use crate::services::Uplink;
    use crate::testkit::operations;

    /// A service that records its calls. It has as many events as `outcomes`, the results of handling
    /// them.
    struct Recorder<'a> {
        outcomes: Vec<Result<(), RunError>>,
        calls: &'a mut Vec<&'static str>,
        counters: GatewayCounters,
    }

    impl RunningRole for Recorder<'_> {
        type Event = Result<(), RunError>;

        fn view(&self) -> GatewayView<'_> {
            GatewayView { hop: None, counters: &self.counters }
        }

        fn with_services<R>(
            &mut self,
            now: Instant,
            ops: &mut GatewayOperations,
            work: impl FnOnce(&mut Services, &mut Surroundings<'_>) -> R,
        ) -> R {
            let counters = Arc::default();
            let mut relays = JoinSet::new();
            let mut role = Surroundings {
                now,
                hop: None,
                counters: &counters,
                relays: &mut relays,
                peers: &mut ops.peers,
                uplink: Uplink::default(),
                hub: None,
                keys: None,
            };
            work(&mut Services::default(), &mut role)
        }

        fn role_status(&self, _: Instant) -> GatewayStatus {
            GatewayStatus::default()
        }

        async fn next(&mut self) -> Self::Event {
            if self.outcomes.is_empty() { pending().await } else { self.outcomes.remove(0) }
        }

        fn handle(
            &mut self,
            _: Instant,
            _: &mut GatewayOperations,
            event: Self::Event,
        ) -> Result<(), RunError> {
            self.calls.push("handle");
            event
        }

        fn set_interception(
            &mut self,
            _: Instant,
            _: &mut GatewayOperations,
        ) -> Result<bool, RunError> {
            self.calls.push("intercept");
            Ok(false)
        }

        fn housekeep(&mut self, _: Instant, _: &mut GatewayOperations) {
            self.calls.push("housekeep");
        }

        fn reload(&mut self, _: Instant, _: &mut GatewayOperations) -> Result<Vec<String>, String> {
            Ok(Vec::new())
        }

        async fn stop(self) {
            self.calls.push("stop");
        }
    }

    /// The calls of a gateway that runs with these events until `shutdown`, and how it ends.
    async fn record(
        outcomes: Vec<Result<(), RunError>>,
        ops: GatewayOperations,
        shutdown: impl Future<Output = ()>,
    ) -> (Vec<&'static str>, Result<(), RunError>) {
        let mut calls = Vec::new();
        let service =
            Recorder { outcomes, calls: &mut calls, counters: GatewayCounters::default() };
        let result = run(ops, service, shutdown).await;
        (calls, result)
    }

    #[tokio::test]
    async fn interception_follows_every_event_until_one_is_fatal() {
        let fatal = RunError::Socket(io::ErrorKind::BrokenPipe.into());
        let outcomes = vec![Ok(()), Ok(()), Err(fatal)];
        let (calls, result) = record(outcomes, operations(), pending()).await;
        assert!(matches!(result, Err(RunError::Socket(_))));
        // Housekeeping may come in between.
        let handled = calls.iter().filter(|call| **call == "handle").count();
        assert_eq!((handled, calls[0]), (3, "intercept"));
        let (running, end) = calls.split_at(calls.len() - 2);
        assert_eq!(end, ["handle", "stop"]);
        let followed = |call: &[&str]| call[0] == "intercept" || call[1] == "intercept";
        assert!(running.windows(2).all(followed), "{calls:?}");
    }

    #[tokio::test]
    async fn a_shutdown_and_the_end_of_a_drain_stop_the_service() {
        let (calls, result) = record(Vec::new(), operations(), ready(())).await;
        assert!(result.is_ok() && calls.last() == Some(&"stop"), "{calls:?}");

        let (mut ops, counters) = (operations(), GatewayCounters::default());
        ops.drain(clock::now(), GatewayView { hop: None, counters: &counters }, None);
        let (calls, result) = record(vec![Ok(())], ops, pending()).await;
        assert!(result.is_ok());
        assert_eq!(calls, ["intercept", "stop"]);
    }
}
