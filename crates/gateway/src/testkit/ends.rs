//! The ends of a connection under test.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use pep::egress::EgressRules;
use socket2::SockRef;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::relay::dial::Dialer;

/// Pseudo-random bytes that depend on the key.
pub(crate) fn payload(key: u64, length: usize) -> Vec<u8> {
    let mut state = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// A connection on loopback: the client's end and the server's.
pub(crate) async fn connected() -> [TcpStream; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connect = TcpStream::connect(listener.local_addr().unwrap());
    let (client, server) = tokio::join!(connect, listener.accept());
    [client.unwrap(), server.unwrap().0]
}

/// Connects to a listener as a client with this IPv4 address of loopback.
pub(crate) async fn connect_from(client: IpAddr, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((client, 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

/// Connects to what `egress` permits, within ten seconds.
pub(crate) fn dialer(egress: EgressRules) -> Dialer {
    let timeout = Duration::from_secs(10);
    Dialer { side: Arc::default(), timeout, egress, own: None, mark: None, stack: None }
}

/// Reads until the end of the connection.
pub(crate) async fn read_all(socket: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes).await?;
    Ok(bytes)
}

/// Resets a connection.
pub(crate) fn abort(socket: TcpStream) {
    SockRef::from(&socket).set_linger(Some(Duration::ZERO)).unwrap();
    drop(socket);
}

pub(crate) fn assert_reset(read: io::Result<Vec<u8>>) {
    let error = read.expect_err("a reset looked like a clean end");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
}

/// Reads until the connection is reset.
pub(crate) async fn read_to_reset(socket: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let end = socket.read_to_end(&mut bytes).await.map_err(|error| error.kind());
    assert_eq!(end, Err(io::ErrorKind::ConnectionReset), "after {} bytes", bytes.len());
    bytes
}

/// Sends data with three urgent bytes, one at a time, and checks that everything arrives in order.
pub(crate) async fn speak_urgently(from: &TcpStream, to: &mut TcpStream) {
    let from = SockRef::from(from);
    let mut heard = [0; 3];
    for text in [b"!ab", b"c!d", b"ef!"] {
        for part in text.chunk_by(|one, next| (*one == b'!') == (*next == b'!')) {
            let sent = match part {
                b"!" => from.send_out_of_band(part),
                _ => from.send(part),
            };
            assert_eq!(sent.unwrap(), part.len());
        }
        to.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, text);
    }
}
