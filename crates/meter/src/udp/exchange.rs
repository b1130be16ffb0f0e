//! The part of a UDP measurement that is the same at both ends: sending, receiving, and exchanging
//! results over the TCP connection.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use os::socket::BufferKind;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, sleep, sleep_until};
use units::ByteCount;

use crate::flow::stop::Stop;
use crate::flow::{self, FlowError};
use crate::protocol::answer::ServerAnswer;
use crate::protocol::direction::Direction;
use crate::protocol::payload::{Payload, PayloadSide};
use crate::protocol::udp_plan::{UdpCounts, UdpPlan};
use crate::udp::receiver::{UdpReceiver, fill};

/// Time to wait for more datagrams after the sender has finished, or after the last arrival since.
const GRACE: Duration = Duration::from_secs(2);
/// Receive buffer of the sockets: enough for a receiver that is busy elsewhere for 60 ms at 1
/// Gbit/s.
const BUFFER: ByteCount = ByteCount::new(8 << 20);

/// The counts that one end has after the exchange.
#[derive(Debug, Default)]
pub(crate) struct UdpExchange {
    /// The datagrams this end sent, and the other end's counts of them.
    pub(crate) sent: Option<(SentCounts, UdpCounts)>,
    /// The datagrams the other end sent, and this end's counts of them.
    pub(crate) received: Option<(SentCounts, UdpCounts)>,
}

/// A sender's counts of its datagrams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SentCounts {
    /// Number that the sender's system accepted.
    pub(crate) datagrams: u64,
    /// Number that the sender's system refused, because its queue was full.
    pub(crate) unsent: u64,
}

/// Opens a socket at a free port of `address`, with a large receive buffer as far as the system
/// allows. It tells which datagrams the system had no room to send.
pub(crate) async fn open_socket(address: IpAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((address, 0)).await?;
    os::socket::set_buffer(&socket, BufferKind::Receive, BUFFER)?;
    os::socket::report_full_queues(&socket, address.is_ipv6())?;
    Ok(socket)
}

/// Sends and receives according to the plan, until stopped; `side` is this end. The peer learns how
/// many datagrams were sent until then, and reports what arrived.
pub(crate) async fn exchange(
    stream: &mut TcpStream,
    socket: &UdpSocket,
    plan: &UdpPlan,
    key: u64,
    side: PayloadSide,
    stop: &Stop,
) -> Result<UdpExchange, FlowError> {
    let (other, way) = match side {
        PayloadSide::Client => (PayloadSide::Server, Direction::Upload),
        PayloadSide::Server => (PayloadSide::Client, Direction::Download),
    };
    let sends = plan.directions.each().contains(&way);
    let receives = plan.directions.each().iter().any(|each| *each != way);
    let end = UdpEnd { socket, plan, stop, sends, receives };
    let (mut reader, writer) = stream.split();
    // Sending and receiving both report on the connection when they end.
    let writer = Mutex::new(writer);
    let (told, peer_sent) = watch::channel(None);
    let (sent, receiver, peer) = tokio::try_join!(
        end.run_sender(Payload::new(key, side), &writer),
        end.run_receiver(Payload::new(key, other), peer_sent, &writer),
        end.read_reports(&mut reader, &told),
    )?;
    // After a stop the peer has not reported; the highest number seen is the best evidence.
    let peer_sent = peer.sent.or_else(|| receives.then(|| receiver.seen_sent()));
    Ok(UdpExchange {
        sent: peer.counted.map(|counts| (sent, counts)),
        received: peer_sent.map(|datagrams| (datagrams, receiver.counts())),
    })
}

/// One end of a measurement, and its part in the plan.
struct UdpEnd<'a> {
    socket: &'a UdpSocket,
    plan: &'a UdpPlan,
    stop: &'a Stop,
    sends: bool,
    receives: bool,
}

/// The reports of the other end; incomplete if this end was stopped.
#[derive(Default)]
struct PeerReports {
    /// The datagrams that the peer sent.
    sent: Option<SentCounts>,
    /// The peer's counts of the datagrams that this end sent.
    counted: Option<UdpCounts>,
}

impl UdpEnd<'_> {
    /// Sends the datagrams, then reports their number.
    async fn run_sender<W: AsyncWrite + Unpin>(
        &self,
        payload: Payload,
        writer: &Mutex<W>,
    ) -> Result<SentCounts, FlowError> {
        if !self.sends {
            return Ok(SentCounts::default());
        }
        let sent = send(self.socket, self.plan, payload, self.stop).await?;
        let SentCounts { datagrams, unsent } = sent;
        send_answer(writer, ServerAnswer::UdpSent { datagrams, unsent }).await?;
        Ok(sent)
    }

    /// Receives the datagrams, then reports their counts.
    async fn run_receiver<W: AsyncWrite + Unpin>(
        &self,
        payload: Payload,
        peer_sent: watch::Receiver<Option<u64>>,
        writer: &Mutex<W>,
    ) -> Result<UdpReceiver, FlowError> {
        let planned = if self.receives { self.plan.datagrams() } else { 0 };
        let mut receiver = UdpReceiver::new(payload, self.plan.length.into(), planned);
        if self.receives {
            tokio::select! {
                () = receive(self.socket, &mut receiver, peer_sent) => {}
                () = self.stop.stopped() => {}
            }
            receiver.overflowed(os::socket::overflows(self.socket).unwrap_or(0).into());
            send_answer(writer, ServerAnswer::UdpReceived(receiver.counts())).await?;
        }
        Ok(receiver)
    }

    /// Reads the peer's reports, and passes on to `told` how many datagrams it sent.
    async fn read_reports<R: AsyncRead + Unpin>(
        &self,
        reader: &mut R,
        told: &watch::Sender<Option<u64>>,
    ) -> Result<PeerReports, FlowError> {
        let mut peer = PeerReports::default();
        while (self.receives && peer.sent.is_none()) || (self.sends && peer.counted.is_none()) {
            let answer = tokio::select! {
                answer = flow::read_answer(reader) => answer?,
                // The peer is not asked to stop, and so will not say soon what it has sent.
                () = self.stop.stopped(), if peer.counted.is_some() || !self.sends => break,
            };
            match answer {
                ServerAnswer::UdpSent { datagrams, unsent } => {
                    peer.sent = Some(SentCounts { datagrams, unsent });
                    // Fails if the receiver has ended, and then it does not matter.
                    let _ = told.send(Some(datagrams));
                }
                ServerAnswer::UdpReceived(received) => peer.counted = Some(received),
                found => return Err(FlowError::Unexpected { found }),
            }
        }
        Ok(peer)
    }
}

