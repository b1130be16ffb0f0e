//! The demo: its measurements in the lab or in the simulator, and their results as tables, a page and JSON.

mod default_control;
pub(crate) mod demo;
pub mod entry;
pub mod figures;
pub mod machine;
mod measure;
pub mod on_demand;
mod page;
pub(crate) mod progress;
pub mod results;
mod simulate;
pub mod summary;
