//! Credit granted to the peer on each stream (`docs/slacp.md`, Flow control).

use std::net::IpAddr;

use units::Instant;

use super::{StreamEntry, StreamSet};
use crate::streams::budget::ClientUsage;
use crate::streams::flow::SessionPace;
use crate::wire::frame::Frame;
use crate::{Destination, StreamId};

/// Window for links with losses or short outages, in multiples of what the peer sends in a round
/// trip. A loss blocks the data behind it: it is reported after one round trip and repaired after
/// two, and the repair may be lost again.
const LOSSY_FLIGHTS: u64 = 4;
/// Maximum number of round trips in which a prompt reader reads a window: one, and the time until
/// the credit is worth an update.
const PROMPT_ROUND_TRIPS: u32 = 2;
/// Window of a stream to a resolver, in bytes: the longest DNS message with its length.
const RESOLVER_WINDOW: u64 = 66_000;

impl StreamSet {
    pub(crate) fn set_pace(&mut self, pace: SessionPace) {
        self.pace = pace;
    }

    /// Returns `true` if the peer allows another stream and there is memory for one. A client that
    /// holds nearly everything may be refused all the same.
    pub(crate) fn has_room(&self) -> bool {
        self.own_open < self.peer_limits.max_streams
            && self.opening_budget.has_room()
            && self.window_budget.has_room()
    }

    /// Returns `true` if there is memory for another stream of this client.
    pub(super) fn has_room_for(&self, client: IpAddr) -> bool {
        self.opening_budget.share(client, false) > 0 && self.window_budget.share(client, false) > 0
    }

    /// The window that this side takes itself for a stream that it opens (Flow control, rule 5).
    pub(super) fn opening_window(&self, client: IpAddr) -> u64 {
        let flight = self.pace.own_flight();
        let wanted = (flight + flight / 4).max(4 * self.peer_limits.min_window());
        let offered = self.first_credits.get(&client).copied().unwrap_or(u64::MAX);
        let wanted = wanted.min(offered.max(self.peer_limits.min_opening_window()));
        wanted.min(self.opening_budget.share(client, true)).min(self.peer_limits.stream_window)
    }

    /// The first window of a stream: as much as the peer can send in 1¼ round trips, within the
    /// client's share of the memory. While the peer's rate is unknown, the first few streams of a
    /// client get the maximum, because the peer may be very fast.
    pub(super) fn first_window(&self, client: IpAddr, is_proven: bool) -> u64 {
        let wanted = self.wanted_window(client);
        wanted.min(self.window_budget.share(client, is_proven)).min(self.limits.stream_window)
    }

    /// The first window of a new stream to a destination, with `true` if the client's other
    /// unproven windows have made it smaller.
    pub(super) fn window_to(&self, destination: &Destination, client: IpAddr) -> (u64, bool) {
        let most = if *destination == Destination::Resolver { RESOLVER_WINDOW } else { u64::MAX };
        let window = self.first_window(client, false).min(most);
        (window, window < self.first_window(client, true).min(most))
    }

    fn wanted_window(&self, client: IpAddr) -> u64 {
        let is_first =
            self.window_budget.is_fresh(client) && self.pace.is_peer_unknown(self.flight);
        let wanted = if is_first { u64::MAX } else { self.pace.window(self.flight) };
        // 64 kB at least, however slow the peer is (Flow control, rule 2).
        wanted.max(4 * self.limits.min_window())
    }

    /// Records the first credit of a client's newest stream. Records of clients without streams are
    /// dropped now and then.
    pub(super) fn record_first_credit(&mut self, client: IpAddr, limit: u64) {
        self.first_credits.insert(client, limit);
        if self.first_credits.len() > 2 * self.window_budget.clients() {
            self.first_credits.retain(|client, _| self.window_budget.has(*client));
        }
    }

    /// Marks a stream as connected by the acceptor. If its window was made smaller, or was returned
    /// meanwhile, it gets a whole one.
    pub(super) fn on_connected(&mut self, now: Instant, id: StreamId) {
        let Some(stream) = self.map.get_mut(&id) else { return };
        if !std::mem::replace(&mut stream.connected, true) {
            self.grant_again(id);
            self.renew(id);
            self.start_rest(now, id);
        }
    }

    /// Charges the budget of windows with the number of bytes that a stream may still make this
    /// side hold.
    pub(super) fn update_charge(&mut self, id: StreamId) {
        if let Some(stream) = self.map.get_mut(&id) {
            let due = ClientUsage::part(stream.due(), stream.proven);
            self.window_budget.replace(stream.client, stream.charged, due);
            stream.charged = due;
        }
    }

