//! Draws how lost packets are recovered, from the event logs of both sides, as
//! in Figs. 3 and 4 of D. Astuti, *TCP and Link Layer Enhancements in
//! DVB-S/DVB-RCS satellite systems* (`docs/event-log.md`):
//! `cargo run -p skyhop-slacp --example recovery -- DIR`.

#[path = "../../tests/kit/hop.rs"]
mod hop;
#[path = "../../tests/kit/packets.rs"]
mod packets;

mod draw;
mod points;
mod scenario;

use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use points::{Event, Recovery};
use scenario::{SCENARIOS, Scenario};
use slacp::LogEntry;

const USAGE: &str = "usage: recovery DIR, the directory for the pictures and logs";

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let directory = match directory(&arguments) {
        Ok(directory) => directory,
        Err(error) => {
            eprintln!("recovery: {error}");
            return ExitCode::from(2);
        }
    };
    for scenario in &SCENARIOS {
        if let Err(error) = write(scenario, &directory) {
            eprintln!("recovery: cannot write to {}: {error}", directory.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// The directory that the arguments name, made if there is none.
fn directory(arguments: &[OsString]) -> Result<PathBuf, String> {
    let [directory] = arguments else {
        return Err(format!("{} arguments; {USAGE}", arguments.len()));
    };
    let shown = Path::new(directory).display();
    if directory.is_empty() || directory.as_encoded_bytes().starts_with(b"-") {
        return Err(format!("{shown:?} is no directory; {USAGE}"));
    }
    fs::create_dir_all(directory)
        .map_err(|error| format!("cannot make the directory {shown}: {error}; {USAGE}"))?;
    Ok(directory.into())
}

/// Runs a scenario; writes its picture and the logs of which it was drawn.
fn write(scenario: &Scenario, directory: &Path) -> io::Result<()> {
    let logs = scenario.run();
    let recovery = Recovery::of(&events(&logs.hub), &events(&logs.terminal), scenario::CHANNEL);
    let picture = draw::draw(scenario.title, &recovery);
    let name = scenario.name;
    for (file, text) in [
        (format!("recovery-{name}.svg"), picture),
        (format!("recovery-{name}-hub.jsonl"), lines(&logs.hub)),
        (format!("recovery-{name}-terminal.jsonl"), lines(&logs.terminal)),
    ] {
        let path = directory.join(file);
        fs::write(&path, text)?;
        println!("{}", path.display());
    }
    Ok(())
}

fn events(log: &[LogEntry]) -> Vec<Event> {
    log.iter().map(|entry| (entry.time, entry.event)).collect()
}

/// One line of JSON for each entry.
fn lines(log: &[LogEntry]) -> String {
    log.iter().fold(String::new(), |mut text, entry| {
        // Writing to a string does not fail.
        _ = writeln!(text, "{entry}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_directory_is_wanted() {
        for wrong in [&[][..], &["a", "b"], &[""], &["--help"]] {
            let arguments: Vec<OsString> = wrong.iter().map(OsString::from).collect();
            assert!(directory(&arguments).unwrap_err().ends_with(USAGE), "{wrong:?}");
        }
        let file = OsString::from(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        let error = directory(&[file]).unwrap_err();
        assert!(error.starts_with("cannot make the directory"), "{error}");
    }
}
