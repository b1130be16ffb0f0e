mod canary;
mod service_bindings;

use super::*;

const NAME: &str = "www.example.com.";
const HUB: Upstream = Upstream::Hub;

fn config() -> NamesConfig {
    NamesConfig {
        cache: CacheLimits { bytes: ByteCount::new(1_000_000), entries: 1000 },
        stale: Duration::from_secs(86_400),
        prefetch: 1,
        real: vec!["corp.example".parse().unwrap()],
        pool: None,
        canary: false,
        hides_http_3: false,
    }
}

fn instant() -> NamesConfig {
    let prefixes = ["198.18.0.0/15", "fd00:53::/64"].map(|it| it.parse().unwrap()).to_vec();
    NamesConfig { pool: Some(PoolConfig { prefixes, time: Duration::from_secs(3600) }), ..config() }
}

/// A resolver whose hub answers.
fn resolver(config: NamesConfig) -> Resolver<u32> {
    let mut resolver = Resolver::new(config);
    resolver.set_hub(at(0), true);
    resolver
}

fn asked(asker: u32) -> QuestionSource<u32> {
    let resolver = Some(SocketAddr::from(([9, 9, 9, 9], 53)));
    QuestionSource { asker, client: client(1), resolver, over_tcp: false, uses_pool: true }
}

impl Resolver<u32> {
    fn outputs(&mut self) -> Vec<ResolverOutput<u32>> {
        std::iter::from_fn(|| self.poll_output()).collect()
    }

    /// The only thing to do: an answer.
    fn answers(&mut self) -> Message {
        let [ResolverOutput::Answer(_, answer)] = &self.outputs()[..] else {
            panic!("no single answer")
        };
        read(answer)
    }

    /// The only thing to do: to ask.
    fn asks(&mut self) -> UpstreamQuery {
        let [ResolverOutput::Ask(ask)] = &self.outputs()[..] else { panic!("no single question") };
        ask.clone()
    }

    fn ask_for(&mut self, ms: u64, asker: u32, of: &str) {
        let message = question(asker as u16, of, RecordType::A, false);
        self.handle_message(at(ms), asked(asker), &bytes(&message));
    }

    /// Has an answer for `NAME`, with this TTL, since 0 ms.
    fn knows(mut self, ttl: u32) -> Self {
        self.ask_for(0, 1, NAME);
        let ask = self.asks();
        let answers = vec![address(NAME, ttl, 7)];
        let reply = bytes(&reply(&ask.message, ResponseCode::NoError, answers));
        self.handle_reply(at(0), ask.id, Some(&reply));
        assert_eq!(self.answers().answers.len(), 1);
        self
    }
}

#[test]
fn an_answer_is_asked_for_once_and_ages() {
    let mut resolver = resolver(config()).knows(300);
    resolver.ask_for(100_000, 2, "WWW.example.COM.");
    let answer = resolver.answers();
    assert_eq!((answer.metadata.id, answer.answers[0].ttl), (2, 200));
    assert_eq!(answer.queries[0].name().to_ascii(), "WWW.example.COM.");
    assert_eq!(answer.answers[0].name.to_ascii(), "WWW.example.COM.", "the client's case");
    assert!(answer.metadata.recursion_available && answer.edns.is_some());
    resolver.ask_for(300_000, 3, NAME);
    assert_eq!(resolver.asks().to, HUB, "it has expired");
    assert_eq!((resolver.stats().hits, resolver.stats().asked), (1, 2));
}

#[test]
fn those_who_ask_the_same_wait_for_one_question() {
    let mut resolver = resolver(config());
    for (ms, asker) in [(0, 1), (10, 2), (20, 1)] {
        resolver.ask_for(ms, asker, NAME);
    }
    let ask = resolver.asks();
    let ours = bytes(&reply(&ask.message, ResponseCode::NoError, vec![address(NAME, 0, 7)]));
    resolver.handle_reply(at(600), ask.id, Some(&ours));
    let askers = resolver.outputs();
    let to: Vec<_> = askers.iter().map(|it| matches!(it, ResolverOutput::Answer(..))).collect();
    assert_eq!(to, [true, true], "one repeated its question");
    assert_eq!((resolver.stats().coalesced, resolver.stats().entries), (1, 0), "TTL 0: not kept");
    resolver.handle_reply(at(700), ask.id, Some(&ours));
    assert!(resolver.outputs().is_empty(), "a second reply is nobody's");
}

