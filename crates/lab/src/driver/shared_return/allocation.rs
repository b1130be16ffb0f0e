//! The picture of a shared return link: each terminal's part of each superframe, and its queue.

use std::collections::BTreeMap;

use link::dama::{DamaEvent, SlotGrant, VolumeRequest};
use report::{Axis, Graph, GraphSeries, SeriesColour, SvgPicture, stacked};
use units::Instant;

use crate::ReturnRecord;

/// Maximum number of terminals with a colour and a name of their own; all others share one series.
const NAMED: usize = 6;
/// Width of the time axis in pixels, roughly.
const WIDTH: usize = 1100;

/// Draws the events recorded since `origin`, the start of the lab. Above, the slots of each
/// superframe, stacked by terminal; below, the cells in each terminal's MAC buffer and, as crosses,
/// the volumes requested. The terminals with the most slots have a colour of their own.
pub fn allocation_picture(record: &ReturnRecord, origin: Instant) -> SvgPicture {
    let names = NamedTerminals::of(record);
    let time = || Axis::new("time (s)").from_zero();
    let mut granted = Graph::new(
        "Slots of each superframe, by terminal",
        time(),
        Axis::new("slots per superframe").from_zero(),
    );
    let superframes = allocations(record).count().max(1);
    let width = (WIDTH / superframes).clamp(1, 12) as u32;
    let spans = granted_spans(record, &names, origin);
    for (name, spans) in spans.into_iter().enumerate().take(names.series_count()) {
        let colour = names.colour(name);
        granted.add(GraphSeries::spans(names.label(name), colour, spans).width(width));
    }
    let mut waiting = Graph::new(
        "Cells that wait at the terminals, and what they ask for",
        time(),
        Axis::new("cells").from_zero(),
    );
    let points = waiting_points(record, &names, origin);
    for (name, points) in points.into_iter().enumerate().take(names.series_count()) {
        waiting.add(GraphSeries::line(names.label(name), names.colour(name), points));
    }
    waiting.add(GraphSeries::crosses(
        "asked for",
        SeriesColour::Sky,
        requested_volumes(record, origin),
    ));
    stacked(&[granted.height(360), waiting.height(300)])
}

/// The terminals that have a name, with a series each.
struct NamedTerminals {
    /// The terminals with the most slots, in the order of their numbers.
    named: Vec<u32>,
    /// Set if further terminals share the last series.
    has_others: bool,
}

impl NamedTerminals {
    fn of(record: &ReturnRecord) -> Self {
        let mut slots: BTreeMap<u32, u64> = BTreeMap::new();
        for (_, grants, waiting) in allocations(record) {
            for grant in grants {
                *slots.entry(grant.terminal).or_default() += u64::from(grant.slots());
            }
            // Terminals that only wait are shown, too.
            for (terminal, _) in waiting.iter().filter(|(_, cells)| *cells > 0) {
                slots.entry(*terminal).or_default();
            }
        }
        let mut order: Vec<(u64, u32)> =
            slots.into_iter().map(|(terminal, slots)| (slots, terminal)).collect();
        order.sort_by_key(|(slots, terminal)| (core::cmp::Reverse(*slots), *terminal));
        let has_others = order.len() > NAMED;
        let mut named: Vec<u32> =
            order.into_iter().take(NAMED).map(|(_, terminal)| terminal).collect();
        // `series` searches by number.
        named.sort_unstable();
        Self { named, has_others }
    }

    /// Returns the number of series, including that of all others.
    fn series_count(&self) -> usize {
        self.named.len() + usize::from(self.has_others)
    }

    /// Returns the series of a terminal: the last one is that of all others.
    fn series(&self, terminal: u32) -> usize {
        self.named.binary_search(&terminal).unwrap_or(self.named.len())
    }

    fn label(&self, series: usize) -> String {
        match self.named.get(series) {
            Some(terminal) => format!("terminal {}", terminal + 1),
            None => "others".to_owned(),
        }
    }

    fn colour(&self, series: usize) -> SeriesColour {
        if series < self.named.len() { SeriesColour::cycle(series) } else { SeriesColour::Grey }
    }
}

/// Returns the beginning of each superframe, its grants, and the cells that waited when it was
/// decided.
fn allocations(
    record: &ReturnRecord,
) -> impl Iterator<Item = (Instant, &[SlotGrant], &[(u32, u32)])> {
    record.events.iter().filter_map(|event| match event {
        DamaEvent::Allocated { begins, grants, waiting, .. } => {
            Some((*begins, grants.as_slice(), waiting.as_slice()))
        }
        _ => None,
    })
}

