//! Streams of a session in virtual time: what each end sees, and whom it wakes.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use pep::accounting::TrafficUsage;
use pep::traffic::{ClassDefinition, TrafficClasses};
use slacp::{ReadOutcome, ResetReason, SessionId, StreamError, StreamOpening};

use super::{HopEvent, SessionStream};
use crate::testkit::{Alarm, Hops, payload};

/// Reads what there is, at most 64 KiB.
fn read(stream: &SessionStream, alarm: &Arc<Alarm>) -> Poll<Result<Vec<u8>, ResetReason>> {
    let mut buffer = vec![0; 1 << 16];
    let read = alarm.poll(|context| stream.poll_read(context, &mut buffer));
    read.map_ok(|read| match read {
        ReadOutcome::Data(count) => buffer[..count].to_vec(),
        other => {
            assert_eq!(other, ReadOutcome::End);
            Vec::new()
        }
    })
}

fn write(
    stream: &SessionStream,
    data: &[u8],
    alarm: &Arc<Alarm>,
) -> Poll<Result<usize, ResetReason>> {
    alarm.poll(|context| stream.poll_write(context, data))
}

#[test]
fn a_reader_is_woken_once_for_data_and_once_for_the_end() {
    let (mut hops, alarm) = (Hops::new(), Arc::<Alarm>::default());
    let [near, far] = hops.open();
    assert!(read(&far, &alarm).is_pending());
    assert_eq!(write(&near, b"hello", &alarm), Poll::Ready(Ok(5)));
    hops.run();
    assert_eq!(alarm.take(), 1);
    assert_eq!(read(&far, &alarm), Poll::Ready(Ok(b"hello".to_vec())));
    assert!(read(&far, &alarm).is_pending());
    near.finish().unwrap();
    hops.run();
    assert_eq!(alarm.take(), 1);
    for _ in 0..2 {
        assert_eq!(read(&far, &alarm), Poll::Ready(Ok(vec![])), "the end stays");
    }
}

#[test]
fn a_writer_waits_for_room_and_all_bytes_arrive_in_order() {
    let (mut hops, alarm) = (Hops::new(), Arc::<Alarm>::default());
    let [near, far] = hops.open();
    let data = payload(1, 40 << 20);
    let (mut sent, mut received) = (0, Vec::new());
    let mut waits = 0;
    while received.len() < data.len() {
        while sent < data.len() {
            match write(&near, &data[sent..], &alarm) {
                Poll::Ready(taken) => sent += taken.unwrap(),
                Poll::Pending => {
                    waits += 1;
                    break;
                }
            }
        }
        hops.run();
        // A slow reader.
        if let Poll::Ready(bytes) = read(&far, &Arc::default()) {
            received.extend(bytes.unwrap());
        }
        assert!(hops.now.as_nanos() < 60_000_000_000, "{} of {}", received.len(), data.len());
    }
    assert!(received == data && waits > 0);
    assert!(alarm.take() > 0, "a writer that waits is woken when there is room");
}

#[test]
fn dropping_a_stream_with_an_open_direction_resets_it() {
    for has_finished in [false, true] {
        let (mut hops, alarm) = (Hops::new(), Arc::<Alarm>::default());
        let [near, far] = hops.open();
        if has_finished {
            near.finish().unwrap();
        }
        hops.run();
        assert!(!has_finished || read(&far, &alarm) == Poll::Ready(Ok(vec![])));
        drop(near);
        hops.run();
        assert_eq!(write(&far, b"x", &alarm), Poll::Ready(Err(ResetReason::Reset)));
        assert_eq!(far.finish(), Err(ResetReason::Reset));
        assert_eq!(far.accept(), Err(ResetReason::Reset));
    }
}

#[test]
fn dropping_a_stream_that_has_ended_both_ways_resets_nothing() {
    let (mut hops, alarm) = (Hops::new(), Arc::<Alarm>::default());
    let [near, far] = hops.open();
    assert_eq!(write(&far, b"last words", &alarm), Poll::Ready(Ok(10)));
    for stream in [&near, &far] {
        stream.finish().unwrap();
    }
    hops.run();
    assert_eq!(read(&far, &alarm), Poll::Ready(Ok(vec![])));
    drop(far);
    hops.run();
    assert_eq!(read(&near, &alarm), Poll::Ready(Ok(b"last words".to_vec())));
    assert_eq!(read(&near, &alarm), Poll::Ready(Ok(vec![])));
    drop(near);
    hops.run();
    assert!(hops.hops.iter().all(|hop| hop.part(0).streams.is_empty()));
}

