//! Asks resolvers, in the steps of a [`Lookup`].

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use names::{ATTEMPTS, Lookup, LookupStep};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;
use tokio::time::timeout;
use units::Machine;

use crate::config::keys::random_bytes;
use crate::process::clock;
use crate::relay::dial::{self, DialSource};

/// Time limit for a request that is forwarded unchanged.
const FORWARD_TIMEOUT: Duration = Duration::from_secs(5);
/// Size of the longest datagram, in bytes.
const MAX_DATAGRAM: usize = 65_535;

/// Returns the answer of one of `servers` to the question in `message`; [`None`] without one.
/// Packets bear the firewall mark `mark`.
pub(super) async fn look_up(
    message: &[u8],
    servers: &[SocketAddr],
    mark: Option<u32>,
) -> Option<Vec<u8>> {
    let mut lookup = Lookup::new(clock::now(), message, servers.len(), identifiers()?)
        .inspect_err(|error| tracing::debug!("a question: {error}"))
        .ok()?;
    while let Some(step) = lookup.poll_step() {
        match step {
            LookupStep::Udp(server, message) => {
                over_udp(&mut lookup, servers[server], &message, mark).await;
            }
            LookupStep::Tcp(server, message) => {
                let reply = over_tcp(servers[server], &message, mark);
                match before_timer(&mut lookup, reply).await {
                    Some(Ok(reply)) => {
                        lookup.handle_message(clock::now(), &reply);
                        // A reply to another question: on this connection nothing else will come.
                        lookup = fail_if_waiting(lookup);
                    }
                    Some(Err(_)) => lookup.handle_failure(clock::now()),
                    None => {}
                }
            }
            LookupStep::Done(answer) => return Some(answer),
            LookupStep::Failed => return None,
        }
    }
    None
}

/// Draws random message IDs, one for each attempt (RFC 5452 §9.2).
fn identifiers() -> Option<[u16; ATTEMPTS]> {
    let bytes = random_bytes().ok()?;
    let identifier = |number: usize| u16::from_be_bytes([bytes[2 * number], bytes[2 * number + 1]]);
    Some(std::array::from_fn(identifier))
}

/// Fails a lookup that would wait for more.
fn fail_if_waiting(mut lookup: Lookup) -> Lookup {
    if !lookup.has_step() {
        lookup.handle_failure(clock::now());
    }
    lookup
}

/// Asks over UDP from a new port (RFC 5452 §9.2), and hands replies to the lookup until it has
/// another step.
async fn over_udp(lookup: &mut Lookup, server: SocketAddr, message: &[u8], mark: Option<u32>) {
    let Ok(socket) = send_from_new_socket(server, message, mark).await else {
        return lookup.handle_failure(clock::now());
    };
    let mut reply = vec![0; MAX_DATAGRAM];
    while !lookup.has_step() {
        match before_timer(lookup, socket.recv(&mut reply)).await {
            Some(Ok(length)) => lookup.handle_message(clock::now(), &reply[..length]),
            Some(Err(_)) => lookup.handle_failure(clock::now()),
            None => {}
        }
    }
}

/// Runs `work` up to the lookup's timer, which is handled; [`None`] in this case.
async fn before_timer<T>(lookup: &mut Lookup, work: impl Future<Output = T>) -> Option<T> {
    let until = lookup.poll_timeout().map(|(until, _)| until);
    tokio::select! {
        done = work => Some(done),
        () = clock::sleep_until(until) => {
            lookup.handle_timeout(clock::now());
            None
        }
    }
}

/// Sends a datagram, and returns its socket. It is connected, so that the kernel drops packets of
/// other senders.
async fn send_from_new_socket(
    server: SocketAddr,
    message: &[u8],
    mark: Option<u32>,
) -> io::Result<UdpSocket> {
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    if let Some(mark) = mark {
        SockRef::from(&socket).set_mark(mark)?;
    }
    socket.connect(server).await?;
    socket.send(message).await?;
    Ok(socket)
}

async fn over_tcp(server: SocketAddr, message: &[u8], mark: Option<u32>) -> io::Result<Vec<u8>> {
    let caller = DialSource { mark, ..DialSource::default() };
    let mut socket = dial::connect(server, caller, FORWARD_TIMEOUT).await?;
    let length = u16::try_from(message.len()).map_err(io::Error::other)?;
    socket.write_all(&[&length.to_be_bytes(), message].concat()).await?;
    let mut reply = vec![0; socket.read_u16().await?.into()];
    socket.read_exact(&mut reply).await?;
    Ok(reply)
}

/// Forwards a request unchanged to the server that it is meant for, and returns the reply.
pub(super) async fn forward(
    message: &[u8],
    server: SocketAddr,
    mark: Option<u32>,
) -> Option<Vec<u8>> {
    let passed = timeout(FORWARD_TIMEOUT, async {
        let socket = send_from_new_socket(server, message, mark).await.ok()?;
        let mut reply = vec![0; MAX_DATAGRAM];
        loop {
            let length = socket.recv(&mut reply).await.ok()?;
            // Only the ID can be compared: this kind of message is not parsed.
            if reply[..length].first_chunk::<2>() == message.first_chunk::<2>() {
                return Some(reply[..length].to_vec());
            }
        }
    });
    passed.await.ok().flatten()
}
