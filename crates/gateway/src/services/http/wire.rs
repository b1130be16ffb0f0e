//! A common interface of sockets, streams and TLS, and a buffer of what has been read from one.

use std::future::poll_fn;
use std::io;
use std::task::{Poll, ready};

use http_cache::{BadChunk, BodyParser, HeadProgress, ParsedHead};
use pep::work::inbox::Inbox;
use slacp::{ReadOutcome, ResetReason};
use tokio::net::TcpStream;

use super::secure::TlsConnection;
use crate::hop::SessionStream;
use crate::relay::dial;
use crate::relay::leg::shut_down;
use crate::relay::scratch;

/// One end of an exchange.
#[derive(Clone, Copy)]
pub(super) enum WireEnd<'a> {
    Socket(&'a TcpStream),
    Stream(&'a SessionStream),
    Secure(&'a TlsConnection),
}

fn reset_reason(error: &io::Error) -> ResetReason {
    dial::reset_reason(error)
}

impl WireEnd<'_> {
    /// Appends received bytes and returns their number, 0 at the end. Cancel-safe.
    async fn read(self, to: &mut Vec<u8>) -> Result<usize, ResetReason> {
        match self {
            Self::Socket(socket) => loop {
                socket.readable().await.map_err(|error| reset_reason(&error))?;
                // Through the thread's buffer, so that an idle connection has none.
                let read: io::Result<usize> = scratch::with(|buffer| {
                    let count = socket.try_read(buffer)?;
                    to.extend_from_slice(&buffer[..count]);
                    Ok(count)
                });
                match read {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    result => return result.map_err(|error| reset_reason(&error)),
                }
            },
            Self::Secure(secure) => secure.read(to).await,
            Self::Stream(stream) => {
                let read = poll_fn(|context| {
                    scratch::with(|buffer| {
                        let read = ready!(stream.poll_read(context, buffer))?;
                        let count = if let ReadOutcome::Data(count) = read { count } else { 0 };
                        to.extend_from_slice(&buffer[..count]);
                        Poll::Ready(Ok(count))
                    })
                });
                read.await
            }
        }
    }

    /// Writes and flushes all of `data`.
    pub(super) async fn write(self, mut data: &[u8]) -> Result<(), ResetReason> {
        while !data.is_empty() {
            let taken = self.write_some(data).await?;
            data = &data[taken..];
        }
        self.flush().await
    }

    /// Writes some bytes and returns their number. Cancel-safe.
    async fn write_some(self, data: &[u8]) -> Result<usize, ResetReason> {
        match self {
            Self::Socket(socket) => loop {
                socket.writable().await.map_err(|error| reset_reason(&error))?;
                match socket.try_write(data) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    result => return result.map_err(|error| reset_reason(&error)),
                }
            },
            Self::Stream(stream) => poll_fn(|context| stream.poll_write(context, data)).await,
            Self::Secure(secure) => secure.write_some(data).await,
        }
    }

    /// Sends the bytes that TLS still holds back. Cancel-safe.
    pub(super) async fn flush(self) -> Result<(), ResetReason> {
        match self {
            Self::Secure(secure) => secure.flush().await,
            Self::Socket(_) | Self::Stream(_) => Ok(()),
        }
    }

    /// Ends the sending direction: the peer reads an end.
    pub(super) async fn finish(self) -> Result<(), ResetReason> {
        match self {
            Self::Socket(socket) => shut_down(socket).map_err(|error| reset_reason(&error)),
            Self::Stream(stream) => poll_fn(|context| stream.poll_finish(context)).await,
            Self::Secure(secure) => secure.finish().await,
        }
    }
}

/// Bytes that have been read and not consumed.
#[derive(Default)]
pub(super) struct ReadBuffer {
    inbox: Inbox,
    /// Progress of searching for the end of the next head.
    progress: HeadProgress,
    /// Set at the peer's end of stream.
    pub(super) ended: bool,
}

impl ReadBuffer {
    /// Reads more bytes. Returns `false` at the end. Cancel-safe.
    pub(super) async fn fill(&mut self, wire: WireEnd<'_>) -> Result<bool, ResetReason> {
        if !self.ended {
            self.ended = wire.read(self.inbox.room()).await? == 0;
        }
        Ok(!self.ended)
    }

    /// The bytes read and not consumed.
    pub(super) fn bytes(&self) -> &[u8] {
        self.inbox.unused()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.inbox.is_empty()
    }

