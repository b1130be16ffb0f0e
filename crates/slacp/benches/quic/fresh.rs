//! The first traffic of a rival's connection: what [`crate::fresh`] does over a session.

use core::time::Duration;

use link::testkit::Net;
use units::Instant;

use crate::fresh::{AT_ONCE, LATER, Path, REQUEST, Use};
use crate::hop::TERMINAL;
use crate::quic::{Control, Quic, WINDOWS, net};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// Why there is no time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The library gives the connection up, whatever its windows.
    Breaks,
    /// It does not end.
    Stalls,
}

impl Failure {
    pub(crate) fn verb(self) -> &'static str {
        match self {
            Self::Breaks => "breaks",
            Self::Stalls => "stalls",
        }
    }
}

/// A load that ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Loaded {
    pub(crate) seconds: f64,
    /// The largest window with which the connection lives, in MB.
    pub(crate) window: u32,
}

/// Runs the traffic; `at_once` if it begins with the connection.
pub(crate) fn run(path: &Path, what: Use, at_once: bool, seed: u64) -> Result<Loaded, Failure> {
    for window in WINDOWS {
        match load(path, what, at_once, seed, window) {
            Err(Failure::Breaks) => {}
            result => return result.map(|seconds| Loaded { seconds, window }),
        }
    }
    Err(Failure::Breaks)
}

fn load(path: &Path, what: Use, at_once: bool, seed: u64, window: u32) -> Result<f64, Failure> {
    let mut net = net(&path.told(seed), path.links(), Control::Bbr, window);
    drive(&mut net, |_, terminal| terminal.connected)?;
    if !at_once {
        net.run_for(LATER).map_err(|_| Failure::Stalls)?;
    }
    let (start, sizes) = (net.now(), path.sizes(what));
    let mut next = 0;
    drive(&mut net, |now, terminal| {
        let ended = terminal.ended();
        let open = if ended == 0 { 1 } else { AT_ONCE };
        while next < sizes.len() && next - ended < open {
            terminal.request(now, REQUEST as usize, sizes[next]);
            next += 1;
        }
        ended == sizes.len()
    })?;
    Ok(net.now().saturating_since(start).as_secs_f64())
}

/// Runs until the terminal is done.
fn drive(
    net: &mut Net<Quic>,
    mut done: impl FnMut(Instant, &mut Quic) -> bool,
) -> Result<(), Failure> {
    let deadline = net.now() + PATIENCE;
    let over = |now, peers: &mut [Quic]| {
        peers.iter().any(|peer| peer.failure.is_some()) || done(now, &mut peers[TERMINAL])
    };
    net.drive_until(over, deadline).map_err(|_| Failure::Stalls)?;
    let failed = net.peers().iter().any(|peer| peer.failure.is_some());
    if failed { Err(Failure::Breaks) } else { Ok(()) }
}
