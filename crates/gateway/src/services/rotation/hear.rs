//! The terminal's side of key rotation: stores the next key that its hub announces.

use std::future::Future;
use std::pin::Pin;

use slacp::{Destination, Open, PublicKey, ResetReason};
use tokio::task::JoinSet;

use super::super::{Service, Surroundings};
use super::{confirm, heard_key, is_meant};
use crate::hop::Stream;
use crate::runtime::joined;

/// Receives announcements of hubs' next keys.
#[derive(Default)]
pub(crate) struct KeyListener {
    hearing: JoinSet<Heard>,
    heard: Option<Heard>,
}

/// An announcement, and the stream to confirm it on.
struct Heard {
    stream: Stream,
    key: Result<PublicKey, ResetReason>,
}

impl Service for KeyListener {
    fn answers(&self, destination: &Destination) -> bool {
        is_meant(destination)
    }

    fn answer(&mut self, _: &mut Surroundings<'_>, stream: Stream, _: &Open<Destination>) {
        self.hearing.spawn(async move {
            let key = heard_key(&stream).await;
            Heard { stream, key }
        });
    }

    fn next(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async { self.heard = Some(joined(&mut self.hearing).await) })
    }

    fn work(&mut self, role: &mut Surroundings<'_>) {
        let (Some(Heard { stream, key }), Some(keys)) = (self.heard.take(), &mut role.keys) else {
            return;
        };
        match key.and_then(|key| keys.learn(role.now, stream.session(), key)) {
            Ok(()) => drop(role.relays.spawn(confirm(stream))),
            Err(reason) => stream.reset(reason),
        }
    }
}
