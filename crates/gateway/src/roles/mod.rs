//! The roles of a gateway: hub, terminal and solo.
//!
//! Each is a [`Service`], which [`run`] drives until it is stopped or drained. [`pair`] starts what
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

use pep::handover::Need;
use units::Instant;

use crate::bundles::Bundles;
use crate::clock;
use crate::error::RunError;
use crate::operate::control::{Answer, Request};
use crate::operate::{Operations, RoleStatus, Task, View};

/// What to do instead of an upgrade.
const RESTART: &str = "restart it, which lets connections end first (systemctl restart, or \
                       `skyhop drain --wait` and a new start)";

/// A gateway in one of its roles. It reads no clock: [`run`] hands it the time.
pub(crate) trait Service {
    /// What it waits for besides operators.
    type Event;

    /// The gateway as its operators see it.
    fn view(&self) -> View<'_>;

    /// Its own part of the status.
    fn role_status(&self, now: Instant) -> RoleStatus;

    /// Waits for the next event. Cancel-safe.
    async fn next(&mut self) -> Self::Event;

    /// Handles an event.
    ///
    /// # Errors
    /// If the gateway cannot go on.
    fn handle(
        &mut self,
        now: Instant,
        ops: &mut Operations,
        event: Self::Event,
    ) -> Result<(), RunError>;

    /// Intercepts connections exactly while that is useful. Returns whether clients are served.
    ///
    /// # Errors
    /// If the kernel refuses a change of the interception.
    fn set_interception(&mut self, now: Instant, ops: &Operations) -> Result<bool, RunError>;

    /// Does the role's part of the housekeeping.
    fn housekeep(&mut self, now: Instant, ops: &mut Operations);

    /// Applies the changed configuration file. An invalid one changes nothing.
    ///
    /// # Errors
    /// If the file is invalid, or a setting cannot be applied.
    fn reload(&mut self, now: Instant, ops: &mut Operations) -> Result<Vec<String>, String>;

    /// Starts another process that is to take this one's place.
    ///
    /// # Errors
    /// Why that is impossible.
    fn upgrade(&mut self, _: Instant, _: &Operations, _: Duration) -> Result<Answer, String> {
        Err(format!("only a hub is upgraded while it runs: {RESTART}"))
    }

    /// Prepares to give its place to the process that asks.
    ///
    /// # Errors
    /// Why that is impossible.
    fn hand_over(&mut self, _: Instant, _: &Operations) -> Result<Answer, String> {
        Err("only a hub is upgraded while it runs".to_owned())
    }

    /// Shares the rate with the process before it, which uses that much. Returns the portion that this may
    /// use from now on.
    ///
    /// # Errors
    /// If there is none.
    fn share_rate(&mut self, _: Instant, _: Need) -> Result<f64, String> {
        Err("there is no other process here".to_owned())
    }

    /// Its node for bundles, if it has one.
    fn bundles(&mut self) -> Option<&mut Bundles> {
        None
    }

    /// Ends all connections. Interception ends first, so that new connections pass unaccelerated.
    async fn stop(self);
}

/// Runs a gateway until `shutdown` completes or it is drained, then stops it. Prints `ready` on
/// standard output when it first serves clients.
pub(crate) async fn run(
    mut ops: Operations,
    mut service: impl Service,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let result = serve(&mut ops, &mut service, shutdown).await;
    ops.stop(clock::now(), service.view());
    service.stop().await;
    result
}

async fn serve(
    ops: &mut Operations,
    service: &mut impl Service,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let mut shutdown = pin!(shutdown);
    let mut now = clock::now();
    let mut serving = service.set_interception(now, ops)?;
    let mut announced = false;
    ops.announce_ready();
    while !ops.is_drained(now, service.view()) {
        if serving && !announced {
            announced = true;
            announce_ready();
        }
        tokio::select! {
            () = &mut shutdown => return Ok(()),
            task = ops.next() => {
                now = clock::now();
                handle_task(now, ops, service, task);
            }
            event = service.next() => {
                now = clock::now();
                service.handle(now, ops, event)?;
                // A connection counts as soon as its task runs: before the next one is admitted, or
                // one client's burst takes what is kept for others.
                tokio::task::yield_now().await;
            }
        }
        serving = service.set_interception(now, ops)?;
    }
    Ok(())
}

