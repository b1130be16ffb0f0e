//! The hub's side of enrolment: receives a terminal's key, and writes it into the permit.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use config::PermittedTerminals;
use slacp::{Destination, PublicKey, ResetReason};
use tokio::time::timeout;

use super::ENROL_HOST;
use super::etcd::EtcdClient;
use crate::config::keys::format_public_key;
use crate::config::permits::{PermitLocation, remote_path};
use crate::config::whole_file::{PUBLIC, replace};
use crate::hop::SessionStream;
use crate::services::key_message;

/// Time limit for receiving a key.
const KEY_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns `true` for the destination of an enrolment stream.
pub(crate) fn is_enrolment(destination: &Destination) -> bool {
    matches!(destination, Destination::Name(name, _) if name.as_str() == ENROL_HOST)
}

/// An invitation to be replaced with its terminal's key.
pub(crate) struct PendingEnrolment {
    /// Name of the terminal, for the log.
    pub(super) name: String,
    pub(super) invitation: PublicKey,
    /// Keys of all terminals, which this one must not have.
    pub(super) others: BTreeSet<PublicKey>,
    pub(super) permit: PermitLocation,
    pub(super) etcd: Option<EtcdClient>,
}

/// Receives the terminal's key on `stream`, and writes it into the permit in place of the invitation.
pub(crate) async fn serve(stream: SessionStream, enrolment: PendingEnrolment) {
    let PendingEnrolment { name, invitation, others, permit, etcd } = enrolment;
    let key = match timeout(KEY_TIMEOUT, read(&stream)).await {
        Ok(Ok(key)) => key,
        Ok(Err(reason)) => return stream.reset(reason),
        Err(_) => return stream.reset(ResetReason::TimedOut),
    };
    let written = match (&permit, etcd) {
        _ if others.contains(&key) => Err(io::Error::other("another terminal has its key")),
        (PermitLocation::File(path), _) => write(path, &invitation, &key),
        (PermitLocation::Etcd(permit), Some(etcd)) => put(&etcd, permit, &invitation, &key).await,
        (PermitLocation::Etcd(_), None) => Err(io::ErrorKind::NotFound.into()),
    };
    match written {
        Ok(()) => {
            tracing::info!("{name} has joined with the key {}", format_public_key(&key));
            // The changed permit ends the session, which tells the terminal.
            let _ = timeout(KEY_TIMEOUT, stream.reset_by_peer()).await;
        }
        Err(error) => {
            tracing::error!("{name} cannot join: {error}");
            stream.reset(ResetReason::Prohibited);
        }
    }
}

async fn read(stream: &SessionStream) -> Result<PublicKey, ResetReason> {
    stream.accept()?;
    key_message::read(stream).await?.key()
}

/// Replaces the invitation in a permit's file with the terminal's key.
fn write(permit: &Path, invitation: &PublicKey, key: &PublicKey) -> io::Result<()> {
    let failed = |error| io::Error::other(format!("{}: {error}", permit.display()));
    let text = fs::read_to_string(permit).map_err(failed)?;
    let enrolled = PermittedTerminals::enrol(permit, &text, invitation, key);
    let enrolled = enrolled.map_err(io::Error::other)?;
    replace(permit, enrolled.as_bytes(), PUBLIC)
}

/// As `write`, for a permit in etcd, which must not change in between.
async fn put(
    etcd: &EtcdClient,
    permit: &str,
    invitation: &PublicKey,
    key: &PublicKey,
) -> io::Result<()> {
    let before = etcd.get(permit).await.map_err(io::Error::other)?;
    let before = before.ok_or(io::ErrorKind::NotFound)?;
    let enrolled = PermittedTerminals::enrol(&remote_path(permit), &before.text, invitation, key);
    let enrolled = enrolled.map_err(io::Error::other)?;
    etcd.put(permit, Some(&before), &enrolled).await.map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::keys::PrivateKey;
    use crate::testkit::{Alarm, Hops};

    #[tokio::test]
    async fn an_invitation_takes_a_new_key_and_no_other_terminals() {
        let folder = tempfile::tempdir().unwrap();
        let permit = folder.path().join("ship.toml");
        let [invitation, own, other] = [(); 3].map(|()| PrivateKey::generate().unwrap().public());
        let text = format!("invite = \"{}\"\n", format_public_key(&invitation));
        for (key, is_taken) in [(other, false), (own, true)] {
            fs::write(&permit, &text).unwrap();
            let (mut hops, alarm) = (Hops::new(), Arc::<Alarm>::default());
            let [near, far] = hops.open();
            let said = format_public_key(&key);
            assert!(alarm.poll(|context| near.poll_write(context, said.as_bytes())).is_ready());
            near.finish().unwrap();
            hops.run();
            let enrolment = PendingEnrolment {
                name: "ship".to_owned(),
                invitation,
                others: [other].into(),
                permit: PermitLocation::File(permit.clone()),
                etcd: None,
            };
            let served = serve(far, enrolment);
            // One that has joined waits for the end of its session.
            assert_eq!(timeout(Duration::ZERO, served).await.is_err(), is_taken);
            let written = fs::read_to_string(&permit).unwrap();
            let expected = if is_taken { format!("key = \"{said}\"\n") } else { text.clone() };
            assert_eq!(written, expected);
        }
    }
}
