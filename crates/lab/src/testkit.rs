//! Presets for tests.

use scenario::Preset;

/// A preset whose forward link has these lines. Where they do not say otherwise, 1500 bytes take
/// 1 ms on it, the delay is 300 ms, and the queue holds 100 packets.
pub(crate) fn preset(forward: &str) -> Preset {
    let defaults = [("rate", "12 Mbit/s"), ("delay", "300 ms"), ("queue", "100 packets")];
    let starts = |key: &str| forward.lines().any(|line| line.starts_with(key));
    let given = |key: &str| starts(key) || key == "rate" && starts("acm");
    let mut text = "description = \"a test\"\nmtu = 1500\n[forward]\n".to_owned();
    for (key, value) in defaults.into_iter().filter(|(key, _)| !given(key)) {
        text += &format!("{key} = \"{value}\"\n");
    }
    text += forward;
    text += "\n[return]\nrate = \"2 Mbit/s\"\ndelay = \"300 ms\"\nqueue = \"1 BDP\"\n";
    Preset::from_text(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}