    /// Parses a head at the beginning of the buffer, if it may be complete.
    pub(super) fn head<H>(&mut self, parse: impl FnOnce(&[u8]) -> ParsedHead<H>) -> ParsedHead<H> {
        // A parser run at every read would cost quadratic time for a head that arrives byte by
        // byte.
        let is_due = self.progress.is_due(self.inbox.unused()) || self.ended;
        if is_due { parse(self.inbox.unused()) } else { ParsedHead::Incomplete }
    }

    pub(super) fn consume(&mut self, count: usize) {
        self.inbox.consume(count);
        self.progress = HeadProgress::default();
    }

    /// Takes all bytes out of the buffer.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.progress = HeadProgress::default();
        self.inbox.take()
    }

    /// Discards all bytes in the buffer.
    pub(super) fn clear(&mut self) {
        self.consume(self.bytes().len());
    }
}

/// The end that failed before a body was complete.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ForwardError {
    /// The source failed, or sent an invalid body.
    Source(ResetReason),
    /// The sink failed, or its peer is gone.
    Sink(ResetReason),
}

impl From<BadChunk> for ForwardError {
    fn from(_: BadChunk) -> Self {
        Self::Source(ResetReason::Prohibited)
    }
}

/// Form in which a body is forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyForm {
    /// As received, with its chunks.
    Unchanged,
    /// Only its content, without chunks.
    Content,
    /// Not at all: it is read for `content` only.
    Discarded,
}

/// The end that a body is read from, with what has been read from it already.
pub(super) struct BodySource<'a> {
    pub(super) wire: WireEnd<'a>,
    pub(super) inlet: &'a mut ReadBuffer,
}

/// The end that a body is written to.
#[derive(Clone, Copy)]
pub(super) struct BodySink<'a> {
    pub(super) wire: WireEnd<'a>,
    pub(super) form: BodyForm,
}

/// Forwards a body. `content` gets its content, `moved` the number of bytes passed. Returns `false`
/// if the source ended before the body, or if the body has no length. If the future is dropped,
/// the source's `inlet` and `body` are at the next byte to be written, provided that the body is
/// forwarded as received.
pub(super) async fn forward_body(
    source: BodySource<'_>,
    sink: BodySink<'_>,
    body: &mut BodyParser,
    mut content: impl FnMut(&[u8]),
    moved: impl Fn(usize),
) -> Result<bool, ForwardError> {
    let BodySource { wire: from, inlet } = source;
    let BodySink { wire: to, form } = sink;
    let mut piece = Vec::new();
    while !body.is_over() {
        if inlet.is_empty() && !inlet.fill(from).await.map_err(ForwardError::Source)? {
            return Ok(false);
        }
        piece.clear();
        // `body` advances only with what has been written: a cancelled call can be continued.
        let mut ahead = body.clone();
        let taken = ahead.take(inlet.bytes(), |bytes| {
            content(bytes);
            if form == BodyForm::Content {
                piece.extend_from_slice(bytes);
            }
        })?;
        match form {
            BodyForm::Unchanged => {
                write_counted(inlet, taken, body, to, &moved).await?;
                continue;
            }
            BodyForm::Content => to.write(&piece).await.map_err(ForwardError::Sink)?,
            BodyForm::Discarded => {}
        }
        *body = ahead;
        moved(taken);
        inlet.consume(taken);
    }
    Ok(true)
}

