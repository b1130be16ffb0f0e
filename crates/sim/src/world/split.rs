//! Drives split connections: the relay of `pep` over simulated segments.
//!
//! A gateway accepts a connection at once and opens the next segment when the handshake is
//! complete, like a transparent proxy. The hub of a SLACP hop connects to the server first, and
//! then accepts the stream.

use core::time::Duration;
use std::sync::Arc;

use pep::relay::{LegFailure, LegSide, Relay, RelayProgress};
use slacp::ResetReason;
use tcp::TcpState;

use super::wires::LegDriver;
use super::{DueEvent, World};
use crate::agenda::EventNumber;
use crate::connection::path::{self, ConnectionPath};
use crate::connection::socket::{ConnectionHosts, SocketOwner};
use crate::connection::split::{LegEnd, SplitConnection, SplitStage};
use crate::slab::SlabKey;

/// Time-out for a hub's connection to a server: the gateway's default.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

impl World {
    pub(super) fn add_split(
        &mut self,
        path: &Arc<ConnectionPath>,
        at: usize,
        hosts: ConnectionHosts,
    ) -> SlabKey {
        self.splits.insert(|_| SplitConnection::new(path, at, hosts))
    }

    /// Sets a split connection's leg towards the client.
    pub(super) fn join_split(&mut self, key: SlabKey, end: LegEnd) {
        self.set_leg(key, LegSide::Client, end);
    }

    fn set_leg(&mut self, key: SlabKey, side: LegSide, end: LegEnd) {
        let Some(split) = self.splits.get_mut(key) else { return };
        let node = split.path.nodes[split.at];
        let coded = match end {
            LegEnd::Tcp(_) => None,
            LegEnd::Stream(session, stream) => {
                self.gateway(node).and_then(|gateway| gateway.coder(session, stream))
            }
        };
        if let Some(split) = self.splits.get_mut(key) {
            let leg = &mut split.legs[side as usize];
            (leg.end, leg.coded) = (Some(end), coded);
        }
    }

    /// Lets a split connection proceed as far as possible after a change.
    pub(super) fn serve_split(&mut self, key: SlabKey) {
        let Some(split) = self.splits.get(key) else { return };
        let node = split.path.nodes[split.at];
        let before = split.ends();
        self.handle_failures(key);
        self.advance(key);
        let over = self.run_relay(key);
        let after = self.splits.get(key).map_or([None; 2], SplitConnection::ends);
        if over {
            self.splits.remove(key);
        }
        // A leg that was closed may still have a FIN or a RST to send.
        let opened = after.into_iter().filter(|end| !before.contains(end));
        for end in before.into_iter().chain(opened).flatten() {
            match end {
                LegEnd::Tcp(socket) => self.flush(socket),
                // The gateway is already the last in the queue.
                LegEnd::Stream(..) if self.gateways_to_drive.back() == Some(&node) => {}
                LegEnd::Stream(..) => self.gateways_to_drive.push_back(node),
            }
        }
    }

    pub(super) fn wake_split(&mut self, key: SlabKey, ticket: EventNumber) {
        if self.splits.get_mut(key).is_some_and(|split| split.alarm.ring(ticket)) {
            self.serve_split(key);
        }
    }

    /// Records that the stream of a leg was reset or its session was lost.
    pub(super) fn fail_stream(&mut self, key: SlabKey, end: LegEnd, reason: ResetReason) {
        if let Some(split) = self.splits.get_mut(key)
            && let Some(side) = split.side_of(end)
        {
            let leg = &mut split.legs[side as usize];
            leg.failure = Some(LegFailure::Reset(reason));
            leg.unhandled = leg.failure;
        }
        self.serve_split(key);
    }

    /// Handles the peer's message that it has connected to the destination.
    pub(super) fn note_accepted(&mut self, key: SlabKey) {
        if let Some(split) = self.splits.get_mut(key) {
            split.relay.handle_accepted();
            // A hub between two terminals passes the acceptance on.
            self.accept_stream(key);
        }
    }

