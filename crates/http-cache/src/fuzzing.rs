//! Fuzz targets: a client and a server that send arbitrary bytes.

use core::time::Duration;
use std::net::IpAddr;

use pep::fuzzing::bounded;
use units::{ByteCount, Instant, UnixTime};

use super::{
    BadChunk, BodyFraming, BodyParser, CacheConfig, CacheKey, CollapseDecision, HeadProgress,
    InFlightRequests, ParsedHead, RequestAction, RequestHead, ResponseAction, ResponseHead,
    ResponseRecord, SharedCache, StoreLimits,
};

/// Memory limit of the cache, in bytes.
const MEMORY: u64 = 20_000;

/// Sends the request `asked` twice and answers with the response `said`, whose body is also read in pieces
/// of this size.
fn converse(asked: &[u8], said: &[u8], piece: usize) {
    let limits = StoreLimits {
        memory: ByteCount::new(MEMORY),
        disk: ByteCount::new(0),
        object: ByteCount::new(MEMORY),
    };
    let mut cache = SharedCache::new(CacheConfig { limits, stale: Duration::from_secs(60) });
    let ParsedHead::Head(request, _) = RequestHead::parse(asked) else { return };
    let Ok(framing) = request.framing() else { return };
    unambiguous(&request, framing);
    let host = request.host().unwrap_or_default();
    for now in [1_000_000_000, 1_000_000_030] {
        let (now, client) = (UnixTime::from_seconds(now), IpAddr::from([10, 0, 0, 1]));
        let key = CacheKey {
            destination: "192.0.2.1:80".to_owned(),
            host: host.clone(),
            target: request.target.clone(),
        };
        match cache.handle_request(now, key, &request, framing, client) {
            RequestAction::Ask(_, asked) => {
                answer(&mut cache, now, (&request, &asked), said, piece);
            }
            RequestAction::Answer(answer, _) => check(&answer.head),
            RequestAction::Unavailable => {}
        }
        assert!(cache.store().memory() <= MEMORY, "{}", cache.store().memory());
    }
}

/// Asserts that a request in pieces is recognised with its last byte, as if it had arrived at once.
fn arrive(asked: &[u8], piece: usize) {
    let mut progress = HeadProgress::default();
    let mut end = 0;
    let found = loop {
        if end == asked.len() {
            return;
        }
        end = asked.len().min(end + piece);
        let is_due = progress.is_due(&asked[..end]);
        match is_due.then(|| RequestHead::parse(&asked[..end])) {
            None | Some(ParsedHead::Incomplete) => {}
            Some(found) => break found,
        }
    };
    if let ParsedHead::Head(_, length) = &found {
        assert!(*length > end - piece.min(end), "it was there before");
        assert_eq!(found, RequestHead::parse(asked));
    }
}

fn answer(
    cache: &mut SharedCache<Vec<u8>>,
    now: UnixTime,
    (request, asked): (&RequestHead, &super::ForwardedRequest),
    said: &[u8],
    piece: usize,
) {
    let ParsedHead::Head(reply, length) = ResponseHead::parse(said) else { return };
    let verdict = cache.handle_response(now, asked, &reply);
    let Ok(framing) = reply.framing(&request.method) else { return };
    let whole = read(framing, &said[length..], said.len());
    assert_eq!(whole, read(framing, &said[length..], piece), "pieces make no difference");
    let Ok((content, _, over)) = whole else { return };
    if verdict == (ResponseAction::Pass { store: true }) && over {
        let size = content.len() as u64;
        cache.handle_body(now, asked, &reply, content, size);
    }
}

/// Asserts that the next reader parses a forwarded request as it was parsed here.
fn unambiguous(request: &RequestHead, framing: BodyFraming) {
    let mut bytes = Vec::new();
    let mut sent = request.clone();
    sent.fields.remove_connection_fields();
    if framing == BodyFraming::Chunked {
        sent.fields.push("Transfer-Encoding", "chunked");
    }
    sent.write(&mut bytes);
    let ParsedHead::Head(again, length) = RequestHead::parse(&bytes) else {
        assert!(bytes.len() >= super::LONGEST_HEAD, "it is no request any more");
        return;
    };
    assert_eq!((length, again.host()), (bytes.len(), request.host()));
    assert_eq!(again.framing(), Ok(framing));
}

fn check(head: &ResponseHead) {
    let mut bytes = Vec::new();
    head.write(&mut bytes);
    let ParsedHead::Head(again, length) = ResponseHead::parse(&bytes) else {
        panic!("an answer is no response")
    };
    assert_eq!((again.status, length), (head.status, bytes.len()));
}

type Content = (Vec<u8>, usize, bool);

fn read(framing: BodyFraming, bytes: &[u8], piece: usize) -> Result<Content, BadChunk> {
    let (mut body, mut content, mut taken) = (BodyParser::new(framing), Vec::new(), 0);
    for piece in bytes.chunks(piece.max(1)) {
        taken += body.take(piece, |it| content.extend_from_slice(it))?;
    }
    Ok((content, taken, body.is_over()))
}

/// Decodes a stored response as a damaged disk may return it.
fn record(bytes: &[u8]) {
    if let Some(record) = ResponseRecord::decode(bytes)
        && let Some(again) = ResponseRecord::decode(&record.encode())
    {
        assert_eq!((again.key, again.length), (record.key, record.length));
    }
}

