//! Processes: forks, handles, signals, and a command that ends with its supervisor.

mod fork;
mod handle;
mod signals;
mod supervise;

pub use fork::{fork, in_child, threads};
pub use handle::Handle;
pub use signals::{leave_signals_to_the_command, terminating_signals};
pub use supervise::run_supervised;
pub(crate) use supervise::split;
