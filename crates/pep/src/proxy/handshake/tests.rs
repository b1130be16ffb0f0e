use proptest::prelude::*;

use super::*;
use crate::proxy::http::LONGEST_HEAD;
use crate::work::cost;

/// A SOCKS greeting without authentication.
const HELLO: &[u8] = &[5, 1, 0];

/// All steps until the handshake ends or needs more, with bytes arriving in pieces of this length.
fn steps(bytes: &[u8], piece: usize) -> Vec<HandshakeStep> {
    let mut handshake = ProxyHandshake::default();
    let mut steps = Vec::new();
    let mut pieces = bytes.chunks(piece);
    loop {
        match handshake.step() {
            HandshakeStep::Read => match pieces.next() {
                Some(piece) => handshake.handle_input(piece),
                None => return steps,
            },
            HandshakeStep::Connect(mut request) => {
                pieces.for_each(|piece| request.first.extend_from_slice(piece));
                steps.push(HandshakeStep::Connect(request));
                return steps;
            }
            HandshakeStep::Refuse(answer) => {
                steps.push(HandshakeStep::Refuse(answer));
                return steps;
            }
            say => steps.push(say),
        }
    }
}

fn connect(target: Destination, dialect: ProxyProtocol, first: &[u8]) -> HandshakeStep {
    HandshakeStep::Connect(ProxyRequest { destination: target, dialect, first: first.to_vec() })
}

fn name(name: &str, port: u16) -> Destination {
    Destination::Name(HostName::new(name).unwrap(), port)
}

#[test]
fn a_socks_client_names_its_server_in_each_of_three_ways() {
    let name_form = [&[5, 1, 0, 3, 11][..], b"example.net", &[0, 80]].concat();
    let v4 = [5, 1, 0, 1, 192, 0, 2, 1, 0x1f, 0x90].to_vec();
    let mut v6 = [5, 1, 0, 4, 0x20, 1, 0xd, 0xb8].to_vec();
    v6.extend([0; 11]);
    v6.extend([1, 0, 22]);
    for (request, target) in [
        (name_form, name("example.net", 80)),
        (v4, Destination::Address("192.0.2.1:8080".parse().unwrap())),
        (v6, Destination::Address("[2001:db8::1]:22".parse().unwrap())),
    ] {
        let all = [HELLO, &request, b"GET /"].concat();
        let expected =
            vec![HandshakeStep::Write(vec![5, 0]), connect(target, ProxyProtocol::Socks, b"GET /")];
        for piece in [1, 2, 3, 7, all.len()] {
            assert_eq!(steps(&all, piece), expected, "in pieces of {piece}");
        }
    }
}

#[test]
fn a_socks_client_hears_which_requests_are_unsupported() {
    let refused = |after_hello: &[u8]| steps(&[HELLO, after_hello].concat(), 1).pop();
    let reply = |code| Some(HandshakeStep::Refuse(socks::reply(code)));
    assert_eq!(refused(&[5, 2, 0, 1, 1, 2, 3, 4, 0, 80]), reply(7), "BIND");
    assert_eq!(refused(&[5, 3, 0, 1, 1, 2, 3, 4, 0, 80]), reply(7), "UDP ASSOCIATE");
    assert_eq!(refused(&[5, 1, 0, 9]), reply(8), "address type 9");
    assert_eq!(refused(&[4, 1, 0, 1]), reply(1), "another version");
    assert_eq!(refused(&[5, 1, 0, 3, 0, 0, 80]), reply(1), "an empty name");
    assert_eq!(refused(&[5, 1, 0, 3, 2, b'a', 0, 0, 80]), reply(1), "a zero in a name");
    assert_eq!(steps(&[5, 1, 2], 1), [HandshakeStep::Refuse(vec![5, 0xff])], "a password");
    assert_eq!(steps(&[5, 0], 1), [HandshakeStep::Refuse(vec![5, 0xff])], "no method");
    assert_eq!(
        steps(&[4, 1, 0, 80], 4),
        [HandshakeStep::Refuse(socks::REFUSAL_4.to_vec())],
        "SOCKS4"
    );
}

