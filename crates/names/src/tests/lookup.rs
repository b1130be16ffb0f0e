use super::*;

const IDS: [u16; ATTEMPTS] = [11, 22, 33, 44];

fn lookup(servers: usize) -> Lookup {
    let message = bytes(&question(0, "www.example.", RecordType::A, false));
    Lookup::new(at(0), &message, servers, IDS).unwrap()
}

impl Lookup {
    /// Expects a datagram to this server with this identifier.
    fn sends(&mut self, server: usize, id: u16) -> Vec<u8> {
        match self.poll_step() {
            Some(LookupStep::Udp(to, message)) => {
                assert_eq!((to, read(&message).metadata.id), (server, id));
                message
            }
            other => panic!("{other:?}"),
        }
    }

    fn gets(&mut self, ms: u64, message: &Message) {
        self.handle_message(at(ms), &bytes(message));
    }
}

fn good(to: &[u8]) -> Message {
    reply(to, ResponseCode::NoError, vec![address("www.example.", 60, 7)])
}

#[test]
fn an_answer_comes_back_with_identifier_zero() {
    let mut lookup = lookup(1);
    let asked = lookup.sends(0, 11);
    lookup.gets(30, &good(&asked));
    let Some(LookupStep::Done(answer)) = lookup.poll_step() else { panic!() };
    let answer = read(&answer);
    assert_eq!((answer.metadata.id, answer.answers.len()), (0, 1));
    assert!(lookup.poll_timeout().is_none());
}

#[test]
fn an_answer_to_another_question_or_with_another_identifier_is_not_taken() {
    let mut lookup = lookup(1);
    let asked = lookup.sends(0, 11);
    let mut forged = good(&asked);
    forged.metadata.id = 12;
    lookup.gets(1, &forged);
    let other = bytes(&question(11, "bank.example.", RecordType::A, false));
    lookup.gets(1, &reply(&other, ResponseCode::NoError, vec![]));
    lookup.handle_message(at(1), &asked);
    lookup.handle_message(at(1), b"");
    assert!(lookup.poll_step().is_none());
    lookup.gets(2, &good(&asked));
    assert!(matches!(lookup.poll_step(), Some(LookupStep::Done(_))));
}

#[test]
fn servers_that_do_not_answer_give_way_to_the_next() {
    let mut lookup = lookup(2);
    let mut waits = Vec::new();
    let mut now = 0;
    for (server, id) in [(0, 11), (1, 22), (0, 33), (1, 44)] {
        lookup.sends(server, id);
        let (until, LookupWake::NoAnswer) = lookup.poll_timeout().unwrap();
        let wait = until.saturating_since(at(now)).as_millis() as u64;
        lookup.handle_timeout(at(now + wait - 1));
        assert!(lookup.poll_step().is_none());
        now += wait;
        waits.push(wait);
        lookup.handle_timeout(at(now));
    }
    assert_eq!(waits, [1000, 2000, 3000, 4000]);
    assert_eq!(lookup.poll_step(), Some(LookupStep::Failed));
}

#[test]
fn a_server_that_fails_is_believed_only_if_all_do() {
    let mut lookup = lookup(2);
    for (server, id) in [(0, 11), (1, 22), (0, 33), (1, 44)] {
        let asked = lookup.sends(server, id);
        lookup.gets(1, &reply(&asked, ResponseCode::ServFail, vec![]));
    }
    let Some(LookupStep::Done(answer)) = lookup.poll_step() else { panic!() };
    assert_eq!(read(&answer).metadata.response_code, ResponseCode::ServFail);
}

#[test]
fn a_server_that_cannot_be_reached_gives_way_at_once() {
    let mut lookup = lookup(2);
    lookup.sends(0, 11);
    lookup.handle_failure(at(5));
    let asked = lookup.sends(1, 22);
    lookup.gets(6, &good(&asked));
    lookup.handle_failure(at(7));
    assert!(matches!(lookup.poll_step(), Some(LookupStep::Done(_))));
}

#[test]
fn an_answer_that_was_cut_off_is_asked_for_over_tcp() {
    let mut lookup = lookup(2);
    let asked = lookup.sends(0, 11);
    lookup.gets(1, &good(&asked).truncate());
    let Some(LookupStep::Tcp(0, again)) = lookup.poll_step() else { panic!() };
    assert_eq!(again, asked);
    lookup.gets(2, &good(&again));
    assert!(matches!(lookup.poll_step(), Some(LookupStep::Done(_))));
}

#[test]
fn a_server_that_does_not_know_edns_is_asked_without() {
    let mut lookup = lookup(1);
    let asked = lookup.sends(0, 11);
    let mut bare = reply(&asked, ResponseCode::FormErr, vec![]);
    bare.queries.clear();
    lookup.gets(1, &bare);
    let again = lookup.sends(0, 11);
    assert!(read(&again).edns.is_none());
    lookup.gets(2, &good(&again));
    assert!(matches!(lookup.poll_step(), Some(LookupStep::Done(_))));
}

#[test]
fn nothing_and_nobody_cannot_be_asked() {
    let message = bytes(&question(0, "www.example.", RecordType::A, false));
    let refused = |message: &[u8], servers| Lookup::new(at(0), message, servers, IDS).unwrap_err();
    assert_eq!(refused(&message, 0), LookupError::NoServer);
    assert_eq!(refused(&message[..20], 1), LookupError::NoQuestion);
    let transfer = bytes(&question(0, "www.example.", RecordType::AXFR, false));
    assert_eq!(refused(&transfer, 1), LookupError::NoQuestion);
}

#[test]
fn a_host_is_asked_for_and_its_addresses_are_found_behind_aliases() {
    let host = slacp::HostName::new("www.example").unwrap();
    for (version, kind) in [(IpFamily::V4, RecordType::A), (IpFamily::V6, RecordType::AAAA)] {
        let message = question_for(&host, version).unwrap();
        assert!(Question::parse(&message).is_ok());
        let asks = read(&message);
        assert_eq!(asks.queries, [Query::query(name("www.example."), kind)]);
    }
    let message = question_for(&host, IpFamily::V4).unwrap();
    let alias = RData::CNAME(CNAME(name("x.example.")));
    let alias = Record::from_rdata(name("www.example."), 20, alias);
    let answers = vec![alias, address("x.example.", 20, 1), address("x.example.", 20, 2)];
    let answer = bytes(&reply(&message, ResponseCode::NoError, answers));
    assert_eq!(addresses_in(&answer), [IpAddr::from([192, 0, 2, 1]), [192, 0, 2, 2].into()]);
    assert_eq!(addresses_in(b"nonsense"), [] as [IpAddr; 0]);
}