/// Parses a request that the cache may handle, with its framing.
fn fit(bytes: &[u8]) -> Option<(RequestHead, BodyFraming)> {
    let ParsedHead::Head(request, _) = RequestHead::parse(bytes) else { return None };
    let framing = request.framing().ok()?;
    Some((request, framing))
}

/// Two clients ask at the same time, and the server answers the first. The second gets what a store would
/// give it, or nothing.
fn merge(first: &[u8], second: &[u8], said: &[u8], later: u64) {
    let (Some(one), Some(two)) = (fit(first), fit(second)) else { return };
    let mut cache = roomy();
    let [RequestAction::Ask(_, lead), RequestAction::Ask(_, other)] =
        [(&one, 1), (&two, 2)].map(|(asked, client)| ask(&mut cache, 0, asked, client))
    else {
        return;
    };
    let (mut flights, now) = (InFlightRequests::default(), Instant::ZERO);
    let CollapseDecision::Lead(number) = flights.enter(now, &lead, &1) else { return };
    if flights.enter(now, &other, &2) == CollapseDecision::Join(1) {
        assert_eq!(lead.key, other.key, "another's answer");
        let is_known = |request: &RequestHead| request.fields.has("authorization");
        assert!(!is_known(&lead.request) && !is_known(&other.request), "an answer for one user");
        share(&mut cache, &lead, (&one, &two), said, later);
    }
    flights.finish(&lead.key, number);
    assert_ne!(flights.enter(now, &other, &3), CollapseDecision::Join(1), "it has landed");
    flights.mark_unshared(now, lead.key.clone());
    assert_eq!(flights.enter(now, &lead, &4), CollapseDecision::Alone);
}

type Request = (RequestHead, BodyFraming);

fn share(
    cache: &mut SharedCache<Vec<u8>>,
    lead: &super::ForwardedRequest,
    (one, two): (&Request, &Request),
    said: &[u8],
    later: u64,
) {
    let ParsedHead::Head(reply, length) = ResponseHead::parse(said) else { return };
    let (body, now) = (&said[length..], UnixTime::from_seconds(NOW + later));
    let length = body.len() as u64;
    let Some((head, part)) = cache.handle_collapsed(now, lead, &reply, length, &two.0) else {
        return;
    };
    check(&head);
    assert!(part.is_none_or(|part| part.from + part.length <= length), "{part:?} of {length}");
    let mut store = roomy();
    let RequestAction::Ask(_, asked) = ask(&mut store, 0, one, 1) else {
        panic!("nothing is stored yet")
    };
    let verdict = store.handle_response(now, &asked, &reply);
    assert_eq!(verdict, ResponseAction::Pass { store: true }, "shared, and not stored");
    store.handle_body(now, &asked, &reply, body.to_vec(), length);
    match ask(&mut store, later, two, 2) {
        RequestAction::Answer(answer, _) => assert_eq!(answer.head.status, head.status),
        plan => panic!("shared, and not from the store: {plan:?}"),
    }
}

/// Time of the requests, in seconds since 1970.
const NOW: u64 = 1_000_000_000;

fn roomy() -> SharedCache<Vec<u8>> {
    let most = ByteCount::new(1 << 20);
    let limits = StoreLimits { memory: most, disk: ByteCount::new(0), object: most };
    SharedCache::new(CacheConfig { limits, stale: Duration::from_secs(60) })
}

fn ask(
    cache: &mut SharedCache<Vec<u8>>,
    later: u64,
    (request, framing): &Request,
    client: u8,
) -> RequestAction<Vec<u8>> {
    let key = CacheKey {
        destination: "192.0.2.1:80".to_owned(),
        host: request.host().unwrap_or_default(),
        target: request.target.clone(),
    };
    let (now, client) = (UnixTime::from_seconds(NOW + later), IpAddr::from([10, 0, 0, client]));
    cache.handle_request(now, key, request, *framing, client)
}

/// A client's request and its server's response. The first two bytes are the length of the request, the
/// third selects the size of the pieces. The same bytes are also decoded as a file of the cache.
///
/// # Panics
/// On a bug in this crate.
pub fn http(bytes: &[u8]) {
    record(bytes);
    let Some(([high, low, piece], said)) = bytes.split_first_chunk() else { return };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    let (asked, said) = said.split_at(said.len().min(length));
    let piece = usize::from(*piece) + 1;
    bounded(asked, (256 << 10, 16), || arrive(asked, piece));
    bounded(bytes, (100_000, 64), || converse(asked, said, piece));
}

/// Two clients that ask for the same response at the same time, and the server's response to the first. The
/// first four bytes are the lengths of the requests, the fifth is the delay of the response in seconds.
///
/// # Panics
/// On a bug in this crate.
pub fn flights(bytes: &[u8]) {
    let Some(([one, two, three, four, later], said)) = bytes.split_first_chunk() else { return };
    let length = |high: u8, low: u8| usize::from(u16::from_be_bytes([high, low]));
    let (first, said) = said.split_at(said.len().min(length(*one, *two)));
    let (second, said) = said.split_at(said.len().min(length(*three, *four)));
    merge(first, second, said, (*later).into());
}
