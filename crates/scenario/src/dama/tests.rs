//! Hops with capacity on demand.

use core::time::Duration;
use std::collections::VecDeque;

use link::TrafficClass;
use link::dama::random_access::AccessScheme;
use link::dama::{
    CapacityKind, CapacityPolicy, Dama, FreeCapacity, MacLimit, RequestPlace, RequestSlots,
    RequestTransport,
};
use units::{BitRate, Instant};

use crate::{Preset, Scenario};
use config::FileError;

const PRESET: &str = r#"
description = "the SLACP paper's link"
mtu = 1450
terminals = 2
[forward]
rate = "512 kbit/s"
delay = "250 ms"
queue = "40 kB"
[return]
rate = "128 kbit/s"
encapsulation = "aal5"
delay = "250 ms"
queue = "40 kB"
[dama]
frame = "53 ms"
frames-per-superframe = 2
request-period = 10
[dama.terminal]
cra = "8 kbit/s"
vbdc = 512
mac-buffer = "600 cells"
"#;

fn changed(from: &str, to: &str) -> Result<Preset, FileError> {
    assert!(PRESET.contains(from), "{from}");
    Preset::from_text(&PRESET.replacen(from, to, 1))
}

#[test]
fn the_return_link_is_one_carrier_in_cells() {
    let preset = Preset::from_text(PRESET).unwrap();
    let dama = preset.dama.as_ref().unwrap();
    let [_, ret] = preset.links();
    let config = dama.config(&preset.forward, &ret, 2).unwrap();
    assert_eq!((config.frames.slots, config.terminals.len()), (16, 2));
    let terminal = &config.terminals[0];
    assert_eq!(terminal.cra, BitRate::from_bits_per_second(8_000));
    assert_eq!((terminal.vbdc, terminal.mac), (512, MacLimit::Cells(600)));
    // Two delays are ten frames; a wait of a request period and two superframes: three times 24.
    assert_eq!(config.requests.volume_time_out, 3 * (10 + 10 + 4));
}

#[test]
fn the_frames_of_a_rate_that_changes_are_those_of_the_greatest() {
    let trace = "rate-trace = [\"0s 64 kbit/s\", \"9s 128 kbit/s\"]";
    let preset = changed("rate = \"128 kbit/s\"", trace).unwrap();
    let [_, ret] = preset.links();
    let config = preset.dama.as_ref().unwrap().config(&preset.forward, &ret, 2).unwrap();
    assert_eq!((config.frames.slots, config.rate), (16, Some(ret.rate)));
    let constant = Preset::from_text(PRESET).unwrap();
    let [_, ret] = constant.links();
    let config = constant.dama.as_ref().unwrap().config(&constant.forward, &ret, 2).unwrap();
    assert_eq!(config.rate, None);
}

#[test]
fn a_preset_is_written_as_it_was_read() {
    let preset = changed(
        "request-period = 10",
        "request-period = 5\npolicy = \"rtt-aware\"\nfree = \"all chunk=4\"\nvolume-time-out = 9",
    )
    .unwrap();
    let dama = preset.dama.as_ref().unwrap();
    assert_eq!(
        (dama.policy, dama.free),
        (CapacityPolicy::RttAware, FreeCapacity::All { chunk: 4 })
    );
    let again = Preset::from_text(&preset.to_string()).unwrap();
    assert_eq!(again.dama, preset.dama);
}

#[test]
fn classes_use_the_capacity_they_are_given() {
    let classes = "mac-buffer = \"600 cells\"\n[dama.terminal.classes]\nvoice = \"cra\"";
    let preset = changed("mac-buffer = \"600 cells\"", classes).unwrap();
    let [_, ret] = preset.links();
    let config = preset.dama.as_ref().unwrap().config(&preset.forward, &ret, 1).unwrap();
    let category = |class| config.terminals[0].category(class);
    assert_eq!(category(TrafficClass::Voice), CapacityKind::Cra);
    // The terminal asks for volumes only.
    assert_eq!(category(TrafficClass::Stream), CapacityKind::Vbdc);
    let again = Preset::from_text(&preset.to_string()).unwrap();
    assert_eq!(again.dama, preset.dama);
    for (from, to, named) in [
        ("voice = \"cra\"", "voice = \"fca\"", ["dama.terminal.classes.voice", "vbdc"]),
        ("voice = \"cra\"", "streams = \"rbdc\"", ["classes.streams = \"rbdc\"", "rbdc is 0"]),
        ("cra = \"8 kbit/s\"", "cra = \"0 bit/s\"", ["classes.voice = \"cra\"", "cra is 0"]),
    ] {
        let text = PRESET.replacen("mac-buffer = \"600 cells\"", classes, 1).replacen(from, to, 1);
        let error = Preset::from_text(&text).unwrap_err().to_string();
        assert!(named.iter().all(|part| error.contains(part)), "{error}");
    }
}

