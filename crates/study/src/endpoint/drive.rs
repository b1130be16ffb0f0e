//! Runs `tcp` connections on a station: handles segments as they arrive and timers when they
//! expire.

use std::io;

use bytes::Bytes;
use os::clock;
use os::station::{Datagram, Station};
use tcp::{Ecn, Segment, wire};
use units::Instant;

/// The protocol number of TCP.
const TCP: u8 = 6;

/// An owner of connections on a station.
pub(crate) trait Side {
    /// Handles a segment received along `path`.
    fn take(&mut self, now: Instant, path: &wire::Path, segment: &Segment<Bytes>);

    /// Returns the time at which the next timer expires.
    fn next_wake(&self) -> Option<Instant>;

    /// Handles the timers that have expired at `now`.
    fn wake(&mut self, now: Instant);

    /// Returns the next segment to send, and its path.
    fn emit(&mut self, now: Instant) -> Option<(wire::Path, Segment<Bytes>)>;

    /// Returns true if nothing remains to be done.
    fn is_over(&self) -> bool;
}

/// Runs a side until it is over.
pub(crate) fn drive(station: &mut Station, side: &mut impl Side) -> io::Result<()> {
    let mut heard = Vec::new();
    loop {
        station.receive(|datagram| heard.push(datagram))?;
        for datagram in heard.drain(..) {
            let Some((path, segment)) = decode(datagram) else { continue };
            let now = clock::now();
            side.take(now, &path, &segment);
            // Send after each segment, so that immediate ACKs are not delayed.
            send(station, side, now)?;
        }
        let now = clock::now();
        if side.next_wake().is_some_and(|at| at <= now) {
            side.wake(now);
        }
        send(station, side, now)?;
        if side.is_over() {
            return Ok(());
        }
        station.wait(side.next_wake())?;
    }
}

fn decode(datagram: Datagram) -> Option<(wire::Path, Segment<Bytes>)> {
    let Datagram { from, to, ecn, payload, protocol } = datagram;
    let ecn = Ecn::from_bits(ecn);
    let decoded = || wire::decode(from, to, ecn, &payload.into()).ok();
    (protocol == TCP).then(decoded).flatten()
}

fn send(station: &mut Station, side: &mut impl Side, now: Instant) -> io::Result<()> {
    while let Some((path, segment)) = side.emit(now) {
        let mut payload = Vec::with_capacity(segment.wire_len());
        wire::encode(&path, &segment, &mut payload);
        let ecn = segment.ecn.bits();
        station.send(&Datagram { from: path.from, to: path.to, protocol: TCP, ecn, payload })?;
    }
    Ok(())
}

/// Returns the path in the reverse direction.
pub(crate) fn back(path: &wire::Path) -> wire::Path {
    wire::Path { from: path.to, from_port: path.to_port, to: path.from, to_port: path.from_port }
}
