//! A lab in a few lines, for programs and tests of other projects.

use core::time::Duration;

use config::FileError;
use scenario::{Preset, PresetOverrides};
use thiserror::Error;
use units::{BitRate, Probability};

use crate::{EnterError, Lab, StartError, enter};

/// The reason why a lab was not built.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The preset is unknown, or does not describe a link with these changes.
    #[error(transparent)]
    Preset(#[from] FileError),
    /// The process cannot enter namespaces of its own: it has a second thread, or the machine
    /// permits none. A test should report that it was skipped.
    #[error("cannot start a lab here: {0}")]
    Enter(#[from] EnterError),
    /// The kernel refused a step.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// Describes a lab, and starts it.
///
/// The process must have a single thread: the lab's namespaces replace its own, and everything that
/// it starts in them ends with it. A test therefore needs `harness = false` in `Cargo.toml` and a
/// `main`, as in `crates/lab/tests/behind_a_satellite.rs`, or the whole test command runs in
/// `skyhop lab run geo -- cargo test`.
///
/// ```standalone_crate
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use core::time::Duration;
/// use std::io::{Read, Write};
/// use std::net::TcpStream;
/// use std::time::Instant;
///
/// use lab::{Builder, BuildError, Node};
///
/// // One packet of a hundred is lost; the same seed loses the same packets.
/// let lab = match Builder::new("leo").per(0.01).seed(7).start() {
///     Err(BuildError::Enter(why)) => return Ok(println!("SKIPPED: {why}")),
///     lab => lab?,
/// };
/// // The lab's server answers HTTP on port 80. Sockets belong to the host where they are created.
/// let begin = Instant::now();
/// let server = (lab.address4(Node::Server), 80);
/// let mut stream = lab.node(Node::Client).run(|| TcpStream::connect(server))?;
/// stream.write_all(b"GET /10kB HTTP/1.0\r\n\r\n")?;
/// let mut answer = Vec::new();
/// stream.read_to_end(&mut answer)?;
/// assert!(answer.len() > 10_000);
/// // The handshake and the request take a round trip each.
/// assert!(begin.elapsed() >= 2 * Duration::from_millis(35));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a lab is built by start()"]
pub struct Builder {
    preset: String,
    overrides: PresetOverrides,
    seed: u64,
}

impl Builder {
    /// Describes a lab with a built-in preset (`geo`, `leo`: `skyhop lab presets`), or with the one
    /// in the file at this path, which contains `/` or ends in `.toml`.
    pub fn new(preset: impl Into<String>) -> Self {
        Self { preset: preset.into(), overrides: PresetOverrides::default(), seed: 1 }
    }

    /// Rate of the forward link, hub to terminal.
    pub fn rate(mut self, rate: BitRate) -> Self {
        self.overrides.rate = Some(rate);
        self
    }

    /// Rate of the return link.
    pub fn return_rate(mut self, rate: BitRate) -> Self {
        self.overrides.return_rate = Some(rate);
        self
    }

    /// One-way delay of both links. The round-trip time is twice that.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.overrides.delay = Some(delay);
        self
    }

    /// Share of packets that each link loses at random, from 0 to 1.
    ///
    /// # Panics
    /// If `per` is outside that range.
    pub fn per(mut self, per: f64) -> Self {
        self.overrides.per = Some(Probability::new(per).expect("a share from 0 to 1"));
        self
    }

    /// Number of terminals, each with a client. Default: the preset's.
    pub fn terminals(mut self, terminals: u8) -> Self {
        self.overrides.terminals = Some(terminals);
        self
    }

    /// Replaces all overrides, including those set by the methods above.
    pub fn overrides(mut self, overrides: PresetOverrides) -> Self {
        self.overrides = overrides;
        self
    }

    /// Sets the seed that decides which packets are lost. Default: 1.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Returns the preset with all changes, without starting anything.
    ///
    /// # Errors
    /// If the preset is unknown, or a change is impossible.
    pub fn preset(&self) -> Result<Preset, FileError> {
        Preset::load(&self.preset)?.with(&self.overrides)
    }

    /// Enters the lab's namespaces and starts it. Dropping the lab stops it.
    ///
    /// # Errors
    /// If the link is impossible, the process has a second thread, or the kernel refuses a step.
    pub fn start(&self) -> Result<Lab, BuildError> {
        // Read first, because the process cannot leave the namespaces again.
        let preset = self.preset()?;
        enter()?;
        Ok(Lab::start(&preset, self.seed)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_is_the_preset_with_the_changes() {
        let builder = Builder::new("geo").rate(BitRate::from_mbit(5)).per(0.02).terminals(3);
        let preset = builder.delay(Duration::from_millis(10)).preset().unwrap();
        let [forward, ret] = preset.links();
        assert_eq!(forward.rate, BitRate::from_mbit(5).into());
        assert_eq!((preset.rtt(), preset.terminals), (Duration::from_millis(20), 3));
        assert_eq!((forward.loss, ret.rate), (ret.loss.clone(), BitRate::from_mbit(10).into()));
        assert!(Builder::new("mars").preset().unwrap_err().to_string().contains("geo"));
        // The test harness has threads.
        assert!(matches!(Builder::new("geo").start(), Err(BuildError::Enter(_))));
    }
}