#[test]
fn an_http_client_connects_whatever_fields_it_sends() {
    for (head, target) in [
        ("CONNECT example.net:443 HTTP/1.1\r\n\r\n", name("example.net", 443)),
        ("CONNECT example.net:443 HTTP/1.0\n\n", name("example.net", 443)),
        (
            "CONNECT 192.0.2.1:80 HTTP/1.1\r\nHost: other\r\nProxy-Authorization: x\r\n\r\n",
            Destination::Address("192.0.2.1:80".parse().unwrap()),
        ),
        (
            "CONNECT [2001:db8::1]:80 HTTP/1.1\r\nUser-Agent: x\r\n\r\n",
            Destination::Address("[2001:db8::1]:80".parse().unwrap()),
        ),
    ] {
        let all = format!("{head}\u{16}first");
        for piece in [1, 5, all.len()] {
            let expected = [connect(target.clone(), ProxyProtocol::Http, "\u{16}first".as_bytes())];
            assert_eq!(steps(all.as_bytes(), piece), expected, "{head:?} in pieces of {piece}");
        }
    }
}

#[test]
fn an_http_client_hears_what_is_wrong() {
    for (head, status) in [
        ("GET http://example.net/ HTTP/1.1\r\n\r\n", "405"),
        ("CONNECT example.net HTTP/1.1\r\n\r\n", "400"),
        ("CONNECT example.net:99999 HTTP/1.1\r\n\r\n", "400"),
        ("CONNECT example.net:+80 HTTP/1.1\r\n\r\n", "400"),
        ("CONNECT 2001:db8::1:80 HTTP/1.1\r\n\r\n", "400"),
        ("CONNECT [192.0.2.1]:80 HTTP/1.1\r\n\r\n", "400"),
        ("CONNECT a/b:80 HTTP/1.1\r\n\r\n", "400"),
        ("CONNECT :80 HTTP/1.1\r\n\r\n", "400"),
        ("CONNECT a:80 HTTP/2\r\n\r\n", "400"),
        ("CONNECT a:80 HTTP/1.1 x\r\n\r\n", "400"),
        ("\r\n\r\n", "400"),
    ] {
        let told = steps(head.as_bytes(), 3);
        let [HandshakeStep::Refuse(answer)] = &told[..] else { panic!("{head:?}: {told:?}") };
        let answer = String::from_utf8_lossy(answer);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{head:?}: {answer}");
    }
}

#[test]
fn a_head_without_end_is_refused_at_its_limit() {
    let mut head = b"CONNECT a:80 HTTP/1.1\r\nX: ".to_vec();
    head.resize(LONGEST_HEAD - 1, b'x');
    assert_eq!(steps(&head, 1000), []);
    head.push(b'x');
    let told = steps(&head, 1000);
    let [HandshakeStep::Refuse(answer)] = &told[..] else { panic!("{told:?}") };
    assert!(answer.starts_with(b"HTTP/1.1 431 "));
}

#[test]
fn each_reason_has_its_answer_in_both_dialects() {
    for (outcome, socks, http) in [
        (Ok(()), 0, "200"),
        (Err(ResetReason::Refused), 5, "502"),
        (Err(ResetReason::Unreachable), 4, "502"),
        (Err(ResetReason::TimedOut), 6, "504"),
        (Err(ResetReason::Prohibited), 2, "403"),
        (Err(ResetReason::Limit), 1, "503"),
        (Err(ResetReason::SessionLost), 1, "502"),
    ] {
        assert_eq!(ProxyProtocol::Socks.answer(outcome)[..2], [5, socks]);
        let answer = ProxyProtocol::Http.answer(outcome);
        assert!(answer.starts_with(format!("HTTP/1.1 {http} ").as_bytes()), "{outcome:?}");
    }
}

proptest! {
    /// Arbitrary bytes neither panic nor accumulate without bound, and how they are cut makes no
    /// difference.
    #[test]
    fn any_bytes_come_to_an_end(
        start in prop::sample::select(vec![&b""[..], &[5], &[5, 1, 0, 5, 1, 0], b"CONNECT "]),
        bytes in prop::collection::vec(any::<u8>(), 0..9000),
        piece in 1usize..200,
    ) {
        let all = [start, &bytes].concat();
        let told = steps(&all, piece);
        prop_assert_eq!(&told, &steps(&all, all.len().max(1)));
        let is_over = matches!(told.last(), Some(HandshakeStep::Connect(_) | HandshakeStep::Refuse(_)));
        prop_assert!(is_over || all.len() < LONGEST_HEAD);
    }
}

#[test]
fn a_head_in_pieces_is_searched_once() {
    for repeated in ["x", "\n", "\r", "a: b\r\n"] {
        let head = format!("CONNECT a:1 HTTP/1.1\r\nx{}", repeated.repeat(LONGEST_HEAD));
        let head = &head.as_bytes()[..LONGEST_HEAD];
        let (_, cost) = cost::of(|| steps(head, 1));
        assert!(cost <= 4 * head.len() as u64, "{repeated:?}: {cost}");
    }
}
