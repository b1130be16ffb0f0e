//! A hub pushes what a page names before the client asks for it (`docs/slacp.md`, Exchanges).

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use flate2::write::GzDecoder;
use futures_util::FutureExt;
use pep::config::PushConfig;
use pep::http::{Language, LinkReader, RequestHead, ResponseHead, in_fields, resolve};
use slacp::{Destination, Host, Open, ResetReason, SessionId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use units::Instant;

use super::hub::{HubHttp, Job, Request};
use super::wire::{Inlet, Wire};
use crate::clock;
use crate::figures::counters::Counter;
use crate::hop::Stream;

/// Pushes at a time.
const MOST_PUSHES: usize = 128;
/// How long one may take.
const LIMIT: Duration = Duration::from_secs(30);
/// What a terminal has, or does not want, is not pushed again for so long; and of how much that is known.
const KNOWN: Duration = Duration::from_secs(600);
const MOST_KNOWN: usize = 8192;
/// The most of a compressed page that is read, in bytes, and the most per byte of what is packed beyond
/// `FREELY_UNPACKED`. Pages that people write become 30 times shorter at most.
const MOST_UNPACKED: usize = 1 << 20;
const FREELY_UNPACKED: usize = 64 << 10;
const UNPACKED_PER_BYTE: usize = 32;
/// What is unpacked at once.
const PACKED_PIECE: usize = 1 << 10;
/// Fields of the page's request that go for what it names, too.
const SAME: [&str; 6] =
    ["user-agent", "accept-encoding", "accept-language", "cookie", "authorization", "dnt"];
const HOUR: Duration = Duration::from_secs(3600);

/// What is pushed to whom.
pub(super) struct Pushes {
    config: PushConfig,
    slots: Arc<Semaphore>,
    state: Mutex<State>,
    pub(super) pushed: Counter,
    pub(super) pushed_bytes: Counter,
}

#[derive(Default)]
struct State {
    /// What each terminal got in the hour that began then.
    spent: BTreeMap<SessionId, (Instant, u64)>,
    known: BTreeMap<(SessionId, String), Instant>,
}

impl Pushes {
    pub(super) fn new(config: PushConfig) -> Self {
        let (slots, state) = (Arc::new(Semaphore::new(MOST_PUSHES)), Mutex::default());
        let (pushed, pushed_bytes) = Default::default();
        Self { config, slots, state, pushed, pushed_bytes }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding this")
    }

    /// Whether to push this to a terminal, now that a page names it.
    fn wants(&self, now: Instant, session: SessionId, place: &str) -> bool {
        let mut state = self.lock();
        let known = state.known.get(&(session, place.to_owned()));
        if known.is_some_and(|since| now.saturating_since(*since) < KNOWN) {
            return false;
        }
        let (began, spent) = state.spent.entry(session).or_insert((now, 0));
        if now.saturating_since(*began) >= HOUR {
            (*began, *spent) = (now, 0);
        }
        *spent < self.config.hour.get()
    }

    fn spend(&self, session: SessionId, bytes: u64) {
        self.pushed_bytes.add(bytes);
        if let Some((_, spent)) = self.lock().spent.get_mut(&session) {
            *spent += bytes;
        }
    }

    /// A terminal has this, or does not want it.
    fn remember(&self, now: Instant, session: SessionId, place: String) {
        let mut state = self.lock();
        if state.known.len() >= MOST_KNOWN {
            state.known.retain(|_, since| now.saturating_since(*since) < KNOWN / 2);
        }
        if state.known.len() < MOST_KNOWN {
            state.known.insert((session, place), now);
        }
    }

    /// Forgets what sessions that have gone were pushed.
    pub(super) fn expire(&self, now: Instant) {
        let mut state = self.lock();
        state.known.retain(|_, since| now.saturating_since(*since) < KNOWN);
        state.spent.retain(|_, (began, _)| now.saturating_since(*began) < HOUR);
    }
}

/// What a page may still cost, in bytes and objects.
#[derive(Clone)]
pub(super) struct Budget {
    bytes: Arc<AtomicU64>,
    objects: Arc<AtomicU64>,
}

impl Budget {
    /// Takes this many bytes; returns whether there are so many.
    pub(super) fn take(&self, bytes: u64) -> bool {
        take(&self.bytes, bytes)
    }
}

fn take(from: &AtomicU64, count: u64) -> bool {
    let left = |left: u64| left.checked_sub(count);
    from.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok()
}

/// A document that is read as it passes.
pub(super) struct Page<'a> {
    http: &'a HubHttp,
    pushes: &'a Pushes,
    job: &'a Arc<Job>,
    request: &'a Request,
    budget: Budget,
    reader: LinkReader,
    /// Unpacks it first.
    packed: Option<PackedPage>,
    seen: BTreeSet<String>,
}

