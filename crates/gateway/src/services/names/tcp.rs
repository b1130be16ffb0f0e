//! DNS over TCP (RFC 7766).

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use names::{NonQuestion, Question};
use pep::work::inbox::Inbox;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::{sleep, timeout};

use super::driver::{QuestionClient, QuestionQueue};

/// Idle limit of a connection (RFC 7766 §6.2.3): longer than any answer takes. Parts of a message
/// do not count, so that a client cannot hold its slot with a byte now and then.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// Limit of a connection's open questions: no more are read until the client reads answers.
const MAX_OPEN: usize = 64;
/// Size of a read, in bytes: questions are short.
const READ_SIZE: usize = 2048;

/// The client of a question, and the way it came.
#[derive(Debug, Clone, Copy)]
pub(super) struct QuestionOrigin {
    pub(super) client: SocketAddr,
    /// The resolver that the client has addressed, if not this one.
    pub(super) resolver: Option<SocketAddr>,
    /// Interception also takes this client's connections, so that it may get pool addresses.
    pub(super) intercepted: bool,
}

/// Splits a byte stream into messages by their length prefixes.
#[derive(Debug, Default)]
pub(super) struct MessageReader(Inbox);

impl MessageReader {
    /// Returns the next complete message without consuming it.
    fn peek(&self) -> Option<&[u8]> {
        let unused = self.0.unused();
        let length = usize::from(u16::from_be_bytes(*unused.first_chunk()?));
        unused.get(2..2 + length)
    }

    /// Takes the next complete message.
    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        let message = self.peek()?.to_vec();
        self.0.consume(2 + message.len());
        Some(message)
    }

    /// Returns all bytes that were read and not consumed.
    pub(super) fn rest(mut self) -> Vec<u8> {
        self.0.take()
    }

    /// Reads more bytes. Returns `false` at the end. Cancel-safe.
    pub(super) async fn read(
        &mut self,
        socket: &mut (impl AsyncReadExt + Unpin),
    ) -> io::Result<bool> {
        let mut piece = [0; READ_SIZE];
        let count = socket.read(&mut piece).await?;
        self.0.push(&piece[..count]);
        Ok(count > 0)
    }
}

/// Answers a client's questions until it closes the connection, or is idle. `framing` has the bytes
/// that were read already.
pub(super) async fn answer_questions(
    queue: Arc<QuestionQueue>,
    socket: impl AsyncRead + AsyncWrite,
    origin: QuestionOrigin,
    framing: MessageReader,
) {
    let (sender, answers) = channel(MAX_OPEN);
    let number = queue.next_connection();
    let ask = |message: Vec<u8>| {
        let id = message.first_chunk().map_or(0, |id| u16::from_be_bytes(*id));
        let asker = QuestionClient::Tcp { connection: number, id, answers: sender.clone() };
        queue.ask(asker, origin, &message);
    };
    // The client sees an error by the end of the connection.
    let _ = serve(socket, framing, answers, ask).await;
}

async fn serve(
    socket: impl AsyncRead + AsyncWrite,
    mut framing: MessageReader,
    mut answers: Receiver<Vec<u8>>,
    ask: impl Fn(Vec<u8>),
) -> io::Result<()> {
    let socket = pin!(socket);
    let (mut reader, mut writer) = split(socket);
    let mut open = true;
    let mut waiting = 0_usize;
    let mut limit = pin!(sleep(IDLE_TIMEOUT));
    // A client may end its direction and still wait for answers.
    while open || waiting > 0 {
        while waiting < MAX_OPEN
            && let Some(message) = framing.next()
        {
            waiting += 1;
            limit.set(sleep(IDLE_TIMEOUT));
            ask(message);
        }
        let has_room = open && waiting < MAX_OPEN;
        tokio::select! {
            read = framing.read(&mut reader), if has_room => open = read?,
            Some(answer) = answers.recv() => {
                waiting = waiting.saturating_sub(1);
                let written = timeout(IDLE_TIMEOUT, write(&mut writer, &answer)).await;
                written.map_err(io::Error::other)??;
                limit.set(sleep(IDLE_TIMEOUT));
            }
            () = limit.as_mut() => return Err(io::ErrorKind::TimedOut.into()),
        }
    }
    writer.shutdown().await
}

async fn write(writer: &mut (impl AsyncWrite + Unpin), answer: &[u8]) -> io::Result<()> {
    let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
    writer.write_all(&[&length.to_be_bytes()[..], answer].concat()).await?;
    // TLS may hold back a part.
    writer.flush().await
}

/// Reads the first message of a connection. Returns `true` with it if only the addressed server can
/// answer; [`None`] if no message comes.
pub(super) async fn read_first(socket: &mut TcpStream) -> Option<(MessageReader, bool)> {
    let mut framing = MessageReader::default();
    let read = timeout(IDLE_TIMEOUT, async {
        while framing.peek().is_none() {
            if !framing.read(socket).await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok::<_, io::Error>(())
    });
    read.await.ok()?.ok()?;
    let is_foreign = framing.peek().map(Question::parse);
    let is_foreign = matches!(is_foreign, Some(Err(NonQuestion::Foreign)));
    Some((framing, is_foreign))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_come_whole_however_they_are_cut() {
        let said = [&[0, 3][..], b"one", &[0, 0, 0, 5], b"three", &[0]].concat();
        for size in 1..said.len() {
            let (mut framing, mut found) = (MessageReader::default(), Vec::new());
            for piece in said.chunks(size) {
                assert!(framing.read(&mut &piece[..]).await.unwrap());
                found.extend(std::iter::from_fn(|| framing.next()));
            }
            assert_eq!(found, [&b"one"[..], b"", b"three"]);
            assert_eq!(framing.rest(), [0]);
        }
    }

    /// Says a piece every `pause`, `times` times, to a conversation that gives no answers: the
    /// messages that were asked, and how long the conversation lasted.
    async fn drip(piece: &'static [u8], pause: Duration, times: usize) -> (usize, Duration) {
        let (mut client, server) = tokio::io::duplex(READ_SIZE);
        let (_sender, answers) = channel(1);
        let asked = std::cell::Cell::new(0);
        let ask = |_: Vec<u8>| asked.set(asked.get() + 1);
        let conversation = serve(server, MessageReader::default(), answers, ask);
        let client = async {
            for _ in 0..times {
                client.write_all(piece).await?;
                sleep(pause).await;
            }
            std::future::pending::<io::Result<()>>().await
        };
        let began = tokio::time::Instant::now();
        tokio::select! {
            ended = conversation => assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut),
            ended = client => panic!("the client ends: {ended:?}"),
        }
        (asked.get(), began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_must_come_whole_in_time() {
        // A message of 65,535 bytes.
        let (asked, lasted) = drip(&[0xff], Duration::from_secs(1), 1000).await;
        assert_eq!(asked, 0);
        assert!(
            lasted >= IDLE_TIMEOUT && lasted < IDLE_TIMEOUT + Duration::from_secs(1),
            "{lasted:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn whole_messages_keep_a_conversation_open() {
        let (asked, lasted) = drip(&[0, 1, 7], Duration::from_secs(10), 4).await;
        assert_eq!(asked, 4);
        assert!(lasted >= Duration::from_secs(30) + IDLE_TIMEOUT, "{lasted:?}");
    }
}
