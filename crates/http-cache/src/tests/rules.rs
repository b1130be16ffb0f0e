//! RFC 9111, RFC 9110 §13 and §14, RFC 5861.

use super::*;
use crate::answer::build_response;

/// §3 and §4.2: what is answered again from the cache, so many seconds later.
#[test]
fn responses_are_reused_while_they_are_fresh() {
    for (lines, status, after, reused) in [
        ("Cache-Control: max-age=10", 200, 9, true),
        ("Cache-Control: max-age=10", 200, 10, false),
        ("Cache-Control: max-age=10\nAge: 5", 200, 4, true),
        ("Cache-Control: max-age=10\nAge: 5", 200, 5, false),
        ("Cache-Control: max-age=10\nAge: x", 200, 9, true),
        ("Cache-Control: max-age=10, s-maxage=2", 200, 3, false),
        ("Cache-Control: max-age=1, s-maxage=20", 200, 9, true),
        ("Cache-Control: max-age=0\nExpires: Sun, 06 Nov 1994 09:49:37 GMT", 200, 1, false),
        ("Expires: Sun, 06 Nov 1994 08:50:37 GMT", 200, 59, true),
        ("Expires: Sunday, 06-Nov-94 08:50:37 GMT", 200, 59, true),
        ("Expires: Sun Nov  6 08:50:37 1994", 200, 59, true),
        ("Expires: Sun, 06 Nov 1994 08:50:37 GMT", 200, 60, false),
        ("Expires: 0", 200, 1, false),
        ("Expires: 0\nLast-Modified: Thu, 27 Oct 1994 08:49:37 GMT", 200, 1, false),
        // A tenth of ten days.
        ("Last-Modified: Thu, 27 Oct 1994 08:49:37 GMT", 200, 80_000, true),
        ("Last-Modified: Thu, 27 Oct 1994 08:49:37 GMT", 200, 86_400, false),
        ("Last-Modified: Thu, 27 Oct 1994 08:49:37 GMT", 404, 80_000, true),
        ("Last-Modified: Thu, 27 Oct 1994 08:49:37 GMT", 302, 1, false),
        ("Cache-Control: max-age=10", 302, 5, true),
        ("Cache-Control: max-age=10", 599, 5, true),
        ("Cache-Control: max-age=10\nContent-Range: bytes 0-1/2", 206, 5, false),
        ("", 200, 0, false),
        ("Cache-Control: no-store, max-age=10", 200, 1, false),
        ("Cache-Control: private, max-age=10", 200, 1, false),
        ("Cache-Control: private=\"x\", max-age=10", 200, 1, false),
        ("Cache-Control: no-cache, max-age=10", 200, 1, false),
        ("Cache-Control: no-store, must-understand, max-age=10", 200, 1, true),
        ("Cache-Control: must-understand, max-age=10", 599, 1, false),
        ("Cache-Control: max-age=10\nVary: *", 200, 1, false),
        ("Cache-Control: max-age=10\nSet-Cookie: a=b", 200, 1, false),
        ("Cache-Control: public, max-age=10\nSet-Cookie: a=b", 200, 1, true),
        // It was made an hour before it came.
        ("Cache-Control: max-age=10\nDate: Sun, 06 Nov 1994 07:49:37 GMT", 200, 1, false),
    ] {
        let reply = response(status, lines);
        assert_eq!(
            Net::reuses(&get(""), &reply, after, &get("")),
            reused,
            "{status} {lines:?} {after}"
        );
    }
}

/// §3.5.
#[test]
fn what_a_user_had_to_show_a_password_for_is_not_shown_to_others() {
    for (lines, reused) in [
        ("max-age=10", false),
        ("max-age=10, public", true),
        ("max-age=10, must-revalidate", true),
        ("s-maxage=10", true),
    ] {
        let reply = response(200, &format!("Cache-Control: {lines}"));
        let first = get("Authorization: Basic eDp5");
        assert_eq!(Net::reuses(&first, &reply, 1, &get("")), reused, "{lines}");
    }
}

