//! UDP at a constant rate: loss, order, duplicates and jitter, in both directions.

pub(crate) mod delays;
pub(crate) mod exchange;
pub mod receiver;

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use socket2::SockRef;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream, UdpSocket};
use tokio::time::{interval, timeout};
use units::{BitRate, ByteCount};

use crate::flow::outcome::FlowOutcome;
use crate::flow::stop::{EarlyEnd, Stop};
use crate::flow::{self, FlowError};
use crate::protocol::answer::ServerAnswer;
use crate::protocol::direction::{Direction, Directions};
use crate::protocol::payload::{Payload, PayloadSide, flow_key};
use crate::protocol::request::{MeterRequest, RequestedWork};
use crate::protocol::udp_plan::{UdpCounts, UdpPlan};
use crate::sockets::SocketOptions;
use crate::udp::exchange::{SentCounts, UdpExchange, exchange, open_socket};
use crate::udp::receiver::{GREETING, fill};

/// Interval between greetings until the server has received one.
const GREETING_INTERVAL: Duration = Duration::from_millis(200);

/// The options of a UDP measurement.
#[derive(Debug, Clone)]
pub struct UdpOptions {
    /// Address of the meter server.
    pub server: SocketAddr,
    /// Rate, size, time and directions of the datagrams.
    pub plan: UdpPlan,
    /// Code point (DSCP), 0 to 63, of the datagrams that this end sends.
    pub dscp: u8,
    /// Time limit of the whole measurement.
    pub limit: Duration,
    /// Payload key; a new one for each run.
    pub key: u64,
    /// Ends the measurement early; the report has what was measured so far.
    pub stop: Stop,
}

/// One direction of a UDP measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UdpFlow {
    /// The direction of these datagrams.
    pub direction: Direction,
    /// Datagrams that the sender's system accepted.
    pub sent: u64,
    /// Datagrams that the sender's own system refused, and that are not in `sent`.
    #[serde(default)]
    pub unsent: u64,
    /// Datagrams that never arrived. Those that overflowed the receiver's socket are not among
    /// them.
    pub lost: u64,
    /// The receiver's counts of the datagrams.
    #[serde(flatten)]
    pub counts: UdpCounts,
    /// Contents of the datagrams received, over the time from the first to the last.
    #[serde(rename = "goodput_bits_per_second", with = "crate::json::maybe_bits_per_second")]
    pub goodput: Option<BitRate>,
}

/// The result of a UDP measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UdpReport {
    /// Address of the meter server.
    pub server: SocketAddr,
    /// Bits of datagram contents sent per second.
    pub rate_bits_per_second: u64,
    /// Size of each datagram in bytes.
    pub datagram_bytes: u16,
    /// Time during which datagrams were sent.
    #[serde(rename = "sending_seconds", with = "crate::json::seconds")]
    pub time: Duration,
    /// The directions in which datagrams were sent.
    pub directions: Directions,
    /// The outcome of the measurement; datagrams may have been lost even if it completed.
    pub outcome: FlowOutcome,
    /// Each direction whose results are known.
    pub flows: Vec<UdpFlow>,
}

impl UdpReport {
    /// Returns true if the measurement completed and no datagram was corrupt.
    pub fn is_complete(&self) -> bool {
        self.outcome.is_complete() && self.flows.iter().all(|flow| flow.counts.corrupt == 0)
    }
}

/// Runs a UDP measurement. Errors are in the report.
pub async fn udp(options: &UdpOptions) -> UdpReport {
    let socket = flow::open(options.server, &SocketOptions::default());
    let ended = timeout(options.limit, run(options, socket)).await.map_err(|_| EarlyEnd::Limit);
    let (outcome, flows) = match ended {
        Ok(Ok(exchange)) => {
            let interrupted = options.stop.is_stopped();
            let outcome =
                if interrupted { FlowOutcome::Interrupted } else { FlowOutcome::Complete };
            (outcome, flows(&options.plan, &exchange))
        }
        ended => (FlowOutcome::of(ended.map(|ended| ended.map(drop))), Vec::new()),
    };
    UdpReport {
        server: options.server,
        rate_bits_per_second: options.plan.rate.bits_per_second(),
        datagram_bytes: options.plan.length,
        time: options.plan.time,
        directions: options.plan.directions,
        outcome,
        flows,
    }
}

