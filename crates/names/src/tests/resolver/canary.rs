//! Names by which clients choose a resolver.

use super::*;

const CANARIES: [&str; 6] = [
    "use-application-dns.net.",
    "Use-Application-DNS.Net.",
    "_dns.resolver.arpa.",
    "_DNS.Resolver.ARPA.",
    "dot._dns.resolver.arpa.",
    "resolver.arpa.",
];

fn with_canary() -> NamesConfig {
    NamesConfig { canary: true, ..instant() }
}

#[test]
fn a_canary_name_has_no_records_of_any_type() {
    let mut resolver = resolver(with_canary());
    let kinds = [RecordType::A, RecordType::AAAA, RecordType::SVCB, RecordType::TXT];
    for (of, kind) in CANARIES.into_iter().flat_map(|of| kinds.map(|kind| (of, kind))) {
        let message = question(7, of, kind, false);
        resolver.handle_message(at(0), asked(1), &bytes(&message));
        let answer = resolver.answers();
        assert_eq!(answer.metadata.response_code, ResponseCode::NoError, "{of} {kind:?}");
        assert_eq!((answer.metadata.id, &answer.queries), (7, &message.queries));
        assert!(answer.answers.is_empty(), "{of} {kind:?}");
        assert_eq!(negative_ttl(&answer), 60, "{of} {kind:?}");
    }
    let stats = resolver.stats();
    assert_eq!((stats.questions, stats.asked, stats.names), (24, 0, 0));
}

#[test]
fn a_client_that_validates_gets_the_same() {
    let mut resolver = resolver(with_canary());
    let mut disabled = question(1, CANARIES[0], RecordType::A, false);
    disabled.metadata.checking_disabled = true;
    for message in [question(1, CANARIES[0], RecordType::A, true), disabled] {
        resolver.handle_message(at(0), asked(1), &bytes(&message));
        let answer = resolver.answers();
        assert_eq!(answer.metadata.response_code, ResponseCode::NoError);
        assert!(answer.answers.is_empty() && !answer.metadata.authentic_data);
        assert_eq!(answer.edns.unwrap().flags(), message.edns.as_ref().unwrap().flags());
    }
}

#[test]
fn a_canary_name_needs_no_hub_and_no_pool() {
    let mut resolver: Resolver<u32> = Resolver::new(NamesConfig { canary: true, ..config() });
    resolver.ask_for(0, 1, CANARIES[0]);
    assert!(resolver.answers().answers.is_empty());
}

#[test]
fn other_names_are_resolved_as_ever() {
    let mut resolver = resolver(with_canary());
    for of in [
        NAME,
        "application-dns.net.",
        "www.use-application-dns.net.",
        "use-application-dns.net.example.",
        "my-use-application-dns.net.",
        "xresolver.arpa.",
        "_dns.resolver.arpa.example.",
        "_dns.resolver.example.",
    ] {
        let message = question(1, of, RecordType::TXT, false);
        resolver.handle_message(at(0), asked(1), &bytes(&message));
        assert_eq!(resolver.asks().to, HUB, "{of}");
    }
}

#[test]
fn without_the_key_canary_names_are_like_others() {
    let mut resolver = resolver(config());
    for of in ["use-application-dns.net.", "_dns.resolver.arpa."] {
        let message = question(1, of, RecordType::SVCB, false);
        resolver.handle_message(at(0), asked(1), &bytes(&message));
        assert_eq!(resolver.asks().to, HUB, "{of}");
    }
}
