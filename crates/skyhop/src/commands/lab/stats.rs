//! `--stats`: prints link statistics to stderr once a second.

use core::time::Duration;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};

use clap::ValueEnum;
use lab::{GaugeReader, LinkGauge};
use serde_json::{Value, json};

/// Interval between lines of statistics.
const PRINT_INTERVAL: Duration = Duration::from_secs(1);

/// The output format of statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum StatsFormat {
    /// A line for people
    Text,
    /// A JSON object on a line: `links`, each with what it did in that second
    Json,
}

/// A thread that prints statistics until this is dropped.
pub(super) struct StatsPrinter {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl StatsPrinter {
    /// Starts the thread.
    pub(super) fn start(gauges: GaugeReader, format: StatsFormat) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let body = move || {
            let mut before = gauges.read();
            while stopped.recv_timeout(PRINT_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let now = gauges.read();
                // Goes on if stderr is closed; `say` ignores that.
                let text = match format {
                    StatsFormat::Text => line(&before, &now, PRINT_INTERVAL),
                    StatsFormat::Json => object(&before, &now, PRINT_INTERVAL).to_string(),
                };
                crate::print_to_stderr(text);
                before = now;
            }
        };
        let thread = thread::Builder::new().name("skyhop-stats".into()).spawn(body)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for StatsPrinter {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Formats rates and losses between two readings, and the queue lengths at the second.
fn line(before: &[LinkGauge], now: &[LinkGauge], time: Duration) -> String {
    let links = before.iter().zip(now).map(|(before, now)| {
        let name = now.link;
        let of_shared = shared(now, before);
        let before = &before.counters;
        let bytes = now.counters.delivered.bytes.get() - before.delivered.bytes.get();
        format!(
            "{name} {:.2} Mbit/s, queue {} packets, lost {}, dropped {}{of_shared}",
            bytes as f64 * 8.0 / time.as_secs_f64() / 1e6,
            now.queued.packets,
            now.counters.lost.packets - before.lost.packets,
            now.counters.dropped_queue.packets - before.dropped_queue.packets,
        )
    });
    format!("skyhop: {}", links.collect::<Vec<_>>().join(" | "))
}

/// Formats the slots of a terminal on a shared return link and its requests; empty for other links.
fn shared(now: &LinkGauge, before: &LinkGauge) -> String {
    let Some(now) = &now.shared else { return String::new() };
    let since = before.shared.as_ref().map(|before| before.slots).unwrap_or_default();
    format!(
        ", slots {} of {}, requests {}, MAC buffer {} cells",
        now.slots.used - since.used,
        now.slots.granted - since.granted,
        now.slots.requests - since.requests,
        now.mac_cells,
    )
}

/// Returns the same as [`line()`] in JSON; packets and slots are those since the reading before.
fn object(before: &[LinkGauge], now: &[LinkGauge], time: Duration) -> Value {
    let links = before.iter().zip(now).map(|(before, now)| {
        let bytes = now.counters.delivered.bytes.get() - before.counters.delivered.bytes.get();
        let since = before.shared.as_ref().map(|shared| shared.slots).unwrap_or_default();
        let shared = now.shared.as_ref().map(|now| {
            json!({
                "slots_used": now.slots.used - since.used,
                "slots_granted": now.slots.granted - since.granted,
                "requests": now.slots.requests - since.requests,
                "mac_cells": now.mac_cells,
            })
        });
        json!({
            "link": now.link.to_string(),
            "bit_s": bytes as f64 * 8.0 / time.as_secs_f64(),
            "queue_packets": now.queued.packets,
            "lost_packets": now.counters.lost.packets - before.counters.lost.packets,
            "dropped_packets": now.counters.dropped_queue.packets
                - before.counters.dropped_queue.packets,
            "shared": shared,
        })
    });
    json!({ "links": links.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use lab::{LinkName, Site};
    use units::ByteCount;

    use super::*;

    #[test]
    fn a_line_is_what_changed() {
        let before = [LinkName::Forward, LinkName::Return(Site::FIRST)].map(LinkGauge::new);
        let mut now = before;
        now[0].counters.delivered.bytes = ByteCount::new(1_250_000);
        now[0].counters.lost.packets = 3;
        now[0].queued.packets = 7;
        now[1].counters.dropped_queue.packets = 2;
        assert_eq!(
            line(&before, &now, Duration::from_secs(1)),
            "skyhop: forward 10.00 Mbit/s, queue 7 packets, lost 3, dropped 0 \
             | return 0.00 Mbit/s, queue 0 packets, lost 0, dropped 2"
        );
        let object = object(&before, &now, Duration::from_secs(1));
        let [forward, ret] = [&object["links"][0], &object["links"][1]];
        assert_eq!((&forward["link"], &forward["bit_s"]), (&"forward".into(), &1e7.into()));
        assert_eq!((&forward["queue_packets"], &forward["lost_packets"]), (&7.into(), &3.into()));
        assert_eq!((&ret["dropped_packets"], &ret["shared"]), (&2.into(), &Value::Null));
        assert!(line(&now, &now, PRINT_INTERVAL).contains("forward 0.00 Mbit/s, queue 7"));
    }
}
