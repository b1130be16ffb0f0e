//! The versions of IP.

use std::cell::RefCell;
use std::rc::Rc;

use super::*;
use crate::SimulatedPacket;

/// The longest packet and the bytes of all that the server sends.
struct Sent(Rc<RefCell<(usize, usize)>>);

impl crate::PacketTap for Sent {
    fn packet(&mut self, _: Instant, node: NodeId, outgoing: bool, packet: &SimulatedPacket) {
        if outgoing && node == NodeId(0) {
            let len = packet.to_bytes().len();
            let mut sent = self.0.borrow_mut();
            *sent = (sent.0.max(len), sent.1 + len);
        }
    }
}

fn sent(ip: &str) -> (usize, usize) {
    let text = GOOD.replace("tcp = \"old\"", &format!("ip = \"{ip}\""));
    let mut run = SimulationRun::new(&Scenario::parse("x.toml", &text).unwrap().cases[0], 1);
    let seen = Rc::new(RefCell::new((0, 0)));
    run.world.set_tap(Box::new(Sent(Rc::clone(&seen))));
    run.finish();
    assert_eq!(value(&run.metrics(), "ftp", "bytes"), 500_000.0);
    seen.take()
}

/// Segments fill packets of 1500 bytes; what the longer headers take, further segments carry.
#[test]
fn longer_headers_leave_less_room_for_data() {
    let mut before = 0;
    for (ip, headers) in [("ipv4", 20), ("ipv6", 40), ("ipv6-in-ipv4", 60)] {
        let (longest, all) = sent(ip);
        // With timestamps.
        let payload = 1500 - headers - 20 - 12;
        let least = 500_000 + 500_000 / payload * (headers + 32);
        assert_eq!(longest, 1500, "{ip}");
        assert!((least..least + 1000).contains(&all), "{ip}: {all}");
        assert!(all > before);
        before = all;
    }
}
