//! A watchdog for tests, in debug builds only. It aborts the process if a thread of the gateway computes for
//! too long without polling its sockets and timers, so that a test of a hostile peer fails.
//!
//! It measures processor time of the thread, not elapsed time, so that a busy machine does not trigger it. A
//! task sleeps again and again for a moment. The time that the thread has computed between two of its turns
//! is at least that of the longest poll of any other task.

use std::io::Write as _;
use std::time::Duration;

use nix::time::ClockId;
use tokio::runtime::Runtime;

/// Environment variable with the maximum processor time between two turns, in milliseconds. Unset: no
/// watchdog.
const VARIABLE: &str = "SKYHOP_WATCHDOG";
const LOOK: Duration = Duration::from_millis(1);

/// Starts the watchdog of a runtime's thread, if the environment asks for it.
pub(super) fn start(runtime: &Runtime) {
    let most = std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok());
    if let Some(most) = most.map(Duration::from_millis) {
        runtime.spawn(watch(most));
    }
}

async fn watch(most: Duration) {
    report_turns(|took| {
        if took > most {
            let _ = writeln!(
                std::io::stderr(),
                "watchdog: the thread worked for {took:?} at once; {most:?} are permitted"
            );
            std::process::abort();
        }
    })
    .await;
}

/// Reports, again and again, the processor time of the thread between two turns of this task.
pub(crate) async fn report_turns(worked: impl Fn(Duration)) {
    let mut before = thread_time();
    loop {
        tokio::time::sleep(LOOK).await;
        let now = thread_time();
        worked(now - before);
        before = now;
    }
}

/// Processor time of the calling thread.
pub(crate) fn thread_time() -> Duration {
    ClockId::CLOCK_THREAD_CPUTIME_ID.now().map(Duration::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes for at least this long.
    fn compute(time: Duration) {
        let begin = thread_time();
        while thread_time() - begin < time {}
    }

    /// The test runs itself again, with the variable.
    #[test]
    fn a_long_poll_ends_the_process() {
        let work = |poll: u64| {
            let runtime = super::super::start(false).unwrap();
            runtime.block_on(async {
                for _ in 0..50 {
                    tokio::time::sleep(LOOK).await;
                    compute(Duration::from_millis(poll));
                }
            });
        };
        if let Ok(poll) = std::env::var("SKYHOP_TEST_POLL") {
            return work(poll.parse().unwrap());
        }
        for (poll, is_well) in [(10, true), (60, false)] {
            let mut again = std::process::Command::new(std::env::current_exe().unwrap());
            let (_, tests) = module_path!().split_once("::").unwrap();
            again.args(["--exact", &format!("{tests}::a_long_poll_ends_the_process")]);
            again.arg("--nocapture");
            again.env(VARIABLE, "50").env("SKYHOP_TEST_POLL", poll.to_string());
            let output = again.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!((output.status.success(), said.contains("watchdog")), (is_well, !is_well));
        }
    }
}
