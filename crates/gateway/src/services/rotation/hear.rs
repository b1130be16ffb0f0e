//! The terminal's side of key rotation: stores the next key that its hub announces.

use std::future::Future;
use std::pin::Pin;

use slacp::{Destination, PublicKey, ResetReason, StreamOpening};
use tokio::task::JoinSet;

use super::super::{Service, Surroundings};
use super::{confirm, is_announcement, receive_key};
use crate::hop::SessionStream;
use crate::process::runtime::joined;

/// Receives announcements of hubs' next keys.
#[derive(Default)]
pub(crate) struct KeyListener {
    receiving: JoinSet<ReceivedKey>,
    received: Option<ReceivedKey>,
}

/// An announcement, and the stream to confirm it on.
struct ReceivedKey {
    stream: SessionStream,
    key: Result<PublicKey, ResetReason>,
}

impl Service for KeyListener {
    fn answers(&self, destination: &Destination) -> bool {
        is_announcement(destination)
    }

    fn answer(
        &mut self,
        _: &mut Surroundings<'_>,
        stream: SessionStream,
        _: &StreamOpening<Destination>,
    ) {
        self.receiving.spawn(async move {
            let key = receive_key(&stream).await;
            ReceivedKey { stream, key }
        });
    }

    fn next(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async { self.received = Some(joined(&mut self.receiving).await) })
    }

    fn work(&mut self, role: &mut Surroundings<'_>) {
        let Some(ReceivedKey { stream, key }) = self.received.take() else { return };
        let Some(keys) = &mut role.keys else { return };
        match key.and_then(|key| keys.learn(role.now, stream.session(), key)) {
            Ok(()) => drop(role.relays.spawn(confirm(stream))),
            Err(reason) => stream.reset(reason),
        }
    }
}
