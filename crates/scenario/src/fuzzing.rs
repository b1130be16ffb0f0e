//! Entry points of the fuzz targets (`fuzz/`) and of the replay of their corpora
//! (`tests/corpus.rs`): files written by users. An input must not cause a panic, an endless loop or
//! unbounded memory. Accepted input must be a valid link, and parse again after it is printed.

use core::fmt::{Debug, Display};
use core::time::Duration;

use link::{Delay, Link, LinkConfig, LossModel, Opportunities, QueueLimit, Rate, Trace};
use units::{BitRate, Instant, Machine, Probability};

use crate::{Preset, Published};

/// A function that processes untrusted bytes.
pub type Target = fn(&[u8]);

/// The targets by the names of their corpora.
pub const TARGETS: [(&str, Target); 3] =
    [("preset", preset), ("published", published), ("trace", trace)];

/// Parses a preset file, prints and parses it again, and sends packets over its links.
pub fn preset(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else { return };
    match Preset::from_text(text) {
        Ok(preset) => {
            let again = Preset::from_text(&preset.to_string());
            assert_eq!(again.expect("a printed preset is one"), preset);
            preset.links().into_iter().for_each(carry);
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
}

/// Parses a file with published results. Every value must convert to the unit of its metric.
pub fn published(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else { return };
    match Published::parse("published", text) {
        Ok(published) => {
            for output in &published.output {
                for point in &output.points {
                    assert!(!output.in_metric_unit(point.value).is_nan(), "{point:?}");
                    let compares = output.compare.is_some();
                    assert_eq!(point.by.is_some(), compares, "{point:?}");
                }
            }
            for trend in &published.trend {
                assert_ne!(trend.rising.is_empty(), trend.pairs.is_empty(), "{trend:?}");
            }
            published.cases().for_each(drop);
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
}

/// Parses a trace file in each of the formats, and sends packets over a link with the results.
pub fn trace(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else { return };
    let rates = Trace::<BitRate>::parse(text).map(Rate::Trace);
    same(text, Trace::<BitRate>::parse);
    same(text, Trace::<Duration>::parse);
    same(text, Trace::<Probability>::parse);
    same(text, Opportunities::parse);
    let opportunities = Opportunities::parse(text).map(Rate::Opportunities);
    let rate =
        rates.ok().or_else(|| opportunities.ok()).unwrap_or_else(|| BitRate::from_mbit(1).into());
    let delay = Trace::parse(text).map_or_else(|_| Duration::ZERO.into(), Delay::Trace);
    let loss = Trace::parse(text).map_or(LossModel::None, LossModel::Trace);
    carry(LinkConfig::new(rate, delay, loss, QueueLimit::Packets(5)));
}

/// Checks that a parsed value parses again after it is printed.
fn same<T: Display + Debug + PartialEq, E: Debug>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, E>,
) {
    if let Ok(read) = parse(text) {
        assert_eq!(parse(&read.to_string()).expect("a printed trace is one"), read);
    }
}

/// Carries some packets and checks that all are accounted for.
fn carry(config: LinkConfig) {
    let mut link = Link::new(config, 1);
    let mut now = Instant::ZERO;
    for packet in 0..40u64 {
        link.handle_packet(now, 40 + (packet as usize * 379) % 1460);
        now += Duration::from_micros(packet * packet * 40);
        while link.poll_delivery(now).is_some() {}
    }
    link.handle_timeout(Instant::MAX);
    while link.poll_delivery(Instant::MAX).is_some() {}
    let all = link.counters();
    let ends = [all.dropped_queue, all.lost, all.delivered, all.inside].map(|tally| tally.packets);
    assert_eq!(ends.iter().sum::<u64>(), all.offered.packets);
}
