//! Compares the simulator with theory and with published values, and writes
//! `validation.md` and its graphs:
//! `cargo run --release -p skyhop-sim --example validation -- docs`.

mod checks;
mod draw;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use checks::{Effort, Section, Verdict};

const COMMAND: &str = "cargo run --release -p skyhop-sim --example validation -- docs";

fn main() -> ExitCode {
    let Some(directory) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: validation DIRECTORY (for validation.md and validation/*.svg)");
        return ExitCode::from(2);
    };
    let sections = checks::sections(Effort::Full);
    if let Err(error) = write(&directory, &sections) {
        eprintln!("{}: {error}", directory.display());
        return ExitCode::from(2);
    }
    let rows = || sections.iter().flat_map(|section| &section.rows);
    let mut findings = rows().filter(|row| row.verdict == Verdict::Unstated).peekable();
    if findings.peek().is_none() {
        return ExitCode::SUCCESS;
    }
    eprintln!("rows that are not as stated:");
    findings.for_each(|row| eprintln!("{}", row.line()));
    ExitCode::FAILURE
}

fn write(directory: &Path, sections: &[Section]) -> std::io::Result<()> {
    let graphs = directory.join("validation");
    fs::create_dir_all(&graphs)?;
    for plot in sections.iter().flat_map(|section| &section.plots) {
        fs::write(graphs.join(plot.name).with_extension("svg"), draw::plot(plot))?;
    }
    fs::write(directory.join("validation.md"), page(sections))
}

fn page(sections: &[Section]) -> String {
    let mut text = format!(
        "# Validation\n\nThe simulator compared with theory and published values. `{COMMAND}` \
         generates this page and its graphs;\nthe published values are in \
         `crates/sim/examples/validation/published.toml` and `scenarios/`.\nRuns are seeded and \
         use virtual time, so the page is the same on every machine.\n"
    );
    let rows = || sections.iter().flat_map(|section| &section.rows);
    let good = rows().filter(|row| row.verdict == Verdict::Reproduced).count();
    text += &format!(
        "\n{good} of {} rows are reproduced; each of the others says how it differs.\nThe tolerance of a verdict \
         stands in parentheses, that of a difference as ours / expected.\n",
        rows().count()
    );
    for section in sections {
        text += &format!("\n## {}\n\n{}\n\n", section.title, section.text);
        text +=
            "| claim | source | expected | ours | ratio | verdict |\n|---|---|---|---|---|---|\n";
        for row in &section.rows {
            text += &row.line();
            text.push('\n');
        }
        for plot in &section.plots {
            text += &format!("\n![{}](validation/{}.svg)\n", plot.title, plot.name);
        }
    }
    text
}
