//! The part of a UDP measurement that is the same at both ends: sending, receiving, and exchanging
//! results over the TCP connection.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, sleep, sleep_until};
use units::{BitRate, ByteCount};

use crate::answer::Answer;
use crate::bulk::{Direction, Directions};
use crate::flow::{self, FlowError};
use crate::payload::{Payload, Side};
use crate::udp::receiver::{UdpCounts, UdpReceiver, fill};

/// How long to wait for more datagrams after the sender has finished, or after the last arrival
/// since.
const GRACE: Duration = Duration::from_secs(2);
/// Maximum number of datagrams per direction.
pub const DATAGRAMS_MAX: u64 = 10_000_000;

/// A stream of datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpPlan {
    /// Bits of datagram contents per second.
    pub rate: BitRate,
    /// Size of each datagram in bytes: a head of 20, the rest payload.
    pub length: u16,
    /// How long to send.
    pub time: Duration,
    /// The directions.
    pub directions: Directions,
}

impl UdpPlan {
    /// Number of datagrams per direction.
    pub fn datagrams(&self) -> u64 {
        self.rate.bytes_in(self.time).get().div_ceil(u64::from(self.length))
    }

    fn due(&self, number: u64) -> Duration {
        let bytes = number.saturating_mul(self.length.into());
        self.rate.time_to_send(ByteCount::new(bytes))
    }
}

/// What one end knows afterwards.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    /// Number of datagrams this end sent, and the other end's counts of them.
    pub(crate) sent: Option<(u64, UdpCounts)>,
    /// Number of datagrams the other end sent, and this end's counts of them.
    pub(crate) received: Option<(u64, UdpCounts)>,
}

/// Sends and receives according to the plan; `side` is this end.
pub(crate) async fn exchange(
    stream: &mut TcpStream,
    socket: &UdpSocket,
    plan: &UdpPlan,
    (key, side): (u64, Side),
) -> Result<Exchange, FlowError> {
    let (own, other, way) = match side {
        Side::Client => (Side::Client, Side::Server, Direction::Upload),
        Side::Server => (Side::Server, Side::Client, Direction::Download),
    };
    let sends = plan.directions.each().contains(&way);
    let receives = plan.directions.each().iter().any(|it| *it != way);
    let (mut reader, writer) = stream.split();
    let writer = Mutex::new(writer);
    let (told, peer_sent) = watch::channel(None);

    let sending = async {
        if !sends {
            return Ok(0);
        }
        let datagrams = send(socket, plan, Payload::new(key, own)).await?;
        say(&writer, Answer::UdpSent { datagrams }).await?;
        Ok(datagrams)
    };
    let receiving = async {
        let planned = if receives { plan.datagrams() } else { 0 };
        let payload = Payload::new(key, other);
        let mut receiver = UdpReceiver::new(payload, plan.length.into(), planned);
        if receives {
            receive(socket, &mut receiver, peer_sent).await;
            say(&writer, Answer::UdpReceived(receiver.counts())).await?;
        }
        Ok(receiver.counts())
    };
    let listening = async {
        let (mut datagrams, mut counts) = (None, None);
        while (receives && datagrams.is_none()) || (sends && counts.is_none()) {
            match flow::read_answer(&mut reader).await? {
                Answer::UdpSent { datagrams: sent } => {
                    datagrams = Some(sent);
                    let _ = told.send(Some(sent));
                }
                Answer::UdpReceived(received) => counts = Some(received),
                found => return Err(FlowError::Unexpected { found }),
            }
        }
        Ok((datagrams, counts))
    };
    let (sent, counted, (peer_sent, peer_counted)) =
        tokio::try_join!(sending, receiving, listening)?;
    Ok(Exchange {
        sent: peer_counted.map(|counts| (sent, counts)),
        received: peer_sent.map(|datagrams| (datagrams, counted)),
    })
}

async fn say<W: AsyncWrite + Unpin>(writer: &Mutex<W>, answer: Answer) -> Result<(), FlowError> {
    let sent = writer.lock().await.write_all(&answer.encode()).await;
    sent.map_err(FlowError::broken("telling the other end"))
}

/// Sends every datagram at its time, and late ones at once to keep the rate.
async fn send(socket: &UdpSocket, plan: &UdpPlan, payload: Payload) -> Result<u64, FlowError> {
    let start = Instant::now();
    let mut buffer = vec![0; plan.length.into()];
    for number in 0..plan.datagrams() {
        let due = start + plan.due(number);
        if due > Instant::now() {
            sleep_until(due).await;
        }
        fill(payload, number, start.elapsed(), &mut buffer);
        if let Err(error) = socket.send(&buffer).await
            && !passing(&error)
        {
            return Err(FlowError::Broken { doing: "sending datagrams", error });
        }
    }
    Ok(plan.datagrams())
}

/// An ICMP error about an earlier datagram, or a full local queue: the datagram is lost, but the
/// measurement goes on.
fn passing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
        || error.raw_os_error() == Some(libc::ENOBUFS)
        || error.kind() == io::ErrorKind::HostUnreachable
        || error.kind() == io::ErrorKind::NetworkUnreachable
}

async fn receive(
    socket: &UdpSocket,
    receiver: &mut UdpReceiver,
    mut peer_sent: watch::Receiver<Option<u64>>,
) {
    let start = Instant::now();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let sent = *peer_sent.borrow_and_update();
        if sent.is_some_and(|sent| receiver.counts().received >= sent) {
            return;
        }
        tokio::select! {
            read = socket.recv(&mut buffer) => {
                // An error concerns a datagram that this end sent.
                if let Ok(length) = read {
                    receiver.handle(start.elapsed(), &buffer[..length]);
                }
            }
            changed = peer_sent.changed(), if sent.is_none() => {
                if changed.is_err() {
                    return;
                }
            }
            () = sleep(GRACE), if sent.is_some() => return,
        }
    }
}
