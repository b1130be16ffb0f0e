//! A hub's cache: the terminal's, with the terminals as its clients.
//!
//! A response is stored for the terminals that share it (`[[terminal]] cache`), and no others:
//! response times would tell one customer what another has asked for. Apart from that its key is
//! the same as in a terminal's cache: the address or name of the connection, and the host.

use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;

use http_cache::{
    BodyFraming, CacheConfig, CacheKey, CacheStats, CachedResponse, ForwardedRequest,
    RequestAction, RequestHead, ResponseAction, ResponseHead,
};
use slacp::{PublicKey, ResetReason};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::process::clock;
use crate::services::http::disk::SharedBody;
use crate::services::http::hub::{
    ExchangeError, ExchangeJob, ExchangeRequest, HubHttp, PendingExchange, SendOutcome, connect,
};
use crate::services::http::kept::ResponseCache;
use crate::services::http::record::BodyRecorder;
use crate::services::http::refresh::{REFRESH_TIMEOUT, validate};
use crate::services::http::secure::TlsTransport;
use crate::services::http::wire::{ReadBuffer, WireEnd};

/// The terminal that asks, as the cache sees it.
#[derive(Debug, Clone)]
pub(crate) struct CacheTenant {
    /// Identifies the terminals that share stored responses.
    network: String,
    /// Stands for the terminal when the store chooses whose responses are evicted.
    owner: IpAddr,
}

impl CacheTenant {
    /// A terminal that shares its responses with all of the same `cache` name, or with no other.
    pub(crate) fn new(key: &PublicKey, cache: Option<&str>) -> Self {
        // A name may contain spaces, which separate the parts of a cache key.
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let network = match cache {
            Some(name) => format!("name:{}", hex(name.as_bytes())),
            None => format!("key:{}", hex(&key.0)),
        };
        // Only compared for equality.
        let (half, _) = key.0.split_at(16);
        let owner = half.try_into().map_or(Ipv6Addr::UNSPECIFIED, |octets: [u8; 16]| octets.into());
        Self { network, owner: owner.into() }
    }
}

/// A hub's store of responses. Dropping it ends its tasks.
pub(super) struct HubStore {
    kept: Arc<ResponseCache>,
    tasks: Vec<AbortHandle>,
}

impl Drop for HubStore {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl HubStore {
    pub(super) fn start(config: CacheConfig, directory: Option<&Path>) -> Self {
        let (kept, tasks) = ResponseCache::start(config, directory);
        Self { kept, tasks }
    }

    /// The cache's statistics, and the number of disk errors.
    pub(super) fn stats(&self) -> (CacheStats, u64) {
        self.kept.stats()
    }

    /// Releases the directory to another process.
    pub(super) fn leave_disk(&self) {
        self.kept.leave_disk();
    }

    pub(super) fn handle_response(
        &self,
        asked: &ForwardedRequest,
        reply: &ResponseHead,
    ) -> ResponseAction<SharedBody> {
        self.kept.change(|cache| cache.handle_response(clock::unix_time(), asked, reply))
    }

    pub(super) fn record(&self) -> BodyRecorder<'_> {
        BodyRecorder::new(&self.kept)
    }

    /// Answers a request from the cache, or forwards it.
    pub(super) async fn answer(&self, errand: &PendingExchange<'_>) -> Result<(), ResetReason> {
        let head = &errand.request.head;
        let asker = &errand.job.asker;
        let key = key(errand);
        let now = clock::unix_time();
        let mut plan = self.kept.change(|cache| {
            cache.handle_request(now, key.clone(), head, BodyFraming::None, asker.owner)
        });
        loop {
            match plan {
                RequestAction::Answer(answer, again) => {
                    // A task of its own, since the terminal may leave: until it ends, no other
                    // request validates the entry.
                    if let Some((head, asked)) = again {
                        let PendingExchange { http, job, request, .. } = *errand;
                        let kept = self.kept.clone();
                        let tls = request.tls.clone();
                        tokio::spawn(refresh(kept, http.clone(), job.clone(), tls, head, asked));
                    }
                    if self.send_stored(errand, answer).await? {
                        return Ok(());
                    }
                }
                RequestAction::Ask(head, asked) => return self.forward(errand, head, asked).await,
                RequestAction::Unavailable => return unavailable(errand).await,
            }
            let now = clock::unix_time();
            plan = self.kept.change(|cache| {
                cache.reconsider(now, key.clone(), head, BodyFraming::None, asker.owner)
            });
        }
    }

