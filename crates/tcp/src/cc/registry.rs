//! All controllers by their names, with their options.

use core::fmt;
use core::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

use super::additive::{Additive, Increase};
use super::bbr::Bbr;
use super::bic::{Bic, BicOptions};
use super::cubic::{Cubic, CubicOptions};
use super::delay::compound::{Compound, CompoundOptions};
use super::delay::illinois::{Illinois, IllinoisOptions};
use super::delay::vegas::{Vegas, VegasOptions};
use super::hybla::{Hybla, HyblaOptions};
use super::option::{OptionError, OptionReader};
use super::reno::Reno;
use super::westwood::{BandwidthEstimator, Westwood};
use super::{Controller, ControllerParameters, FastRecovery};

/// Creates a controller for each connection with the same settings.
type MakeController = Arc<dyn Fn(&ControllerParameters) -> Box<dyn Controller> + Send + Sync>;

/// Parses the options of a controller.
type ReadOptions = fn(&mut OptionReader<'_>) -> Result<MakeController, OptionError>;

/// Names of controllers, with the functions that parse their options.
const CONTROLLERS: [(&str, ReadOptions); 14] = [
    ("bbr", |_| Ok(boxed(Bbr::new))),
    ("bic", |options| {
        let options = BicOptions::read(options)?;
        Ok(boxed(move |start| Bic::new(start, options)))
    }),
    ("constant-rate", |options| additive(Increase::read_rate(options)?)),
    ("compound", |options| {
        let options = CompoundOptions::read(options)?;
        Ok(boxed(move |start| Compound::new(start, options)))
    }),
    ("cubic", |options| {
        let options = CubicOptions::read(options)?;
        Ok(boxed(move |start| Cubic::new(start, options)))
    }),
    ("hybla", |options| {
        let options = HyblaOptions::read(options)?;
        Ok(boxed(move |start| Hybla::new(start, options)))
    }),
    ("illinois", |options| {
        let options = IllinoisOptions::read(options)?;
        Ok(boxed(move |start| Illinois::new(start, options)))
    }),
    ("increase-by-k", |options| additive(Increase::read_k(options)?)),
    ("newreno", |_| reno(FastRecovery::NewReno)),
    ("reno", |_| reno(FastRecovery::Reno)),
    ("tahoe", |_| reno(FastRecovery::GoBackN)),
    ("tcpw", |options| {
        let estimate = BandwidthEstimator::read_samples(options)?;
        Ok(boxed(move |start| Westwood::new(start, estimate.clone())))
    }),
    ("vegas", |options| {
        let options = VegasOptions::read(options)?;
        Ok(boxed(move |start| Vegas::new(start, options)))
    }),
    ("westwood", |options| {
        let estimate = BandwidthEstimator::read_rounds(options)?;
        Ok(boxed(move |start| Westwood::new(start, estimate.clone())))
    }),
];

/// The names of all controllers.
pub const NAMES: [&str; CONTROLLERS.len()] = {
    let mut names = [""; CONTROLLERS.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = CONTROLLERS[index].0;
        index += 1;
    }
    names
};

fn reno(recovery: FastRecovery) -> Result<MakeController, OptionError> {
    Ok(boxed(move |start| Reno::new(start, recovery)))
}

fn additive(increase: Increase) -> Result<MakeController, OptionError> {
    Ok(boxed(move |start| Additive::new(start, increase)))
}

fn boxed<C: Controller + 'static>(
    make: impl Fn(&ControllerParameters) -> C + Send + Sync + 'static,
) -> MakeController {
    Arc::new(move |start| Box::new(make(start)))
}

/// A controller and its options, parsed from text such as `cubic` or `cubic:hystart=off,beta=0.8`.
#[derive(Clone)]
pub struct ControllerSpec {
    text: String,
    make: MakeController,
}

/// Specifications are equal if their texts are: closures cannot be compared.
impl PartialEq for ControllerSpec {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// A text that does not name a valid controller.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SpecError {
    /// There is no controller with that name.
    #[error("no congestion controller \"{name}\": expected one of {}", NAMES.join(", "))]
    Unknown {
        /// The unknown name, as given.
        name: String,
    },
    /// An option is unknown, or its value is invalid.
    #[error("congestion controller {name}: {error}")]
    Option {
        /// The name of the controller.
        name: String,
        /// The fault in its options.
        error: OptionError,
    },
}

impl ControllerSpec {
    /// Creates the controller for a connection.
    pub fn make(&self, start: &ControllerParameters) -> Box<dyn Controller> {
        (self.make)(start)
    }
}

/// CUBIC with its default options.
impl Default for ControllerSpec {
    fn default() -> Self {
        let options = CubicOptions::default();
        Self { text: "cubic".to_owned(), make: boxed(move |start| Cubic::new(start, options)) }
    }
}

impl FromStr for ControllerSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (name, options) = text.split_once(':').unwrap_or((text, ""));
        let name = name.trim();
        let (_, read) = CONTROLLERS
            .iter()
            .find(|(known, _)| *known == name)
            .ok_or_else(|| SpecError::Unknown { name: name.to_owned() })?;
        let make = OptionReader::parse(options).and_then(|mut options| {
            let make = read(&mut options)?;
            options.finish().map(|()| make)
        });
        match make {
            Ok(make) => Ok(Self { text: text.trim().to_owned(), make }),
            Err(error) => Err(SpecError::Option { name: name.to_owned(), error }),
        }
    }
}

impl fmt::Display for ControllerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for ControllerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ControllerSpec({})", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        text.parse::<ControllerSpec>().unwrap_err().to_string()
    }

    #[test]
    fn every_name_makes_a_controller_with_the_window_asked_for() {
        let start = ControllerParameters { mss: 1000, window: 3000, ssthresh: 50_000, seed: 1 };
        for name in NAMES {
            let controller = name.parse::<ControllerSpec>().unwrap().make(&start);
            assert!(controller.cwnd().get() >= 1000, "{name}");
            let names =
                |c: &dyn Controller| c.metrics().into_iter().map(|(n, _)| n).collect::<Vec<_>>();
            assert_eq!(names(&*controller), names(&*controller.boxed_clone()), "{name}");
        }
    }

    #[test]
    fn mistakes_say_what_there_is() {
        assert!(
            error("cubik").contains("\"cubik\": expected one of") && error("").contains("cubic")
        );
        let unknown = "congestion controller cubic: there is no option \"x\": expected";
        assert!(error("cubic:x=1").starts_with(unknown), "{}", error("cubic:x=1"));
        let value = "congestion controller cubic: hystart=maybe: expected on or off or 2011";
        assert_eq!(error("cubic:hystart=maybe"), value);
        let form = "congestion controller cubic: \"hystart\" is not an option: expected name=value";
        assert_eq!(error("cubic:hystart"), form);
        assert!(error("reno:x=1").ends_with("expected none"));
        assert!(error("cubic:beta=2").ends_with("expected a number from 0.1 to 0.99"));
    }

    #[test]
    fn text_comes_back() {
        for text in ["newreno", "cubic:hystart=off,beta=0.8"] {
            assert_eq!(text.parse::<ControllerSpec>().unwrap().to_string(), text);
        }
    }
}
