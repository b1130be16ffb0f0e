//! TLS handshakes of those who connect to us.
//!
//! The arithmetic of one takes up to a millisecond, and whoever may connect may ask for it as often as he
//! likes. So a thread of its own with a low priority does it, for one at a time, and networks take turns:
//! sessions and relays on the other threads go on, and a flood from one network delays nobody else's
//! handshakes. On the caller's thread only bytes are moved.

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

/// The most reads of one handshake, and bytes of each. A client's part is a few thousand bytes in two
/// flights; with a chain of certificates it may be five times that.
const MOST_READS: usize = 64;
const PIECE: usize = 4096;

/// A connection under TLS, of which the handshake has perhaps read more than it needed.
pub(crate) struct Early<IO> {
    /// What was read and not used.
    input: Vec<u8>,
    ended: bool,
    /// What the handshake wants to send, also if it fails.
    output: Arc<Mutex<Vec<u8>>>,
    /// The connection, once the handshake is over.
    under: Option<IO>,
}

impl<IO> Early<IO> {
    /// A connection of which nothing has been read.
    pub(crate) fn through(under: IO) -> Self {
        Self { under: Some(under), ..Self::before() }
    }

    fn before() -> Self {
        Self { input: Vec::new(), ended: false, output: Arc::default(), under: None }
    }

    /// The connection, if nothing that was read before waits.
    pub(crate) fn untouched(&self) -> Option<&IO> {
        self.under.as_ref().filter(|_| self.input.is_empty())
    }

    /// The connection.
    pub(crate) fn under(&self) -> Option<&IO> {
        self.under.as_ref()
    }
}

/// Ends a client's TLS. `network` is the client, or the network, that takes turns with others.
///
/// # Errors
/// Those of the connection and of TLS; `WouldBlock` if too many handshakes wait.
pub(crate) async fn accept<IO>(
    acceptor: &TlsAcceptor,
    network: IpAddr,
    mut under: IO,
) -> io::Result<TlsStream<Early<IO>>>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let before = Early::before();
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
        let (same, polled) = computed(network, handshake).await?;
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

/// What came of one step of a handshake, and the handshake.
type Step<IO> = (Accept<Early<IO>>, Poll<io::Result<TlsStream<Early<IO>>>>);

/// Has the thread for handshakes use what has come.
async fn computed<IO>(network: IpAddr, mut handshake: Accept<Early<IO>>) -> io::Result<Step<IO>>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, result) = oneshot::channel();
    let work = move || {
        // Whoever gave up in the meantime costs nothing.
        if !sender.is_closed() {
            let mut context = Context::from_waker(Waker::noop());
            let polled = Pin::new(&mut handshake).poll(&mut context);
            let _ = sender.send((handshake, polled));
        }
    };
    if !WORKSHOP.give(network, Box::new(work)) {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    result.await.map_err(|_| io::ErrorKind::BrokenPipe.into())
}

type Work = Box<dyn FnOnce() + Send>;

static WORKSHOP: Workshop = Workshop::new();

/// The thread for handshakes, and what waits for it.
struct Workshop {
    queue: Mutex<FairQueue<Work>>,
    filled: Condvar,
    opened: Once,
}

impl Workshop {
    const fn new() -> Self {
        Self { queue: Mutex::new(FairQueue::new()), filled: Condvar::new(), opened: Once::new() }
    }

    fn give(&'static self, network: IpAddr, work: Work) -> bool {
        self.opened.call_once(|| {
            let named = thread::Builder::new().name("handshakes".to_owned());
            if let Err(error) = named.spawn(|| self.run()) {
                tracing::error!("no thread for TLS handshakes: {error}");
            }
        });
        let taken = lock(&self.queue).push(network, work);
        self.filled.notify_one();
        taken
    }

    fn run(&self) {
        os::priority::run_behind();
        loop {
            let waiting = lock(&self.queue);
            let waits = |queue: &mut FairQueue<Work>| queue.is_empty();
            let waiting = self.filled.wait_while(waiting, waits);
            let work = waiting.unwrap_or_else(PoisonError::into_inner).pop();
            // A panic is one handshake's affair.
            let _ = work.map(|work| catch_unwind(AssertUnwindSafe(work)));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<IO: AsyncRead + Unpin> AsyncRead for Early<IO> {
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

impl<IO: AsyncWrite + Unpin> AsyncWrite for Early<IO> {
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