#[test]
fn dnssec_and_other_questions_have_answers_of_their_own() {
    let mut resolver = resolver(config()).knows(300);
    let mut validating = question(4, NAME, RecordType::A, false);
    validating.metadata.checking_disabled = true;
    for message in [
        question(2, NAME, RecordType::A, true),
        question(3, NAME, RecordType::AAAA, false),
        validating,
    ] {
        resolver.handle_message(at(1), asked(9), &bytes(&message));
        let asks = read(&resolver.asks().message);
        assert_eq!(asks.queries, message.queries);
        assert_eq!(asks.metadata.checking_disabled, message.metadata.checking_disabled);
        assert_eq!(asks.edns.unwrap().flags(), message.edns.as_ref().unwrap().flags());
    }
}

/// What is asked again after the hub's reply `code` with this authority, at these times.
fn negative(code: ResponseCode, authority: Option<Record>, times: &[u64]) -> Vec<bool> {
    let mut resolver = resolver(config());
    resolver.ask_for(0, 1, NAME);
    let ask = resolver.asks();
    let mut none = reply(&ask.message, code, vec![]);
    none.add_authorities(authority);
    resolver.handle_reply(at(0), ask.id, Some(&bytes(&none)));
    assert_eq!(resolver.answers().metadata.response_code, code);
    let mut asks_at = |ms: &u64| {
        resolver.ask_for(*ms, 2, NAME);
        matches!(resolver.outputs()[..], [ResolverOutput::Ask(_)])
    };
    times.iter().map(&mut asks_at).collect()
}

#[test]
fn a_negative_answer_lasts_as_long_as_its_authority_says() {
    for code in [ResponseCode::NXDomain, ResponseCode::NoError] {
        let kept = |soa| negative(code, Some(soa), &[59_999, 60_000]);
        assert_eq!(kept(soa(60, 3600)), [false, true]);
        assert_eq!(kept(soa(3600, 60)), [false, true]);
        let week = Some(soa(604_800, 604_800));
        assert_eq!(negative(code, week, &[10_799_999, 10_800_000]), [false, true]);
        assert_eq!(negative(code, None, &[1]), [true]);
    }
    let failed = negative(ResponseCode::ServFail, None, &[4_999, 5_000]);
    assert_eq!(failed, [false, true], "RFC 9520");
}

#[test]
fn an_alias_to_nothing_lasts_no_longer_than_the_alias() {
    let mut resolver = resolver(config());
    resolver.ask_for(0, 1, NAME);
    let ask = resolver.asks();
    let alias = Record::from_rdata(name(NAME), 20, RData::CNAME(CNAME(name("x.example."))));
    let mut none = reply(&ask.message, ResponseCode::NoError, vec![alias]);
    none.add_authorities([soa(60, 60)]);
    resolver.handle_reply(at(0), ask.id, Some(&bytes(&none)));
    resolver.answers();
    resolver.ask_for(19_000, 2, NAME);
    assert_eq!(resolver.answers().answers[0].ttl, 1);
    resolver.ask_for(20_000, 3, NAME);
    resolver.asks();
}

#[test]
fn an_expired_answer_serves_while_nobody_answers() {
    let mut resolver = resolver(config()).knows(60);
    resolver.handle_timeout(at(60_000));
    resolver.ask_for(100_000, 2, NAME);
    let ask = resolver.asks();
    assert_eq!(resolver.poll_timeout(), Some((at(101_800), ResolverWake::Waiting)));
    resolver.handle_timeout(at(101_799));
    assert!(resolver.outputs().is_empty());
    resolver.handle_timeout(at(101_800));
    let stale = resolver.answers();
    assert_eq!(stale.answers[0].ttl, 30);
    let options = stale.edns.unwrap().options().clone();
    assert!(options.as_ref().iter().any(|(code, _)| u16::from(*code) == 15), "RFC 8914");
    resolver.ask_for(102_000, 3, NAME);
    assert_eq!(resolver.answers().answers[0].ttl, 30, "nobody waits a second time");
    // The answer comes after all.
    let late = bytes(&reply(&ask.message, ResponseCode::NoError, vec![address(NAME, 60, 9)]));
    resolver.handle_reply(at(103_000), ask.id, Some(&late));
    assert!(resolver.outputs().is_empty());
    resolver.ask_for(103_001, 4, NAME);
    assert_eq!(resolver.answers().answers[0].data, address(NAME, 60, 9).data);
    assert_eq!(resolver.stats().stale, 2);
}

