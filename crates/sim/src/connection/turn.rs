//! Exchanges of a request and its reply, of which only the sizes are simulated.

/// A request and its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangeSizes {
    /// Bytes from client to server.
    pub request: u64,
    /// Bytes from server to client, sent once the request is complete.
    pub reply: u64,
}