    /// Measures the rate of the peer by the bytes received on all streams in a round trip.
    pub(super) fn measure_flight(&mut self, now: Instant, bytes: u64) {
        let (began, came) = &mut self.round;
        let lasted = now.saturating_since(*began);
        *came += bytes;
        if lasted >= self.pace.rtt {
            // A round that ran on for lack of data is scaled down to one RTT.
            let share = self.pace.rtt.as_secs_f64() / lasted.as_secs_f64().max(1e-9);
            self.flight = self.flight.max((*came as f64 * share) as u64);
            self.round = (now, 0);
        }
    }

    /// Grants more credit after the reader has taken data.
    pub(super) fn grant(&mut self, now: Instant, id: StreamId) {
        self.map.entry(id).and_modify(|stream| stream.proven = true);
        self.update_charge(id);
        self.grant_again(id);
        if self.map.get_mut(&id).is_some_and(|stream| stream.keeps_up(now, self.pace)) {
            self.widen(id, LOSSY_FLIGHTS * self.pace.peer_flight(self.flight.max(self.round.1)));
        }
        self.renew(id);
        self.grant_session();
    }

    /// Widens the window of a stream whose data cannot be read although its reader waits: losses
    /// hold it up, and the window must last until they are repaired.
    pub(super) fn grant_held_up(&mut self, id: StreamId) {
        let flight = self.pace.peer_flight(self.flight.max(self.round.1));
        let Some(stream) = self.map.get(&id).filter(|stream| stream.opened) else { return };
        let held = stream.recv.highest() - stream.recv.read_offset();
        let is_held_up = stream.reader_waits && !stream.recv.is_readable();
        // Rule 4: an eighth, but half of a window that lasts through four round trips already.
        let enough = if stream.window < LOSSY_FLIGHTS * flight { 8 } else { 2 };
        if is_held_up && held >= stream.window / enough {
            self.widen(id, (LOSSY_FLIGHTS * flight).max(stream.window * 2));
            self.renew(id);
        }
    }

    /// Widens the window of a stream to `wanted` bytes, as far as the memory and the client's share
    /// of it allow.
    fn widen(&mut self, id: StreamId, wanted: u64) {
        let most = self.limits.stream_window;
        if let Some(stream) = self.map.get_mut(&id)
            && stream.recv.end().is_none()
        {
            let share = self.window_budget.growth(stream.client);
            stream.window += wanted.min(most).saturating_sub(stream.window).min(share);
        }
        self.update_charge(id);
    }

    /// Announces a stream's credit if it has grown by an eighth of its window.
    pub(super) fn renew(&mut self, id: StreamId) {
        let Some(stream) = self.map.get_mut(&id) else { return };
        let limit = stream.recv.read_offset() + stream.window;
        // Nothing is granted beyond a known end.
        if stream.recv.end().is_none() && limit >= stream.recv.limit() + stream.window.div_ceil(8) {
            stream.recv.raise_limit(limit);
            self.announce_credit(id);
        }
    }

    pub(super) fn announce_credit(&mut self, id: StreamId) {
        self.control.extend(self.map.get(&id).map(|stream| stream.credit(id)));
    }

    pub(super) fn grant_session(&mut self) {
        if let Some(limit) = self.recv_credit.grant() {
            self.control.push_back(Frame::SessionCredit(limit));
        }
    }
}

impl StreamEntry {
    /// Number of bytes that the peer may still make this side hold for the stream.
    fn due(&self) -> u64 {
        let read = self.recv.read_offset();
        match self.recv.end() {
            // Until OPEN has come, its data is within the reserve for openers (`for_windows`).
            _ if !self.opened => 0,
            Some(end) => end - read,
            // Data that came before the peer returned its window counts until it is read.
            None => self.window.max(self.recv.limit() - read),
        }
    }

    /// The frame that announces the stream's credit.
    pub(super) fn credit(&self, id: StreamId) -> Frame<'static> {
        let returns = self.returns_received;
        let limit = self.recv.limit();
        Frame::StreamCredit { stream: id, returns, limit }
    }

    /// Returns `true` if a whole window was read in little more than a round trip. The reader then
    /// takes data as it comes, and not only as much as fits in the buffers behind it.
    fn keeps_up(&mut self, now: Instant, pace: SessionPace) -> bool {
        let read = self.recv.read_offset();
        let (began, from) = *self.measured.get_or_insert((now, read));
        if read - from < self.window {
            return false;
        }
        self.measured = Some((now, read));
        now.saturating_since(began) <= PROMPT_ROUND_TRIPS * pace.rtt
    }
}