/// Not forbidden, and yet another's.
#[test]
fn what_may_be_made_for_one_request_is_not_stored() {
    let tagged = "ETag: \"1\"\nLast-Modified: Thu, 27 Oct 1994 08:49:37 GMT";
    for (asked, lines, stored) in [
        ("", tagged, 1),
        ("Cookie: a=b", tagged, 0),
        ("Cookie: a=b", "ETag: \"1\"\nCache-Control: max-age=0", 0),
        ("Cookie: a=b", "ETag: \"1\"\nCache-Control: max-age=10", 1),
        ("Cookie: a=b", "ETag: \"1\"\nCache-Control: public", 1),
        ("X-Forwarded-Host: evil.example", "Cache-Control: max-age=10", 0),
        ("X-HTTP-Method-Override: DELETE", "Cache-Control: max-age=10", 0),
    ] {
        let mut net = Net::new();
        net.ask(0, &get(asked), &response(200, lines));
        assert_eq!(net.cache.stats().entries, stored, "{asked:?} {lines:?}");
    }
}

/// §5.2.1.
#[test]
fn a_request_says_what_it_takes() {
    let reply = response(200, "Cache-Control: max-age=100\nETag: \"1\"");
    for (lines, after, reused) in [
        ("Cache-Control: no-cache", 1, false),
        ("Pragma: no-cache", 1, false),
        ("Cache-Control: max-age=50", 49, true),
        ("Cache-Control: max-age=50", 51, false),
        ("Cache-Control: max-age=0", 0, false),
        ("Cache-Control: min-fresh=50", 50, true),
        ("Cache-Control: min-fresh=50", 51, false),
        ("Cache-Control: max-stale=10", 110, true),
        ("Cache-Control: max-stale=10", 111, false),
        ("Cache-Control: max-stale", 9000, true),
        ("Cache-Control: max-age=200", 110, false),
        ("Cache-Control: max-age=200, max-stale=10", 110, true),
        ("Cache-Control: max-age=105, max-stale=10", 110, false),
        ("Cache-Control: only-if-cached", 50, true),
    ] {
        assert_eq!(Net::reuses(&get(""), &reply, after, &get(lines)), reused, "{lines} {after}");
    }
    let strict = response(200, "Cache-Control: max-age=100, must-revalidate\nETag: \"1\"");
    assert!(!Net::reuses(&get(""), &strict, 105, &get("Cache-Control: max-stale")));
    assert!(!Net::reuses(&get("Cache-Control: no-store"), &reply, 1, &get("")));
    let mut net = Net::new();
    assert_eq!(net.ask(0, &get("Cache-Control: only-if-cached"), &reply), Got::Unavailable);
}

/// It may say anything there.
#[test]
fn what_is_forbidden_beside_bytes_that_are_no_text_is_forbidden() {
    let fresh = |said: &[u8]| {
        let mut reply = response(200, "Expires: Sun, 06 Nov 1994 08:50:37 GMT");
        reply.fields.push("Cache-Control", said);
        reply
    };
    for said in [
        &b"private, x=\"\xff\""[..],
        b"x=\"\xff\", no-store",
        b"no-cache, x=\"\xff\"",
        b"max-age=0, x=\"\xff\"",
        b"priv\xe4te",
    ] {
        assert!(!Net::reuses(&get(""), &fresh(said), 1, &get("")), "{said:?}");
    }
    let reply = fresh(b"x=\"\xff\"");
    assert!(Net::reuses(&get(""), &reply, 1, &get("")));
    let asks = |said: &[u8]| get_with("Cache-Control", &[said]);
    assert!(!Net::reuses(&asks(b"no-store, x=\"\xff\""), &reply, 1, &get("")));
    for said in [&b"no-cache, x=\"\xff\""[..], b"max-age=0, x=\"\xff\"", b"min-fresh=\"\xff\""] {
        assert!(!Net::reuses(&get(""), &reply, 1, &asks(said)), "{said:?}");
    }
}

