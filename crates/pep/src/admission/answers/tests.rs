use super::*;

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

fn client(number: u8) -> SocketAddr {
    ([10, 1, 0, number], 40_000).into()
}

fn server() -> SocketAddr {
    ([192, 0, 2, 1], 443).into()
}

fn passes(number: u8) -> Prefix {
    Prefix::host(client(number).ip())
}

/// A client sends a SYN at this time, and again a second later, without an answer.
fn complain(watch: &mut AnswerWatch, ms: u64, number: u8) {
    watch.handle_syn(at(ms), client(number), server());
    watch.handle_syn(at(ms + 1000), client(number), server());
    watch.handle_timeout(at(ms + 1400));
}

#[test]
fn a_client_that_is_never_answered_passes_before_its_third_syn() {
    let mut watch = AnswerWatch::default();
    watch.handle_syn(at(0), client(1), server());
    assert_eq!(watch.next_timeout(), Some(at(10_000)), "it is forgotten");
    watch.handle_syn(at(1000), client(1), server());
    assert_eq!(watch.next_timeout(), Some(at(1400)));
    watch.handle_timeout(at(1399));
    assert_eq!(watch.take_change(at(1399)), None);
    watch.handle_timeout(at(1400));
    assert_eq!(watch.take_change(at(1400)), Some(vec![passes(1)]));
    assert_eq!(watch.take_pause(), None, "one client's word counts for itself");
    // It is intercepted again after a minute.
    assert_eq!(watch.next_timeout(), Some(at(61_400)));
    watch.handle_timeout(at(61_400));
    assert_eq!(watch.take_change(at(61_400)), Some(vec![]));
    assert_eq!(watch.clients(), 0);
}

#[test]
fn answered_syns_prove_nothing_however_many_and_however_often() {
    let mut watch = AnswerWatch::default();
    // A scanner sends bare SYNs and repeats them.
    for ms in (0..20_000).step_by(1000) {
        for port in 1..200 {
            let source = SocketAddr::new(client(9).ip(), port);
            watch.handle_syn(at(ms), source, server());
            watch.handle_answer(at(ms + 1), source, server());
        }
        watch.handle_timeout(at(ms + 500));
        assert_eq!((watch.take_change(at(ms + 500)), watch.take_pause()), (None, None));
    }
    assert!(watch.pending.is_empty());
}

#[test]
fn an_answer_to_the_repeated_syn_is_awaited() {
    let mut watch = AnswerWatch::default();
    watch.handle_syn(at(0), client(1), server());
    watch.handle_syn(at(1000), client(1), server());
    watch.handle_answer(at(1001), client(1), server());
    watch.handle_timeout(at(3000));
    assert_eq!(watch.take_change(at(3000)), None);
}

#[test]
fn two_copies_of_a_syn_are_one() {
    let mut watch = AnswerWatch::default();
    for ms in [0, 1, 799] {
        watch.handle_syn(at(ms), client(1), server());
    }
    watch.handle_timeout(at(5000));
    assert_eq!(watch.take_change(at(5000)), None);
}

#[test]
fn all_pass_on_the_word_of_several_clients() {
    let mut watch = AnswerWatch::default();
    for number in 1..=2 {
        complain(&mut watch, 100 * u64::from(number), number);
        assert_eq!(watch.take_pause(), None);
    }
    complain(&mut watch, 300, 3);
    assert_eq!(watch.take_pause(), Some(FIRST));
    assert_eq!(watch.take_pause(), None, "once");
    // In vain again: for longer. After a long quiet time: as at first.
    let mut now = 1_700 + 60_000;
    for lasting in [120, 240, 480, 960, 960] {
        (1..=3).for_each(|number| complain(&mut watch, now + u64::from(number), number));
        assert_eq!(watch.take_pause(), Some(Duration::from_secs(lasting)), "at {now} ms");
        now += 2_000 + 1_000 * lasting;
    }
    now += 1_000 * LONGEST.as_secs();
    (1..=3).for_each(|number| complain(&mut watch, now + u64::from(number), number));
    assert_eq!(watch.take_pause(), Some(FIRST));
}

#[test]
fn whoever_was_answered_meanwhile_speaks_for_the_others() {
    let mut watch = AnswerWatch::default();
    for number in 1..=20 {
        let ms = 100 * u64::from(number);
        watch.handle_syn(at(ms), client(200), server());
        watch.handle_answer(at(ms + 50), client(200), server());
        complain(&mut watch, ms, number);
    }
    assert_eq!(watch.take_pause(), None);
    assert_eq!(watch.take_change(at(3400)).unwrap().len(), 20, "each for itself");
}

#[test]
fn the_addresses_of_one_host_are_one_client() {
    let mut watch = AnswerWatch::default();
    for number in 0..10 {
        let source: SocketAddr = format!("[2001:db8:1:2::{number:x}]:4000").parse().unwrap();
        watch.handle_syn(at(0), source, server());
        watch.handle_syn(at(1000), source, server());
    }
    watch.handle_timeout(at(1400));
    assert_eq!(watch.take_change(at(1400)), Some(vec!["2001:db8:1:2::/64".parse().unwrap()]));
    assert_eq!(watch.take_pause(), None);
}

#[test]
fn a_client_passes_for_longer_each_time() {
    let mut watch = AnswerWatch::default();
    let mut now = 0;
    for lasting in [60, 120, 240, 480, 960, 960] {
        complain(&mut watch, now, 1);
        assert_eq!(watch.take_change(at(now + 1400)), Some(vec![passes(1)]));
        now += 1400 + 1000 * lasting;
        assert_eq!(watch.next_timeout(), Some(at(now)));
        watch.handle_timeout(at(now));
        assert_eq!(watch.take_change(at(now)), Some(vec![]));
    }
}

#[test]
fn evidence_with_gaps_is_none_and_a_new_beginning_is_one() {
    let mut watch = AnswerWatch::default();
    watch.handle_syn(at(0), client(1), server());
    watch.handle_syn(at(1000), client(1), server());
    watch.forget();
    watch.handle_timeout(at(1400));
    assert_eq!(watch.take_change(at(1400)), None);
    complain(&mut watch, 2000, 1);
    assert_eq!(watch.take_change(at(3400)), Some(vec![passes(1)]));
    watch.reset();
    assert_eq!(watch.take_change(at(3500)), Some(vec![]));
}

#[test]
fn memory_is_bounded() {
    let mut watch = AnswerWatch::default();
    for number in 0..100_000_u32 {
        let source = SocketAddr::new(IpAddr::V4((0x0a00_0000 + number).into()), 1);
        for ms in [0, 1000] {
            watch.handle_syn(at(ms), source, server());
        }
    }
    assert_eq!(watch.pending.len(), MOST_SYNS);
    watch.handle_timeout(at(1400));
    assert_eq!(watch.take_change(at(1400)).unwrap().len(), MOST_CLIENTS);
    watch.handle_timeout(at(200_000));
    assert!(watch.pending.is_empty() && watch.clients.is_empty());
}
