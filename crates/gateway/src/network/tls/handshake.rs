//! TLS handshakes of incoming connections.
//!
//! The arithmetic of a handshake takes up to a millisecond, and any client may request it as often as it
//! likes. So it runs on a thread of its own with a low priority, one handshake at a time, and networks
//! take turns: sessions and relays on the other threads go on, and a flood from one network does not delay
//! the handshakes of others. The caller's thread only moves bytes.

mod queue;

use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::{Accept, TlsStream};

use self::queue::FairQueue;

/// Maximum reads of one handshake, and the size of each in bytes. A client sends a few thousand bytes in two
/// flights, five times that with a chain of certificates.
const MOST_READS: usize = 64;
const PIECE: usize = 4096;

/// A connection under TLS. Until the handshake is complete, it buffers both directions; afterwards it
/// returns bytes that the handshake has read ahead before those of the connection.
pub(crate) struct EarlyStream<IO> {
    /// Bytes read from the connection and not consumed yet.
    input: Vec<u8>,
    ended: bool,
    /// Bytes that the handshake has to send. Shared, since an alert must be sent after a failed handshake.
    output: Arc<Mutex<Vec<u8>>>,
    /// The connection, once the handshake is complete.
    under: Option<IO>,
}

impl<IO> EarlyStream<IO> {
    /// Wraps a connection from which nothing has been read.
    pub(crate) fn unread(under: IO) -> Self {
        Self { under: Some(under), ..Self::before() }
    }

    fn before() -> Self {
        Self { input: Vec::new(), ended: false, output: Arc::default(), under: None }
    }

    /// The connection, unless bytes that were read ahead are still waiting.
    pub(crate) fn unbuffered(&self) -> Option<&IO> {
        self.under.as_ref().filter(|_| self.input.is_empty())
    }

    /// The connection, once the handshake is complete.
    pub(crate) fn under(&self) -> Option<&IO> {
        self.under.as_ref()
    }
}

/// Performs the server's side of a TLS handshake. `network`: the client or network that takes turns with
/// others.
///
/// # Errors
/// Those of the connection and of TLS; `WouldBlock` if too many handshakes are waiting.
pub(crate) async fn accept<IO>(
    acceptor: &TlsAcceptor,
    network: IpAddr,
    mut under: IO,
) -> io::Result<TlsStream<EarlyStream<IO>>>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let before = EarlyStream::before();
    let output = before.output.clone();
    #[expect(clippy::disallowed_methods, reason = "it is computed where it is polled")]
    let mut handshake = acceptor.accept(before);
    for _ in 0..MOST_READS {
        let mut piece = Vec::with_capacity(PIECE);
        let ended = under.read_buf(&mut piece).await? == 0;
        if let Some(early) = handshake.get_mut() {
            early.input.append(&mut piece);
            early.ended = ended;
        }
        let (same, polled) = step_on_worker(network, handshake).await?;
        // Also after a failure: the client must get the alert.
        let out = std::mem::take(&mut *lock(&output));
        under.write_all(&out).await?;
        under.flush().await?;
        match polled {
            Poll::Ready(done) => {
                let mut stream = done?;
                stream.get_mut().0.under = Some(under);
                return Ok(stream);
            }
            Poll::Pending => handshake = same,
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "too many pieces in a handshake"))
}

/// The handshake after a step, and the result of the step.
type HandshakeStep<IO> = (Accept<EarlyStream<IO>>, Poll<io::Result<TlsStream<EarlyStream<IO>>>>);

/// Runs the next step of a handshake on the thread for handshakes.
async fn step_on_worker<IO>(
    network: IpAddr,
    mut handshake: Accept<EarlyStream<IO>>,
) -> io::Result<HandshakeStep<IO>>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, result) = oneshot::channel();
    let work = move || {
        // A client that has given up must not cost the others any time.
        if !sender.is_closed() {
            let mut context = Context::from_waker(Waker::noop());
            let polled = Pin::new(&mut handshake).poll(&mut context);
            let _ = sender.send((handshake, polled));
        }
    };
    if !WORKSHOP.enqueue(network, Box::new(work)) {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    result.await.map_err(|_| io::ErrorKind::BrokenPipe.into())
}

type HandshakeWork = Box<dyn FnOnce() + Send>;

static WORKSHOP: HandshakeWorker = HandshakeWorker::new();

/// The thread for handshakes with its queue. It is started by the first handshake.
struct HandshakeWorker {
    queue: Mutex<FairQueue<HandshakeWork>>,
    filled: Condvar,
    opened: Once,
}

impl HandshakeWorker {
    const fn new() -> Self {
        Self { queue: Mutex::new(FairQueue::new()), filled: Condvar::new(), opened: Once::new() }
    }

    /// Queues work; false if the queue is full.
    fn enqueue(&'static self, network: IpAddr, work: HandshakeWork) -> bool {
        self.opened.call_once(|| {
            let named = thread::Builder::new().name("handshakes".to_owned());
            if let Err(error) = named.spawn(|| self.run()) {
                tracing::error!("cannot start the thread for TLS handshakes: {error}");
            }
        });
        let taken = lock(&self.queue).push(network, work);
        self.filled.notify_one();
        taken
    }

    fn run(&self) {
        // Sessions and relays go first where the processor is short.
        os::priority::lower_priority();
        loop {
            let waiting = lock(&self.queue);
            let waits = |queue: &mut FairQueue<HandshakeWork>| queue.is_empty();
            let waiting = self.filled.wait_while(waiting, waits);
            let work = waiting.unwrap_or_else(PoisonError::into_inner).pop();
            // A panic in one handshake must not end the thread.
            let _ = work.map(|work| catch_unwind(AssertUnwindSafe(work)));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<IO: AsyncRead + Unpin> AsyncRead for EarlyStream<IO> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let early = self.get_mut();
        if !early.input.is_empty() {
            let count = early.input.len().min(buffer.remaining());
            buffer.put_slice(&early.input[..count]);
            early.input.drain(..count);
            return Poll::Ready(Ok(()));
        }
        match &mut early.under {
            Some(under) => Pin::new(under).poll_read(context, buffer),
            None if early.ended => Poll::Ready(Ok(())),
            // `accept` polls again when more has come.
            None => Poll::Pending,
        }
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for EarlyStream<IO> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let early = self.get_mut();
        match &mut early.under {
            Some(under) => Pin::new(under).poll_write(context, data),
            None => {
                lock(&early.output).extend_from_slice(data);
                Poll::Ready(Ok(data.len()))
            }
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let early = self.get_mut();
        match &mut early.under {
            Some(under) => Pin::new(under).poll_write_vectored(context, data),
            None => {
                let mut output = lock(&early.output);
                data.iter().for_each(|piece| output.extend_from_slice(piece));
                Poll::Ready(Ok(data.iter().map(|piece| piece.len()).sum()))
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.under.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().under {
            Some(under) => Pin::new(under).poll_flush(context),
            None => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().under {
            Some(under) => Pin::new(under).poll_shutdown(context),
            None => Poll::Ready(Ok(())),
        }
    }
}

#[cfg(test)]
mod tests;
