//! Processes: forks, handles, signals, and a command that ends with its supervisor.

mod fork;
mod handle;
mod signals;
mod supervise;

pub use fork::{fork, in_child, threads};
pub use handle::Handle;
pub use signals::{endings, leave_signals_to_the_command};
pub use supervise::attend;
pub(crate) use supervise::split;
