//! Clients that stop reading, beside one that reads.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::common::{as_myself, assert_takes};
use crate::inside::{connect, read_all};

/// A geostationary link without losses, so that only waiting for others takes time.
const GEO: [&str; 3] = ["--gateways", "--per", "0"];
const RTT: Duration = Duration::from_millis(600);

#[test]
fn a_download_beside_six_or_sixty_that_stalled_takes_what_it_takes_alone() {
    for stalled in ["6", "60"] {
        as_myself(|runner| {
            let test = format!("stalled::inside_{stalled}_stall");
            runner.inside(&GEO, &test);
        });
    }
}

pub(crate) fn inside_6_stall() {
    assert_undisturbed_by(6);
}

pub(crate) fn inside_60_stall() {
    assert_undisturbed_by(60);
}

fn ask(object: &str) -> TcpStream {
    let server = (lab::Node::Server.address4(), 80).into();
    let mut socket = connect(server);
    let request = format!("GET /{object} HTTP/1.1\r\nHost: server\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).unwrap();
    socket
}

/// Time for a download of 1 MB.
fn download() -> Duration {
    let start = Instant::now();
    assert!(read_all(&ask("1MB")).len() > 1_000_000);
    start.elapsed()
}

fn assert_undisturbed_by(stalled: usize) {
    // The first download probes the path.
    download();
    let alone = (0..3).map(|_| download()).min().unwrap();
    let stalled: Vec<TcpStream> = (0..stalled)
        .map(|_| {
            let mut socket = ask("100MB");
            socket.read_exact(&mut [0]).unwrap();
            socket
        })
        .collect();
    // Until they stall, they take their shares of the link.
    assert_takes(RTT, alone * 11 / 10 - RTT, download);
    drop(stalled);
}