    /// Sends a stored response. Returns `false` if its body can no longer be read.
    async fn send_stored(
        &self,
        errand: &PendingExchange<'_>,
        answer: CachedResponse<SharedBody>,
    ) -> Result<bool, ResetReason> {
        let CachedResponse { head, part, body, entry } = answer;
        let Some(part) = part else {
            errand.send_response(head, &[]).await?;
            return Ok(true);
        };
        let body = match body {
            Some(body) => Some(body),
            None => self.kept.body(entry).await,
        };
        let from = part.from as usize;
        let range = from..from + part.length as usize;
        let Some(part) = body.as_deref().and_then(|body| body.get(range)) else {
            return Ok(false);
        };
        errand.send_response(head, part).await?;
        Ok(true)
    }

    async fn forward(
        &self,
        errand: &PendingExchange<'_>,
        mut head: RequestHead,
        mut asked: ForwardedRequest,
    ) -> Result<(), ResetReason> {
        loop {
            let request = request(&head, errand.request.tls.clone());
            match errand.send(&request, Some((self, &asked))).await {
                Ok(SendOutcome::Answered) => return Ok(()),
                Ok(SendOutcome::Stored(answer)) => {
                    if self.send_stored(errand, answer).await? {
                        return Ok(());
                    }
                    // Without a body a *304* is of no use: ask unconditionally.
                    asked = ForwardedRequest { validates: None, ..asked };
                    head = asked.request.clone();
                }
                Ok(SendOutcome::Again(again, next)) => (head, asked) = (again, *next),
                Err(ExchangeError { reason, begun: true }) => return Err(reason),
                Err(ExchangeError { reason, begun: false }) => {
                    let now = clock::unix_time();
                    let answer = self.kept.change(|cache| cache.handle_failure(now, &asked));
                    let answer = answer.ok_or(reason)?;
                    let is_sent = self.send_stored(errand, answer).await?;
                    return if is_sent { Ok(()) } else { Err(reason) };
                }
            }
        }
    }
}

/// The cache key of a request.
fn key(errand: &PendingExchange<'_>) -> CacheKey {
    let head = &errand.request.head;
    // Response times would tell a terminal what others have asked for.
    let network = &errand.job.asker.network;
    CacheKey {
        destination: match &errand.request.tls {
            Some(_) => format!("{network} tls {}", errand.job.open.destination),
            None => format!("{network} {}", errand.job.open.destination),
        },
        host: head.host().unwrap_or_default(),
        target: head.target.clone(),
    }
}

/// Validates a response that was used although stale (RFC 5861 §3), in the background.
async fn refresh(
    kept: Arc<ResponseCache>,
    http: HubHttp,
    job: Arc<ExchangeJob>,
    tls: Option<ServerName<'static>>,
    head: RequestHead,
    asked: ForwardedRequest,
) {
    let refreshed = timeout(REFRESH_TIMEOUT, async {
        let _place = kept.refreshes.try_acquire().map_err(|_| ResetReason::Limit)?;
        let socket = connect(&job).await?;
        let inlet = &mut ReadBuffer::default();
        match tls {
            Some(name) => {
                let secure = http.server(name)?.connect(TlsTransport::socket(socket)).await?;
                validate(&kept, WireEnd::Secure(&secure), inlet, &head, &asked).await
            }
            None => validate(&kept, WireEnd::Socket(&socket), inlet, &head, &asked).await,
        }
    });
    // Until it hears of the end, the cache lets no other request validate the entry.
    if !matches!(refreshed.await, Ok(Ok(()))) {
        kept.change(|cache| cache.handle_failure(clock::unix_time(), &asked));
    }
}

fn request(head: &RequestHead, tls: Option<ServerName<'static>>) -> ExchangeRequest {
    ExchangeRequest::new(head.clone(), tls)
}