    /// Processes the events of the legs' connections, and reports failed legs to the relay.
    fn handle_failures(&mut self, key: SlabKey) {
        let Some(split) = self.splits.get_mut(key) else { return };
        let mut failures = [None; 2];
        for (leg, failed) in split.legs.iter_mut().zip(&mut failures) {
            if let Some(LegEnd::Tcp(socket)) = leg.end
                && let Some(socket) = self.sockets.get_mut(socket)
            {
                leg.take_events(&mut socket.tcp);
            }
            *failed = leg.end.zip(leg.unhandled.take());
        }
        for (end, failure) in failures.into_iter().flatten() {
            self.fail_leg(key, end, failure);
        }
    }

    /// Reports a failed leg to the relay; aborts the connection if the relay does not run yet.
    fn fail_leg(&mut self, key: SlabKey, end: LegEnd, failure: LegFailure) {
        let Some(side) = self.splits.get(key).and_then(|split| split.side_of(end)) else { return };
        // Before the relay runs no data has passed, so both legs end together.
        let reason = match failure {
            LegFailure::Closed => ResetReason::Reset,
            LegFailure::Broken(reason) | LegFailure::Reset(reason) => reason,
        };
        let now = self.now;
        self.with_legs(key, |stage, relay, wires| match stage {
            SplitStage::Relaying => relay.handle_failure(now, side, failure),
            SplitStage::Accepting | SplitStage::Waiting | SplitStage::Dialling(_) => {
                relay.abort(reason, wires);
            }
        });
    }

    /// Enters the next stage, if its condition is met.
    fn advance(&mut self, key: SlabKey) {
        let Some(split) = self.splits.get(key) else { return };
        match &split.stage {
            SplitStage::Accepting | SplitStage::Waiting
                if self.is_connected(split, LegSide::Client) =>
            {
                self.open_next_leg(key);
            }
            SplitStage::Dialling(_) if self.is_connected(split, LegSide::Server) => {
                if let Some(split) = self.splits.get_mut(key) {
                    // The destination is connected, so this is not a relay that answered its client early.
                    (split.stage, split.relay) = (SplitStage::Relaying, Relay::default());
                }
                self.accept_stream(key);
            }
            SplitStage::Dialling(until) if *until <= self.now => {
                if let Some(end) = split.leg(LegSide::Server).end {
                    self.fail_leg(key, end, LegFailure::Broken(ResetReason::TimedOut));
                }
            }
            _ => {}
        }
    }

    fn is_connected(&self, split: &SplitConnection, side: LegSide) -> bool {
        match split.leg(side).end {
            Some(LegEnd::Tcp(socket)) => self.sockets.get(socket).is_some_and(|socket| {
                use TcpState::{Closed, Listen, SynReceived, SynSent};
                !matches!(socket.tcp.state(), Listen | SynSent | SynReceived | Closed)
            }),
            Some(LegEnd::Stream(..)) => true,
            None => false,
        }
    }

    /// Opens the segment towards the server.
    fn open_next_leg(&mut self, key: SlabKey) {
        let Some(split) = self.splits.get(key) else { return };
        let path = Arc::clone(&split.path);
        let at = split.at;
        let hosts = split.hosts;
        let is_from_peer = matches!(split.ends(), [Some(LegEnd::Stream(..)), _]);
        let opened = match path.legs[at] {
            path::PathLeg::Tcp(..) if self.has_no_descriptor(path.nodes[at]) => {
                Err(ResetReason::Limit)
            }
            path::PathLeg::Tcp(..) => {
                Ok(self.open_leg(&path, at, hosts, SocketOwner::Split(key)).map(LegEnd::Tcp))
            }
            path::PathLeg::Slacp => self.open_stream(&path, at, hosts, key),
        };
        let now = self.now;
        if let Ok(Some(end)) = opened {
            self.set_leg(key, LegSide::Server, end);
        }
        let Some(split) = self.splits.get_mut(key) else { return };
        match opened {
            Ok(Some(end)) => {
                // A peer gateway learns only now that its stream can be accepted, so the server is awaited
                // first.
                split.stage = match end {
                    LegEnd::Tcp(_) if is_from_peer => SplitStage::Dialling(now + CONNECT_TIMEOUT),
                    _ => SplitStage::Relaying,
                };
            }
            Ok(None) => split.stage = SplitStage::Waiting,
            Err(reason) => {
                self.with_legs(key, |_, relay, wires| relay.abort(reason, wires));
            }
        }
    }

