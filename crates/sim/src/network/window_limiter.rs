//! The state of a gateway that limits windows instead of splitting connections.

use pep::traffic::window::WindowLimits;

use crate::ids::LinkId;
use crate::slab::SlabKey;

/// A gateway that lowers the windows of the senders behind it.
#[derive(Debug)]
pub(crate) struct WindowLimiter {
    pub(crate) windows: WindowLimits<SlabKey>,
    /// The link whose queue it keeps short.
    pub(crate) lane: LinkId,
}
