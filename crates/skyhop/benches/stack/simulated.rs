//! The same download in the simulator.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::{BYTES, Failure, PER, PROGRAM, Variant};

/// The lab's network, with gateways beside both ends of the hop.
fn scenario(variant: &Variant) -> String {
    let hop = |name: &str, rate: u32| {
        format!(
            "[hop.{name}]\nrate = \"{rate} Mbit/s\"\ndelay = \"300 ms\"\nqueue = \"1 BDP\"\n\
             per = \"{PER}\"\n"
        )
    };
    let side = |name: &str| {
        format!("[{name}]\nrate = \"1 Gbit/s\"\ndelay = \"50 us\"\nqueue = \"1000 packets\"\n")
    };
    format!(
        "description = \"two gateways\"\ntime = \"600 s\"\n{}{}{}{}\
         [tcp.wan]\n{}\n[gateways]\nsplit = \"three\"\nhop = \"tcp\"\ntcp = \"wan\"\n\
         [[flow]]\nname = \"file\"\nkind = \"bulk\"\ndirection = \"down\"\nbytes = \"{BYTES} B\"\n",
        hop("forward", 50),
        hop("return", 10),
        side("server-side"),
        side("client-side"),
        variant.tcp
    )
}

/// Goodput of each seed, in Mbit/s.
pub(crate) fn goodput(variant: &Variant, seeds: u64) -> Result<Vec<f64>, Failure> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("gateways.toml");
    fs::write(&file, scenario(variant))?;
    let seeds = seeds.to_string();
    let output =
        Command::new(PROGRAM).arg("sim").arg(&file).args(["--json", "--seeds", &seeds]).output()?;
    let report: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&output.stderr)))?;
    let figures = report[0]["figures"].as_array().ok_or("no figures")?;
    let goodput = figures.iter().find(|figure| figure["metric"] == "goodput-mbit/s");
    let values = goodput.and_then(|figure| figure["values"].as_array()).ok_or("no goodput")?;
    Ok(values.iter().filter_map(Value::as_f64).collect())
}