#[test]
fn a_reset_reaches_the_other_end_with_its_reason_and_wakes_everyone() {
    let mut hops = Hops::new();
    let [near, far] = hops.open();
    let alarms: [Arc<Alarm>; 3] = Default::default();
    assert!(read(&near, &alarms[0]).is_pending());
    assert!(alarms[1].poll(|context| near.poll_accepted(context)).is_pending());
    assert!(alarms[2].poll(|context| near.poll_reset(context)).is_pending());
    far.reset(ResetReason::Refused);
    hops.run();
    // One task watches for both; the last to ask is woken.
    assert_eq!(alarms.each_ref().map(|alarm| alarm.take()), [1, 0, 1]);
    let refused = Poll::Ready(Err(ResetReason::Refused));
    assert_eq!(read(&near, &alarms[0]), refused);
    assert_eq!(
        alarms[1].poll(|context| near.poll_accepted(context)),
        Poll::Ready(Err(ResetReason::Refused))
    );
    assert_eq!(
        alarms[2].poll(|context| near.poll_reset(context)),
        Poll::Ready(ResetReason::Refused)
    );
}

#[test]
fn a_stream_is_accepted_when_the_far_end_says_so() {
    let (mut hops, alarm) = (Hops::new(), Arc::<Alarm>::default());
    let [near, far] = hops.open();
    assert_eq!(near.id(), far.id());
    assert!(alarm.poll(|context| near.poll_accepted(context)).is_pending());
    assert!(!near.is_accepted());
    far.accept().unwrap();
    hops.run();
    assert_eq!((alarm.take(), near.is_accepted()), (1, true));
    assert_eq!(alarm.poll(|context| near.poll_accepted(context)), Poll::Ready(Ok(())));
}

#[test]
fn data_written_before_the_answer_is_kept_for_the_far_end() {
    let (mut hops, alarm) = (Hops::new(), Arc::<Alarm>::default());
    let [near, far] = hops.open();
    assert_eq!(write(&near, b"GET /", &alarm), Poll::Ready(Ok(5)));
    near.finish().unwrap();
    hops.run();
    far.accept().unwrap();
    assert_eq!(read(&far, &alarm), Poll::Ready(Ok(b"GET /".to_vec())));
    assert_eq!(read(&far, &alarm), Poll::Ready(Ok(vec![])));
}

#[test]
fn the_end_of_a_session_resets_its_streams_and_opens_no_more() {
    let (mut hops, alarm) = (Hops::new(), Arc::<Alarm>::default());
    let [near, far] = hops.open();
    assert!(read(&near, &alarm).is_pending());
    let [hub, terminal] = hops.hops.clone();
    assert!(terminal.has_room(hops.sessions[1]));
    hub.shut_down(hops.now);
    let [_, events] = hops.run();
    let down = |event: &HopEvent| matches!(event, HopEvent::Session(_, slacp::Event::Down(_)));
    assert_eq!(events.iter().filter(|event| down(event)).count(), 1);
    assert_eq!(alarm.take(), 1);
    assert_eq!(read(&near, &alarm), Poll::Ready(Err(ResetReason::SessionLost)));
    assert!(near.finish().is_err() && far.finish().is_err());
    let address = ([10, 0, 0, 1], 80).into();
    let open: StreamOpening = StreamOpening { destination: address, source: address, dscp: None };
    let opened = terminal.open(hops.now, hops.sessions[1], open);
    assert_eq!(opened.err(), Some(StreamError::NoSession));
    assert!(terminal.stats(hops.sessions[1]).is_none_or(|stats| stats.streams == 0));
}

#[test]
fn the_first_of_two_reasons_stays() {
    let (mut hops, alarm) = (Hops::new(), Arc::<Alarm>::default());
    let [near, far] = hops.open();
    far.reset(ResetReason::Unreachable);
    hops.run();
    hops.hops[0].shut_down(hops.now);
    hops.run();
    assert_eq!(read(&near, &alarm), Poll::Ready(Err(ResetReason::Unreachable)));
}

#[test]
fn events_of_streams_that_are_gone_are_harmless() {
    let (mut hops, alarm) = (Hops::new(), Arc::<Alarm>::default());
    let [near, far] = hops.open();
    assert_eq!(write(&near, &payload(1, 5000), &alarm), Poll::Ready(Ok(5000)));
    near.finish().unwrap();
    drop((near, far));
    hops.pass(Duration::from_millis(50));
    for hop in &hops.hops {
        assert!(hop.part(0).streams.is_empty());
    }
    let sent = hops.hops.each_ref().map(|hop| hop.ignored());
    assert_eq!(sent, [0, 0]);
}

