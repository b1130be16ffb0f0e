//! One measurement: a lab, a script in it, one figure from its output.

use std::error::Error;
use std::fmt;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::PROGRAM;
use crate::case::{Case, Figure};

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// How the traffic crosses the link.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way {
    Pair,
    Plain(&'static str),
}

impl Way {
    pub(crate) const ALL: [Self; 3] = [Self::Pair, Self::Plain("bbr"), Self::Plain("cubic")];
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pair => f.write_str("skyhop"),
            Self::Plain(control) => write!(f, "plain {}", control.to_uppercase()),
        }
    }
}

/// The figure; infinite if the script did not finish in time.
pub(crate) fn measure(case: &Case, way: Way, seed: u64) -> Result<f64, Failure> {
    let mut command = Command::new(PROGRAM);
    command.args(["lab", "run", "geo", "--seed", &seed.to_string()]).args(case.link);
    let control = match way {
        Way::Pair => {
            command.arg("--gateways");
            String::new()
        }
        Way::Plain(control) => format!("--cc {control}"),
    };
    let script = case.script.replace("{meter}", &format!("{PROGRAM} meter"));
    command.args(["--", "sh", "-c", &script.replace("{cc}", &control)]);
    let output = command.stderr(Stdio::inherit()).output()?;
    let printed = String::from_utf8(output.stdout)?;
    let Figure::Json(path) = case.figure else { return Ok(printed.trim().parse()?) };
    if printed.contains("\"unfinished\"") {
        return Ok(f64::INFINITY);
    }
    let report: Value = serde_json::from_str(&printed)
        .map_err(|error| format!("{}, {way}: {error}: {printed}", case.name))?;
    let figure = report.pointer(path).and_then(Value::as_f64);
    figure.ok_or_else(|| format!("{}, {way}: no {path} in {printed}", case.name).into())
}
