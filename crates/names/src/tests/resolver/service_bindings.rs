//! Questions for service bindings (RFC 9460) with instant answers, and where QUIC is refused.

use hickory_proto::rr::rdata::svcb::{Alpn, EchConfigList, SvcParamKey, SvcParamValue};
use hickory_proto::rr::rdata::{HTTPS, SVCB};

use super::*;

const KINDS: [RecordType; 2] = [RecordType::HTTPS, RecordType::SVCB];

/// The binding of `NAME`, with HTTP/3 and Encrypted ClientHello.
fn binding(kind: RecordType) -> Record {
    let protocols = ["h3", "h2"].map(str::to_owned).to_vec();
    let parameters = vec![
        (SvcParamKey::Alpn, SvcParamValue::Alpn(Alpn(protocols))),
        (SvcParamKey::EchConfigList, SvcParamValue::EchConfigList(EchConfigList(vec![1, 2, 3]))),
    ];
    let binding = SVCB::new(1, Name::root(), parameters);
    let data = match kind {
        RecordType::HTTPS => RData::HTTPS(HTTPS(binding)),
        _ => RData::SVCB(binding),
    };
    Record::from_rdata(name(NAME), 300, data)
}

/// What the resolver does about a question for the bindings of `NAME`.
fn ask(resolver: &mut Resolver<u32>, ms: u64, kind: RecordType) -> Vec<ResolverOutput<u32>> {
    resolver.handle_message(at(ms), asked(1), &bytes(&question(1, NAME, kind, false)));
    resolver.outputs()
}

/// Asks for unknown bindings, which the hub is asked for; returns the answer and the query.
fn ask_first(resolver: &mut Resolver<u32>, kind: RecordType) -> (Message, UpstreamQuery) {
    let outputs = ask(resolver, 0, kind);
    let [ResolverOutput::Answer(1, answer), ResolverOutput::Ask(query)] = &outputs[..] else {
        panic!("{outputs:?}")
    };
    (read(answer), query.clone())
}

#[test]
fn an_unknown_binding_is_absent_for_two_seconds_while_the_hub_is_asked() {
    for kind in KINDS {
        let mut resolver = resolver(instant());
        let (answer, query) = ask_first(&mut resolver, kind);
        assert_eq!(answer.metadata.response_code, ResponseCode::NoError);
        assert!(answer.answers.is_empty());
        assert_eq!(negative_ttl(&answer), 2);
        assert_eq!((query.to, read(&query.message).queries[0].query_type()), (HUB, kind));
        let again = ask(&mut resolver, 100, kind);
        assert!(matches!(again[..], [ResolverOutput::Answer(..)]), "no second query: {again:?}");
        let stats = resolver.stats();
        assert_eq!((stats.instant, stats.asked, stats.names), (2, 1, 0), "no address is taken");
    }
}

#[test]
fn a_known_binding_is_answered_as_the_hub_sent_it() {
    for kind in KINDS {
        let mut resolver = resolver(instant());
        let (_, query) = ask_first(&mut resolver, kind);
        let known = reply(&query.message, ResponseCode::NoError, vec![binding(kind)]);
        resolver.handle_reply(at(600), query.id, Some(&bytes(&known)));
        assert!(resolver.outputs().is_empty(), "nobody waits");
        ask_and_expect(&mut resolver, kind);
        assert_eq!(resolver.stats().hits, 1);
    }
}

/// Asks at 100 s, and expects the whole binding with the TTL that is left.
fn ask_and_expect(resolver: &mut Resolver<u32>, kind: RecordType) {
    let message = question(1, NAME, kind, false);
    resolver.handle_message(at(100_600), asked(1), &bytes(&message));
    let answer = resolver.answers();
    let [record] = &answer.answers[..] else { panic!("{answer:?}") };
    assert_eq!((record.ttl, &record.data), (200, &binding(kind).data));
}

#[test]
fn a_name_without_bindings_has_none_as_long_as_the_hub_says() {
    let mut resolver = resolver(instant());
    let (_, query) = ask_first(&mut resolver, RecordType::HTTPS);
    let mut none = reply(&query.message, ResponseCode::NoError, vec![]);
    none.add_authorities([soa(60, 60)]);
    resolver.handle_reply(at(600), query.id, Some(&bytes(&none)));
    assert_eq!(ask(&mut resolver, 60_599, RecordType::HTTPS).len(), 1, "from the cache");
    assert_eq!(resolver.stats().hits, 1);
    assert_eq!(ask(&mut resolver, 60_600, RecordType::HTTPS).len(), 2, "it has expired");
}

#[test]
fn a_hub_that_does_not_answer_leaves_nobody_waiting() {
    let mut resolver = resolver(instant());
    let (_, query) = ask_first(&mut resolver, RecordType::HTTPS);
    resolver.handle_reply(at(5000), query.id, None);
    assert!(resolver.outputs().is_empty());
    assert_eq!(ask(&mut resolver, 5001, RecordType::HTTPS).len(), 2, "absent, and asked for again");
}