#[test]
fn classes_are_replaced_and_shown_per_session() {
    let mut hops = Hops::new();
    let [hub, terminal] = hops.hops.clone();
    let [session, _] = hops.sessions;
    let names = |of: SessionId| -> Vec<String> {
        hub.class_status(of).into_iter().map(|class| class.name).collect()
    };
    let before = names(session);
    let classes = |count: usize| {
        let named = |number: usize| ClassDefinition::new(&format!("class-{number}"));
        let definitions = (0..count).map(named).collect();
        TrafficClasses::install(definitions, false, &mut slacp::Config::new(slacp::Rate::auto()))
    };
    hub.configure_classes(hops.now, &classes(2).unwrap()).unwrap();
    assert_ne!(names(session), before);
    assert_eq!(names(session)[..2], ["class-0", "class-1"]);
    assert_eq!(names(hops.sessions[1]).len(), names(session).len());
    // Packets need channels, of which there are only so many.
    let many = classes(64);
    assert!(many.is_err() || hub.configure_classes(hops.now, &many.unwrap()).is_err());
    assert_eq!(names(session)[..2], ["class-0", "class-1"], "then nothing changes");
    drop(terminal);
    hops.run();
}

#[test]
fn what_streams_carry_is_counted_until_they_are_ended_for_all() {
    let (mut hops, alarm) = (Hops::new(), Arc::<Alarm>::default());
    let (hub, session) = (hops.hops[0].clone(), hops.sessions[0]);
    hub.keep_tally();
    hub.part(0).tally.as_mut().unwrap().begin(session, Hops::key(1));
    let [near, far] = hops.open();
    assert_eq!(write(&near, b"hello", &alarm), Poll::Ready(Ok(5)));
    hops.run();
    assert_eq!(read(&far, &alarm), Poll::Ready(Ok(b"hello".to_vec())));
    assert_eq!(write(&far, b"hi", &alarm), Poll::Ready(Ok(2)));
    let usage =
        TrafficUsage { bytes_to: 2, bytes_from: 5, connections: 1, ..TrafficUsage::default() };
    assert_eq!(hub.take_usage(), [(Hops::key(1), "default".to_owned(), usage)]);
    assert_eq!(hub.take_usage(), []);
    assert!(read(&far, &alarm).is_pending());
    hub.reset_streams(session, ResetReason::Prohibited);
    assert_eq!(alarm.take(), 1, "who waits learns of it");
    assert_eq!(read(&far, &alarm), Poll::Ready(Err(ResetReason::Prohibited)));
    hops.run();
    assert_eq!(write(&near, b"x", &alarm), Poll::Ready(Err(ResetReason::Prohibited)));
}

#[test]
fn all_traffic_of_a_session_can_be_put_into_a_class() {
    let mut link = slacp::Config::new(units::BitRate::from_mbit(100));
    let definitions = vec![ClassDefinition::new("bulk"), ClassDefinition::new("default")];
    let classes = TrafficClasses::install(definitions, false, &mut link).unwrap();
    let (mut hops, alarm) = (Hops::with(link), Arc::<Alarm>::default());
    let (hub, session) = (hops.hops[0].clone(), hops.sessions[0]);
    hub.configure_classes(hops.now, &classes).unwrap();
    hub.keep_tally();
    hub.part(0).tally.as_mut().unwrap().begin(session, Hops::key(1));
    let [_near, far] = hops.open();
    let carried = |name: &str| {
        assert_eq!(write(&far, b"hello", &alarm), Poll::Ready(Ok(5)));
        let usage = hub.take_usage();
        assert!(usage.iter().all(|(_, class, _)| class == name), "{usage:?}");
    };
    carried("default");
    hub.force_class(session, Some("bulk"));
    carried("bulk");
    let [_other, later] = hops.open();
    assert_eq!(write(&later, b"hello", &alarm), Poll::Ready(Ok(5)));
    carried("bulk");
    hub.force_class(session, None);
    carried("default");
}