const CONTENTION: &str = r#"carriers = 5
request-period = 10
[dama.requests]
transport = "piggyback"
slots = 3
scheme = "dsa 2"
backoff = "attempts=4"
[dama.random-access]
carriers = 2
scheme = "crdsa 3 iterations=8"
load-control = false
limits = { head = "3 kB", load = "0.3" }
"#;

#[test]
fn requests_and_packets_by_contention_are_read_and_written() {
    let preset = changed("request-period = 10", CONTENTION).unwrap();
    let dama = preset.dama.as_ref().unwrap();
    let RequestTransport::Piggyback(RequestSlots { place: RequestPlace::Slots(3), channel }) =
        dama.transport
    else {
        panic!("{:?}", dama.transport)
    };
    assert_eq!(channel.scheme, AccessScheme::Dsa { replicas: 2 });
    assert_eq!((channel.backoff.attempts, channel.load_control), (4, true));
    let access = dama.random_access.unwrap();
    assert_eq!((access.carriers, access.channel.load_control), (2, false));
    assert_eq!((access.limits.head.get(), access.limits.load), (3_000, 0.3));
    let [_, ret] = preset.links();
    let config = dama.config(&preset.forward, &ret, 2).unwrap();
    // Of 16 slots on 5 carriers in 2 frames.
    assert_eq!(config.capacity(), 2 * (3 * 16 - 3));
    let again = Preset::from_text(&preset.to_string()).unwrap();
    assert_eq!(again.dama, preset.dama);
}

#[test]
fn requests_may_have_carriers_of_their_own() {
    let own = CONTENTION.replace("slots = 3", "carriers = 2");
    let preset = changed("request-period = 10", &own).unwrap();
    let dama = preset.dama.as_ref().unwrap();
    let place = dama.transport.slots().map(|request| request.place);
    assert_eq!(place, Some(RequestPlace::Carriers(2)));
    let [_, ret] = preset.links();
    // Of 5 carriers, two are for packets by contention and two for requests.
    assert_eq!(dama.config(&preset.forward, &ret, 2).unwrap().capacity(), 2 * 16);
    assert_eq!(Preset::from_text(&preset.to_string()).unwrap().dama, preset.dama);
    for (from, to, named) in [
        ("carriers = 2", "carriers = 0", ["dama.requests.carriers = 0", "1 to 2 of the 3"]),
        ("carriers = 2", "carriers = 3", ["dama.requests.carriers = 3", "1 to 2 of the 3"]),
        ("carriers = 2", "carriers = 2\nslots = 3", ["requests.carriers = 2", "either slots"]),
        ("\"piggyback\"", "\"assigned\"", ["dama.requests.carriers = 2", "\"contention\""]),
    ] {
        let wrong = own.replacen(from, to, 1);
        let error = changed("request-period = 10", &wrong).unwrap_err().to_string();
        assert!(named.iter().all(|part| error.contains(part)), "{to}: {error}");
    }
}

#[test]
fn without_the_table_or_assigned_requests_have_slots_of_their_own() {
    let assigned = "request-period = 10\n[dama.requests]\ntransport = \"assigned\"";
    let preset = changed("request-period = 10", assigned).unwrap();
    assert_eq!(preset.dama, Preset::from_text(PRESET).unwrap().dama);
    assert!(!preset.to_string().contains("[dama.requests]"));
}

#[test]
fn errors_about_contention_name_the_key() {
    for (from, to, named) in [
        ("\"piggyback\"", "\"carrier pigeon\"", ["dama.requests.transport", "contention"]),
        ("\"piggyback\"", "\"assigned\"", ["dama.requests.slots = 3", "\"piggyback\""]),
        ("slots = 3\n", "", ["dama.requests.slots is missing", "1 or more"]),
        ("slots = 3", "slots = 17", ["dama.requests.slots = 17", "1 to a carrier's 16"]),
        ("slots = 3", "slots = 1", ["dama.requests.slots = 1", "at least 2 for \"dsa 2\""]),
        ("dsa 2", "dsa 9", ["dama.requests.scheme", "\"dsa REPLICAS\""]),
        ("attempts=4", "attempts=0", ["dama.requests.backoff", "at least 1 attempt"]),
        ("carriers = 2", "carriers = 5", ["dama.random-access.carriers = 5", "1 to 4 of the 5"]),
        ("carriers = 2", "carriers = 0", ["dama.random-access.carriers = 0", "1 to 4 of the 5"]),
        ("carriers = 5", "carriers = 1", ["dama.random-access.carriers", "must remain"]),
        ("\"0.3\"", "\"0\"", ["dama.random-access.limits", "above 0"]),
    ] {
        let wrong = CONTENTION.replacen(from, to, 1);
        let error = changed("request-period = 10", &wrong).unwrap_err().to_string();
        assert!(named.iter().all(|part| error.contains(part)), "{to}: {error}");
    }
    // A frame of 4 ms has one slot on each carrier: too few for 3 replicas.
    let short = CONTENTION.replace("slots = 3\nscheme = \"dsa 2\"", "slots = 1");
    let text = PRESET.replace("request-period = 10", &short).replace("\"53 ms\"", "\"4 ms\"");
    let error = Preset::from_text(&text).unwrap_err().to_string();
    assert!(error.contains("dama.random-access.scheme = \"crdsa 3 iterations=8\""), "{error}");
}