/// A compressed page, of which no more is unpacked than pages have that people write.
struct PackedPage {
    unpacker: GzDecoder<Vec<u8>>,
    packed: usize,
    unpacked: usize,
}

impl PackedPage {
    fn new() -> Self {
        Self { unpacker: GzDecoder::new(Vec::new()), packed: 0, unpacked: 0 }
    }

    /// Unpacks the next bytes, as far as that is possible. What cannot be unpacked names nothing.
    fn read(&mut self, bytes: &[u8], mut unpacked: impl FnMut(&[u8])) {
        // In small pieces: what is packed may be a thousand times as long.
        for piece in bytes.chunks(PACKED_PIECE) {
            let most = MOST_UNPACKED.min(FREELY_UNPACKED + self.packed * UNPACKED_PER_BYTE);
            if self.unpacked > most {
                return;
            }
            let written = self.unpacker.write_all(piece).and_then(|()| self.unpacker.flush());
            let out = std::mem::take(self.unpacker.get_mut());
            self.packed += piece.len();
            self.unpacked += if written.is_ok() { out.len() } else { MOST_UNPACKED + 1 };
            unpacked(&out);
        }
    }
}

impl<'a> Page<'a> {
    /// The page that is the answer to a request; [`None`] if it is none, or nothing is pushed. A style
    /// sheet that is pushed itself shares the `budget` of its page.
    pub(super) fn of(
        http: &'a HubHttp,
        job: &'a Arc<Job>,
        request: &'a Request,
        reply: &ResponseHead,
        budget: Option<Budget>,
    ) -> Option<Self> {
        let pushes = http.pushes()?;
        let language = Language::of(&reply.fields)?;
        let is_whole = reply.status == 200 && request.head.method == "GET";
        if !is_whole || !job.hop.peer_exchanges(job.stream.session()) {
            return None;
        }
        let is_gzip = |coding: &str| coding.eq_ignore_ascii_case("gzip").then_some(());
        let packed = match reply.fields.parsed("content-encoding", is_gzip) {
            Some(()) => Some(PackedPage::new()),
            None if reply.fields.has("content-encoding") => return None,
            None => None,
        };
        // Alone, a style sheet is most likely one of a page that the browser has.
        if language == Language::Css && budget.is_none() {
            return None;
        }
        let budget = budget.unwrap_or_else(|| Budget {
            bytes: Arc::new(AtomicU64::new(pushes.config.page.get())),
            objects: Arc::new(AtomicU64::new(pushes.config.objects)),
        });
        let (reader, seen) = (LinkReader::new(language), BTreeSet::new());
        let mut page = Self { http, pushes, job, request, budget, reader, packed, seen };
        in_fields(&reply.fields).iter().for_each(|name| page.push(name));
        Some(page)
    }

    /// Reads on. What it names is on its way before this returns.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        let mut names = Vec::new();
        let mut found = |name: &str| names.push(name.to_owned());
        match &mut self.packed {
            None => self.reader.read(bytes, &mut found),
            Some(packed) => packed.read(bytes, |page| self.reader.read(page, &mut found)),
        }
        names.iter().for_each(|name| self.push(name));
    }

    fn push(&mut self, name: &str) {
        let (head, scheme) = (&self.request.head, self.request.scheme());
        let host = head.host().unwrap_or_default();
        let Some(target) = resolve(scheme, &host, &head.target, name) else { return };
        if target == head.target || !self.seen.insert(target.clone()) {
            return;
        }
        let (now, session) = (clock::now(), self.job.stream.session());
        let place = format!("{} {host} {target}", self.job.open.destination);
        if !self.pushes.wants(now, session, &place) || !take(&self.budget.objects, 1) {
            return;
        }
        let Ok(slot) = self.pushes.slots.clone().try_acquire_owned() else { return };
        let request = self.request_for(target);
        let Some(stream) = self.open(now, &request) else { return };
        let push = Push { stream, request, place, budget: self.budget.clone(), _slot: slot };
        tokio::spawn(run(self.http.clone(), self.job.clone(), push));
    }

    /// Opens a stream that says at once what comes, so that it goes before the page.
    fn open(&self, now: Instant, request: &Request) -> Option<Stream> {
        let host = match &self.job.open.destination {
            Destination::Address(address) => Host::Address(*address),
            Destination::Name(name, port) => Host::Name(name.clone(), *port),
            Destination::Resolver | Destination::Exchange(_) | Destination::Bundles => return None,
        };
        let (destination, source) = (Destination::Exchange(host), self.job.open.source);
        let open = Open { destination, source, dscp: None };
        let stream = self.job.hop.open(now, self.job.stream.session(), open).ok()?;
        let written = Wire::Stream(&stream).write(&request.for_terminal()).now_or_never();
        matches!(written, Some(Ok(()))).then_some(stream)
    }

    fn request_for(&self, target: String) -> Request {
        let mut fields = pep::http::Fields::default();
        let Request { head: page, tls, .. } = self.request;
        page.fields.values("host").for_each(|host| fields.push("Host", host));
        for name in SAME {
            page.fields.values(name).for_each(|value| fields.push(name, value));
        }
        fields.push("Accept", "*/*");
        let (scheme, host) = (self.request.scheme(), page.host().unwrap_or_default());
        fields.push("Referer", format!("{scheme}://{host}{}", page.target));
        let head = RequestHead { method: "GET".to_owned(), target, minor: 1, fields };
        Request::new(head, tls.clone())
    }
}