#[test]
fn a_failure_does_not_replace_an_answer_and_stands_for_a_while() {
    let mut resolver = resolver(config()).knows(60);
    resolver.ask_for(100_000, 2, NAME);
    let ask = resolver.asks();
    let failure = bytes(&reply(&ask.message, ResponseCode::ServFail, vec![]));
    resolver.handle_reply(at(100_600), ask.id, Some(&failure));
    assert_eq!(resolver.answers().answers[0].ttl, 30);
    resolver.ask_for(130_000, 3, NAME);
    assert_eq!(resolver.answers().answers[0].ttl, 30);
    resolver.ask_for(130_600, 4, NAME);
    resolver.asks();
}

#[test]
fn after_its_time_an_expired_answer_is_gone() {
    let mut resolver = resolver(config()).knows(60);
    resolver.set_hub(at(1), false);
    resolver.ask_for(60_000 + 86_400_001, 2, NAME);
    let ask = resolver.asks();
    resolver.handle_reply(at(60_000 + 86_401_000), ask.id, None);
    assert_eq!(resolver.answers().metadata.response_code, ResponseCode::ServFail);
    let mut without = Resolver::new(NamesConfig { stale: Duration::ZERO, ..config() });
    without.set_hub(at(0), true);
    let mut without = without.knows(60);
    without.set_hub(at(1), false);
    without.ask_for(60_001, 2, NAME);
    let ask = without.asks();
    without.handle_reply(at(60_600), ask.id, None);
    assert_eq!(without.answers().metadata.response_code, ResponseCode::ServFail);
}

#[test]
fn a_hub_that_does_not_answer_gives_way_to_the_resolver_that_was_meant() {
    let mut resolver = resolver(config());
    resolver.ask_for(0, 1, NAME);
    let lost = resolver.asks();
    resolver.handle_reply(at(100), lost.id, None);
    let ask = resolver.asks();
    assert_eq!(ask.to, Upstream::Direct(asked(1).resolver));
    resolver.handle_reply(at(200), ask.id, None);
    assert_eq!(resolver.answers().metadata.response_code, ResponseCode::ServFail);
}

#[test]
fn without_a_hub_questions_go_straight_and_their_answers_are_not_kept() {
    let mut resolver = resolver(config());
    resolver.ask_for(0, 1, NAME);
    let lost = resolver.asks();
    resolver.set_hub(at(100), false);
    let ask = resolver.asks();
    assert_eq!(ask.to, Upstream::Direct(asked(1).resolver));
    resolver.handle_reply(at(150), lost.id, None);
    assert!(resolver.outputs().is_empty(), "the hop was given up");
    let ours = bytes(&reply(&ask.message, ResponseCode::NoError, vec![address(NAME, 300, 7)]));
    resolver.handle_reply(at(200), ask.id, Some(&ours));
    assert_eq!(resolver.answers().answers.len(), 1);
    resolver.set_hub(at(300), true);
    resolver.ask_for(400, 2, NAME);
    assert_eq!(resolver.asks().to, HUB);
    assert_eq!(resolver.stats().straight, 1);
}

#[test]
fn a_fresh_answer_needs_no_hub() {
    let mut resolver = resolver(config()).knows(60);
    resolver.set_hub(at(1), false);
    resolver.ask_for(30_000, 2, NAME);
    assert_eq!(resolver.answers().answers[0].ttl, 30);
}

#[test]
fn what_is_in_use_is_fetched_again_and_nothing_else() {
    let mut resolver = resolver(config()).knows(100);
    assert_eq!(resolver.poll_timeout(), Some((at(90_000), ResolverWake::Prefetch)));
    let mut unused = resolver_that_knows(100);
    unused.handle_timeout(at(90_000));
    assert!(unused.outputs().is_empty() && unused.poll_timeout().is_none());

    resolver.ask_for(50_000, 2, NAME);
    resolver.answers();
    resolver.handle_timeout(at(90_000));
    let ask = resolver.asks();
    let ours = bytes(&reply(&ask.message, ResponseCode::NoError, vec![address(NAME, 100, 9)]));
    resolver.handle_reply(at(90_600), ask.id, Some(&ours));
    assert!(resolver.outputs().is_empty(), "nobody waits");
    resolver.ask_for(110_000, 3, NAME);
    assert_eq!(resolver.answers().answers[0].data, address(NAME, 0, 9).data);
    assert_eq!(resolver.stats().prefetched, 1);
}

fn resolver_that_knows(ttl: u32) -> Resolver<u32> {
    resolver(config()).knows(ttl)
}