#[test]
fn errors_name_the_key_and_what_would_be_accepted() {
    for (from, to, named) in [
        ("frame = \"53 ms\"", "frame = \"1 ms\"", ["dama.frame", "for a cell at 128 kbit/s"]),
        ("\"8 kbit/s\"", "\"65 kbit/s\"", ["dama.terminal.cra", "at most 128 kbit/s for all 2"]),
        ("\"8 kbit/s\"", "\"130 kbit/s\"", ["dama.terminal.cra", "a carrier's 128 kbit/s"]),
        ("cra = \"8 kbit/s\"\nvbdc = 512", "", ["dama.terminal.cra", "could send nothing"]),
        ("\"aal5\"", "\"gse\"", ["encapsulation = \"gse\"", "\"aal5\" or \"mpe\""]),
        ("\"600 cells\"", "\"0 cells\"", ["0 cells", "\"600 cells\" or \"64 kB\""]),
        ("request-period = 10", "request-period = 0", ["dama.request-period", "1 or more"]),
        ("request-period = 10", "policy = \"fair\"", ["fair", "classic or rtt-aware"]),
        ("vbdc = 512", "vbcd = 512", ["vbcd", "vbdc"]),
        (
            "delay = \"250 ms\"\nqueue = \"40 kB\"\n[dama]",
            "delay = \"250 ms\"\njitter = \"5 ms\"\nqueue = \"40 kB\"\n[dama]",
            ["dama", "no jitter"],
        ),
        (
            "delay = \"250 ms\"\nqueue = \"40 kB\"\n[dama]",
            "delay = \"250 ms\"\npolicer = \"1 Mbit/s burst 9 kB\"\nqueue = \"40 kB\"\n[dama]",
            ["dama", "no policer"],
        ),
    ] {
        let error = changed(from, to).unwrap_err().to_string();
        assert!(named.iter().all(|part| error.contains(part)), "{to}: {error}");
    }
}

#[test]
fn a_scenario_has_it_by_itself_or_of_a_preset() {
    let hop = PRESET.split_once("[forward]").unwrap().1;
    let hop = hop.replace("[return]", "[hop.return]").replace("[dama", "[hop.dama");
    let text = format!(
        "description = \"x\"\ntime = \"1 s\"\n[network]\nterminals = 16\n[hop]\nmtu = 1450\n[hop.forward]{hop}
         [[flow]]\nname = \"f\"\nkind = \"bulk\"\nbytes = \"1 MB\"\n"
    );
    let case = &Scenario::parse("own.toml", &text).unwrap().cases[0];
    assert!(case.hop.dama.is_some());
    // 17 × 8 kbit/s are more than 128.
    let many = text.replace("terminals = 16", "terminals = 17");
    let error = Scenario::parse("own.toml", &many).unwrap_err().to_string();
    assert!(error.contains("hop.dama.terminal.cra") && error.contains("all 17"), "{error}");
}

/// A thousand VSATs, each with 100 bytes every ten seconds: three cells, a load of 0.12 on the RA
/// channels. Without collision a packet waits for a frame of 50 ms, which takes 50 ms, and 400 ms;
/// with demand assignment alone for two delays more.
#[test]
fn short_packets_of_star_one_arrive_without_asking() {
    let preset = Preset::load("star-one").unwrap();
    let [_, ret] = preset.links();
    let in_time = |dama: &crate::DamaSpec| {
        let config = dama.config(&preset.forward, &ret, 1_000).unwrap();
        let mut network: Dama<usize> = Dama::new(config, 1).unwrap();
        let (mut in_time, mut sent) = (0, vec![VecDeque::new(); 1_000]);
        for packet in 0..8_000u64 {
            let now = Instant::from_nanos(1 + packet * 10_000_000);
            while let Some((at, terminal, _)) = network.poll_arrival(now) {
                let delay = at.saturating_since(sent[terminal].pop_front().unwrap());
                in_time += u32::from(delay <= Duration::from_millis(500));
            }
            if packet < 5_000 {
                let terminal = (packet * 7 % 1_000) as usize;
                sent[terminal].push_back(now);
                network.handle_packet(now, terminal, 100);
            }
        }
        assert!(sent.iter().all(VecDeque::is_empty), "all arrive, in order");
        in_time
    };
    let dama = preset.dama.clone().unwrap();
    let by_contention = in_time(&dama);
    let assigned = in_time(&crate::DamaSpec { random_access: None, ..dama });
    assert!(by_contention > 3_000 && assigned == 0, "{by_contention} {assigned}");
}
