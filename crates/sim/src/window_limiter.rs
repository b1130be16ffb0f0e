//! The state of a gateway that limits windows instead of splitting connections.

use pep::window::Windows;

use crate::ids::LaneId;
use crate::slab::Key;

/// A gateway that lowers the windows of the senders behind it.
#[derive(Debug)]
pub(crate) struct WindowLimiter {
    pub(crate) windows: Windows<Key>,
    /// The link whose queue it keeps short.
    pub(crate) lane: LaneId,
}
