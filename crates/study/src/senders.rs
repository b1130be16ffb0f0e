//! Our TCP sender against the kernel's, on the same links.
//!
//! Each run starts a new lab with the run's seed for every sender, one after the other, so that
//! changes in the machine's load affect all senders. The client is always the kernel's; only the
//! sender differs.

mod table;
mod transfer;

use std::path::PathBuf;

use lab::{Preset, TestObject};
use meter::{CongestionControl, CongestionError};
use tcp::Config;
use tcp::cc::{ControllerSpec, FastRecovery};

pub use table::{ControllerRow, SenderResults};
pub use transfer::TransferError;
use transfer::{SenderTransfer, SendingTcp};

/// A comparison of senders that is to be run.
#[derive(Debug)]
pub struct SenderComparison {
    /// The link that transfers cross.
    pub preset: Preset,
    /// The seed of the first run; each run has the next one.
    pub first_seed: u64,
    /// Number of runs, each with a seed of its own.
    pub runs: u32,
    /// The object that is transferred.
    pub object: TestObject,
    /// The congestion controls to compare.
    pub controllers: Vec<ControllerPair>,
    /// Further settings of our endpoint.
    pub options: Config,
    /// Write the packets of each transfer as pcapng, from both sides of the hop, into
    /// `CONTROLLER-SEED-kernel` and `CONTROLLER-SEED-skyhop` of this directory.
    pub pcap: Option<PathBuf>,
}

/// A congestion control of ours, and the kernel's of the same name.
#[derive(Debug, Clone)]
pub struct ControllerPair {
    ours: ControllerSpec,
    kernels: CongestionControl,
}

impl TryFrom<ControllerSpec> for ControllerPair {
    type Error = CongestionError;

    /// Ours may have options: `cubic:hystart=2011`.
    fn try_from(ours: ControllerSpec) -> Result<Self, CongestionError> {
        let kernels = ours.to_string().split(':').next().unwrap_or_default().parse()?;
        Ok(Self { ours, kernels })
    }
}

impl SenderComparison {
    /// Returns the number of transfers in all runs.
    pub fn transfers(&self) -> u64 {
        u64::from(self.runs) * 2 * self.controllers.len() as u64
    }

    /// Runs all transfers, after [`lab::enter`]. `begin` is called before each, with the number of
    /// those that are done and what comes next.
    ///
    /// # Errors
    /// If a transfer fails.
    pub fn compare(
        &self,
        mut begin: impl FnMut(u64, &str),
    ) -> Result<SenderResults, TransferError> {
        let rows = self.controllers.iter().map(|both| ControllerRow::new(both.ours.to_string()));
        let mut rows: Vec<ControllerRow> = rows.collect();
        let mut done = 0;
        for run in 0..self.runs {
            let seed = self.first_seed + u64::from(run);
            for (controllers, row) in self.controllers.iter().zip(&mut rows) {
                for sender in self.senders(controllers, run) {
                    let name = &row.controller;
                    let who = sender.name();
                    begin(done, &format!("{name} {who}, seed {seed}"));
                    let pcap = self.pcap.as_ref();
                    let pcap = pcap.map(|dir| dir.join(format!("{name}-{seed}-{who}")));
                    let transfer =
                        SenderTransfer { preset: &self.preset, seed, object: self.object, pcap };
                    let samples = match &sender {
                        SendingTcp::Kernel(_) => &mut row.kernel,
                        SendingTcp::Ours(_) => &mut row.skyhop,
                    };
                    samples.push(transfer.run(sender)?);
                    done += 1;
                }
            }
        }
        Ok(SenderResults::new(self.object, self.first_seed, self.runs, rows))
    }

    /// Returns both senders, in alternating order, so that neither always goes first.
    fn senders(&self, controllers: &ControllerPair, run: u32) -> [SendingTcp; 2] {
        let kernel = SendingTcp::Kernel(controllers.kernels.clone());
        let ours = SendingTcp::Ours(self.endpoint(&controllers.ours));
        if run.is_multiple_of(2) { [kernel, ours] } else { [ours, kernel] }
    }

    /// Configures our endpoint with this controller. Like Linux, it uses the same loss recovery
    /// with every controller, and stays in recovery until all losses are repaired: RFC 2581's Reno
    /// does not, and would halve its window for each loss in a window.
    fn endpoint(&self, controller: &ControllerSpec) -> Box<Config> {
        let recovery = self.options.recovery.unwrap_or(FastRecovery::NewReno);
        let controller = controller.clone();
        Box::new(Config { controller, recovery: Some(recovery), ..self.options.clone() })
    }
}
