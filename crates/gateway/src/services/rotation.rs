//! Rotation of a hub's key: the hub announces its next key over its sessions, and terminals store
//! it.
//!
//! ```text
//! hub with both keys                          terminal
//!  next_key_file ───stream to next-key.invalid: the next key──▶ state/terminal-hub-keys.json
//!                ◀──end of the stream: it is kept─────────────
//!                ◀──next handshake, with the next key─────────  the key before is dropped
//! ```

mod announce;
mod hear;
mod known;

use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use slacp::{Destination, HostName, PublicKey, ResetReason, SessionId, StreamOpening};
use tokio::time::timeout;

use crate::config::keys::format_public_key;
use crate::hop::{Hop, SessionStream};
use crate::process::clock;
use crate::services::key_message::read;

pub(crate) use announce::KeyAnnouncer;
pub(crate) use hear::KeyListener;
pub(crate) use known::HubKeys;
#[cfg(feature = "fuzzing")]
pub(crate) use known::check_file;

/// Host name of announcement streams. RFC 6761 §6.4 reserves `.invalid`, so it is no real host.
const ANNOUNCE_HOST: &str = "next-key.invalid";
/// Port of announcement streams, which has no meaning.
const ANNOUNCE_PORT: u16 = 1;
/// Time limit for the other side to send or store a key.
const KEY_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns `true` for the destination of an announcement stream.
fn is_announcement(destination: &Destination) -> bool {
    matches!(destination, Destination::Name(name, _) if name.as_str() == ANNOUNCE_HOST)
}

/// Announces the hub's next key to a terminal.
///
/// # Errors
/// The reason for which the terminal has not stored it.
async fn send_key(hop: Hop, session: SessionId, key: PublicKey) -> Result<(), ResetReason> {
    let name = HostName::new(ANNOUNCE_HOST).ok_or(ResetReason::Prohibited)?;
    let source = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let open =
        StreamOpening { destination: Destination::Name(name, ANNOUNCE_PORT), source, dscp: None };
    let opened = hop.open(clock::now(), session, open);
    // A terminal of an earlier version accepts no names.
    let stream = opened.map_err(|_| ResetReason::Prohibited)?;
    let told = async {
        write(&stream, format_public_key(&key).as_bytes()).await?;
        read(&stream).await
    };
    let said = timeout(KEY_TIMEOUT, told).await.unwrap_or(Err(ResetReason::TimedOut))?;
    if said.is_empty() { Ok(()) } else { Err(ResetReason::Prohibited) }
}

/// Reads the key announced on a stream. The caller ends the stream once it has stored the key.
///
/// # Errors
/// The stream carries no key.
async fn receive_key(stream: &SessionStream) -> Result<PublicKey, ResetReason> {
    stream.accept()?;
    timeout(KEY_TIMEOUT, read(stream)).await.unwrap_or(Err(ResetReason::TimedOut))?.key()
}

/// Confirms to the hub that its key is stored.
async fn confirm(stream: SessionStream) {
    // After a lost confirmation the hub announces the key again.
    let _ = poll_fn(|context| stream.poll_finish(context)).await;
}

async fn write(stream: &SessionStream, mut bytes: &[u8]) -> Result<(), ResetReason> {
    while !bytes.is_empty() {
        let count = poll_fn(|context| stream.poll_write(context, bytes)).await?;
        bytes = &bytes[count..];
    }
    poll_fn(|context| stream.poll_finish(context)).await
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use slacp::Config;
    use units::BitRate;

    use super::*;
    use crate::hop::HopEvent;
    use crate::testkit::Hops;

    /// What a terminal hears when a hub says this on a stream for its next key, and then ends it.
    async fn heard(said: &[u8]) -> Result<PublicKey, ResetReason> {
        let mut config = Config::new(BitRate::from_mbit(100));
        config.names = true;
        let mut hops = Hops::with(config);
        let (name, source) = (HostName::new(ANNOUNCE_HOST).unwrap(), ([0, 0, 0, 0], 0).into());
        let open = StreamOpening {
            destination: Destination::Name(name, ANNOUNCE_PORT),
            source,
            dscp: None,
        };
        let near = hops.hops[0].open(hops.now, hops.sessions[0], open).unwrap();
        let [_, events] = hops.run();
        let far = events.into_iter().find_map(|event| match event {
            HopEvent::Opened(stream, open) => {
                assert!(is_announcement(&open.destination));
                Some(stream)
            }
            _ => None,
        });
        let far = far.expect("the terminal hears of the stream");
        let (mut says, mut hears) = (pin!(write(&near, said)), pin!(receive_key(&far)));
        let (mut context, mut is_said) = (Context::from_waker(Waker::noop()), false);
        loop {
            is_said = is_said || says.as_mut().poll(&mut context).is_ready();
            if let Poll::Ready(heard) = hears.as_mut().poll(&mut context) {
                return heard;
            }
            hops.run();
        }
    }

    #[tokio::test]
    async fn a_terminal_hears_one_key_and_nothing_else() {
        let key = Hops::key(0);
        assert_eq!(heard(format_public_key(&key).as_bytes()).await, Ok(key));
        let twice = format_public_key(&key).repeat(2);
        for wrong in [&b""[..], b"AAAA", b"\xff\xfe", &[b'A'; 1 << 16], twice.as_bytes()] {
            assert_eq!(heard(wrong).await, Err(ResetReason::Prohibited), "{} bytes", wrong.len());
        }
    }
}