/// Neither an answer to a user nor a user's cookie is for others.
#[test]
fn a_permission_to_share_that_cannot_be_read_is_none() {
    for (said, entries) in [(&b"s-maxage=10"[..], 1), (b"s-maxage=x", 0), (b"s-maxage=\"\xff\"", 0)]
    {
        for (asked, lines) in [("Authorization: Basic eDp5", ""), ("", "Set-Cookie: a=b")] {
            let mut reply = response(200, &format!("ETag: \"1\"\n{lines}"));
            reply.fields.push("Cache-Control", said);
            let mut net = Net::new();
            net.ask(0, &get(asked), &reply);
            assert_eq!(net.cache.stats().entries, entries, "{said:?} {asked:?}");
        }
    }
}

/// §4.1.
#[test]
fn a_response_serves_requests_that_select_it() {
    let reply = response(200, "Cache-Control: max-age=100\nVary: Accept-Language, Cookie");
    let first = get("Accept-Language: de,  en\nX: 1");
    for (lines, reused) in [
        ("Accept-Language: de,en\nX: 2", true),
        ("Accept-Language: de\nAccept-Language: en", true),
        ("Accept-Language: en, de", false),
        ("", false),
        ("Accept-Language: de, en\nCookie: a=b", false),
    ] {
        assert_eq!(Net::reuses(&first, &reply, 1, &get(lines)), reused, "{lines}");
    }
}

/// RFC 9110 §7.6.1: the server does not get what `Connection` names.
#[test]
fn what_connection_names_selects_nothing() {
    let reply = response(200, "Cache-Control: max-age=100\nVary: Accept-Language");
    let named = "Connection: close, accept-language\nAccept-Language: de";
    for (first, second, reused) in [
        (named, "Accept-Language: de", false),
        (named, "", true),
        ("Accept-Language: de", named, false),
        ("", named, true),
        (named, named, true),
    ] {
        assert_eq!(Net::reuses(&get(first), &reply, 1, &get(second)), reused, "{first} {second}");
    }
    let mut net = Net::new();
    let RequestAction::Ask(sent, _) = net.plan(0, &get(named)) else { panic!("nothing is stored") };
    assert!(!sent.fields.has("accept-language") && !sent.keeps_alive());
}

#[test]
fn several_responses_of_one_key_are_kept_as_long_as_they_are_few() {
    let mut net = Net::new();
    let reply = response(200, "Cache-Control: max-age=100\nVary: X");
    for number in 0..40 {
        net.ask(0, &get(&format!("X: {number}")), &reply);
    }
    assert_eq!(net.cache.stats().entries, 16);
    assert_eq!(net.ask(1, &get("X: 39"), &reply), Got::Hit(200));
    assert_eq!(net.ask(1, &get("X: 3"), &reply), Got::Server(200));
}

/// §4.3.
#[test]
fn a_server_confirms_what_has_expired() {
    let mut net = Net::new();
    let reply =
        response(200, &format!("Cache-Control: max-age=10\nETag: \"1\"\nLast-Modified: {CHANGED}"));
    net.ask(0, &get(""), &reply);
    let RequestAction::Ask(sent, asked) = net.plan(20, &get("If-None-Match: \"own\"\nAccept: x"))
    else {
        panic!("it has expired")
    };
    assert_eq!(text(&sent.fields, "if-none-match"), Some("\"1\""));
    assert_eq!(text(&sent.fields, "if-modified-since"), Some(CHANGED));
    assert_eq!(text(&sent.fields, "accept"), Some("x"));
    let confirmation = response(
        304,
        "ETag: \"1\"\nCache-Control: max-age=50\nContent-Length: 99\nX-New: y\nDate: Sun, 06 Nov 1994 08:49:57 GMT",
    );
    assert_eq!(net.reply(20, &asked, &confirmation), Got::Confirmed(200));
    let RequestAction::Answer(answer, None) = net.plan(60, &get("")) else {
        panic!("it is fresh again")
    };
    let head = &answer.head.fields;
    assert_eq!((text(head, "age"), text(head, "x-new")), (Some("40"), Some("y")));
    assert_eq!(text(head, "content-length"), Some("10"));
}

