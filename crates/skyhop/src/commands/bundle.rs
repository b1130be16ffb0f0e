//! `skyhop bundle` and `skyhop outbox`: sends and receives bundles through a gateway.

mod client;
pub(crate) mod outbox;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Subcommand;
use control::protocol::BundleOffer;
use control::status::BundleStatus;
use os::sync_directory;

use self::client::BundleClient;
use crate::commands::which::GatewaySelection;
use crate::print;

/// Polling interval of `--wait`.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

fn connect(which: &GatewaySelection) -> anyhow::Result<BundleClient> {
    Ok(BundleClient::new(which.one()?))
}

/// Subcommands of `skyhop bundle`.
#[derive(Subcommand)]
pub(crate) enum BundleCommand {
    /// Hand a file to this machine's gateway, which sends it as a bundle
    Send(SendArgs),
    /// Take the next bundle that has arrived for a service
    Receive(ReceiveArgs),
    /// List the bundles in the gateway's store
    List(ListArgs),
}

/// The arguments of `skyhop bundle send`.
#[derive(clap::Args)]
pub(crate) struct SendArgs {
    /// The file; - for standard input
    file: PathBuf,
    /// The endpoint that it is for, such as ipn:1.1000 or dtn://hub/files
    #[arg(long, value_name = "ENDPOINT")]
    to: String,
    /// Lifetime, after which it expires
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = duration)]
    lifetime: Duration,
    /// Ask for a report of its delivery or deletion, which this gateway logs
    #[arg(long)]
    report: bool,
    /// Its name in the other side's inbox [default: that of the file]
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    which: GatewaySelection,
}

/// The arguments of `skyhop bundle receive`.
#[derive(clap::Args)]
pub(crate) struct ReceiveArgs {
    /// The service of this node: a number (ipn) or a name (dtn)
    service: String,
    /// Write to a new file instead of standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Wait for a bundle if there is none
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    which: GatewaySelection,
}

/// The arguments of `skyhop bundle list`.
#[derive(clap::Args)]
pub(crate) struct ListArgs {
    /// Print a line of JSON for each bundle
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    which: GatewaySelection,
}

fn duration(text: &str) -> Result<Duration, String> {
    units::parse_duration(text).map_err(|error| error.to_string())
}

pub(crate) fn run(args: BundleCommand) -> anyhow::Result<ExitCode> {
    match args {
        BundleCommand::Send(args) => send(&args),
        BundleCommand::Receive(args) => receive(&args),
        BundleCommand::List(args) => list(&args),
    }
}

fn send(args: &SendArgs) -> anyhow::Result<ExitCode> {
    let contents = contents(&args.file)?;
    let own = args.file.file_name().and_then(|name| name.to_str());
    // Standard input has no name.
    let own = own.filter(|_| args.file != Path::new("-")).map(str::to_owned);
    let offer = BundleOffer {
        destination: args.to.clone(),
        lifetime_s: args.lifetime.as_secs(),
        name: args.name.clone().or(own),
        length: contents.len() as u64,
        made: None,
        report: args.report,
    };
    let id = connect(&args.which)?.send(offer, &mut &contents[..])?;
    print(&format!("{id}\n"))?;
    Ok(ExitCode::SUCCESS)
}

fn contents(file: &Path) -> anyhow::Result<Vec<u8>> {
    let mut contents = Vec::new();
    if file == Path::new("-") {
        io::stdin().lock().read_to_end(&mut contents)?;
        return Ok(contents);
    }
    let problem = || format!("cannot read {}", file.display());
    File::open(file).and_then(|mut file| file.read_to_end(&mut contents)).with_context(problem)?;
    Ok(contents)
}

fn receive(args: &ReceiveArgs) -> anyhow::Result<ExitCode> {
    loop {
        // Connects anew each time, because the gateway may have restarted.
        let mut client = connect(&args.which)?;
        if let Some((bundle, _, length)) = client.next(&args.service)? {
            let written = client
                .payload(&bundle.id, length)
                .and_then(|payload| write(args.output.as_deref(), &payload));
            // A bundle that could not be written is offered again.
            client.report_taken(&bundle.id, written.is_ok())?;
            written?;
            return Ok(ExitCode::SUCCESS);
        }
        if !args.wait {
            crate::print_to_stderr(format_args!("no bundle for {} has arrived", args.service));
            return Ok(ExitCode::from(1));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Writes a payload and syncs it to disk, because the gateway forgets the bundle afterwards.
fn write(output: Option<&Path>, payload: &[u8]) -> anyhow::Result<()> {
    let Some(path) = output else {
        let mut out = io::stdout().lock();
        return Ok(out.write_all(payload).and_then(|()| out.flush())?);
    };
    let problem = || format!("cannot write {}", path.display());
    let mut file =
        OpenOptions::new().write(true).create_new(true).open(path).with_context(problem)?;
    let written = file
        .write_all(payload)
        .and_then(|()| file.sync_all())
        // Without this, a power cut may undo the creation.
        .and_then(|()| sync_directory(path));
    if written.is_err() {
        // A partial file is of no use, and would block the next attempt.
        let _ = fs::remove_file(path);
    }
    written.with_context(problem)
}

fn list(args: &ListArgs) -> anyhow::Result<ExitCode> {
    let bundles = connect(&args.which)?.list()?;
    if args.json {
        let lines: Result<Vec<String>, _> = bundles.iter().map(serde_json::to_string).collect();
        print(&lines?.iter().map(|line| format!("{line}\n")).collect::<String>())?;
        return Ok(ExitCode::SUCCESS);
    }
    if bundles.is_empty() {
        print("no bundles\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = bundles.iter().map(row);
    let head = ["state", "bytes", "since", "expires", "from", "to", "identity"].map(str::to_owned);
    let rows: Vec<[String; 7]> = [head].into_iter().chain(rows).collect();
    print(&aligned(&rows))?;
    Ok(ExitCode::SUCCESS)
}

fn row(bundle: &BundleStatus) -> [String; 7] {
    let time = |seconds: f64| units::format_duration(Duration::from_secs(seconds as u64));
    [
        bundle.state.clone(),
        bundle.bytes.to_string(),
        time(bundle.age_s),
        format!("in {}", time(bundle.expires_s)),
        bundle.source.clone(),
        bundle.destination.clone(),
        bundle.id.clone(),
    ]
}

fn aligned(rows: &[[String; 7]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; 7] = std::array::from_fn(width);
    let line = |row: &[String; 7]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// Returns the error of an answer that does not fit the request.
fn unexpected<T>(what: impl std::fmt::Debug) -> anyhow::Result<T> {
    bail!("unexpected answer of the gateway: {what:?}")
}

#[cfg(test)]
mod tests {
    use os::testkit::durable_steps;

    use super::*;

    #[test]
    fn a_payload_and_its_name_are_on_the_disk_before_the_gateway_forgets_the_bundle() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report");
        let steps = durable_steps(directory.path(), || write(Some(&path), b"it").unwrap());
        let Some(steps) = steps else { return };
        assert_eq!(steps, ["sync report", "sync ."]);
    }
}
