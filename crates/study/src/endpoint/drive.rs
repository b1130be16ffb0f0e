//! Runs `tcp` connections on a station: handles segments as they arrive and timers when they
//! expire.

use std::io;

use bytes::Bytes;
use os::clock;
use os::station::{Station, StationDatagram};
use tcp::{Ecn, Segment, wire};
use units::Instant;

/// The protocol number of TCP.
const TCP: u8 = 6;

/// An owner of connections on a station.
pub(crate) trait ConnectionOwner {
    /// Handles a segment received along `path`.
    fn handle_segment(&mut self, now: Instant, path: &wire::SegmentPath, segment: &Segment<Bytes>);

    /// Returns the time at which the next timer expires.
    fn next_wake(&self) -> Option<Instant>;

    /// Handles the timers that have expired at `now`.
    fn handle_timeout(&mut self, now: Instant);

    /// Returns the next segment to send, and its path.
    fn poll_transmit(&mut self, now: Instant) -> Option<(wire::SegmentPath, Segment<Bytes>)>;

    /// Returns true if nothing remains to be done.
    fn is_over(&self) -> bool;
}

/// Runs a side until it is over.
pub(crate) fn drive(station: &mut Station, side: &mut impl ConnectionOwner) -> io::Result<()> {
    let mut heard = Vec::new();
    loop {
        station.receive(|datagram| heard.push(datagram))?;
        for datagram in heard.drain(..) {
            let Some((path, segment)) = decode(datagram) else { continue };
            let now = clock::now();
            side.handle_segment(now, &path, &segment);
            // Send after each segment, so that immediate ACKs are not delayed.
            send(station, side, now)?;
        }
        let now = clock::now();
        if side.next_wake().is_some_and(|at| at <= now) {
            side.handle_timeout(now);
        }
        send(station, side, now)?;
        // After sending, so that the last acknowledgement or reset has left.
        if side.is_over() {
            return Ok(());
        }
        station.wait(side.next_wake())?;
    }
}

fn decode(datagram: StationDatagram) -> Option<(wire::SegmentPath, Segment<Bytes>)> {
    let StationDatagram { from, to, ecn, payload, protocol } = datagram;
    let ecn = Ecn::from_bits(ecn);
    let decoded = || wire::decode(from, to, ecn, &payload.into()).ok();
    (protocol == TCP).then(decoded).flatten()
}

fn send(station: &mut Station, side: &mut impl ConnectionOwner, now: Instant) -> io::Result<()> {
    while let Some((path, segment)) = side.poll_transmit(now) {
        let mut payload = Vec::with_capacity(segment.wire_len());
        wire::encode(&path, &segment, &mut payload);
        let ecn = segment.ecn.bits();
        station.send(&StationDatagram {
            from: path.from,
            to: path.to,
            protocol: TCP,
            ecn,
            payload,
        })?;
    }
    Ok(())
}

/// Returns the path in the reverse direction.
pub(crate) fn reverse(path: &wire::SegmentPath) -> wire::SegmentPath {
    wire::SegmentPath {
        from: path.to,
        from_port: path.to_port,
        to: path.from,
        to_port: path.from_port,
    }
}
