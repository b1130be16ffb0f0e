//! The same download in the simulator.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::{BYTES, Failure, PROGRAM, Variant};

/// Replications. The standard error of the most scattered variant's mean is then below 3 %.
const SEEDS: &str = "200";

/// The lab's network, with gateways beside both ends of the hop, of which the sending one has this rate
/// in Mbit/s.
fn scenario(variant: &Variant, sender: u32) -> String {
    let hop = |name: &str, rate: u32| {
        format!(
            "[hop.{name}]\nrate = \"{rate} Mbit/s\"\ndelay = \"300 ms\"\nqueue = \"1 BDP\"\n\
             per = \"1 %\"\n"
        )
    };
    let side = |name: &str, rate: u32| {
        format!("[{name}]\nrate = \"{rate} Mbit/s\"\ndelay = \"50 us\"\nqueue = \"1000 packets\"\n")
    };
    format!(
        "description = \"two gateways\"\ntime = \"600 s\"\n{}{}{}{}\
         [tcp.wan]\n{}\n[gateways]\nsplit = \"three\"\nhop = \"tcp\"\ntcp = \"wan\"\n\
         [[flow]]\nname = \"file\"\nkind = \"bulk\"\ndirection = \"down\"\nbytes = \"{BYTES} B\"\n",
        hop("forward", 50),
        hop("return", 10),
        side("server-side", sender),
        side("client-side", 1000),
        variant.tcp
    )
}

/// Goodput of every seed in Mbit/s, of a gateway that sends `sender` Mbit/s at most.
pub(crate) fn goodput(variant: &Variant, sender: u32) -> Result<Vec<f64>, Failure> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("gateways.toml");
    fs::write(&file, scenario(variant, sender))?;
    let output =
        Command::new(PROGRAM).arg("sim").arg(&file).args(["--json", "--seeds", SEEDS]).output()?;
    let report: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&output.stderr)))?;
    let figures = report[0]["figures"].as_array().ok_or("no figures")?;
    let goodput = figures.iter().find(|figure| figure["metric"] == "goodput-mbit/s");
    let values = goodput.and_then(|figure| figure["values"].as_array()).ok_or("no goodput")?;
    values
        .iter()
        .map(|value| value.as_f64().ok_or_else(|| "a run without goodput".into()))
        .collect()
}
