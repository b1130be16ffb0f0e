//! The tasks' traffic as a simulator application: the counterpart of the meter on real hosts.

use std::collections::BTreeMap;
use std::sync::Arc;

use sim::{
    App, AppId, AppNotice, AppStats, ConnectionPath, ExchangeSizes, SlabKey, WorkUnit, World,
};
use units::Instant;

use crate::plan::{DOWNLOAD, OBJECT, REPLY, REQUEST, Task, TaskWork, UPLOAD};

/// Size of a meter's flow request, its receipt, or an HTTP request, in bytes.
const ASK: u64 = 80;
const RECEIPT: u64 = 64;
const HTTP_REQUEST: u64 = 150;

/// The client application of a task.
#[derive(Debug)]
pub(super) struct TaskClient {
    task: Task,
    path: Arc<ConnectionPath>,
    /// Turns not yet assigned to a connection.
    left: u64,
    missing: u64,
    /// Open connections: the start of their current turn, and their remaining turns if fixed in
    /// advance.
    open: BTreeMap<SlabKey, (Instant, u64)>,
}

impl TaskClient {
    pub(super) fn new(task: Task, path: Arc<ConnectionPath>) -> Self {
        let turns = turns(task);
        Self { task, path, left: turns, missing: turns, open: BTreeMap::new() }
    }

    fn connect(&mut self, world: &mut World, me: AppId, more: u64) {
        let closer = match self.task {
            // With HTTP/1.0 the server closes after its reply.
            Task::Page => sim::FirstCloser::Server,
            _ => sim::FirstCloser::Client,
        };
        let now = world.now();
        let talk = world.open(me, &self.path, closer, None);
        self.open.insert(talk, (now, more));
        self.left -= 1;
        world.send_request(talk, turn(self.task));
    }

    /// Handles the reply that completes a turn.
    fn answered(&mut self, world: &mut World, me: AppId, talk: SlabKey) {
        let Some((begin, more)) = self.open.remove(&talk) else { return };
        let now = world.now();
        let ExchangeSizes { request, reply } = turn(self.task);
        world.record_work_unit(me, WorkUnit { begin, end: now, bytes: request + reply });
        self.missing -= 1;
        let goes_on = match self.task {
            Task::PageKeepAlive => self.left > 0,
            Task::Requests => more > 0,
            Task::Download | Task::Upload | Task::Page => false,
        };
        if goes_on {
            self.left -= 1;
            self.open.insert(talk, (now, more.saturating_sub(1)));
            world.send_request(talk, turn(self.task));
        } else {
            world.finish(talk);
            if self.task == Task::Page && self.left > 0 {
                self.connect(world, me, 0);
            }
        }
        if self.missing == 0 {
            world.set_done(me);
        }
    }
}

impl App for TaskClient {
    fn handle(&mut self, world: &mut World, me: AppId, notice: AppNotice) {
        match notice {
            AppNotice::Start => {
                world.begin(me);
                let (count, at_a_time) = match self.task.work() {
                    TaskWork::Flow(_) => (1, 1),
                    TaskWork::Pieces { count, at_a_time, .. } => {
                        (u64::from(count), u64::from(at_a_time))
                    }
                };
                for index in 0..at_a_time {
                    let share = count / at_a_time + u64::from(index < count % at_a_time);
                    // Connecting begins the first turn.
                    self.connect(world, me, share - 1);
                }
            }
            AppNotice::ExchangeDone(talk) => self.answered(world, me, talk),
            AppNotice::Ended { talk, whole } => {
                // A connection that has had all its turns is not in `open`, and its end is no failure.
                if !whole && self.open.remove(&talk).is_some() {
                    world.record_failure(me);
                    world.set_done(me);
                }
            }
            AppNotice::Wake(_)
            | AppNotice::Connected(_)
            | AppNotice::RequestArrived(_)
            | AppNotice::Datagram(_) => {}
        }
    }
}

fn turns(task: Task) -> u64 {
    match task.work() {
        TaskWork::Flow(_) => 1,
        TaskWork::Pieces { count, .. } => count.into(),
    }
}

fn turn(task: Task) -> ExchangeSizes {
    match task {
        Task::Download => ExchangeSizes { request: ASK, reply: DOWNLOAD.get() },
        Task::Upload => ExchangeSizes { request: UPLOAD.get(), reply: RECEIPT },
        Task::Page | Task::PageKeepAlive => {
            ExchangeSizes { request: HTTP_REQUEST, reply: OBJECT.get() }
        }
        Task::Requests => ExchangeSizes { request: REQUEST.get(), reply: REPLY.get() },
    }
}

/// Returns the progress: payload bytes, objects or replies received.
pub(super) fn progress(task: Task, tally: &AppStats) -> u64 {
    match task {
        Task::Download => tally.bytes.saturating_sub(ASK),
        // The last byte counts only once the receipt has arrived.
        Task::Upload if tally.work_units.is_empty() => tally.bytes.min(UPLOAD.get() - 1),
        Task::Upload => UPLOAD.get(),
        Task::Page | Task::PageKeepAlive | Task::Requests => tally.work_units.len() as u64,
    }
}
