//! What the hub pushes to a terminal's clients.

use std::sync::Arc;
use std::time::Duration;

use pep::http::{Asked, Body, Key, Parsed, Promised, RequestHead};
use slacp::{Destination, Open, ResetReason, client_network};
use tokio::time::timeout;

use super::Shared;
use super::conversation::{Conversation, Fate, place};
use super::exchange::{Reply, read_reply};
use super::hub::secure_name;
use super::record::Recording;
use super::wire::{As, Broken, Inlet, Wire, pass};
use crate::clock;
use crate::hop::Stream;

/// How long a hub may take to push something.
const LIMIT: Duration = Duration::from_secs(30);

/// Takes in what the hub pushes.
pub(crate) async fn pushed(shared: Arc<Shared>, stream: Stream, open: Open<Destination>) {
    let taken = timeout(LIMIT, take(&shared, &stream, &open)).await;
    if let Err(reason) = taken.unwrap_or(Err(ResetReason::TimedOut)) {
        stream.reset(reason);
    }
}

async fn take(
    shared: &Shared,
    stream: &Stream,
    open: &Open<Destination>,
) -> Result<(), ResetReason> {
    let (wire, mut inlet) = (Wire::Stream(stream), Inlet::default());
    let mut request = loop {
        match inlet.head(RequestHead::parse) {
            Parsed::Head(head, length) => {
                inlet.consume(length);
                break head;
            }
            Parsed::Incomplete if inlet.fill(wire).await? => {}
            _ => return Err(ResetReason::Prohibited),
        }
    };
    let by_tls = secure_name(&mut request)?.is_some();
    let key = Key {
        destination: place(&open.destination, by_tls),
        host: request.host().ok_or(ResetReason::Prohibited)?,
        target: request.target.clone(),
    };
    let (client, now) = (open.source.ip(), clock::now());
    let has = shared.kept.lock().has(clock::unix_time(), &key, &request);
    let wanted = !has && shared.promises().handle_promise(now, client, key.clone());
    stream.heard();
    if !wanted {
        return Err(ResetReason::Prohibited);
    }
    wire.finish().await?;
    let came = receive(shared, (wire, &mut inlet), (open, &key), request).await;
    if came.is_err() {
        shared.promises().handle_failure(client, &key);
    }
    shared.came.notify_waiters();
    came
}

async fn receive(
    shared: &Shared,
    (wire, inlet): (Wire<'_>, &mut Inlet),
    (open, key): (&Open<Destination>, &Key),
    request: RequestHead,
) -> Result<(), ResetReason> {
    let at = clock::unix_time();
    let Reply::Head(reply, length) = read_reply(wire, inlet, None).await? else {
        return Err(ResetReason::Reset);
    };
    inlet.consume(length);
    let framing = reply.framing("GET").map_err(|_| ResetReason::Prohibited)?;
    let mut recording = Recording::new(&shared.kept);
    let mut body = Body::new(framing);
    let record = |bytes: &[u8]| recording.add(bytes);
    match pass((wire, inlet), (wire, As::Nothing), &mut body, record, |_| {}).await {
        Ok(true) => {}
        Ok(false) => return Err(ResetReason::Reset),
        Err(Broken::From(reason) | Broken::To(reason)) => return Err(reason),
    }
    // Its end, without which the stream would be reset.
    while inlet.fill(wire).await? {
        inlet.clear();
    }
    let bytes = recording.whole().ok_or(ResetReason::Limit)?;
    let (client, network) = (open.source.ip(), client_network(open.source.ip()));
    let body = (bytes.clone(), bytes.len() as u64);
    let asked = Asked {
        key: key.clone(),
        request: request.clone(),
        keep: true,
        validates: None,
        client: network,
        at,
    };
    let now = (clock::now(), clock::unix_time());
    shared.kept.change(|cache| cache.handle_pushed(now.1, &asked, &reply, body.clone()));
    shared.promises().handle_response(now, (client, key), request, &reply, body);
    Ok(())
}

impl Conversation {
    /// Answers with what was pushed, for which the client waits if it is coming. [`None`] if there is
    /// nothing.
    pub(super) async fn promised(&mut self, key: &Key, request: &RequestHead) -> Option<Fate> {
        let (shared, client) = (self.shared.clone(), self.open.source.ip());
        loop {
            let mut came = std::pin::pin!(shared.came.notified());
            came.as_mut().enable();
            let now = (clock::now(), clock::unix_time());
            let found = shared.promises().handle_request(now, client, key, request);
            let until = match found {
                Promised::Nothing => return None,
                Promised::Here(head, part, body) => {
                    let part = match part {
                        Some(part) => {
                            let from = usize::try_from(part.from).ok()?;
                            Some(body.get(from..from + usize::try_from(part.length).ok()?)?)
                        }
                        None => None,
                    };
                    return Some(self.say(request, head, part, "hit; detail=pushed").await);
                }
                Promised::Coming(until) => until,
            };
            tokio::select! {
                () = came => {}
                () = clock::sleep_until(Some(until)) => {}
                () = self.leg.failure() => return Some(Fate::Broken(ResetReason::Reset)),
            }
        }
    }
}
