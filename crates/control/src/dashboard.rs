//! The dashboard: its page, the last hour that it shows, and the messages for its viewers.

mod history;
mod page;
mod state;
mod viewer;

pub use page::{PageDocument, dashboard_page, login_page};
pub use state::{ConnectionInterest, DashboardState, ShownConnections, hide_destinations};
pub use viewer::{ViewerMessages, ViewerQuery};
