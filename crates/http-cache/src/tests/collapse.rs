//! One request for several clients: only what a stored response would do for them.

use units::Instant;

use super::*;

/// A request that is sent on, of a cache that has nothing.
fn asked(request: &RequestHead) -> ForwardedRequest {
    match Net::new().plan(0, request) {
        RequestAction::Ask(_, asked) => asked,
        other => panic!("{other:?}"),
    }
}

fn now(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn board(
    flights: &mut InFlightRequests<u8>,
    at: u64,
    number: u8,
    lines: &str,
) -> CollapseDecision<u8> {
    flights.enter(now(at), &asked(&get(lines)), &number)
}

/// What a second client finds, after a first one.
fn second(first: &str, second: &str) -> CollapseDecision<u8> {
    let mut flights = InFlightRequests::default();
    board(&mut flights, 0, 1, first);
    board(&mut flights, 0, 2, second)
}

#[test]
fn the_same_request_waits_for_the_first() {
    let mut flights = InFlightRequests::default();
    assert_eq!(board(&mut flights, 0, 1, ""), CollapseDecision::Lead(0));
    assert_eq!(board(&mut flights, 0, 2, "Cookie: a=b"), CollapseDecision::Join(1));
    assert_eq!(board(&mut flights, 0, 3, "If-None-Match: \"1\""), CollapseDecision::Join(1));
    let other = RequestHead { target: "/other".to_owned(), ..get("") };
    assert_eq!(flights.enter(now(0), &asked(&other), &4), CollapseDecision::Lead(1));
    flights.finish(&key("/"), 1);
    assert_eq!(
        board(&mut flights, 0, 5, ""),
        CollapseDecision::Join(1),
        "that was another's number"
    );
    flights.finish(&key("/"), 0);
    assert_eq!(board(&mut flights, 0, 6, ""), CollapseDecision::Lead(2));
    flights.finish(&key("/other"), 1);
    flights.finish(&key("/"), 2);
    assert!(flights.is_empty());
}

#[test]
fn whose_answer_cannot_be_another_s_neither_leads_nor_joins() {
    for lines in [
        "Authorization: Basic eDp5",
        "Cache-Control: no-store",
        "X-Forwarded-Host: evil.example",
        "Range: bytes=0-1",
    ] {
        assert_eq!(second("", lines), CollapseDecision::Alone, "{lines}");
        assert_eq!(second(lines, ""), CollapseDecision::Lead(0), "{lines}");
    }
    for method in ["HEAD", "POST"] {
        let mut flights = InFlightRequests::default();
        let asked = asked(&request(method, ""));
        assert_eq!(flights.enter(now(0), &asked, &1), CollapseDecision::Alone, "{method}");
    }
}

#[test]
fn who_wants_an_answer_to_their_own_request_gets_it() {
    for lines in ["Cache-Control: no-cache", "Cache-Control: max-age=0", "Pragma: no-cache"] {
        assert_eq!(second("", lines), CollapseDecision::Alone, "{lines}");
        assert_eq!(second(lines, ""), CollapseDecision::Join(1), "{lines}: it may lead");
    }
    // Its server may say "not modified", which means nothing to others.
    assert_eq!(second("If-None-Match: \"1\"", ""), CollapseDecision::Lead(0));
}

#[test]
fn what_was_not_for_others_is_asked_for_at_once_for_a_while() {
    let mut flights = InFlightRequests::default();
    assert_eq!(board(&mut flights, 0, 1, ""), CollapseDecision::Lead(0));
    flights.finish(&key("/"), 0);
    flights.mark_unshared(now(0), key("/"));
    assert_eq!(board(&mut flights, 119, 2, ""), CollapseDecision::Alone);
    assert_eq!(board(&mut flights, 120, 2, ""), CollapseDecision::Lead(1));
    for number in 0..2000 {
        flights.mark_unshared(now(200), key(&format!("/{number}")));
    }
    let last = RequestHead { target: "/1999".to_owned(), ..get("") };
    assert!(
        matches!(flights.enter(now(200), &asked(&last), &1), CollapseDecision::Lead(_)),
        "bounded"
    );
}

/// What a second client gets of the answer to the first one's request: the status, and bytes.
fn shared(first: &str, reply: &str, second: &str) -> Option<(u16, u64)> {
    let mut cache = Net::new().cache;
    let (asked, reply) = (asked(&get(first)), response(200, reply));
    let got = cache.handle_collapsed(at(1), &asked, &reply, 10, &get(second));
    assert_eq!(cache.stats().collapsed, u64::from(got.is_some()));
    got.map(|(head, part)| (head.status, part.map_or(0, |part| part.length)))
}

#[test]
fn an_answer_serves_others_as_a_stored_one_would() {
    let fresh = "Cache-Control: max-age=60";
    assert_eq!(shared("", fresh, ""), Some((200, 10)));
    let tagged = "Cache-Control: max-age=60\nETag: \"1\"";
    assert_eq!(shared("", tagged, "If-None-Match: \"1\""), Some((304, 0)));
    for reply in [
        "Cache-Control: private, max-age=60",
        "Cache-Control: no-store",
        "Cache-Control: no-cache\nETag: \"1\"",
        "Cache-Control: max-age=0\nETag: \"1\"",
        "Cache-Control: max-age=60\nSet-Cookie: a=b",
        "Cache-Control: max-age=60\nVary: *",
        "ETag: \"1\"",
        "",
    ] {
        assert_eq!(shared("", reply, ""), None, "{reply:?}");
    }
}

#[test]
fn only_whom_vary_means_is_served() {
    let varies = "Cache-Control: max-age=60\nVary: Accept-Language, Cookie";
    let french = "Accept-Language: fr\nCookie: a=b";
    assert_eq!(shared(french, varies, french), Some((200, 10)));
    for other in ["Accept-Language: de\nCookie: a=b", "Accept-Language: fr", ""] {
        assert_eq!(shared(french, varies, other), None, "{other:?}");
    }
}
