//! `skyhop demo`: measures what the gateway pair gains on this machine.

mod display;
mod output;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use study::{Demo, DemoOptions, Results, Task};
use units::{BitRate, ErrorRate};

use self::display::DemoDisplay;
use self::output::OutputFile;

/// The arguments of `skyhop demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Rate of the forward link (download)
    #[arg(long, value_name = "RATE", default_value = "50 Mbit/s")]
    rate: BitRate,
    /// Rate of the return link (upload)
    #[arg(long, value_name = "RATE", default_value = "10 Mbit/s")]
    return_rate: BitRate,
    /// One-way delay; the RTT is twice that
    #[arg(long, value_name = "TIME", default_value = "300 ms", value_parser = units::parse_duration)]
    delay: Duration,
    /// Packet error rate of both links
    #[arg(long, value_name = "P", default_value = "1 %")]
    per: ErrorRate,
    /// Seed of the link's losses; each round uses the next one
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of rounds; above 1 the table shows medians and ranges
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Run only this task; may be repeated
    #[arg(long, value_name = "TASK")]
    only: Vec<TaskArg>,
    /// Simulate in virtual time, which takes seconds; the default without network namespaces
    #[arg(long)]
    simulate: bool,
    /// Write the HTML page with plots to this file
    #[arg(long, value_name = "FILE", default_value = "skyhop-demo.html")]
    html: PathBuf,
    /// Write no page
    #[arg(long, conflicts_with = "html")]
    no_html: bool,
    /// Write all results as JSON to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the bar chart of all times as SVG to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// A task on the command line.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum TaskArg {
    /// One flow from the server to the client
    Download,
    /// A web page with a new connection for each object
    Page,
    /// The same page over persistent connections
    PageKeepAlive,
    /// Many small requests and replies
    Requests,
    /// One flow from the client to the server
    Upload,
}

impl From<TaskArg> for Task {
    fn from(only: TaskArg) -> Self {
        match only {
            TaskArg::Download => Self::Download,
            TaskArg::Page => Self::Page,
            TaskArg::PageKeepAlive => Self::PageKeepAlive,
            TaskArg::Requests => Self::Requests,
            TaskArg::Upload => Self::Upload,
        }
    }
}

/// Runs the demo. Returns exit code 1 if a measurement failed; running out of time is a result, not a
/// failure.
pub(crate) fn run(args: &DemoArgs) -> Result<ExitCode> {
    let demo = Demo::new(args.options()?)?;
    let outputs = OutputFiles::new(args)?;
    // Before any thread starts, because only the calling thread enters the namespaces.
    let refused = if args.simulate { None } else { lab::enter().err() };
    crate::start_log();
    let mut display = DemoDisplay::new();
    let results = match refused {
        _ if args.simulate => demo.simulate("requested by --simulate".to_owned(), &mut display),
        None => demo.run(&mut display),
        Some(error) => demo.simulate_instead(&error.to_string(), &mut display),
    }?;
    crate::print(&format!("\n{}", results.text()))?;
    outputs.write(&results)?;
    Ok(if results.any_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl DemoArgs {
    fn options(&self) -> Result<DemoOptions> {
        Ok(DemoOptions {
            rate: self.rate,
            return_rate: self.return_rate,
            delay: self.delay,
            per: self.per.0,
            seed: self.seed,
            rounds: self.runs,
            only: self.only.iter().copied().map(Task::from).collect(),
            program: crate::own_program()?,
            command: command(),
        })
    }
}

/// The requested output files.
struct OutputFiles {
    html: Option<OutputFile>,
    json: Option<OutputFile>,
    svg: Option<OutputFile>,
}

impl OutputFiles {
    fn new(args: &DemoArgs) -> Result<Self> {
        let output = |path: Option<&PathBuf>| path.map(|path| OutputFile::new(path)).transpose();
        let html = Some(&args.html).filter(|_| !args.no_html);
        let json = args.json.as_ref();
        let svg = args.svg.as_ref();
        Ok(Self { html: output(html)?, json: output(json)?, svg: output(svg)? })
    }

    fn write(&self, results: &Results) -> Result<()> {
        if let Some(json) = &self.json {
            json.write(&results.json()?)?;
        }
        if let Some(svg) = &self.svg {
            svg.write(&results.picture())?;
        }
        if let Some(html) = &self.html {
            html.write(&results.html())?;
            crate::print_to_stderr(format_args!("\nwith plots: {}", html.path().display()));
        }
        Ok(())
    }
}

/// Returns the command line with `skyhop` in place of the program's path.
fn command() -> String {
    let quoted = |argument: String| {
        let is_plain =
            |letter: char| letter.is_ascii_alphanumeric() || "-_./=,:%+".contains(letter);
        if argument.chars().all(is_plain) { argument } else { format!("'{argument}'") }
    };
    let arguments = std::env::args().skip(1).map(quoted);
    std::iter::once("skyhop".to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}