fn seconds(at: Instant, origin: Instant) -> f64 {
    at.saturating_since(origin).as_secs_f64()
}

/// Returns, for each series, its part of each superframe on top of those before it.
fn granted_spans(
    record: &ReturnRecord,
    names: &NamedTerminals,
    origin: Instant,
) -> Vec<Vec<(f64, f64, f64)>> {
    // One more, for all other terminals.
    let mut all = vec![Vec::new(); names.named.len() + 1];
    for (begins, grants, _) in allocations(record) {
        let mut slots = vec![0u32; all.len()];
        for grant in grants {
            slots[names.series(grant.terminal)] += grant.slots();
        }
        let mut low = 0.0;
        for (spans, slots) in all.iter_mut().zip(slots) {
            if slots > 0 {
                let high = low + f64::from(slots);
                spans.push((seconds(begins, origin), low, high));
                low = high;
            }
        }
    }
    all
}

/// Returns, for each series, the cells that wait at the beginning of each superframe.
fn waiting_points(
    record: &ReturnRecord,
    names: &NamedTerminals,
    origin: Instant,
) -> Vec<Vec<(f64, f64)>> {
    let mut all = vec![Vec::new(); names.named.len() + 1];
    for (begins, _, waiting) in allocations(record) {
        let mut cells = vec![0u32; all.len()];
        for (terminal, waits) in waiting {
            cells[names.series(*terminal)] += waits;
        }
        for (points, cells) in all.iter_mut().zip(cells) {
            points.push((seconds(begins, origin), cells.into()));
        }
    }
    all
}

/// Returns the volumes requested, by time.
fn requested_volumes(record: &ReturnRecord, origin: Instant) -> Vec<(f64, f64)> {
    let requests = record.events.iter().filter_map(|event| match event {
        DamaEvent::Requested { at, request, .. }
        // Further attempts repeat the same request.
        | DamaEvent::Contended { at, request: Some(request), attempt: 1, .. } => {
            Some((at, request))
        }
        _ => None,
    });
    let volumes = requests.filter_map(|(at, request)| match request.volume? {
        VolumeRequest::More(cells) | VolumeRequest::All(cells) => {
            Some((seconds(*at, origin), cells.into()))
        }
    });
    volumes.collect()
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use link::dama::Dama;
    use scenario::Preset;

    use super::*;

    /// Uploads of two terminals, one of them with VBDC.
    fn record() -> ReturnRecord {
        let preset = Preset::load("star-one").unwrap();
        let [_, ret] = preset.links();
        let config = preset.dama.as_ref().unwrap().config(&preset.forward, &ret, 10).unwrap();
        let mut dama: Dama<usize> = Dama::new(config, 1).unwrap();
        dama.record_events();
        for index in 0..40 {
            dama.handle_packet(Instant::from_nanos(index * 100_000_000), index as usize % 8, 1500);
        }
        while dama.poll_arrival(Instant::ZERO + Duration::from_secs(20)).is_some() {}
        let events = core::iter::from_fn(|| dama.poll_event()).collect();
        ReturnRecord { events, ..ReturnRecord::default() }
    }

    #[test]
    fn terminals_are_stacked_and_those_with_few_slots_are_one() {
        let record = record();
        let names = NamedTerminals::of(&record);
        assert_eq!((names.named.len(), names.label(NAMED)), (NAMED, "others".to_owned()));
        let spans = granted_spans(&record, &names, Instant::ZERO);
        let granted: u32 =
            allocations(&record).flat_map(|(_, grants, _)| grants).map(SlotGrant::slots).sum();
        let drawn: f64 = spans.iter().flatten().map(|(_, low, high)| high - low).sum();
        assert!(granted > 0);
        assert_eq!(f64::from(granted), drawn);
        // 1500 bytes are 32 cells.
        assert!(
            waiting_points(&record, &names, Instant::ZERO)
                .iter()
                .flatten()
                .any(|point| point.1 >= 32.0)
        );
    }

    #[test]
    fn the_picture_names_what_it_shows() {
        let picture = allocation_picture(&record(), Instant::ZERO).file();
        for text in ["Slots of each superframe", "terminal 1", "others", "asked for"] {
            assert!(picture.contains(text), "{text}");
        }
    }
}
