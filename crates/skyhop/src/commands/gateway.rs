//! `skyhop hub`, `skyhop terminal`, `skyhop solo` and `skyhop keygen`.

use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;

use gateway::RunError;
use gateway::config::{read_hub, read_solo, read_terminal};
use gateway::keys::{PrivateKey, format_public_key};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit code of a gateway that failed while running.
const FAILED: u8 = 1;

/// The arguments of `skyhop hub`.
#[derive(clap::Args)]
pub(crate) struct HubArgs {
    /// Configuration file; /dev/stdin works too
    config: PathBuf,
    /// Print the interception and tunnel rules in nft and ip syntax, and exit
    #[arg(long)]
    print_rules: bool,
    /// Take the place of the hub that runs with this file; `skyhop upgrade` does this
    #[arg(long)]
    take_over: bool,
}

/// The arguments of `skyhop terminal`.
#[derive(clap::Args)]
pub(crate) struct TerminalArgs {
    /// Configuration file; /dev/stdin works too
    config: PathBuf,
    /// Print the interception and tunnel rules in nft and ip syntax, and exit
    #[arg(long)]
    print_rules: bool,
}

/// The arguments of `skyhop solo`.
#[derive(clap::Args)]
pub(crate) struct SoloArgs {
    /// Configuration file; /dev/stdin works too
    config: PathBuf,
    /// Print the interception rules in nft and ip syntax, and exit
    #[arg(long)]
    print_rules: bool,
}

/// The arguments of `skyhop keygen`.
#[derive(clap::Args)]
pub(crate) struct KeygenArgs {
    /// New file for the private key, readable only by you; the public key goes to standard output.
    /// Without a file, print both keys
    file: Option<PathBuf>,
}

/// Runs a hub until SIGINT or SIGTERM.
pub(crate) fn hub(args: &HubArgs) -> anyhow::Result<ExitCode> {
    let config = read_hub(&args.config)?;
    if args.print_rules {
        crate::print(&gateway::hub::print_rules(&config))?;
        return Ok(ExitCode::SUCCESS);
    }
    let _log = gateway::log::start(config.operation.log.as_ref())?;
    serve(config.link.burst.is_none(), |stop| gateway::hub::run(config, args.take_over, stop))
}

/// Runs a terminal until SIGINT or SIGTERM.
pub(crate) fn terminal(args: &TerminalArgs) -> anyhow::Result<ExitCode> {
    let config = read_terminal(&args.config)?;
    if args.print_rules {
        crate::print(&gateway::terminal::print_rules(&config))?;
        return Ok(ExitCode::SUCCESS);
    }
    let _log = gateway::log::start(config.operation.log.as_ref())?;
    serve(config.link.burst.is_none(), |stop| gateway::terminal::run(config, stop))
}

/// Runs a solo gateway until SIGINT or SIGTERM.
pub(crate) fn solo(args: &SoloArgs) -> anyhow::Result<ExitCode> {
    let config = read_solo(&args.config)?;
    if args.print_rules {
        crate::print(&gateway::solo::print_rules(&config))?;
        return Ok(ExitCode::SUCCESS);
    }
    let _log = gateway::log::start(config.operation.log.as_ref())?;
    // skyhop's own TCP paces its packets itself, so the thread must wake up for each.
    serve(config.stack.is_none(), |stop| gateway::solo::run(config, stop))
}

/// Generates a key pair; writes the private key to a file, or prints both keys.
pub(crate) fn keygen(args: &KeygenArgs) -> anyhow::Result<ExitCode> {
    let key = PrivateKey::generate()?;
    let public = format_public_key(&key.public());
    match &args.file {
        Some(file) => {
            key.write_file(file)?;
            crate::print(&format!("{public}\n"))?;
        }
        None => {
            let private = key.to_base64();
            crate::print(&format!("private_key = \"{private}\"\n# public key: {public}\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a gateway on this thread alone (`gateway::driver` explains why). With `gathers`, the thread
/// gathers packets instead of waking up for each.
fn serve<F>(gathers: bool, run: impl FnOnce(StopSignal) -> F) -> anyhow::Result<ExitCode>
where
    F: Future<Output = Result<(), RunError>>,
{
    let runtime = gateway::runtime::start(gathers)?;
    let result = runtime.block_on(async { run(stop()?).await.map_err(anyhow::Error::from) });
    // Does not wait for name lookups that still run on threads of their own.
    runtime.shutdown_background();
    match result {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => match error.downcast_ref::<RunError>() {
            Some(run_error) if !run_error.is_setup() => {
                tracing::error!("{error:#}");
                Ok(ExitCode::from(FAILED))
            }
            // The caller's exit code tells that the gateway never ran.
            _ => Err(error),
        },
    }
}

/// Completes at the first SIGINT or SIGTERM.
type StopSignal = std::pin::Pin<Box<dyn Future<Output = ()>>>;

fn stop() -> anyhow::Result<StopSignal> {
    let mut interrupt: Signal = signal(SignalKind::interrupt())?;
    let mut terminate: Signal = signal(SignalKind::terminate())?;
    Ok(Box::pin(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }))
}