#[test]
fn validating_clients_and_names_with_real_answers_wait_for_the_hub() {
    for kind in KINDS {
        let mut disabled = question(1, NAME, kind, false);
        disabled.metadata.checking_disabled = true;
        let listed = question(1, "www.corp.example.", kind, false);
        let local = question(1, "_dns.resolver.arpa.", kind, false);
        for message in [question(1, NAME, kind, true), disabled, listed, local] {
            let mut resolver = resolver(instant());
            resolver.handle_message(at(0), asked(1), &bytes(&message));
            assert_eq!(resolver.asks().to, HUB, "{message:?}");
            assert_eq!(resolver.stats().instant, 0);
        }
    }
}

#[test]
fn without_instant_answers_a_binding_is_waited_for() {
    let elsewhere = QuestionSource { uses_pool: false, ..asked(1) };
    for (config, source) in [(config(), asked(1)), (instant(), elsewhere)] {
        let mut resolver = resolver(config);
        let message = bytes(&question(1, NAME, RecordType::HTTPS, false));
        resolver.handle_message(at(0), source, &message);
        let query = resolver.asks();
        let known = vec![binding(RecordType::HTTPS)];
        let known = bytes(&reply(&query.message, ResponseCode::NoError, known));
        resolver.handle_reply(at(600), query.id, Some(&known));
        assert_eq!(resolver.answers().answers[0].data, binding(RecordType::HTTPS).data);
    }
}

#[test]
fn without_a_hub_a_binding_is_asked_for_where_the_client_meant_to() {
    let mut resolver = resolver(instant());
    resolver.set_hub(at(1), false);
    let message = bytes(&question(1, NAME, RecordType::HTTPS, false));
    resolver.handle_message(at(2), asked(1), &message);
    assert_eq!(resolver.asks().to, Upstream::Direct(asked(1).resolver));
}

/// The protocols in the binding that a resolver answers `message` with, once the hub has sent it to others too if
/// `is_known`.
fn protocols(mut resolver: Resolver<u32>, message: &Message, is_known: bool) -> Vec<String> {
    let kind = message.queries[0].query_type();
    let message = bytes(message);
    resolver.handle_message(at(0), QuestionSource { uses_pool: false, ..asked(1) }, &message);
    let query = resolver.asks();
    let owner = read(&query.message).queries[0].name().clone();
    let known = Record::from_rdata(owner, 300, binding(kind).data);
    let known = bytes(&reply(&query.message, ResponseCode::NoError, vec![known]));
    resolver.handle_reply(at(600), query.id, Some(&known));
    let mut answer = resolver.answers();
    if is_known {
        resolver.handle_message(at(700), asked(2), &message);
        answer = resolver.answers();
        assert_eq!(resolver.stats().hits, 1);
    }
    let (RData::HTTPS(HTTPS(binding)) | RData::SVCB(binding)) = &answer.answers[0].data else {
        panic!("{answer:?}")
    };
    let [(_, SvcParamValue::Alpn(alpn)), (SvcParamKey::EchConfigList, _)] = &binding.svc_params[..]
    else {
        panic!("{binding:?}")
    };
    alpn.0.clone()
}

fn refusing() -> Resolver<u32> {
    resolver(NamesConfig { hides_http_3: true, ..instant() })
}

#[test]
fn where_quic_is_refused_a_binding_has_no_http_3() {
    for kind in KINDS {
        for is_known in [false, true] {
            let message = question(1, NAME, kind, false);
            assert_eq!(protocols(refusing(), &message, is_known), ["h2"]);
            assert_eq!(protocols(resolver(instant()), &message, is_known), ["h3", "h2"]);
            let mut reloaded = refusing();
            reloaded.set_hides_http_3(false);
            assert_eq!(protocols(reloaded, &message, is_known), ["h3", "h2"]);
        }
    }
}

#[test]
fn bindings_of_validating_clients_and_of_real_names_keep_http_3() {
    for kind in KINDS {
        let mut disabled = question(1, NAME, kind, false);
        disabled.metadata.checking_disabled = true;
        let listed = question(1, "_8443._https.Corp.example.", kind, false);
        for message in [question(1, NAME, kind, true), disabled, listed] {
            assert_eq!(protocols(refusing(), &message, true), ["h3", "h2"], "{message:?}");
        }
    }
}

#[test]
fn without_a_hub_quic_passes_and_bindings_say_so() {
    let mut resolver = refusing();
    resolver.set_hub(at(0), false);
    let message = question(1, NAME, RecordType::HTTPS, false);
    assert_eq!(protocols(resolver, &message, false), ["h3", "h2"]);
}