/// What a client gets that asks when the first answer has expired, and is confirmed like this. Returns
/// the cache, too, which has written its files.
fn confirmed(conditions: &str, lines: &str) -> (Net, CachedResponse<&'static str>) {
    let mut net = Net { cache: SharedCache::new(config(1_000_000, 1_000_000)) };
    net.ask(0, &get(""), &response(200, "Cache-Control: max-age=10\nETag: \"1\""));
    while net.cache.poll_output().is_some() {}
    let RequestAction::Ask(_, asked) = net.plan(20, &get(conditions)) else {
        panic!("it has expired")
    };
    let date = "Date: Sun, 06 Nov 1994 08:49:57 GMT";
    let confirmation = response(304, &format!("ETag: \"1\"\n{date}\n{lines}"));
    match net.cache.handle_response(at(20), &asked, &confirmation) {
        ResponseAction::Answer(answer) => (net, answer),
        verdict => panic!("{verdict:?}"),
    }
}

/// RFC 9111 §7.3, as for whole responses.
#[test]
fn a_cookie_of_a_confirmation_is_for_its_client_only() {
    for (lines, shared) in [
        ("", false),
        ("Cache-Control: max-age=50", false),
        ("Cache-Control: max-age=50, public", true),
        ("Cache-Control: s-maxage=50", true),
    ] {
        for (conditions, status) in [("", 200), ("If-None-Match: \"1\"", 304)] {
            let lines = format!("Set-Cookie: session=1\nX-New: y\n{lines}");
            let (mut net, answer) = confirmed(conditions, &lines);
            let cookie = text(&answer.head.fields, "set-cookie");
            assert_eq!((answer.head.status, cookie), (status, Some("session=1")), "{lines}");
            // Its head is written again, as it is in memory.
            let Some(FileOutput::Write(id, None)) = net.cache.poll_output() else {
                panic!("{lines}")
            };
            let (stored, ..) = net.cache.store().get(id).unwrap();
            let fields = &stored.head.fields;
            assert_eq!((fields.has("set-cookie"), fields.has("x-new")), (shared, true), "{lines}");
            let RequestAction::Answer(answer, _) = net.plan(21, &get("")) else {
                panic!("{lines}")
            };
            assert_eq!(answer.head.fields.has("set-cookie"), shared, "{lines}");
        }
    }
}

#[test]
fn what_a_confirmation_makes_private_serves_its_client_and_is_forgotten() {
    for lines in ["private, max-age=50", "private=\"x\"", "no-store"] {
        let (mut net, answer) = confirmed("", &format!("Cache-Control: {lines}"));
        assert_eq!((answer.head.status, answer.body), (200, Some(BODY)), "{lines}");
        assert_eq!(text(&answer.head.fields, "cache-control"), Some(lines));
        assert!(matches!(net.cache.poll_output(), Some(FileOutput::Remove(_))), "{lines}");
        assert_eq!(net.ask(21, &get(""), &response(200, "")), Got::Server(200), "{lines}");
    }
}

/// RFC 5861 §3: nobody waits for this confirmation.
#[test]
fn a_cookie_that_comes_while_the_expired_is_used_is_nobody_s() {
    for (said, entries) in [("max-age=50", 1), ("private", 0)] {
        let mut net = Net::new();
        let reply = "Cache-Control: max-age=10, stale-while-revalidate=60\nETag: \"1\"";
        net.ask(0, &get(""), &response(200, reply));
        let RequestAction::Answer(_, Some((_, asked))) = net.plan(20, &get("")) else {
            panic!("{said}")
        };
        let lines = format!("ETag: \"1\"\nSet-Cookie: session=1\nCache-Control: {said}");
        net.reply(21, &asked, &response(304, &lines));
        assert_eq!(net.cache.stats().entries, entries, "{said}");
        if let RequestAction::Answer(answer, _) = net.plan(22, &get("")) {
            assert!(!answer.head.fields.has("set-cookie"), "{said}");
        }
    }
}

#[test]
fn a_confirmation_of_something_else_confirms_nothing() {
    for tags in [&[&b"\"2\""[..]][..], &[b"\"\xff\""], &[b"\"1\"", b"\"2\""]] {
        let mut net = Net::new();
        net.ask(0, &get(""), &response(200, "Cache-Control: max-age=10\nETag: \"1\""));
        let RequestAction::Ask(_, asked) = net.plan(20, &get("")) else { panic!("it has expired") };
        let mut other = response(304, "");
        tags.iter().for_each(|tag| other.fields.push("ETag", tag));
        let verdict = net.cache.handle_response(at(20), &asked, &other);
        let ResponseAction::Again(request, asked) = verdict else { panic!("{tags:?} {verdict:?}") };
        assert!(!request.fields.has("if-none-match"), "{tags:?}");
        assert!(asked.validates.is_none() && asked.storable, "{tags:?}");
        assert_eq!(net.cache.stats().entries, 0, "{tags:?}");
    }
}

