use std::io;
use std::sync::Arc;

use tracing::dispatcher::with_default;
use tracing_subscriber::EnvFilter;

use super::*;
use crate::operate::log;

fn at(seconds: u64) -> Instant {
    Instant::from_nanos(seconds * 1_000_000_000)
}

fn takes(limits: &mut LineLimits, now: u64, place: usize) -> bool {
    limits.admits(at(now), place, || format!("line of {place}"))
}

#[test]
fn a_place_writes_a_burst_and_then_a_line_every_ten_seconds() {
    let mut limits = LineLimits::default();
    // 1,000 lines a second for an hour.
    let hour = (0..3600).flat_map(|second| (0..1000).map(move |_| second));
    let written = hour.filter(|second| takes(&mut limits, *second, 1)).count();
    assert_eq!(written, 200 + 359);
    assert!(takes(&mut limits, 3600, 2), "other places are not concerned");
}

#[test]
fn after_a_silence_the_burst_is_there_again() {
    let mut limits = LineLimits::default();
    assert_eq!((0..300).filter(|_| takes(&mut limits, 0, 1)).count(), 200);
    assert_eq!((0..300).filter(|_| takes(&mut limits, 2000, 1)).count(), 200);
}

#[test]
fn what_was_left_out_is_counted_and_said_once_a_minute() {
    let mut limits = LineLimits::default();
    for second in 0..60 {
        (0..100).for_each(|_| _ = takes(&mut limits, second, 1));
        assert_eq!(limits.due(at(second)), []);
    }
    // Since the third second; a line was written every ten seconds.
    let due = limits.due(at(62));
    let [SuppressedLines { count, ref sample, .. }] = due[..] else { panic!("{due:?}") };
    assert_eq!((count, sample.as_str()), (6000 - 200 - 5, "line of 1"));
    assert_eq!(limits.due(at(1000)), []);
}

/// What was written to a log.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl io::Write for Written {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn the_lines_that_a_flood_of_bad_packets_writes_are_bounded() {
    let written = Written::default();
    let writer = written.clone();
    let (log, _) = log::build(EnvFilter::new("debug"), move || writer.clone());
    with_default(&log, || {
        for packet in 0..27_690 {
            tracing::warn!("packet {packet} is malformed");
        }
        (0..1000).for_each(|_| tracing::debug!("asked for"));
    });
    let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    let warned = text.lines().filter(|line| line.contains("is malformed")).count();
    // A slow machine may have taken some seconds.
    assert!((200..=202).contains(&warned), "{warned}");
    assert_eq!(text.lines().filter(|line| line.contains("asked for")).count(), 1000);
}
