//! `skyhop lab presets`: lists the built-in presets.

use std::process::ExitCode;

use lab::{LinkSpec, Preset};
use serde::Serialize;

/// A built-in preset as listed in JSON.
#[derive(Serialize)]
struct ListedPreset {
    name: String,
    description: String,
    /// Least and greatest rate, hub to terminal.
    forward_bit_s: [u64; 2],
    /// Least and greatest rate, terminal to hub.
    return_bit_s: [u64; 2],
    /// Round-trip time; the greatest if the delay changes.
    rtt_s: f64,
    mtu: u16,
    terminals: u8,
}

/// Lists the built-in presets.
pub(super) fn run(json: bool) -> anyhow::Result<ExitCode> {
    let all: Vec<ListedPreset> = Preset::built_in().map(ListedPreset::from).collect();
    let text = if json { serde_json::to_string_pretty(&all)? + "\n" } else { list(&all) };
    crate::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn list(all: &[ListedPreset]) -> String {
    let width = all.iter().map(|preset| preset.name.len()).max().unwrap_or(0);
    all.iter().map(|preset| format!("{:<width$} {}\n", preset.name, preset.description)).collect()
}

impl From<Preset> for ListedPreset {
    fn from(preset: Preset) -> Self {
        let rates = |link: &LinkSpec| {
            [link.rate.least(), link.rate.greatest()].map(|rate| rate.bits_per_second())
        };
        Self {
            forward_bit_s: rates(&preset.forward),
            return_bit_s: rates(&preset.ret),
            rtt_s: preset.rtt().as_secs_f64(),
            mtu: preset.mtu,
            terminals: preset.terminals,
            name: preset.name,
            description: preset.description,
        }
    }
}
