//! The TCP connection of a client or a server before it is relayed or refused.

use std::future::pending;
use std::io;
use std::net::Shutdown;
use std::time::Duration;

use pep::relay::HALF_CLOSED_TIMEOUT;
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::network::socket_options;
use crate::relay::SocketEnd;
use crate::relay::scratch;

/// First and longest pause between two checks whether the peer has acknowledged everything.
const FIRST_LOOK: Duration = Duration::from_millis(2);
const LAST_LOOK: Duration = Duration::from_secs(1);

/// One leg of a split connection. Dropping it resets it: its peer must not mistake a failure for
/// the end of the data.
pub(crate) struct TcpLeg {
    /// `None` once handed over to a relay, or closed.
    socket: Option<TcpStream>,
    /// Acknowledge at once after each read.
    quick_ack: bool,
}

impl TcpLeg {
    pub(crate) fn new(socket: TcpStream) -> Self {
        Self { socket: Some(socket), quick_ack: false }
    }

    /// Disables delayed ACKs if `quick_ack`.
    pub(crate) fn with_quick_ack(mut self, quick_ack: bool) -> Self {
        self.quick_ack = quick_ack;
        if quick_ack {
            socket_options::acknowledge_at_once(self.socket());
        }
        self
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        self.socket.as_ref().expect("the socket is there until it is relayed")
    }

    /// Duplicates the socket. The connection ends when both are closed.
    ///
    /// # Errors
    /// The system's, if there are no descriptors left.
    pub(crate) fn duplicate(&self) -> io::Result<TcpStream> {
        let copy = SockRef::from(self.socket()).try_clone()?;
        TcpStream::from_std(copy.into())
    }

    pub(crate) fn socket_mut(&mut self) -> &mut TcpStream {
        self.socket.as_mut().expect("the socket is there until it is relayed")
    }

    /// Hands the socket over to a relay.
    pub(crate) fn into_end(mut self) -> SocketEnd {
        let socket = self.socket.take().expect("the socket is there until it is relayed");
        SocketEnd::new(socket, self.quick_ack)
    }

    /// Waits until the connection fails. A RST after a FIN that was not read yet (EPIPE) does not count:
    /// the client's data can still be carried.
    pub(crate) async fn failure(&self) {
        match failure(self.socket()).await {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {}
            _ => pending().await,
        }
    }

    /// Resets the connection once its peer has acknowledged everything, or nothing more for
    /// [`HALF_CLOSED_TIMEOUT`]: a RST destroys data that has not arrived.
    pub(crate) async fn reset_after_data(self) {
        let unacknowledged = || socket_options::unacknowledged(self.socket()).unwrap_or(0);
        let mut left = unacknowledged();
        let mut pause = FIRST_LOOK;
        // Each acknowledgement extends the time: a slow reader is not a dead one.
        let mut until = Instant::now() + HALF_CLOSED_TIMEOUT;
        while left > 0 && Instant::now() < until {
            sleep(pause).await;
            pause = LAST_LOOK.min(pause * 2);
            let before = std::mem::replace(&mut left, unacknowledged());
            if left < before {
                until = Instant::now() + HALF_CLOSED_TIMEOUT;
            }
        }
    }

    /// Ends a connection after its last data was written: discards incoming data until the peer closes
    /// too, then closes, or resets after `limit`. An earlier reset would destroy data still in flight.
    pub(crate) async fn discard(mut self, limit: Duration) {
        let socket = self.socket();
        let emptied = timeout(limit, async {
            loop {
                socket.readable().await?;
                match scratch::with(|buffer| socket.try_read(buffer)) {
                    Ok(0) => return Ok(()),
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                    // Other tasks run between two reads, however fast the peer sends.
                    _ => tokio::task::yield_now().await,
                }
            }
        });
        if matches!(emptied.await, Ok(Ok(()))) {
            // Closed instead of reset: the kernel delivers the rest.
            drop(self.socket.take());
        }
    }
}

impl Drop for TcpLeg {
    fn drop(&mut self) {
        if let Some(socket) = self.socket.take() {
            socket_options::reset(socket);
        }
    }
}

/// Waits until a socket fails, even while nothing reads or writes it. Returns its error, unless
/// another call has consumed it.
pub(crate) async fn failure(socket: &TcpStream) -> Option<io::Error> {
    match socket.ready(Interest::ERROR).await {
        Ok(_) => socket.take_error().unwrap_or_else(Some),
        Err(error) => Some(error),
    }
}