#[test]
fn prefetches_keep_to_their_budget() {
    let mut resolver = resolver(config());
    for number in 0..50 {
        let of = format!("n{number}.example.");
        for _ in 0..2 {
            resolver.ask_for(0, number, &of);
            for output in resolver.outputs() {
                let ResolverOutput::Ask(ask) = output else { continue };
                let answers = vec![address(&of, 100, 1)];
                let reply = bytes(&reply(&ask.message, ResponseCode::NoError, answers));
                resolver.handle_reply(at(0), ask.id, Some(&reply));
            }
        }
        resolver.outputs();
    }
    resolver.handle_timeout(at(90_000));
    assert_eq!(resolver.outputs().len(), 10, "ten seconds' worth of one a second");
}

#[test]
fn a_reply_to_another_question_is_none() {
    let mut resolver = resolver(config());
    resolver.ask_for(0, 1, NAME);
    let ask = resolver.asks();
    let other = bytes(&question(0, "bank.example.", RecordType::A, false));
    let forged = reply(&other, ResponseCode::NoError, vec![address("bank.example.", 300, 66)]);
    resolver.handle_reply(at(600), ask.id, Some(&bytes(&forged)));
    assert_eq!(resolver.answers().metadata.response_code, ResponseCode::ServFail);
    let stats = resolver.stats();
    assert_eq!((stats.entries, stats.failed), (0, 1));
}

#[test]
fn a_long_answer_is_cut_off_and_whole_over_tcp() {
    let mut resolver = resolver(config());
    let text = |number: u8| {
        let data = RData::TXT(TXT::new(vec![format!("{number:0>200}")]));
        Record::from_rdata(name(NAME), 300, data)
    };
    for (over_tcp, edns) in [(true, true), (false, true), (false, false)] {
        let mut asks = question(1, NAME, RecordType::TXT, false);
        asks.edns = asks.edns.filter(|_| edns);
        let asked = QuestionSource { over_tcp, ..asked(1) };
        resolver.handle_message(at(0), asked, &bytes(&asks));
        if over_tcp {
            let ask = resolver.asks();
            let ten = (0..10).map(text).collect();
            let long = bytes(&reply(&ask.message, ResponseCode::NoError, ten));
            resolver.handle_reply(at(0), ask.id, Some(&long));
        }
        let answer = resolver.answers();
        assert_eq!(answer.metadata.truncation, !over_tcp);
        assert_eq!(answer.answers.len(), if over_tcp { 10 } else { 0 });
        assert_eq!(answer.edns.is_some(), edns);
        assert_eq!(answer.queries, asks.queries);
    }
}

#[test]
fn what_is_no_question_for_a_resolver_goes_to_its_server_or_is_refused() {
    let mut resolver = resolver(config());
    let mut iterative = question(7, NAME, RecordType::A, false);
    iterative.metadata.recursion_desired = false;
    let transfer = question(7, NAME, RecordType::AXFR, false);
    for message in [iterative, transfer] {
        let sent = bytes(&message);
        resolver.handle_message(at(0), asked(1), &sent);
        let ask = resolver.asks();
        assert_eq!((ask.to, &ask.message), (Upstream::Direct(asked(1).resolver), &sent));
        resolver.handle_reply(at(0), ask.id, Some(b"whatever it says"));
        assert_eq!(resolver.outputs(), [ResolverOutput::Answer(1, b"whatever it says".to_vec())]);

        resolver.handle_message(at(0), QuestionSource { resolver: None, ..asked(1) }, &sent);
        assert_eq!(resolver.answers().metadata.response_code, ResponseCode::Refused);
    }
    let mut update = bytes(&question(7, NAME, RecordType::A, false));
    update[2] = 0b0010_1000;
    resolver.handle_message(at(0), QuestionSource { resolver: None, ..asked(1) }, &update);
    assert_eq!(resolver.answers().metadata.response_code, ResponseCode::NotImp);
}

#[test]
fn what_cannot_be_read_is_said_and_answers_are_ignored() {
    let mut resolver = resolver(config());
    let whole = bytes(&question(7, NAME, RecordType::A, false));
    resolver.handle_message(at(0), asked(1), &whole[..20]);
    assert_eq!(resolver.answers().metadata.response_code, ResponseCode::FormErr);
    let mut later = question(7, NAME, RecordType::A, false);
    later.edns.as_mut().unwrap().set_version(1);
    resolver.handle_message(at(0), asked(1), &bytes(&later));
    let code = u16::from(resolver.answers().metadata.response_code);
    assert_eq!(code, u16::from(ResponseCode::BADVERS));
    let answer = bytes(&reply(&whole, ResponseCode::NoError, vec![]));
    for nothing in [&answer[..], &whole[..11], b""] {
        resolver.handle_message(at(0), asked(1), nothing);
        assert!(resolver.outputs().is_empty());
    }
}

