//! What is pushed is had once, by whom it is for.

use units::Instant;

use super::*;

fn now(seconds: u64) -> (Instant, UnixTime) {
    (Instant::ZERO + Duration::from_secs(seconds), at(seconds))
}

fn promises() -> Promises<u8> {
    Promises::new(ByteCount::new(1000))
}

/// One client's promise, kept after a second in answer to a request with these fields.
fn kept(asked: &str, reply: &str) -> Promises<u8> {
    let mut promises = promises();
    assert!(promises.handle_promise(now(0).0, client(1), key("/a")));
    let coming = promises.handle_request(now(0), client(1), &key("/a"), &get(""));
    assert!(matches!(coming, Promised::Coming(_)), "{coming:?}");
    let place = (client(1), &key("/a"));
    promises.handle_response(now(1), place, get(asked), &response(200, reply), (7, 10));
    promises
}

fn got(promises: &mut Promises<u8>, after: u64, number: u8, asked: &str) -> Option<u16> {
    match promises.handle_request(now(after), client(number), &key("/a"), &get(asked)) {
        Promised::Here(head, _, 7) => Some(head.status),
        _ => None,
    }
}

#[test]
fn even_what_may_not_be_stored_is_had_once() {
    let mut promises = kept("Cookie: a=b", "Cache-Control: no-store\nSet-Cookie: c=d");
    assert_eq!(got(&mut promises, 2, 1, "Cookie: a=b"), Some(200));
    assert_eq!(got(&mut promises, 2, 1, "Cookie: a=b"), None);
    let stats = promises.stats();
    assert_eq!((stats.pushed, stats.used, stats.wasted), (1, 1, 0));
}

#[test]
fn another_client_or_user_or_language_has_nothing_of_it() {
    let reply = "Vary: Accept-Language";
    let asked = "Cookie: a=b\nAccept-Language: de";
    for (number, other) in [
        (2, asked),
        (1, "Accept-Language: de"),
        (1, "Cookie: a=c\nAccept-Language: de"),
        (1, "Cookie: a=b\nAccept-Language: en"),
        (1, "Cookie: a=b\nAccept-Language: de\nAuthorization: Basic x"),
    ] {
        assert_eq!(got(&mut kept(asked, reply), 2, number, other), None, "{number} {other}");
    }
    assert_eq!(got(&mut kept(asked, reply), 2, 1, asked), Some(200));
}

#[test]
fn who_asks_is_told_apart_byte_for_byte() {
    let own: &[&[u8]] = &[b"theme=1", b"id=\xff"];
    let others: [&[&[u8]]; 5] = [
        &[b"theme=1", b"id=\xfe"],
        &[b"theme=1"],
        &[b"id=\xff", b"theme=1"],
        &[b"theme=1, id=\xff"],
        &[],
    ];
    for name in ["Cookie", "Authorization"] {
        let asks = |values: &[&[u8]]| {
            let mut promises = promises();
            promises.handle_promise(now(0).0, client(1), key("/a"));
            let reply = response(200, "Cache-Control: private");
            let place = (client(1), &key("/a"));
            promises.handle_response(now(1), place, get_with(name, own), &reply, (7, 10));
            let asked = get_with(name, values);
            let got = promises.handle_request(now(2), client(1), &key("/a"), &asked);
            matches!(got, Promised::Here(..))
        };
        assert!(asks(own));
        for other in others {
            assert!(!asks(other), "{name}: {other:?}");
        }
    }
}

#[test]
fn nobody_waits_for_what_does_not_come_and_nothing_waits_for_long() {
    let mut promises = promises();
    promises.handle_promise(now(0).0, client(1), key("/a"));
    promises.handle_failure(client(1), &key("/a"));
    assert_eq!(got(&mut promises, 1, 1, ""), None);
    promises.handle_promise(now(0).0, client(1), key("/a"));
    let late = promises.handle_request(now(15), client(1), &key("/a"), &get(""));
    assert_eq!(late, Promised::Nothing);
    let mut unused = kept("", "");
    assert_eq!(got(&mut unused, 31, 1, ""), None);
    assert_eq!(unused.stats().wasted, 1);
}

#[test]
fn promises_and_their_bytes_are_few() {
    let mut promises = promises();
    let wanted =
        (0..1000).filter(|n| promises.handle_promise(now(0).0, client(1), key(&n.to_string())));
    assert_eq!(wanted.count(), 256);
    assert!(promises.handle_promise(now(0).0, client(2), key("0")));
    assert!(!promises.handle_promise(now(0).0, client(2), key("0")), "twice");
    for number in 0..5 {
        let place = (client(1), &key(&number.to_string()));
        promises.handle_response(now(1), place, get(""), &response(200, ""), (7, 300));
    }
    let here = |n: &i32| {
        let place = key(&n.to_string());
        matches!(promises.handle_request(now(2), client(1), &place, &get("")), Promised::Here(..))
    };
    assert_eq!((0..5).filter(here).count(), 3);
    // Nobody was promised it.
    promises.handle_response(now(1), (client(9), &key("/x")), get(""), &response(200, ""), (7, 1));
    assert_eq!((promises.stats().pushed, promises.stats().wasted), (6, 1));
}
