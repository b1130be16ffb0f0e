//! Enrolment as a service of the hub.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;

use slacp::{Destination, PublicKey, ResetReason, StreamOpening};
use tokio::task::JoinSet;

use super::super::{Service, Surroundings};
use super::etcd::EtcdClient;
use super::serve::PendingEnrolment;
use super::{is_enrolment, serve};
use crate::hop::SessionStream;
use crate::process::runtime::joined;

/// Enrolments in progress, one at a time for each invitation.
#[derive(Default)]
pub(crate) struct Enrolments {
    /// Keys of the invitations being replaced.
    enrolling: BTreeSet<PublicKey>,
    tasks: JoinSet<PublicKey>,
    ended: Option<PublicKey>,
}

impl Service for Enrolments {
    fn answers(&self, destination: &Destination) -> bool {
        is_enrolment(destination)
    }

    /// Lets an invited terminal replace its invitation with its own key.
    fn answer(
        &mut self,
        role: &mut Surroundings<'_>,
        stream: SessionStream,
        open: &StreamOpening<Destination>,
    ) {
        let terminal = role.terminal(stream.session()).filter(|terminal| terminal.invited);
        let permits = role.hub.as_ref().map(|hub| hub.permits);
        let found = terminal.zip(permits).and_then(|(terminal, permits)| {
            Some((terminal, permits, permits.location_of(&terminal.name)?))
        });
        let Some((terminal, permits, permit)) = found else {
            return role.refuse(stream, open, ResetReason::Prohibited);
        };
        if !self.enrolling.insert(terminal.key) {
            return role.refuse(stream, open, ResetReason::Limit);
        }
        let key = terminal.key;
        let enrolment = PendingEnrolment {
            name: terminal.name.clone(),
            invitation: key,
            others: permits.all().iter().map(|terminal| terminal.key).collect(),
            permit,
            etcd: permits.config().etcd.as_ref().map(EtcdClient::new),
        };
        self.tasks.spawn(async move {
            serve(stream, enrolment).await;
            key
        });
    }

    fn next(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async { self.ended = Some(joined(&mut self.tasks).await) })
    }

    fn work(&mut self, role: &mut Surroundings<'_>) {
        if let Some(key) = self.ended.take() {
            self.enrolling.remove(&key);
        }
        // The terminal waits for its new key to be served.
        role.hub.iter_mut().for_each(|hub| *hub.is_permit_changed = true);
    }
}