/// How the request that was answered first would select by them is not known.
#[test]
fn a_confirmation_that_selects_by_further_fields_serves_its_client_and_is_forgotten() {
    for (vary, entries) in [(&b"Accept"[..], 1), (b"", 1), (b"Cookie", 0), (b"*", 0), (b"\xff", 0)]
    {
        let mut net = Net::new();
        let lines = "Cache-Control: max-age=10\nETag: \"1\"\nVary: accept, origin";
        net.ask(0, &get(""), &response(200, lines));
        let RequestAction::Ask(_, asked) = net.plan(20, &get("")) else { panic!("it has expired") };
        let mut confirmation = response(304, "ETag: \"1\"\nCache-Control: max-age=50");
        confirmation.fields.push("Vary", vary);
        assert_eq!(net.reply(20, &asked, &confirmation), Got::Confirmed(200), "{vary:?}");
        assert_eq!(net.cache.stats().entries, entries, "{vary:?}");
    }
}

/// The 304 is about the client's copy, not ours.
#[test]
fn a_client_s_own_condition_is_answered_by_the_server_where_we_have_none() {
    let mut net = Net::new();
    net.ask(0, &get(""), &response(200, "Cache-Control: max-age=10"));
    let not_modified = response(304, "");
    assert_eq!(net.ask(20, &get("If-None-Match: \"9\""), &not_modified), Got::Server(304));
    // The same before anything is stored.
    assert_eq!(Net::new().ask(20, &get("If-None-Match: \"9\""), &not_modified), Got::Server(304));
}

/// RFC 9110 §13.
#[test]
fn a_client_that_has_it_already_is_told_so() {
    let reply = response(
        200,
        &format!("Cache-Control: max-age=100\nETag: \"1\"\nLast-Modified: {CHANGED}"),
    );
    for (lines, status) in [
        ("If-None-Match: \"1\"", 304),
        ("If-None-Match: W/\"1\"", 304),
        ("If-None-Match: \"a,b\", \"1\"", 304),
        ("If-None-Match: *", 304),
        ("If-None-Match: \"2\"", 200),
        (&format!("If-Modified-Since: {CHANGED}"), 304),
        (&format!("If-Modified-Since: {DATE}"), 304),
        ("If-Modified-Since: Wed, 26 Oct 1994 08:49:37 GMT", 200),
        ("If-Modified-Since: nonsense", 200),
        // The tag has the last word.
        (&format!("If-None-Match: \"2\"\nIf-Modified-Since: {DATE}"), 200),
    ] {
        let mut net = Net::new();
        net.ask(0, &get(""), &reply);
        assert_eq!(net.ask(1, &get(lines), &reply), Got::Hit(status), "{lines}");
    }
}