    /// Accepts the stream on the client's side of a connection, if that side is a stream.
    fn accept_stream(&mut self, key: SlabKey) {
        let Some(split) = self.splits.get(key) else { return };
        let node = split.path.nodes[split.at];
        if let Some(LegEnd::Stream(session, stream)) = split.leg(LegSide::Client).end
            && let Some(gateway) = self.gateway(node)
        {
            // The call fails if the stream has just been reset; the event follows.
            let _ = gateway.endpoint.accept(session, stream);
        }
    }

    /// Runs the relay as far as possible, and sets the alarm. Returns true when the relay is over.
    fn run_relay(&mut self, key: SlabKey) -> bool {
        let now = self.now;
        let over = self.with_legs(key, |stage, relay, wires| {
            // A relay that was aborted before it ran still has to end.
            while matches!(stage, SplitStage::Relaying) || !relay.is_carrying() {
                match relay.handle(now, wires) {
                    RelayProgress::Busy => {}
                    RelayProgress::Waiting => return false,
                    RelayProgress::Over => return true,
                    // The simulator never lets later connections pass unaccelerated, so there is nothing to wait for.
                    RelayProgress::Refused(reason) => relay.abort(reason, wires),
                }
            }
            false
        });
        if let Some(split) = self.splits.get_mut(key) {
            let next = match &split.stage {
                SplitStage::Dialling(until) => Some(*until),
                _ => split.relay.poll_timeout().map(|(at, _)| at),
            };
            split.alarm.set(&mut self.agenda, next, DueEvent::Split(key));
        }
        over.unwrap_or(true)
    }

    /// Calls `work` with a split connection's state and its legs.
    fn with_legs<R>(
        &mut self,
        key: SlabKey,
        work: impl FnOnce(&mut SplitStage, &mut Relay, &mut LegDriver<'_>) -> R,
    ) -> Option<R> {
        let split = self.splits.get_mut(key)?;
        let node = split.path.nodes[split.at];
        let gateway = self.nodes[node.index()].gateway;
        let gateway = gateway.map(|place| &mut self.gateways[place as usize]);
        let SplitConnection { stage, relay, legs, path, .. } = split;
        let sockets = &mut self.sockets;
        let contents = &path.contents;
        let mut wires = LegDriver { now: self.now, legs, sockets, gateway, contents };
        Some(work(stage, relay, &mut wires))
    }

    /// Returns true if a socket is a leg of this split connection.
    pub(super) fn is_leg(&self, socket: SlabKey, split: SlabKey) -> bool {
        let split = self.splits.get(split);
        split.is_some_and(|split| split.side_of(LegEnd::Tcp(socket)).is_some())
    }

    /// Starts recording the connection's segment between `nodes[at]` and the next node.
    pub(super) fn watch_leg(&mut self, hosts: ConnectionHosts, at: usize, ends: [SlabKey; 2]) {
        let ConnectionHosts::Talk(talk) = hosts else { return };
        let Some(talk) = self.talks.get(talk) else { return };
        let Some(name) = talk.watch.clone() else { return };
        let app = talk.app;
        for (place, end) in ends.into_iter().enumerate() {
            let label = format!("{name}.{}{}", at + 1, ["client", "server"][place]);
            if let Some(socket) = self.sockets.get_mut(end) {
                socket.watched = Some(self.probe.watch(label, app, end));
            }
        }
    }
}
