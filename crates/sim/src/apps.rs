//! Applications: each drives both ends of its communication.

mod bulk;
mod bundles;
mod cbr;
mod ftp;
mod lookups;
mod mail;
mod page;
mod request;
mod users;

pub use self::bundles::Bundles;
pub use bulk::{Amount, Bulk};
pub use cbr::Cbr;
pub use ftp::Ftp;
pub use lookups::Resolution;
pub use mail::Mail;
pub use page::Page;
pub use request::RequestReply;
pub use users::Users;

use crate::app::{Deed, Notice};
use crate::ids::AppId;
use crate::world::App;
