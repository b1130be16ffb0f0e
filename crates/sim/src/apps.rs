//! Applications: each drives both ends of its communication.

mod bulk;
mod bundles;
mod cbr;
mod chance;
mod ftp;
mod lookups;
mod mail;
mod page;
mod request;
mod users;

pub use self::bundles::BundleTransfer;
pub use bulk::{BulkAmount, BulkTransfer};
pub use cbr::CbrSource;
pub use ftp::FtpTransfer;
pub use lookups::ResolutionSetup;
pub use mail::MailTransfer;
pub use page::PageLoads;
pub use request::RequestReply;
pub use users::WebUsers;

use crate::app::{AppNotice, WorkUnit};
use crate::ids::AppId;
use crate::world::App;
