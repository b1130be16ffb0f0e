//! Periodic samples of connections and links.

use core::time::Duration;

use super::{DueEvent, World};
use crate::ids::LinkId;
use crate::probe::{LinkRecording, LinkSample, RunRecordings, SenderSample};

impl World {
    /// Samples all recorded connections and links at this interval.
    pub fn sample_every(&mut self, every: Duration) {
        // With an interval of zero, time would stand still.
        self.probe.interval = Some(every.max(Duration::from_nanos(1)));
        self.agenda.schedule(self.now, DueEvent::Sample);
    }

    /// Records the load of a link under this label.
    pub fn watch_lane(&mut self, label: String, lane: LinkId) {
        self.probe.links.push(LinkRecording { label, lane, loads: Vec::new() });
    }

    /// Returns the recordings so far.
    pub fn probe(&self) -> &RunRecordings {
        &self.probe
    }

    pub(super) fn sample(&mut self) {
        let now = self.now;
        for sender in &mut self.probe.senders {
            let socket = sender.socket.and_then(|key| self.sockets.get(key));
            // A connection that has ended keeps the samples it has.
            let Some(stats) = socket.map(|socket| socket.tcp.stats()) else { continue };
            sender.states.push(SenderSample {
                at: now,
                cwnd: stats.cwnd.get(),
                ssthresh: stats.ssthresh.get(),
                outstanding: stats.outstanding.get(),
                srtt: stats.smoothed_rtt,
                timeouts: stats.timeouts,
                undone: stats.undone,
            });
        }
        for line in &mut self.probe.links {
            let lanes = &self.lanes;
            let media = &self.media;
            let (queued, counters) = lanes[line.lane.index()].read(media);
            line.loads.push(LinkSample {
                at: now,
                queued: queued.packets,
                queued_bytes: queued.bytes.get(),
                delivered: counters.delivered.bytes.get(),
            });
        }
        if let Some(every) = self.probe.interval {
            self.agenda.schedule(now + every, DueEvent::Sample);
        }
    }
}
