//! The same traffic over QUIC by quinn with BBR, through the link without the pair.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use lab::{Node, find_netns};
use quinn::Connection;
use tokio::task::JoinSet;

use crate::fresh::{AT_ONCE, DOCUMENT, OBJECTS, Use};
use crate::run::Failure;

#[allow(dead_code, reason = "shared with tests, which use other parts")]
#[path = "../../tests/common/quic.rs"]
mod client;

use self::client::Control::Bbr;

const PORT: u16 = 4433;
/// Exceeds the BDP of every link here; many times that of all but the fastest.
const WINDOW: u32 = 64_000_000;

/// Connects, waits, and loads; returns the seconds of the load.
pub(crate) fn load(what: Use, pause: Duration) -> Result<f64, Failure> {
    let bind = |port| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port));
    let listening = find_netns(Node::Server)?.run(|| bind(PORT))?;
    let content: Arc<[u8]> = vec![7; what.greatest()].into();
    thread::spawn(move || client::serve_within(listening, Bbr, WINDOW, &content));
    let (socket, server) = (bind(0)?, (Node::Server.address4(), PORT).into());
    client::runtime()?.block_on(async {
        let (_endpoint, connection) = client::connect(socket, server, Bbr, WINDOW).await?;
        tokio::time::sleep(pause).await;
        let start = Instant::now();
        match what {
            Use::Page => page(&connection).await?,
            Use::Download => fetch(connection, what.greatest()).await?,
        }
        Ok(start.elapsed().as_secs_f64())
    })
}

/// The document, then its objects, some at a time.
async fn page(connection: &Connection) -> Result<(), Failure> {
    fetch(connection.clone(), DOCUMENT).await?;
    let mut under_way = JoinSet::new();
    for bytes in OBJECTS {
        if under_way.len() == AT_ONCE {
            under_way.join_next().await.ok_or("nothing under way")???;
        }
        under_way.spawn(fetch(connection.clone(), bytes));
    }
    while let Some(ended) = under_way.join_next().await {
        ended??;
    }
    Ok(())
}

async fn fetch(connection: Connection, bytes: usize) -> Result<(), Failure> {
    let content = client::request(connection, format!("GET /{bytes}\r\n"), bytes).await?;
    if content.len() == bytes { Ok(()) } else { Err("the reply is too short".into()) }
}