async fn unavailable(errand: &PendingExchange<'_>) -> Result<(), ResetReason> {
    let mut head = ResponseHead::own(504, "Gateway Timeout");
    head.fields.push("Content-Length", "0");
    errand.send_response(head, &[]).await
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use config::HubHttpConfig;
    use http_cache::{ParsedHead, StoreLimits};
    use slacp::{Destination, StreamOpening};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use units::ByteCount;

    use super::*;
    use crate::figures::connections::{ConnectionOrigin, Registered};
    use crate::relay::terms::{Admission, DialPolicy};
    use crate::services::http::kept::MAX_REFRESHES;
    use crate::testkit::Hops;
    use config::HubHttpSection;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn store() -> HubStore {
        let size = ByteCount::new(100_000);
        let limits = StoreLimits { memory: size, disk: ByteCount::new(0), object: size };
        let cache = CacheConfig { limits, stale: Duration::ZERO };
        HubStore::start(cache, None)
    }

    /// What a terminal asks of a server, and does not wait for.
    fn abandoned(hops: &mut Hops, server: SocketAddr) -> Arc<ExchangeJob> {
        let [near, stream] = hops.open();
        near.reset(ResetReason::TimedOut);
        hops.run();
        let source = ([10, 0, 0, 1], 40_000).into();
        let origin = ConnectionOrigin::Peer { verified: true };
        Arc::new(ExchangeJob {
            stream,
            open: StreamOpening { destination: Destination::Address(server), source, dscp: None },
            addresses: vec![server],
            admission: Admission { origin, _permit: None, exchange: true },
            policy: DialPolicy { timeout: PATIENCE, transparent: false, marked: false },
            counters: Arc::default(),
            asker: CacheTenant::new(&PublicKey([1; 32]), None),
        })
    }

    /// Stores something that has expired, and may be used while it is validated.
    fn fill(store: &HubStore, errand: &PendingExchange<'_>) {
        let text = "HTTP/1.1 200 OK\r\nCache-Control: max-age=0, stale-while-revalidate=60\r\n\
                    ETag: \"1\"\r\n\r\n";
        let ParsedHead::Head(reply, _) = ResponseHead::parse(text.as_bytes()) else {
            panic!("{text}")
        };
        let (now, owner, body): (_, _, &[u8]) =
            (clock::unix_time(), errand.job.asker.owner, b"hello");
        store.kept.change(|cache| {
            let head = &errand.request.head;
            let plan = cache.handle_request(now, key(errand), head, BodyFraming::None, owner);
            let RequestAction::Ask(_, asked) = plan else { panic!("{plan:?}") };
            cache.handle_body(now, &asked, &reply, body.into(), 5);
        });
    }

    /// Confirms what is asked for.
    async fn confirm(mut server: TcpStream) {
        let mut asked = vec![0; 4096];
        let length = server.read(&mut asked).await.unwrap();
        let asked = String::from_utf8_lossy(&asked[..length]);
        assert!(asked.contains("If-None-Match: \"1\""), "{asked}");
        let reply = b"HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\n\r\n";
        server.write_all(reply).await.unwrap();
    }

    /// Stores something that has expired, and answers a terminal with it that has left. The server's end
    /// of the connection that asks for it, if one comes within this time.
    async fn used(store: &HubStore, patience: Duration) -> Option<TcpStream> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut hops = Hops::new();
        let job = abandoned(&mut hops, listener.local_addr().unwrap());
        let config = HubHttpConfig { keys: HubHttpSection::default(), cache: None };
        let http = HubHttp::new(config).unwrap_or_else(|error| panic!("{error}"));
        let ParsedHead::Head(head, _) = RequestHead::parse(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        else {
            panic!("it is a request")
        };
        let request = request(&head, None);
        let (stream, open, origin) = (&job.stream, job.open.clone(), job.admission.origin);
        let entry = Registered::new(clock::now(), &job.counters, stream.session(), open, origin);
        let errand = PendingExchange { http: &http, job: &job, request: &request, entry: &entry };
        fill(store, &errand);
        assert!(store.answer(&errand).await.is_err(), "nobody is there to get it");
        timeout(patience, listener.accept()).await.ok().map(|accepted| accepted.unwrap().0)
    }

    #[tokio::test]
    async fn the_expired_is_validated_though_the_terminal_has_left() {
        let store = store();
        confirm(used(&store, PATIENCE).await.unwrap()).await;
        let confirmed = async {
            while store.stats().0.confirmed == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, confirmed).await.unwrap();
    }

    #[tokio::test]
    async fn no_more_is_validated_at_once_than_may_be() {
        let store = store();
        let all = store.kept.refreshes.acquire_many(MAX_REFRESHES as u32).await.unwrap();
        assert!(used(&store, Duration::from_millis(50)).await.is_none());
        drop(all);
        assert!(used(&store, PATIENCE).await.is_some(), "the next one is");
    }

    #[test]
    fn terminals_share_with_those_of_the_same_name_only() {
        let of = |key, cache| CacheTenant::new(&PublicKey([key; 32]), cache);
        assert_eq!(of(1, Some("fleet")).network, of(2, Some("fleet")).network);
        assert_ne!(of(1, Some("fleet")).owner, of(2, Some("fleet")).owner);
        let key = "01".repeat(32);
        let others = [of(1, None), of(2, None), of(3, Some(&key)), of(3, Some("fleet"))];
        for (number, one) in others.iter().enumerate() {
            assert!(others[..number].iter().all(|other| other.network != one.network), "{one:?}");
        }
    }
}
