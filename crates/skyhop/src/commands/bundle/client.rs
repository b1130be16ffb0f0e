//! A client of the gateway's control socket that hands over and takes bundles.

use std::io::Read;

use control::protocol::{
    BundleAnswer, BundleOffer, BundleRequest, ControlAnswer, ControlRequest, from_base64, to_base64,
};
use control::status::BundleStatus;
use gateway::control_socket::ControlClient;

use super::unexpected;

/// Bytes of payload per request. In base64 they fit into the 64 kB that a request may have.
const MAX_PIECE: usize = 45_000;

pub(super) struct BundleClient(ControlClient);

impl BundleClient {
    pub(super) fn new(control: ControlClient) -> Self {
        Self(control)
    }

    fn ask(&mut self, request: BundleRequest) -> anyhow::Result<BundleAnswer> {
        match self.0.ask(&ControlRequest::Bundle(request))? {
            ControlAnswer::Bundle(answer) => Ok(*answer),
            other => unexpected(other),
        }
    }

    /// Hands over a bundle; returns its identity once it is on the gateway's disk.
    pub(super) fn send(
        &mut self,
        offer: BundleOffer,
        payload: &mut impl Read,
    ) -> anyhow::Result<String> {
        let handle = match self.ask(BundleRequest::Offer(offer))? {
            BundleAnswer::Handle(handle) => handle,
            other => return unexpected(other),
        };
        let mut piece = Vec::new();
        while payload.by_ref().take(MAX_PIECE as u64).read_to_end(&mut piece)? > 0 {
            self.ask(BundleRequest::Data { handle, base64: to_base64(&piece) })?;
            piece.clear();
        }
        match self.ask(BundleRequest::End { handle })? {
            BundleAnswer::Stored(id) => Ok(id),
            other => unexpected(other),
        }
    }

    pub(super) fn list(&mut self) -> anyhow::Result<Vec<BundleStatus>> {
        match self.ask(BundleRequest::List)? {
            BundleAnswer::List(bundles) => Ok(bundles),
            other => unexpected(other),
        }
    }

    /// Returns the state of a bundle; `None` if the gateway does not know it.
    pub(super) fn state(&mut self, id: &str) -> anyhow::Result<Option<String>> {
        match self.ask(BundleRequest::State { id: id.to_owned() })? {
            BundleAnswer::State(state) => Ok(state),
            other => unexpected(other),
        }
    }

    /// Returns the next bundle for a service, the name of its file, and the size of its payload in bytes.
    pub(super) fn next(
        &mut self,
        service: &str,
    ) -> anyhow::Result<Option<(BundleStatus, Option<String>, u64)>> {
        match self.ask(BundleRequest::Next { service: service.to_owned() })? {
            BundleAnswer::Next(next) => Ok(next),
            other => unexpected(other),
        }
    }

    pub(super) fn payload(&mut self, id: &str, length: u64) -> anyhow::Result<Vec<u8>> {
        let mut payload = Vec::new();
        while (payload.len() as u64) < length {
            let request = BundleRequest::Read { id: id.to_owned(), offset: payload.len() as u64 };
            match self.ask(request)? {
                // An empty piece before the end would be requested for ever.
                BundleAnswer::Data(data) if !data.is_empty() => payload.extend(from_base64(&data)?),
                other => return unexpected(other),
            }
        }
        Ok(payload)
    }

    pub(super) fn report_taken(&mut self, id: &str, taken: bool) -> anyhow::Result<()> {
        match self.ask(BundleRequest::Taken { id: id.to_owned(), taken })? {
            BundleAnswer::Stored(_) => Ok(()),
            other => unexpected(other),
        }
    }
}