async fn send_answer<W: AsyncWrite + Unpin>(
    writer: &Mutex<W>,
    answer: ServerAnswer,
) -> Result<(), FlowError> {
    let sent = writer.lock().await.write_all(&answer.encode()).await;
    sent.map_err(FlowError::broken("telling the other end"))
}

/// Sends every datagram at its time, and late ones at once to keep the rate.
async fn send(
    socket: &UdpSocket,
    plan: &UdpPlan,
    payload: Payload,
    stop: &Stop,
) -> Result<SentCounts, FlowError> {
    let mut sent = SentCounts::default();
    let start = Instant::now();
    let mut buffer = vec![0; plan.length.into()];
    for number in 0..plan.datagrams() {
        let due = start + plan.due(number);
        if due > Instant::now() {
            let _ = stop.limited(Duration::MAX, sleep_until(due)).await;
        }
        if stop.is_stopped() {
            break;
        }
        fill(payload, number, start.elapsed(), &mut buffer);
        match socket.send(&buffer).await {
            Ok(_) => sent.datagrams += 1,
            Err(error) if is_transient(&error) => sent.unsent += 1,
            Err(error) => return Err(FlowError::Broken { doing: "sending datagrams", error }),
        }
    }
    Ok(sent)
}

/// Returns true for an ICMP error about an earlier datagram, or a full local queue: this datagram
/// is not sent, but the measurement goes on.
fn is_transient(error: &io::Error) -> bool {
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
    // Longer than any datagram, so that none is cut to the expected length.
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use socket2::SockRef;
    use tokio::net::TcpListener;
    use units::BitRate;

    use super::*;
    use crate::protocol::direction::Directions;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// 100 datagrams of 1,000 bytes.
    fn plan(directions: Directions) -> UdpPlan {
        let rate = BitRate::from_mbit(800);
        let time = Duration::from_millis(1);
        UdpPlan { rate, length: 1000, time, directions }
    }

    #[tokio::test]
    async fn sockets_have_a_larger_receive_buffer_than_by_default() {
        let size = |socket: &UdpSocket| SockRef::from(socket).recv_buffer_size().unwrap();
        let plain = UdpSocket::bind((HERE, 0)).await.unwrap();
        let opened = open_socket(HERE).await.unwrap();
        assert!(size(&opened) > size(&plain), "{}", size(&opened));
    }

    #[tokio::test]
    async fn what_finds_no_room_in_the_socket_is_counted() {
        let listener = TcpListener::bind((HERE, 0)).await.unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let _peer = listener.accept().await.unwrap();
        let socket = UdpSocket::bind((HERE, 0)).await.unwrap();
        os::socket::set_buffer(&socket, BufferKind::Receive, ByteCount::new(4096)).unwrap();
        let far = std::net::UdpSocket::bind((HERE, 0)).unwrap();
        far.connect(socket.local_addr().unwrap()).unwrap();
        (0..100).for_each(|_| _ = far.send(&[0; 1000]).unwrap());
        // Nothing more is waited for.
        let stop = Stop::default();
        stop.stop();
        let plan = plan(Directions::Download);
        let side = PayloadSide::Client;
        let found = exchange(&mut stream, &socket, &plan, 1, side, &stop).await.unwrap();
        let (_, counts) = found.received.unwrap();
        let overflows = os::socket::overflows(&socket).unwrap();
        assert!(overflows > 0, "the buffer has room for all");
        assert_eq!(counts.overflowed, u64::from(overflows));
    }

    #[tokio::test]
    async fn what_the_own_system_refuses_is_not_sent() {
        let nobody = UdpSocket::bind((HERE, 0)).await.unwrap();
        let socket = UdpSocket::bind((HERE, 0)).await.unwrap();
        socket.connect(nobody.local_addr().unwrap()).await.unwrap();
        drop(nobody);
        // Each ICMP message about the closed port is an error of the next datagram.
        let plan = plan(Directions::Upload);
        let payload = Payload::new(1, PayloadSide::Client);
        let sent = send(&socket, &plan, payload, &Stop::default()).await.unwrap();
        assert!(sent.unsent > 0, "{sent:?}");
        assert_eq!(sent.datagrams + sent.unsent, plan.datagrams());
    }
}
