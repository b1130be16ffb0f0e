//! A hub that spaces acknowledgements, which the frames of a return link deliver in bursts.

use super::*;

const DOWNLOAD: &str = r#"
description = "a download whose acknowledgements come in frames"
time = "300 s"

[hop.forward]
rate = "10 Mbit/s"
delay = "250 ms"
queue = "1000 packets"
[hop.return]
rate = "512 kbit/s"
delay = "250 ms"
queue = "100 kB"
encapsulation = "aal5"
[hop.dama]
frame = "53 ms"
frames-per-superframe = 2
request-period = 4
[hop.dama.terminal]
cra = "512 kbit/s"
mac-buffer = "600 cells"
flow-control = true

[server-side]
rate = "100 Mbit/s"
delay = "1 ms"
queue = "1000 packets"
[client-side]
rate = "100 Mbit/s"
delay = "1 ms"
queue = "1000 packets"

[tcp.old]
profile = "satellite"
receive-buffer = "400 KiB"

[[flow]]
name = "ftp"
kind = "bulk"
bytes = "20 MB"
tcp = "old"

[[case]]
name = "none"
[[case]]
name = "spacing"
set = { "gateways.split" = "spacing", "gateways.forward-rate" = "7 Mbit/s" }
"#;

/// Less than the link has, because in slow start an acknowledgement releases more than it acknowledges.
/// The window allows 5.2 Mbit/s.
#[test]
fn spaced_acknowledgements_shorten_the_queue_of_the_forward_link() {
    let cases = Scenario::parse("x.toml", DOWNLOAD).unwrap().cases;
    let [none, spaced] = [0, 1].map(|number| run(&cases[number], 1));
    for metrics in [&none, &spaced] {
        assert_eq!(value(metrics, "ftp", "bytes"), 2e7);
    }
    let [queue, time] = ["peak-queue-packets", "time-median-s"].map(|name| {
        let of = if name.starts_with("time") { "ftp" } else { "forward" };
        [value(&none, of, name), value(&spaced, of, name)]
    });
    assert!(queue[1] <= 0.5 * queue[0], "{queue:?} packets, {time:?} s");
    assert!(time[1] <= 1.02 * time[0], "{time:?} s");
}
