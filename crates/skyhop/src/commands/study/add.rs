//! `skyhop study add`: stores results from standard input.

use std::io::{self, BufRead, Read};
use std::process::ExitCode;

use anyhow::{Context, Result};
use study::campaign::CellRecord;

use super::StoreArg;

/// Arguments of `skyhop study add`.
#[derive(Debug, clap::Args)]
pub(crate) struct AddArgs {
    #[command(flatten)]
    store: StoreArg,
}

/// Maximum length of a line, in bytes.
const MAX_LINE: u64 = 16 << 20;

/// Stores the results on standard input as they arrive. The name of a result must match its contents.
pub(super) fn run(args: &AddArgs) -> Result<ExitCode> {
    let store = args.store.store();
    let mut input = io::stdin().lock();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        // Bounds the memory that a line without an end may take.
        let mut limited = (&mut input).take(MAX_LINE);
        let length = limited.read_until(b'\n', &mut line).context("cannot read standard input")?;
        if length == 0 {
            break;
        }
        let record: CellRecord = serde_json::from_slice(&line)
            .with_context(|| format!("line {number}: not a result"))?;
        store.put(&record).with_context(|| format!("line {number}"))?;
    }
    Ok(ExitCode::SUCCESS)
}