/// Writes the next `left` bytes of `body`. Each is consumed as soon as it is written, so that none
/// is written twice if the future is dropped.
async fn write_counted(
    inlet: &mut ReadBuffer,
    mut left: usize,
    body: &mut BodyParser,
    to: WireEnd<'_>,
    moved: &impl Fn(usize),
) -> Result<(), ForwardError> {
    while left > 0 {
        let sent = to.write_some(&inlet.bytes()[..left]).await.map_err(ForwardError::Sink)?;
        body.take(&inlet.bytes()[..sent], |_| {})?;
        inlet.consume(sent);
        moved(sent);
        left -= sent;
    }
    to.flush().await.map_err(ForwardError::Sink)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use http_cache::{BodyFraming, RequestHead};
    use pep::work::cost;
    use socket2::SockRef;
    use tokio::io::AsyncReadExt;
    use tokio::time::timeout;
    use tokio_rustls::rustls::pki_types::{PrivateKeyDer, ServerName};
    use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
    use tokio_rustls::server::TlsStream;
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;
    use crate::services::http::secure::TlsTransport;
    use crate::testkit::{connected, payload, read_all};

    const HOST: &str = "mirror.example";
    /// More than these sockets take without a reader.
    const LENGTH: usize = 4 << 20;
    /// Long enough to fill them.
    const MOMENT: Duration = Duration::from_millis(300);

    /// What moves the rest for each of them takes quadratic time.
    #[test]
    fn the_work_of_requests_that_came_at_once_grows_with_their_bytes_only() {
        let requests = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(20_000);
        let (mut inlet, mut heads) = (ReadBuffer::default(), 0);
        inlet.inbox.push(&requests);
        let end = inlet.bytes().as_ptr_range().end;
        let ((), cost) = cost::of(|| {
            while let ParsedHead::Head(_, length) = inlet.head(RequestHead::parse) {
                inlet.consume(length);
                heads += 1;
                // Whoever moves the rest without counting it is seen by where it is.
                let stays = inlet.is_empty() || inlet.bytes().as_ptr_range().end == end;
                assert!(stays, "moved after {heads}");
            }
        });
        assert_eq!((heads, inlet.is_empty()), (20_000, true));
        assert!(cost <= 3 * requests.len() as u64, "{cost}");
    }

    /// A connection with small buffers.
    async fn narrow() -> [TcpStream; 2] {
        let ends = connected().await;
        for end in ends.each_ref().map(SockRef::from) {
            end.set_send_buffer_size(64 << 10).unwrap();
            end.set_recv_buffer_size(64 << 10).unwrap();
        }
        ends
    }

    /// Has a body written to something that nobody reads, gives up, and returns what was not written.
    async fn interrupted(to: WireEnd<'_>, all: &[u8]) -> Vec<u8> {
        let mut inlet = ReadBuffer { ended: true, ..ReadBuffer::default() };
        inlet.inbox.push(all);
        let mut body = BodyParser::new(BodyFraming::Length(all.len() as u64));
        let source = BodySource { wire: to, inlet: &mut inlet };
        let sink = BodySink { wire: to, form: BodyForm::Unchanged };
        let passing = forward_body(source, sink, &mut body, |_| {}, |_| {});
        assert!(timeout(MOMENT, passing).await.is_err(), "all of it was taken");
        assert!(inlet.bytes().len() < all.len() && !body.is_over());
        let rest = BodyParser::new(BodyFraming::Length(inlet.bytes().len() as u64));
        assert_eq!(body, rest, "both are at the same place");
        inlet.take()
    }

    #[tokio::test]
    async fn a_body_that_is_interrupted_is_consumed_as_far_as_it_was_written() {
        let all = payload(1, LENGTH);
        let [near, mut far] = narrow().await;
        let rest = interrupted(WireEnd::Socket(&near), &all).await;
        drop(near);
        let came = read_all(&mut far).await.unwrap();
        assert!([came, rest].concat() == all);
    }

    /// A connection with TLS: the client's end, and the server's.
    async fn secured() -> (TlsConnection, TlsStream<TcpStream>) {
        let made = rcgen::generate_simple_self_signed([HOST.to_owned()]).unwrap();
        let (certificate, key) = (made.cert.der().clone(), made.signing_key.serialize_der());
        let mut authorities = RootCertStore::empty();
        authorities.add(certificate.clone()).unwrap();
        let key = PrivateKeyDer::try_from(key).unwrap();
        let client = ClientConfig::builder().with_root_certificates(authorities);
        let connector = TlsConnector::from(Arc::new(client.with_no_client_auth()));
        let server = ServerConfig::builder().with_no_client_auth();
        let server = server.with_single_cert(vec![certificate], key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(server));
        let [near, far] = narrow().await;
        let name = ServerName::try_from(HOST).unwrap();
        let near = TlsConnection::connect(&connector, name, TlsTransport::socket(near));
        #[expect(clippy::disallowed_methods, reason = "a test's server")]
        let far = acceptor.accept(far);
        let (near, far) = tokio::join!(near, far);
        (near.unwrap(), far.unwrap())
    }

    #[tokio::test]
    async fn so_it_is_within_tls() {
        let all = payload(2, LENGTH);
        let (near, mut far) = secured().await;
        let rest = interrupted(WireEnd::Secure(&near), &all).await;
        let mut came = Vec::new();
        let (finished, read) = tokio::join!(near.finish(), far.read_to_end(&mut came));
        finished.unwrap();
        read.unwrap();
        assert!([came, rest].concat() == all);
    }
}
