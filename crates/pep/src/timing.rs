//! Times at which recurring work and reports are due.

mod periodic;
mod reminder;

pub use periodic::Periodic;
pub use reminder::Reminder;