/// A push under way.
pub(super) struct Push {
    pub(super) stream: Stream,
    pub(super) request: Request,
    place: String,
    pub(super) budget: Budget,
    _slot: OwnedSemaphorePermit,
}

/// A style sheet pushes, too: the type must have an end.
fn run(http: HubHttp, job: Arc<Job>, push: Push) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let Some(pushes) = http.pushes() else { return };
        let (now, session) = (clock::now(), job.stream.session());
        let pushed = tokio::select! {
            pushed = timeout(LIMIT, http.fetch_for(&job, &push)) => pushed.unwrap_or(Err(ResetReason::TimedOut)),
            reason = push.stream.reset_by_peer() => Err(reason),
        };
        match pushed {
            Ok((bytes, stays)) => {
                pushes.pushed.increment();
                pushes.spend(session, bytes);
                if stays {
                    pushes.remember(now, session, push.place.clone());
                }
                // The terminal's end is there already, or soon: without it the stream would be reset.
                let mut inlet = Inlet::default();
                let ended =
                    async { while let Ok(true) = inlet.fill(Wire::Stream(&push.stream)).await {} };
                let _ = timeout(LIMIT, ended).await;
            }
            Err(reason) => {
                if reason == ResetReason::Prohibited {
                    pushes.remember(now, session, push.place.clone());
                }
                push.stream.reset(reason);
            }
        }
    })
}

impl HubHttp {
    /// Fetches what is pushed. Returns the bytes of its body, and whether the terminal will have it for
    /// a while.
    async fn fetch_for(&self, job: &Arc<Job>, push: &Push) -> Result<(u64, bool), ResetReason> {
        let mut told = None;
        self.carry(job, (&push.request, &push.stream), Some(&push.budget), None, &mut told).await?;
        let (bytes, head): (u64, ResponseHead) = told.ok_or(ResetReason::Reset)?;
        Ok((bytes, pep::http::stays(&push.request.head, &head, KNOWN)))
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn packed(page: &[u8]) -> Vec<u8> {
        let mut packer = GzEncoder::new(Vec::new(), Compression::best());
        packer.write_all(page).unwrap();
        packer.finish().unwrap()
    }

    fn unpacked(packed: &[u8], piece: usize) -> usize {
        let (mut page, mut count) = (PackedPage::new(), 0);
        packed.chunks(piece).for_each(|piece| page.read(piece, |bytes| count += bytes.len()));
        count
    }

    #[test]
    fn a_page_is_unpacked_as_far_as_it_is_none_to_keep_us_busy() {
        let page: String = (0..9000).map(|n| format!("<p><img src=\"{n}.png\">")).collect();
        let bomb = packed(&vec![b'>'; 8 << 20]);
        for piece in [1, 100, 100_000] {
            assert_eq!(unpacked(&packed(page.as_bytes()), piece), page.len());
            // One piece more than is permitted, which becomes a megabyte.
            assert!(unpacked(&bomb, piece) <= MOST_UNPACKED + (PACKED_PIECE << 10), "{piece}");
        }
        assert_eq!(unpacked(b"no gzip at all", 3), 0);
    }
}