#[test]
fn a_new_name_gets_an_address_of_the_pool_until_the_real_one_is_there() {
    let mut resolver = resolver(instant());
    let ask_both = |resolver: &mut Resolver<u32>, ms| {
        let of = |kind| bytes(&question(1, NAME, kind, false));
        resolver.handle_message(at(ms), asked(1), &of(RecordType::A));
        resolver.handle_message(at(ms), asked(2), &of(RecordType::AAAA));
        resolver.outputs()
    };
    let outputs = ask_both(&mut resolver, 0);
    let [
        ResolverOutput::Answer(1, v4),
        ResolverOutput::Ask(ask),
        ResolverOutput::Answer(2, v6),
        ResolverOutput::Ask(_),
    ] = &outputs[..]
    else {
        panic!("{outputs:?}");
    };
    let (v4, v6) = (read(v4), read(v6));
    assert_eq!((v4.answers[0].ttl, v6.answers[0].ttl), (2, 2));
    assert_eq!(v4.answers[0].data.to_string(), "198.18.0.1");
    assert_eq!(v6.answers[0].data.to_string(), "fd00:53::1");
    for text in ["198.18.0.1", "fd00:53::1"] {
        let name = resolver.name_of(at(1), text.parse().unwrap());
        assert_eq!(name.unwrap().as_str(), "www.example.com");
    }
    // Asked again at once, before the hub has answered: no second question.
    assert_eq!(ask_both(&mut resolver, 100).len(), 2);
    let real = bytes(&reply(&ask.message, ResponseCode::NoError, vec![address(NAME, 60, 7)]));
    resolver.handle_reply(at(600), ask.id, Some(&real));
    resolver.ask_for(700, 3, NAME);
    assert_eq!(resolver.answers().answers[0].data, address(NAME, 0, 7).data);
    let stats = resolver.stats();
    assert_eq!((stats.instant, stats.hits, stats.names), (4, 1, 1));
}

#[test]
fn a_name_that_does_not_exist_is_said_not_to_once_the_hub_knows() {
    let mut resolver = resolver(instant());
    resolver.ask_for(0, 1, NAME);
    let outputs = resolver.outputs();
    let [ResolverOutput::Answer(..), ResolverOutput::Ask(ask)] = &outputs[..] else {
        panic!("{outputs:?}")
    };
    let mut none = reply(&ask.message, ResponseCode::NXDomain, vec![]);
    none.add_authorities([soa(60, 60)]);
    resolver.handle_reply(at(600), ask.id, Some(&bytes(&none)));
    resolver.ask_for(700, 2, NAME);
    assert_eq!(resolver.answers().metadata.response_code, ResponseCode::NXDomain);
}

#[test]
fn those_who_must_know_get_real_answers() {
    let mut resolver = resolver(instant());
    let mut disabled = question(1, NAME, RecordType::A, false);
    disabled.metadata.checking_disabled = true;
    let of = |of: &str, kind| question(1, of, kind, false);
    for real in [
        question(1, NAME, RecordType::A, true),
        disabled,
        question(1, NAME, RecordType::HTTPS, true),
        of(NAME, RecordType::MX),
        of("1.0.18.198.in-addr.arpa.", RecordType::PTR),
        of("Mail.CORP.example.", RecordType::A),
        of("Mail.CORP.example.", RecordType::HTTPS),
        of("printer.", RecordType::A),
        of("printer.local.", RecordType::A),
        of("*.example.", RecordType::A),
    ] {
        resolver.handle_message(at(0), asked(1), &bytes(&real));
        assert_eq!(resolver.asks().to, HUB, "{real:?}");
    }
    let elsewhere = QuestionSource { uses_pool: false, ..asked(2) };
    let message = bytes(&of("other.example.", RecordType::A));
    resolver.handle_message(at(0), elsewhere, &message);
    resolver.asks();
    resolver.set_hub(at(1), false);
    resolver.outputs();
    resolver.handle_message(at(2), asked(3), &bytes(&of("third.example.", RecordType::A)));
    assert_eq!(resolver.asks().to, Upstream::Direct(asked(3).resolver), "nobody to connect it");
    assert_eq!(resolver.stats().instant, 0);
}

