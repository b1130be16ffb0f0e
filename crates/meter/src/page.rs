//! A page of N objects over C connections, as fetched by different generations of HTTP. All objects
//! are known at the start: only fetching is measured, not their discovery in a document.

mod connection;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::Instant;
use units::ByteCount;

use crate::flow::outcome::{FlowOutcome, ProgressCounter};
use crate::flow::stop::{EarlyEnd, Stop};
use crate::page::connection::PageConnection;
use crate::sockets::congestion::CongestionControl;
use stats::SampleSummary;

/// The HTTP version, and its use of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HttpMode {
    /// HTTP/1.0: a connection per object.
    #[serde(rename = "http/1.0")]
    Http10,
    /// HTTP/1.0 with `Connection: keep-alive`: the next object follows on the same connection when
    /// the previous one is complete.
    #[serde(rename = "http/1.0-keep-alive")]
    Http10KeepAlive,
    /// HTTP/1.1: the same, by default.
    #[serde(rename = "http/1.1")]
    Http11,
    /// HTTP/1.1 with all requests of a connection sent at once (RFC 9112 §9.3.2).
    #[serde(rename = "http/1.1-pipelined")]
    Http11Pipelined,
}

/// The options of a page load.
#[derive(Debug, Clone)]
pub struct PageOptions {
    /// Address of the meter server.
    pub server: SocketAddr,
    /// HTTP version and use of connections.
    pub mode: HttpMode,
    /// The size of each object.
    pub objects: Vec<ByteCount>,
    /// Maximum number of concurrent connections.
    pub connections: u32,
    /// Congestion control of the server's sockets; `None` for their default.
    pub congestion_control: Option<CongestionControl>,
    /// Time for which caches on the path may use the objects, in seconds; `None` says nothing
    /// about caches.
    pub fresh: Option<u32>,
    /// Time limit of the page; `None` for no limit while data is moving.
    pub limit: Option<Duration>,
    /// Payload key; a new one for each run.
    pub key: u64,
    /// Counts complete objects while the page loads.
    pub progress: ProgressCounter,
    /// Ends the measurement early; the report has what was measured so far.
    pub stop: Stop,
}

/// The report on an object of a page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObjectReport {
    /// Index of the object, from 0.
    pub object: u32,
    /// Index of the connection, from 0; `None` if the object was never requested.
    pub connection: Option<u32>,
    /// The outcome of this object's transfer.
    pub outcome: FlowOutcome,
    /// Size of the object in bytes.
    pub bytes: u64,
    /// From the start of the page until this object's start: until its connection was opened, if it
    /// is the first there, otherwise until its request was sent.
    #[serde(rename = "start_seconds", with = "crate::json::maybe_seconds")]
    pub start: Option<Duration>,
    /// From then until the first byte of its reply.
    #[serde(rename = "first_byte_seconds", with = "crate::json::maybe_seconds")]
    pub first_byte: Option<Duration>,
    /// From then until its last byte.
    #[serde(rename = "seconds", with = "crate::json::maybe_seconds")]
    pub time: Option<Duration>,
}

/// The result of a page load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PageReport {
    /// Address of the meter server.
    pub server: SocketAddr,
    /// HTTP version and use of connections.
    pub mode: HttpMode,
    /// Maximum number of concurrent connections.
    pub connections: u32,
    /// The requested congestion control; `None` for the server's default.
    pub congestion_control: Option<CongestionControl>,
    /// Each object, in order of its index.
    pub objects: Vec<ObjectReport>,
    /// Page load time: from the start until the last byte of the last object, or until the page was
    /// given up.
    #[serde(rename = "total_seconds", with = "crate::json::seconds")]
    pub total: Duration,
    /// Times of the complete objects, in seconds.
    pub object_seconds: Option<SampleSummary>,
}

impl PageReport {
    /// Returns true if every object is complete and verified.
    pub fn is_complete(&self) -> bool {
        self.objects.iter().all(|object| object.outcome.is_complete())
    }
}

/// A page being loaded, shared by its connections.
pub(crate) struct PageLoad {
    pub(crate) options: PageOptions,
    pub(crate) start: Instant,
    next: AtomicUsize,
    objects: Mutex<Vec<ObjectReport>>,
}

impl PageLoad {
    fn new(options: &PageOptions) -> Self {
        let object = |(object, bytes): (u32, &ByteCount)| ObjectReport {
            object,
            connection: None,
            outcome: FlowOutcome::Unfinished,
            bytes: bytes.get(),
            start: None,
            first_byte: None,
            time: None,
        };
        Self {
            options: options.clone(),
            start: Instant::now(),
            next: AtomicUsize::new(0),
            objects: Mutex::new((0..).zip(&options.objects).map(object).collect()),
        }
    }

    /// Takes the next object that has not been requested; `None` after the last one.
    pub(crate) fn next_object(&self) -> Option<usize> {
        // Relaxed, because only the number itself is shared; the reports are behind the lock.
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        (index < self.options.objects.len()).then_some(index)
    }

    /// Updates the report on an object.
    pub(crate) fn update_object(&self, object: usize, write: impl FnOnce(&mut ObjectReport)) {
        // A panic elsewhere cannot leave a half-written report.
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        write(&mut objects[object]);
    }

    fn report(&self, ended: Instant) -> PageReport {
        let objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let end = |object: &ObjectReport| Some(object.start? + object.time?);
        let complete = objects.iter().all(|object| object.outcome.is_complete());
        // The page is loaded with its last object; if one is missing, the time is that of the end.
        let last = objects.iter().filter_map(end).max().filter(|_| complete);
        let times = objects.iter().filter(|object| object.outcome.is_complete());
        let times: Vec<f64> =
            times.filter_map(|object| object.time).map(|time| time.as_secs_f64()).collect();
        PageReport {
            server: self.options.server,
            mode: self.options.mode,
            connections: self.options.connections,
            congestion_control: self.options.congestion_control.clone(),
            total: last.unwrap_or(ended - self.start),
            object_seconds: SampleSummary::of(&times),
            objects,
        }
    }
}

/// Loads a page. Errors are in the report, object by object.
pub async fn page(options: &PageOptions) -> PageReport {
    let loading = Arc::new(PageLoad::new(options));
    let wanted = u32::try_from(options.objects.len()).unwrap_or(u32::MAX);
    let mut tasks = JoinSet::new();
    // No more than there are objects: a pipelined connection indexes its first one.
    for index in 0..options.connections.min(wanted) {
        tasks.spawn(PageConnection::new(Arc::clone(&loading), index).run());
    }
    let all = async { while tasks.join_next().await.is_some() {} };
    // Objects not complete at the limit stay "unfinished".
    let ended = options.stop.limited(options.limit.unwrap_or(Duration::MAX), all).await;
    let mut report = loading.report(Instant::now());
    if ended == Err(EarlyEnd::Stopped) {
        let objects = report.objects.iter_mut();
        let unfinished = objects.filter(|object| object.outcome == FlowOutcome::Unfinished);
        unfinished.for_each(|object| object.outcome = FlowOutcome::Interrupted);
    }
    report
}