#[test]
fn a_peer_that_opens_and_resets_streams_fills_no_queue() {
    let mut hops = Hops::new();
    let (mut queued, mut refused) = (Vec::new(), 0);
    for _ in 0..5 {
        for _ in 0..1024 {
            let (near, event) = hops.try_open();
            match event {
                Some(far) => queued.push(far),
                None => refused += 1,
            }
            near.reset(ResetReason::Prohibited);
        }
        hops.run();
    }
    assert_eq!((queued.len(), refused), (4096, 1024));
    // Another one for each that is taken.
    hops.hops[0].taken(&queued[0]);
    assert!(hops.try_open().1.is_some() && hops.try_open().1.is_none());
}

/// Whatever the sizes: here it is the calls that cost most.
#[test]
fn a_session_that_has_had_its_share_waits_for_the_driver_s_next_turn() {
    let (mut hops, alarm) = (Hops::new(), Arc::<Alarm>::default());
    let streams: Vec<_> = (0..250).map(|_| hops.open()).collect();
    for [near, _] in &streams {
        assert_eq!(write(near, b"x", &alarm), Poll::Ready(Ok(1)));
        hops.run();
    }
    let came = |[_, far]: &&[SessionStream; 2]| read(far, &alarm) == Poll::Ready(Ok(b"x".to_vec()));
    let hub = hops.hops[0].clone();
    alarm.take();
    let turns = [(); 3].map(|()| {
        hub.begin_turn(0);
        streams.iter().filter(came).count()
    });
    assert_eq!(turns, [100, 100, 50]);
    // At most 128 in a turn; the others were asked here without.
    assert_eq!(alarm.take(), 128 + 50);
    assert!(!hub.part(0).wants_turn());
}

/// Only a compressed stream still holds something then.
#[test]
fn a_stream_that_waits_for_a_turn_is_woken_also_after_its_session_is_lost() {
    let (mut hops, alarm) = (Hops::compressing([true; 2]), Arc::<Alarm>::default());
    let [near, far] = hops.open();
    assert_eq!(write(&near, b"x", &alarm), Poll::Ready(Ok(1)));
    hops.run();
    let ([hub, terminal], session) = (hops.hops.clone(), hops.sessions[0]);
    let work_much = || hub.part(0).charge(session, 100 << 20);
    work_much();
    assert!(read(&far, &alarm).is_pending());
    terminal.shut_down(hops.now);
    hops.carry();
    {
        let mut state = hub.part(0);
        while hub.take_event(&mut state).is_some() {}
    }
    assert_eq!(alarm.take(), 1);
    work_much();
    assert!(read(&far, &alarm).is_pending());
    hub.begin_turn(0);
    assert_eq!(alarm.take(), 1);
}

/// The terminal opens fifty streams, of which the hub hears.
fn open_fifty(hops: &mut Hops) -> Vec<SessionStream> {
    let (source, destination) = (([10, 0, 0, 1], 40_000).into(), ([10, 9, 0, 1], 80).into());
    let open: StreamOpening = StreamOpening { destination, source, dscp: None };
    let opened = || hops.hops[1].open(hops.now, hops.sessions[1], open).unwrap();
    let near = std::iter::repeat_with(opened).take(50).collect();
    hops.carry();
    near
}

#[test]
fn openings_beyond_a_session_s_share_wait_for_the_driver_s_next_turn() {
    let mut hops = Hops::new();
    let [hub, _] = hops.hops.clone();
    let near = open_fifty(&mut hops);
    let mut far = Vec::new();
    let turns = [(); 4].map(|()| {
        hub.begin_turn(0);
        let before = far.len();
        let mut state = hub.part(0);
        while let Some(event) = hub.take_event(&mut state) {
            if let HopEvent::Opened(stream, _) = event {
                far.push(stream);
            }
        }
        far.len() - before
    });
    assert_eq!(turns, [20, 20, 10, 0]);
    assert!(far.iter().map(SessionStream::id).eq(near.iter().map(SessionStream::id)), "in order");
}

#[test]
fn openings_that_wait_go_with_their_session() {
    let mut hops = Hops::new();
    let [hub, terminal] = hops.hops.clone();
    let near = open_fifty(&mut hops);
    let taken = |hub: &super::Hop| {
        let mut state = hub.part(0);
        std::iter::from_fn(|| hub.take_event(&mut state)).collect::<Vec<_>>()
    };
    let first = taken(&hub);
    assert_eq!((first.len(), hub.part(0).streams.len()), (20, 50));
    terminal.shut_down(hops.now);
    hops.carry();
    assert!(matches!(taken(&hub)[..], [HopEvent::Session(_, slacp::Event::Down(_))]));
    drop(first);
    assert!(hub.part(0).streams.is_empty() && !hub.part(0).wants_turn());
    drop(near);
}