#[test]
fn a_pool_without_ipv6_has_no_ipv6_addresses() {
    let config = instant();
    let pool = config.pool.map(|pool| PoolConfig { prefixes: pool.prefixes[..1].to_vec(), ..pool });
    let mut resolver = resolver(NamesConfig { pool, ..self::config() });
    let message = bytes(&question(1, NAME, RecordType::AAAA, false));
    resolver.handle_message(at(0), asked(1), &message);
    let Some(ResolverOutput::Answer(_, none)) = resolver.poll_output() else { panic!() };
    let none = read(&none);
    assert_eq!((none.metadata.response_code, none.answers.len()), (ResponseCode::NoError, 0));
}

#[test]
fn a_client_with_its_share_of_the_pool_waits_for_real_answers() {
    let mut config = instant();
    let prefixes = vec!["198.18.0.0/24".parse().unwrap()];
    config.pool = Some(PoolConfig { prefixes, time: Duration::from_secs(3600) });
    let mut resolver = resolver(config);
    for number in 0..254 / 4 {
        resolver.ask_for(0, number, &format!("n{number}.example.com."));
    }
    assert_eq!(resolver.stats().instant, 254 / 4);
    resolver.outputs();
    resolver.ask_for(0, 100, NAME);
    let ask = resolver.asks();
    assert_eq!(ask.to, HUB);
    let real = bytes(&reply(&ask.message, ResponseCode::NoError, vec![address(NAME, 60, 7)]));
    resolver.handle_reply(at(600), ask.id, Some(&real));
    assert_eq!(resolver.answers().answers[0].data, address(NAME, 0, 7).data);
}

#[test]
fn a_client_that_asks_too_much_is_refused_and_others_are_not() {
    let mut resolver = resolver(config());
    for number in 0..300 {
        resolver.ask_for(0, number, &format!("n{number}.example."));
    }
    assert_eq!(resolver.stats().refused, 300 - 256);
    let other = QuestionSource { client: client(2), ..asked(1000) };
    let message = bytes(&question(1, NAME, RecordType::A, false));
    resolver.handle_message(at(0), other, &message);
    assert_eq!(resolver.stats().refused, 300 - 256);
}

#[test]
fn a_reply_that_cannot_be_read_passes_with_the_clients_identifier_and_case() {
    let mut resolver = resolver(config());
    resolver.ask_for(0, 0x1234, "WWW.Example.com.");
    let ask = resolver.asks();
    let mut broken = bytes(&reply(&ask.message, ResponseCode::NoError, vec![address(NAME, 9, 7)]));
    broken.truncate(broken.len() - 2);
    broken[12..16].make_ascii_lowercase();
    resolver.handle_reply(at(600), ask.id, Some(&broken));
    let outputs = resolver.outputs();
    let [ResolverOutput::Answer(_, passed)] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!((&passed[..2], &passed[13..16]), (&[0x12, 0x34][..], &b"WWW"[..]));
    assert_eq!(passed.len(), broken.len());
    assert_eq!(resolver.stats().entries, 0);
}

#[test]
fn names_of_one_client_that_nobody_answers_leave_others_theirs() {
    let mut resolver = resolver(instant());
    let ask = |resolver: &mut Resolver<u32>, ms: u64, of: u8, name: &str| {
        let message = question(1, name, RecordType::A, false);
        let asked = QuestionSource { client: client(of), ..asked(u32::from(of)) };
        resolver.handle_message(at(ms), asked, &bytes(&message));
        let outputs = resolver.outputs();
        let asks = outputs.iter().filter_map(|output| match output {
            ResolverOutput::Ask(ask) => Some(ask.client),
            ResolverOutput::Answer(..) => None,
        });
        asks.collect::<Vec<IpAddr>>()
    };
    // Sixty a second, each of which takes ten seconds.
    let asks: Vec<IpAddr> = (0..600)
        .flat_map(|number| ask(&mut resolver, number * 16, 1, &format!("name-{number}.example.")))
        .collect();
    assert_eq!(asks, vec![client(1); 64]);
    assert_eq!(ask(&mut resolver, 9700, 2, "other.example."), [client(2)]);
    resolver.handle_timeout(at(12_000));
    assert_eq!(ask(&mut resolver, 12_000, 1, "again.example."), [client(1)], "it has room again");
}
