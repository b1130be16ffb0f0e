//! What operators see of a running gateway, and what they may ask of it. No I/O and no clock: the gateway hands in
//! its figures, and the bytes of its sockets.
//!
//! | module | contents |
//! |---|---|
//! | `protocol` | requests and answers on the control socket |
//! | `status` | the state of a gateway at a moment, and its text |
//! | `metrics` | the status as metrics for Prometheus |
//! | `dashboard` | the page, the last hour that it shows, and the messages for its viewers |
//! | `table` | tables that declare a figure once for status, JSON, metrics and, where it is counted here, its counter |

#![forbid(unsafe_code)]

mod counter;
pub mod dashboard;
pub mod metrics;
pub mod protocol;
mod role;
pub mod status;
mod table;

pub use counter::Counter;
pub use role::Role;