/// RFC 9110 §14.
#[test]
fn parts_are_served_from_a_whole() {
    let reply = response(
        200,
        &format!("Cache-Control: max-age=100\nETag: \"1\"\nLast-Modified: {CHANGED}"),
    );
    for (lines, status, part) in [
        ("Range: bytes=2-4", 206, Some((2, 3))),
        ("Range: bytes=2-", 206, Some((2, 8))),
        ("Range: bytes=-3", 206, Some((7, 3))),
        ("Range: bytes=-30", 206, Some((0, 10))),
        ("Range: bytes=0-99", 206, Some((0, 10))),
        ("Range: bytes=10-", 416, None),
        ("Range: bytes=-0", 416, None),
        ("Range: bytes=0-1,3-4", 200, Some((0, 10))),
        ("Range: bytes=4-2", 200, Some((0, 10))),
        ("Range: lines=1-2", 200, Some((0, 10))),
        ("Range: bytes=a-b", 200, Some((0, 10))),
        ("Range: bytes=0-1\nIf-Range: \"1\"", 206, Some((0, 2))),
        ("Range: bytes=0-1\nIf-Range: \"2\"", 200, Some((0, 10))),
        ("Range: bytes=0-1\nIf-Range: W/\"1\"", 200, Some((0, 10))),
    ] {
        let mut net = Net::new();
        net.ask(0, &get(""), &reply);
        let RequestAction::Answer(answer, None) = net.plan(1, &get(lines)) else {
            panic!("{lines}")
        };
        let got = answer.part.map(|part| (part.from, part.length));
        assert_eq!((answer.head.status, got), (status, part), "{lines}");
    }
    let mut net = Net::new();
    net.ask(0, &get(""), &reply);
    let RequestAction::Answer(answer, None) = net.plan(1, &request("HEAD", "")) else {
        panic!("HEAD")
    };
    assert_eq!((text(&answer.head.fields, "content-length"), answer.part), (Some("10"), None));
    // A part of what is not stored is not stored.
    let part = response(206, "Cache-Control: max-age=100\nContent-Range: bytes 0-1/10");
    let mut net = Net::new();
    assert_eq!(net.ask(0, &get("Range: bytes=0-1"), &part), Got::Server(206));
    assert_eq!(net.ask(1, &get(""), &reply), Got::Server(200));
}

/// RFC 5861 §3.
#[test]
fn the_expired_may_be_used_while_it_is_validated_once() {
    let mut net = Net::new();
    let reply = response(200, "Cache-Control: max-age=10, stale-while-revalidate=60\nETag: \"1\"");
    net.ask(0, &get(""), &reply);
    let RequestAction::Answer(_, Some((sent, asked))) = net.plan(20, &get("Range: bytes=0-1"))
    else {
        panic!()
    };
    assert_eq!(
        (text(&sent.fields, "if-none-match"), sent.fields.has("range")),
        (Some("\"1\""), false)
    );
    assert_eq!(net.ask(21, &get(""), &reply), Got::Hit(200), "it is being validated");
    let newer = response(200, "Cache-Control: max-age=10\nDate: Sun, 06 Nov 1994 08:49:59 GMT");
    assert_eq!(net.reply(22, &asked, &newer), Got::Server(200));
    assert_eq!(net.ask(25, &get(""), &reply), Got::Hit(200));
    assert_eq!(net.cache.stats().entries, 1);
    let mut late = Net::new();
    late.ask(0, &get(""), &reply);
    assert_eq!(late.ask(71, &get(""), &reply), Got::Server(200));
}

/// RFC 5861 §4, RFC 9111 §4.2.4.
#[test]
fn the_expired_serves_when_there_is_nothing_else() {
    for (lines, after, on_error, unreachable) in [
        ("max-age=10", 20, false, true),
        ("max-age=10", 3700, false, false),
        ("max-age=10, stale-if-error=60", 60, true, true),
        ("max-age=10, stale-if-error=60", 71, false, false),
        ("max-age=10, stale-if-error=0", 20, false, false),
        ("max-age=10, must-revalidate, stale-if-error=60", 20, false, false),
        ("max-age=10, no-cache, stale-if-error=60", 5, false, false),
        ("s-maxage=10", 20, false, false),
    ] {
        let reply = response(200, &format!("Cache-Control: {lines}\nETag: \"1\""));
        let mut net = Net::new();
        net.ask(0, &get(""), &reply);
        let error = response(503, "");
        let got = net.ask(after, &get(""), &error);
        assert_eq!(got == Got::Confirmed(200), on_error, "{lines} {after}: {got:?}");
        let RequestAction::Ask(_, asked) = net.plan(after, &get("")) else { panic!("{lines}") };
        let answer = net.cache.handle_failure(at(after), &asked);
        assert_eq!(answer.is_some(), unreachable, "{lines} {after}");
    }
}

