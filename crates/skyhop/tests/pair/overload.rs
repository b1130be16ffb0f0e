//! A configured rate that the link does not carry: the operator is told so, everywhere he looks.

use std::io;
use std::thread;
use std::time::Duration;

use lab::Node;
use nix::sys::signal::Signal;

use crate::common::{as_myself, text};
use crate::gateways::Keys;
use crate::inside::{Gateway, addresses, connect, listen, payload, wait_until};
use crate::operate::{Sockets, skyhop, status, write_secret};

const PORT: u16 = 4000;
/// 25 Mbit/s are configured for a link of 10.
const LINK: [&str; 6] = ["--rate", "10Mbit/s", "--return-rate", "10Mbit/s", "--delay", "50ms"];
/// Time in which it shows: 10 s of losses and queue, and what fills the queue before.
const SHOWN_WITHIN: Duration = Duration::from_secs(60);

#[test]
fn a_rate_above_the_link_s_is_told_everywhere() {
    as_myself(|runner| runner.inside(&LINK, "overload::inside_an_overload"));
}

pub(crate) fn inside_an_overload() {
    let (keys, sockets) = (Keys::new(1), Sockets::new());
    let file = sockets.path("hub.toml");
    let own = format!("rate = \"25 Mbit/s\"\n{}", sockets.key("hub"));
    write_secret(&file, &keys.hub_config(&own, ""));
    let mut hub = Gateway::start_from(Node::Hub, "hub", &file);
    hub.wait_for("ready");
    let terminal = keys.terminal(1, "", "");
    let listener = listen(PORT);
    thread::spawn(move || {
        let (mut server, part) = (listener.accept().unwrap().0, payload(1 << 16));
        while io::Write::write_all(&mut server, &part).is_ok() {}
    });
    let mut client = connect(addresses(PORT)[0]);
    thread::spawn(move || io::copy(&mut client, &mut io::sink()));

    let session = || status(&sockets.path("hub"))["sessions"][0].clone();
    wait_until(SHOWN_WITHIN, || session()["overload"].is_object());
    let shown = session();
    let carries = shown["overload"]["carries_bit_s"].as_f64().unwrap();
    assert!((7e6..=10.5e6).contains(&carries), "{shown:#}");
    assert_eq!(shown["health"], "bad");
    let told = "the configured rate of 25 Mbit/s exceeds the link, which carries about ";
    assert!(shown["verdict"].as_str().unwrap().contains(told), "{shown:#}");
    let line = hub.line_with(told);
    assert!(line.contains("WARN") && line.contains("loss "), "{line}");
    let printed = text(&skyhop(&["status"], &sockets.path("hub")).stdout);
    assert!(printed.contains(told), "{printed}");
    let doctor = lab::find_netns(Node::Hub).unwrap();
    let mut doctor = doctor.command(std::env::var_os("SKYHOP").unwrap());
    let found = text(&doctor.arg("doctor").arg(&file).output().unwrap().stdout);
    let about = found.lines().find(|line| line.contains(told));
    assert!(about.is_some_and(|line| line.starts_with("warn ")), "{found}");
    assert!(found.contains("set `rate` to what the link carries"), "{found}");
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}
