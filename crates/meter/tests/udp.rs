//! UDP over loopback, with real sockets.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::time::Duration;

use meter::{Direction, Directions, FlowOutcome, Stop, UdpOptions, UdpPlan, serve, udp};
use os::testkit::{in_namespace, skip};
use units::BitRate;

fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(test)
}

fn listener() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port")
}

fn options(server: SocketAddr, directions: Directions) -> UdpOptions {
    let plan = UdpPlan {
        rate: BitRate::from_mbit(2),
        length: 500,
        time: Duration::from_millis(200),
        directions,
    };
    UdpOptions {
        server,
        plan,
        dscp: 0,
        limit: Duration::from_secs(60),
        key: 0xDA7A,
        stop: Stop::default(),
    }
}

#[test]
fn datagrams_are_counted_in_each_direction() {
    block_on(async {
        let listener = listener();
        let server = listener.local_addr().expect("an address");
        tokio::spawn(serve(listener));
        for (directions, ways) in [
            (Directions::Download, &[Direction::Download][..]),
            (Directions::Upload, &[Direction::Upload]),
            (Directions::Both, &[Direction::Download, Direction::Upload]),
        ] {
            let report = udp(&options(server, directions)).await;
            assert!(report.is_complete(), "{report:?}");
            assert!(report.flows.iter().map(|flow| flow.direction).eq(ways.iter().copied()));
            for flow in &report.flows {
                // 2 Mbit/s for 200 ms are 50,000 bytes: 100 datagrams.
                assert_eq!((flow.sent, flow.lost, flow.counts.received), (100, 0, 100));
                assert_eq!((flow.counts.duplicates, flow.counts.reordered), (0, 0));
                assert!(flow.counts.span >= Duration::from_millis(190), "{flow:?}");
                let goodput = flow.goodput.expect("a rate").bits_per_second();
                assert!(goodput > 0 && goodput <= 2_100_000, "{flow:?}");
            }
        }
    });
}

#[test]
fn a_missing_server_is_reported() {
    block_on(async {
        let server = listener().local_addr().expect("an address");
        let report = udp(&options(server, Directions::Both)).await;
        assert!(matches!(report.outcome, FlowOutcome::Failed { .. }), "{report:?}");
        assert!(report.flows.is_empty());
    });
}

#[test]
fn a_measurement_that_is_stopped_says_so() {
    block_on(async {
        let listener = listener();
        let server = listener.local_addr().expect("an address");
        tokio::spawn(serve(listener));
        let options = options(server, Directions::Both);
        options.stop.stop();
        let report = udp(&options).await;
        assert_eq!(report.outcome, FlowOutcome::Interrupted);
    });
}

/// Gives loopback a queue of a few packets, behind which it is slow. Returns `false` if that is impossible here.
fn slow_loopback() -> bool {
    let queue = "qdisc add dev lo root tbf rate 400kbit burst 3000 limit 6000";
    // The PATH of an ordinary user may lack /usr/sbin.
    ["tc", "/usr/sbin/tc"].iter().any(|tc| {
        let status = Command::new(tc).args(queue.split(' ')).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    })
}

#[test]
fn datagrams_that_a_full_queue_of_the_sender_drops_are_not_lost_on_the_path() {
    in_namespace(|| {
        if !slow_loopback() {
            return skip("no tc, or no token bucket filter in the kernel");
        }
        let (v4, v6) = (IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST));
        // The last one: IPv4 on the server's IPv6 sockets.
        for (listen, to) in [(v4, v4), (v6, v6), (Ipv6Addr::UNSPECIFIED.into(), v4)] {
            block_on(async {
                let listener = TcpListener::bind((listen, 0)).expect("a port");
                let server = SocketAddr::new(to, listener.local_addr().expect("an address").port());
                tokio::spawn(serve(listener));
                let report = udp(&options(server, Directions::Both)).await;
                assert!(report.is_complete(), "{report:?}");
                for flow in &report.flows {
                    assert_eq!(flow.sent + flow.unsent, 100, "{flow:?}");
                    assert!(flow.unsent > 0, "the queue has room for all: {flow:?}");
                    assert_eq!((flow.lost, flow.counts.received), (0, flow.sent), "{flow:?}");
                }
            });
        }
    });
}