/// Handles an operator's request, or does the housekeeping.
fn handle_task(now: Instant, ops: &mut Operations, service: &mut impl Service, task: Task) {
    match task {
        Task::Answer(call) if matches!(call.request, Request::Bundle(_)) => {
            match service.bundles() {
                Some(bundles) => bundles.ask(call),
                None => call.answer(Answer::Error("this gateway has no section [bundles]".into())),
            }
        }
        Task::Answer(call) if matches!(call.request, Request::HandOver) => {
            let answer = service.hand_over(now, ops);
            call.answer(answer.unwrap_or_else(Answer::Error));
        }
        Task::Answer(call)
            if let Request::Portion { portion, used, connections } = call.request =>
        {
            let answer = service.share_rate(now, Need { portion, used, connections });
            call.answer(answer.map_or_else(Answer::Error, Answer::Portion));
        }
        Task::Answer(call) if let Request::Upgrade { within_s } = call.request => {
            let within = Duration::try_from_secs_f64(within_s);
            let answer = within
                .map_err(|error| format!("within_s = {within_s}: {error}"))
                .and_then(|within| service.upgrade(now, ops, within));
            call.answer(answer.unwrap_or_else(Answer::Error));
        }
        Task::Answer(call) => {
            if let Some(call) = ops.answer(now, service.view(), service.role_status(now), call) {
                let outcome = service.reload(now, ops);
                ops.reloaded(call, outcome);
            }
        }
        Task::Housekeeping => {
            ops.housekeep(now, service.view());
            service.housekeep(now, ops);
        }
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

    use super::*;
    use crate::figures::counters::Counters;
    use crate::testkit::operations;

    /// A service that records its calls. It has as many events as `outcomes`, the results of handling
    /// them.
    struct Recorder<'a> {
        outcomes: Vec<Result<(), RunError>>,
        calls: &'a mut Vec<&'static str>,
        counters: Counters,
    }

    impl Service for Recorder<'_> {
        type Event = Result<(), RunError>;

        fn view(&self) -> View<'_> {
            View { hop: None, counters: &self.counters }
        }

        fn role_status(&self, _: Instant) -> RoleStatus {
            RoleStatus::default()
        }

        async fn next(&mut self) -> Self::Event {
            if self.outcomes.is_empty() { pending().await } else { self.outcomes.remove(0) }
        }

        fn handle(
            &mut self,
            _: Instant,
            _: &mut Operations,
            event: Self::Event,
        ) -> Result<(), RunError> {
            self.calls.push("handle");
            event
        }

        fn set_interception(&mut self, _: Instant, _: &Operations) -> Result<bool, RunError> {
            self.calls.push("intercept");
            Ok(false)
        }

        fn housekeep(&mut self, _: Instant, _: &mut Operations) {
            self.calls.push("housekeep");
        }

        fn reload(&mut self, _: Instant, _: &mut Operations) -> Result<Vec<String>, String> {
            Ok(Vec::new())
        }

        async fn stop(self) {
            self.calls.push("stop");
        }
    }

    /// The calls of a gateway that runs with these events until `shutdown`, and how it ends.
    async fn record(
        outcomes: Vec<Result<(), RunError>>,
        ops: Operations,
        shutdown: impl Future<Output = ()>,
    ) -> (Vec<&'static str>, Result<(), RunError>) {
        let mut calls = Vec::new();
        let service = Recorder { outcomes, calls: &mut calls, counters: Counters::default() };
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

        let (mut ops, counters) = (operations(), Counters::default());
        ops.drain(clock::now(), View { hop: None, counters: &counters }, None);
        let (calls, result) = record(vec![Ok(())], ops, pending()).await;
        assert!(result.is_ok());
        assert_eq!(calls, ["intercept", "stop"]);
    }
}