fn flows(plan: &UdpPlan, exchange: &UdpExchange) -> Vec<UdpFlow> {
    let ways = [(Direction::Download, exchange.received), (Direction::Upload, exchange.sent)];
    let flow = |(direction, known): (Direction, Option<(SentCounts, UdpCounts)>)| {
        let (SentCounts { datagrams: sent, unsent }, counts) = known?;
        // The first datagram's own duration is not in the span.
        let bytes = counts.received.saturating_sub(1).saturating_mul(plan.length.into());
        Some(UdpFlow {
            direction,
            sent,
            unsent,
            lost: sent.saturating_sub(counts.received).saturating_sub(counts.overflowed),
            counts,
            goodput: BitRate::average(ByteCount::new(bytes), counts.span),
        })
    };
    ways.into_iter().filter_map(flow).collect()
}

async fn run(
    options: &UdpOptions,
    socket: Result<TcpSocket, FlowError>,
) -> Result<UdpExchange, FlowError> {
    let key = flow_key(options.key, 0);
    let Ok(opened) = options.stop.limited(Duration::MAX, open(options, socket, key)).await else {
        return Ok(UdpExchange::default());
    };
    let (mut stream, socket) = opened?;
    let plan = &options.plan;
    let stop = &options.stop;
    let exchange = exchange(&mut stream, &socket, plan, key, PayloadSide::Client, stop).await?;
    if stop.is_stopped() {
        // The server may go on sending, and would close late.
        return Ok(exchange);
    }
    stream.shutdown().await.map_err(FlowError::broken("closing"))?;
    flow::read_close(&mut stream, 0).await?;
    flow::disable_reset_on_drop(&stream)?;
    Ok(exchange)
}

/// Connects, asks for the measurement, and makes the two sockets known to each other.
async fn open(
    options: &UdpOptions,
    socket: Result<TcpSocket, FlowError>,
    key: u64,
) -> Result<(TcpStream, UdpSocket), FlowError> {
    let mut stream = flow::connect(socket?, options.server).await?;
    let work = RequestedWork::Udp(options.plan);
    let request = MeterRequest { key, sockets: SocketOptions::default(), work };
    let sent = stream.write_all(&request.encode()).await;
    sent.map_err(FlowError::broken("sending the request"))?;
    let port = match flow::read_answer(&mut stream).await? {
        ServerAnswer::Port { port } => port,
        found => return Err(FlowError::Unexpected { found }),
    };
    let socket = bind(&stream, SocketAddr::new(options.server.ip(), port), options.dscp).await;
    let socket = socket.map_err(|error| FlowError::Socket { error })?;
    greet(&mut stream, &socket, &options.plan, key).await?;
    Ok((stream, socket))
}

async fn bind(stream: &TcpStream, server: SocketAddr, dscp: u8) -> std::io::Result<UdpSocket> {
    let socket = open_socket(stream.local_addr()?.ip()).await?;
    // The DSCP is the upper six bits (RFC 2474 §3).
    let traffic_class = u32::from(dscp) << 2;
    match server {
        SocketAddr::V4(_) => SockRef::from(&socket).set_tos_v4(traffic_class)?,
        SocketAddr::V6(_) => SockRef::from(&socket).set_tclass_v6(traffic_class)?,
    }
    socket.connect(server).await?;
    Ok(socket)
}

/// Sends greetings until the server knows the address of the client's datagrams.
async fn greet(
    stream: &mut TcpStream,
    socket: &UdpSocket,
    plan: &UdpPlan,
    key: u64,
) -> Result<(), FlowError> {
    let mut greeting = vec![0; plan.length.into()];
    fill(Payload::new(key, PayloadSide::Client), GREETING, Duration::ZERO, &mut greeting);
    let greeting = async {
        let mut ticks = interval(GREETING_INTERVAL);
        loop {
            ticks.tick().await;
            // A greeting that cannot be sent counts as lost.
            let _ = socket.send(&greeting).await;
        }
    };
    tokio::select! {
        accepted = flow::read_accepted(stream) => accepted,
        () = greeting => unreachable!("never stops greeting"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_of_the_two_ends_are_not_those_of_the_path() {
        let plan = UdpPlan {
            rate: BitRate::from_mbit(1),
            length: 1000,
            time: Duration::from_secs(1),
            directions: Directions::Download,
        };
        let counts = UdpCounts { received: 90, overflowed: 7, ..UdpCounts::default() };
        let sent = SentCounts { datagrams: 100, unsent: 25 };
        let found = flows(&plan, &UdpExchange { sent: None, received: Some((sent, counts)) });
        assert_eq!((found[0].sent, found[0].unsent, found[0].lost), (100, 25, 3));
        // A duplicate may be among those that found no room.
        let counts = UdpCounts { received: 99, ..counts };
        let found = flows(&plan, &UdpExchange { sent: None, received: Some((sent, counts)) });
        assert_eq!(found[0].lost, 0);
    }
}
