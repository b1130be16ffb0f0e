//! A client and a server that say anything, for the fuzzer.

use core::time::Duration;
use std::net::IpAddr;

use units::{ByteCount, UnixTime};

use super::{
    BadChunk, Body, Cache, CacheConfig, Framing, Key, Language, LinkReader, Parsed, Plan, Record,
    RequestHead, ResponseHead, StoreLimits, Verdict, in_fields, resolve,
};

/// The memory of the cache, in bytes.
const MEMORY: u64 = 20_000;

/// Requests and responses: `asked` is what a client sends, `said` what its server does. Both are cut
/// into pieces of this size as well.
pub(crate) fn converse(asked: &[u8], said: &[u8], piece: usize) {
    let limits = StoreLimits {
        memory: ByteCount::new(MEMORY),
        disk: ByteCount::new(0),
        object: ByteCount::new(MEMORY),
    };
    let mut cache = Cache::new(CacheConfig { limits, stale: Duration::from_secs(60) });
    let Parsed::Head(request, _) = RequestHead::parse(asked) else { return };
    let Ok(framing) = request.framing() else { return };
    unambiguous(&request, framing);
    let host = request.host().unwrap_or_default();
    for now in [1_000_000_000, 1_000_000_030] {
        let (now, client) = (UnixTime::from_seconds(now), IpAddr::from([10, 0, 0, 1]));
        let key = Key {
            destination: "192.0.2.1:80".to_owned(),
            host: host.clone(),
            target: request.target.clone(),
        };
        match cache.handle_request(now, key, &request, framing, client) {
            Plan::Ask(_, asked) => answer(&mut cache, now, (&request, &asked), said, piece),
            Plan::Answer(answer, _) => check(&answer.head),
            Plan::Unavailable => {}
        }
        assert!(cache.store().memory() <= MEMORY, "{}", cache.store().memory());
    }
}

fn answer(
    cache: &mut Cache<Vec<u8>>,
    now: UnixTime,
    (request, asked): (&RequestHead, &super::Asked),
    said: &[u8],
    piece: usize,
) {
    let Parsed::Head(reply, length) = ResponseHead::parse(said) else { return };
    let verdict = cache.handle_response(now, asked, &reply);
    let Ok(framing) = reply.framing(&request.method) else { return };
    let whole = read(framing, &said[length..], said.len());
    assert_eq!(whole, read(framing, &said[length..], piece), "pieces make no difference");
    let Ok((content, _, over)) = whole else { return };
    page(request, &reply, &content, piece);
    if verdict == (Verdict::Pass { store: true }) && over {
        let size = content.len() as u64;
        cache.handle_body(now, asked, &reply, content, size);
    }
}

/// What is sent on is read by the next one as we have read it.
fn unambiguous(request: &RequestHead, framing: Framing) {
    let mut bytes = Vec::new();
    let mut sent = request.clone();
    sent.fields.remove_of_connection();
    if framing == Framing::Chunked {
        sent.fields.push("Transfer-Encoding", "chunked");
    }
    sent.write(&mut bytes);
    let Parsed::Head(again, length) = RequestHead::parse(&bytes) else {
        assert!(bytes.len() >= super::LONGEST_HEAD, "it is no request any more");
        return;
    };
    assert_eq!((length, again.host()), (bytes.len(), request.host()));
    assert_eq!(again.framing(), Ok(framing));
}

fn check(head: &ResponseHead) {
    let mut bytes = Vec::new();
    head.write(&mut bytes);
    let Parsed::Head(again, length) = ResponseHead::parse(&bytes) else {
        panic!("an answer is no response")
    };
    assert_eq!((again.status, length), (head.status, bytes.len()));
}

type Content = (Vec<u8>, usize, bool);

fn read(framing: Framing, bytes: &[u8], piece: usize) -> Result<Content, BadChunk> {
    let (mut body, mut content, mut taken) = (Body::new(framing), Vec::new(), 0);
    for piece in bytes.chunks(piece.max(1)) {
        taken += body.take(piece, |it| content.extend_from_slice(it))?;
    }
    Ok((content, taken, body.is_over()))
}

fn page(request: &RequestHead, reply: &ResponseHead, content: &[u8], piece: usize) {
    let host = request.host().unwrap_or_default();
    let mut targets = Vec::new();
    for name in in_fields(&reply.fields) {
        targets.extend(resolve(&host, &request.target, &name));
    }
    for language in [Language::Html, Language::Css] {
        let names = |piece: usize| {
            let (mut reader, mut names) = (LinkReader::new(language), Vec::new());
            for piece in content.chunks(piece.max(1)) {
                reader.read(piece, |name| names.push(name.to_owned()));
            }
            names
        };
        let whole = names(content.len());
        assert_eq!(whole, names(piece), "pieces make no difference");
        targets.extend(whole.iter().filter_map(|name| resolve(&host, &request.target, name)));
    }
    for target in targets {
        assert!(
            target.starts_with('/') && target.bytes().all(|b| b.is_ascii_graphic()),
            "{target:?}"
        );
    }
}

/// The head of a stored response as it may be found on a disk.
pub(crate) fn record(bytes: &[u8]) {
    if let Some(record) = Record::decode(bytes)
        && let Some(again) = Record::decode(&record.encode())
    {
        assert_eq!((again.key, again.length), (record.key, record.length));
    }
}