/// Sends the FIN. Succeeds if the peer has already gone.
pub(crate) fn shut_down(socket: &TcpStream) -> io::Result<()> {
    match SockRef::from(socket).shutdown(Shutdown::Write) {
        Err(error) if error.kind() != io::ErrorKind::NotConnected => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::testkit::{abort, assert_reset, connected, read_all};

    const LIMIT: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_leg_that_is_dropped_is_reset() {
        let [near, mut far] = connected().await;
        let mut leg = TcpLeg::new(near);
        leg.socket_mut().write_all(b"half of a reply").await.unwrap();
        drop(leg);
        assert_reset(read_all(&mut far).await);
    }

    /// A reset would destroy what the client has not read yet.
    #[tokio::test]
    async fn last_words_arrive_whatever_the_client_still_sends() {
        let [near, mut far] = connected().await;
        let mut leg = TcpLeg::new(near);
        far.write_all(&[7; 100_000]).await.unwrap();
        leg.socket_mut().write_all(b"no").await.unwrap();
        shut_down(leg.socket()).unwrap();
        let client = async {
            let words = read_all(&mut far).await.unwrap();
            drop(far);
            words
        };
        let ((), words) = tokio::join!(leg.discard(LIMIT), client);
        assert_eq!(words, b"no");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_closes_is_reset_at_the_limit() {
        let [near, mut far] = connected().await;
        let leg = TcpLeg::new(near);
        shut_down(leg.socket()).unwrap();
        leg.discard(LIMIT).await;
        assert_eq!(read_all(&mut far).await.unwrap(), b"", "our end was in order");
        // The reset has come too, but the end was read first.
        assert!(far.write_all(b"x").await.is_err());
    }

    #[tokio::test]
    async fn a_reset_waits_for_what_was_sent_before() {
        let [near, mut far] = connected().await;
        SockRef::from(&far).set_recv_buffer_size(20_000).unwrap();
        let leg = TcpLeg::new(near);
        let mut sent = 0;
        while let Ok(count) = leg.socket().try_write(&[7; 10_000]) {
            sent += count;
        }
        let ((), read) = tokio::join!(leg.reset_after_data(), async {
            let mut read = 0;
            loop {
                match far.read(&mut [0; 5000]).await {
                    Ok(count) if count > 0 => read += count,
                    other => return (read, other.map_err(|error| error.kind())),
                }
            }
        });
        assert_eq!(read, (sent, Err(ErrorKind::ConnectionReset)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reset_does_not_wait_for_a_peer_that_reads_nothing() {
        let [near, _far] = connected().await;
        let leg = TcpLeg::new(near);
        while leg.socket().try_write(&[7; 10_000]).is_ok() {}
        let begin = Instant::now();
        leg.reset_after_data().await;
        let waited = begin.elapsed();
        assert!(waited >= HALF_CLOSED_TIMEOUT && waited < HALF_CLOSED_TIMEOUT + LAST_LOOK);
    }

    #[tokio::test]
    async fn a_reset_is_a_failure_at_once() {
        let [near, far] = connected().await;
        let leg = TcpLeg::new(near);
        abort(far);
        leg.failure().await;
        // The error is consumed; what is written later fails anyway.
        assert!(failure(leg.socket()).await.is_none_or(|it| it.kind() == ErrorKind::BrokenPipe));
    }

    #[tokio::test]
    async fn a_reset_after_the_client_s_last_byte_leaves_what_it_sent() {
        let [near, mut far] = connected().await;
        far.write_all(b"request").await.unwrap();
        shut_down(&far).unwrap();
        let leg = TcpLeg::new(near);
        leg.socket().readable().await.unwrap();
        abort(far);
        let mut buffer = [0; 16];
        tokio::select! {
            biased;
            () = leg.failure() => panic!("the request may still be carried"),
            () = tokio::task::yield_now() => {}
        }
        assert_eq!(leg.socket().try_read(&mut buffer).unwrap(), 7);
    }

    #[tokio::test]
    async fn a_fin_to_a_peer_that_has_gone_succeeds() {
        let [near, far] = connected().await;
        abort(far);
        assert!(failure(&near).await.is_some());
        shut_down(&near).unwrap();
    }
}