/// §4.4.
#[test]
fn a_change_makes_what_is_stored_invalid() {
    let reply = response(200, "Cache-Control: max-age=100");
    for (method, status, lines, kept) in [
        ("POST", 200, "", false),
        ("FROB", 204, "", false),
        ("DELETE", 303, "", false),
        ("POST", 500, "", true),
        ("OPTIONS", 200, "", true),
    ] {
        let mut net = Net::new();
        net.ask(0, &get(""), &reply);
        net.ask(1, &request(method, ""), &response(status, lines));
        assert_eq!(net.ask(2, &get(""), &reply) == Got::Hit(200), kept, "{method} {status}");
    }
    let mut net = Net::new();
    let other = RequestHead { target: "/other".to_owned(), ..get("") };
    for (place, kept) in [
        ("/other", false),
        ("http://a.example/other#x", false),
        ("http://b.example/other", true),
        ("//b.example/other", true),
    ] {
        net.ask(0, &other, &reply);
        net.ask(1, &request("PUT", ""), &response(201, &format!("Location: {place}")));
        assert_eq!(net.ask(2, &other, &reply) == Got::Hit(200), kept, "{place}");
    }
}

/// A client that connects to a server of its own, whatever it calls it, reaches nobody else's answers.
#[test]
fn nobody_stores_an_answer_for_a_host_that_is_not_theirs() {
    let mut net = Net::new();
    let reply = response(200, "Cache-Control: max-age=100");
    let evil = CacheKey { destination: "203.0.113.6:80".to_owned(), ..key("/") };
    let RequestAction::Ask(_, asked) =
        net.cache.handle_request(at(0), evil, &get(""), BodyFraming::None, client(6))
    else {
        panic!("nothing is stored")
    };
    assert_eq!(net.reply(0, &asked, &reply), Got::Server(200));
    assert_eq!(net.ask(1, &get(""), &reply), Got::Server(200));
}

/// A clock that was wrong when something was stored makes nothing fresh.
#[test]
fn a_clock_that_was_set_back_makes_everything_old() {
    let mut net = Net::new();
    // Without a readable date its age counts from its arrival.
    let reply = response(200, "Date: ?\nCache-Control: max-age=100\nETag: \"1\"");
    net.ask(100_000, &get(""), &reply);
    assert_eq!(net.ask(100_001, &get(""), &reply), Got::Hit(200));
    assert_eq!(net.ask(0, &get(""), &reply), Got::Server(200));
}

#[test]
fn an_answer_has_its_age_and_nothing_of_a_connection() {
    let mut net = Net::new();
    let reply = response(
        200,
        "Cache-Control: max-age=100\nConnection: x-hop\nX-Hop: 1\nTransfer-Encoding: chunked\nLink: <a>\nLink: <b>",
    );
    net.ask(0, &get(""), &reply);
    let RequestAction::Answer(answer, None) = net.plan(7, &get("")) else { panic!("it is fresh") };
    let fields = &answer.head.fields;
    assert_eq!((text(fields, "age"), text(fields, "content-length")), (Some("7"), Some("10")));
    assert!(!["connection", "x-hop", "transfer-encoding"].iter().any(|name| fields.has(name)));
    assert_eq!(fields.values("link").count(), 2);
    assert_eq!(net.cache.stats().saved_bytes, 10);
}

#[test]
fn credentials_of_a_connection_are_seen_in_every_field_whatever_follows() {
    for values in [&[&b"NTLM \xff"[..]][..], &[b"Basic x", b"negotiate y"], &[b" Kerberos\tz"]] {
        let framing = get_with("Authorization", values).framing();
        assert_eq!(framing, Err(PassThroughReason::Authentication), "{values:?}");
    }
    assert_eq!(get_with("Authorization", &[b"Basic NTLM"]).framing(), Ok(BodyFraming::None));
}

#[test]
fn a_part_is_not_sent_under_a_condition_that_cannot_be_read() {
    let reply = response(200, "Cache-Control: max-age=10\nETag: \"1\"");
    let stored = StoredResponse::new(&get(""), &reply, at(0), at(0));
    let part = |condition: &[&[u8]]| {
        let mut asked = get_with("If-Range", condition);
        asked.fields.push("Range", "bytes=0-1");
        build_response(at(1), &asked, &stored, 10).0.status == 206
    };
    assert!(part(&[]) && part(&[b"\"1\""]));
    assert!(!part(&[b"\"\xff\""]) && !part(&[b"\"1\"", b"\"2\""]));
}
