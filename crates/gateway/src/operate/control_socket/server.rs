//! The gateway's end of the control socket.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use config::ControlPath;
use control::Role;
use control::protocol::{ControlAnswer, ControlRequest, MAX_REQUEST, read, write};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::path::default_path;
use crate::network::connection_slots::{ConnectionSlots, HeldSlot};
use crate::process::clock;
use crate::process::error::RunError;

/// Maximum number of concurrent clients. Beyond it the client that has been idle longest is
/// disconnected, of the user with the most clients; while all are busy, new ones wait.
const MAX_CLIENTS: usize = 16;
/// Interval of trying again to admit a waiting client.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Idle clients are disconnected after this time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Read and write for the owner and the group.
const MODE: u32 = 0o660;

/// A request, and the channel for its answer.
#[derive(Debug)]
pub(crate) struct ControlCall {
    pub(crate) request: ControlRequest,
    reply: oneshot::Sender<ControlAnswer>,
}

impl ControlCall {
    /// A request from within this process, and the receiver of its answer.
    pub(crate) fn new(request: ControlRequest) -> (Self, oneshot::Receiver<ControlAnswer>) {
        let (reply, answer) = oneshot::channel();
        (Self { request, reply }, answer)
    }

    pub(crate) fn answer(self, answer: ControlAnswer) {
        // The requester may have gone.
        let _ = self.reply.send(answer);
    }
}

/// The control socket of a running gateway. Removed when dropped.
#[derive(Debug)]
pub(crate) struct ControlServer {
    path: PathBuf,
    inode: u64,
    _tasks: JoinSet<()>,
}

impl ControlServer {
    /// Listens on the configured path and passes requests to `calls`. Returns `None`, and logs it,
    /// if no default path is usable.
    ///
    /// # Errors
    /// The configured path cannot be used.
    pub(crate) fn start(
        place: &ControlPath,
        role: Role,
        calls: mpsc::Sender<ControlCall>,
    ) -> Result<Option<Self>, RunError> {
        let (path, insist) = match place {
            ControlPath::None => return Ok(None),
            ControlPath::At(path) => (Ok(path.clone()), true),
            ControlPath::Usual => (default_path(role).map_err(io::Error::other), false),
        };
        let listener = path.and_then(|path| Ok((bind(&path)?, path)));
        match listener {
            Ok((listener, path)) => {
                let inode = fs::symlink_metadata(&path).map_or(0, |metadata| metadata.ino());
                tracing::info!("control socket: {}", path.display());
                let mut tasks = JoinSet::new();
                tasks.spawn(accept(listener, calls));
                Ok(Some(Self { path, inode, _tasks: tasks }))
            }
            Err(cause) if insist => {
                let ControlPath::At(path) = place else {
                    unreachable!("only a place is insisted on")
                };
                Err(RunError::Control { path: path.clone(), cause })
            }
            Err(error) => {
                tracing::warn!("no control socket: {error}");
                Ok(None)
            }
        }
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        // By inode: another process may have replaced the socket since.
        if fs::symlink_metadata(&self.path).is_ok_and(|metadata| metadata.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Binds the socket, replacing one left by a dead process.
fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Ok(metadata) = fs::symlink_metadata(path) {
        if !metadata.file_type().is_socket() {
            return Err(problem(io::ErrorKind::AlreadyExists, path, "exists and is not a socket"));
        }
        match BlockingStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                // Nothing listens: its process ended without removing it.
                fs::remove_file(path)?;
            }
            Ok(_) => {
                return Err(problem(
                    io::ErrorKind::AddrInUse,
                    path,
                    "belongs to a running gateway",
                ));
            }
            Err(error) => return Err(error),
        }
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(MODE))?;
    Ok(listener)
}

fn problem(kind: io::ErrorKind, path: &Path, what: &str) -> io::Error {
    io::Error::new(kind, format!("{} {what}", path.display()))
}

async fn accept(listener: UnixListener, calls: mpsc::Sender<ControlCall>) {
    let mut clients = JoinSet::new();
    let slots = ConnectionSlots::new(MAX_CLIENTS, MAX_CLIENTS);
    loop {
        // The set keeps tasks that have ended until they are joined.
        while clients.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                let calls = calls.clone();
                let user = stream.peer_cred().ok().map(|peer| peer.uid());
                let slot = take(&slots, user).await;
                slots.serve(&mut clients, slot, async move |slot| {
                    // The client has disconnected.
                    let _ = serve(stream, &calls, &slot).await;
                });
            }
            // Usually out of descriptors, which passes.
            Err(_) => sleep(RETRY_INTERVAL).await,
        }
    }
}

/// Waits for a slot for a client of this user.
async fn take(slots: &ConnectionSlots<Option<u32>>, user: Option<u32>) -> HeldSlot<Option<u32>> {
    loop {
        if let Some(slot) = slots.take(clock::now(), user) {
            return slot;
        }
        sleep(RETRY_INTERVAL).await;
    }
}

async fn serve(
    stream: UnixStream,
    calls: &mpsc::Sender<ControlCall>,
    slot: &HeldSlot<Option<u32>>,
) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = Vec::new();
        let mut limited = (&mut reader).take(MAX_REQUEST);
        let reading = limited.read_until(b'\n', &mut line);
        match timeout(IDLE_TIMEOUT, reading).await {
            Ok(Ok(1..)) => {}
            _ => return Ok(()),
        }
        // A client that waits for the gateway is not to give way to another.
        slot.set_busy(true);
        let answer = match read::<ControlRequest>(&line) {
            Ok(request) => ask(request, calls).await,
            Err(problem) => ControlAnswer::Error(problem),
        };
        // From here on it may be disconnected: a client that does not read is idle, too.
        slot.set_busy(false);
        timeout(IDLE_TIMEOUT, writer.write_all(&write(&answer))).await??;
        // Too long, or cut off by the client: what follows is no request.
        if !line.ends_with(b"\n") {
            return Ok(());
        }
    }
}

async fn ask(request: ControlRequest, calls: &mpsc::Sender<ControlCall>) -> ControlAnswer {
    let (call, answer) = ControlCall::new(request);
    let gone = || ControlAnswer::Error("the gateway is stopping".to_owned());
    if calls.send(call).await.is_err() {
        return gone();
    }
    answer.await.unwrap_or_else(|_| gone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operate::control_socket::ControlClient;

    /// Length of an answer that no socket's buffer holds.
    const LONG: usize = 4 << 20;

    async fn answering(mut calls: mpsc::Receiver<ControlCall>) {
        while let Some(call) = calls.recv().await {
            let answer = match &call.request {
                ControlRequest::Reload => ControlAnswer::Error("no".to_owned()),
                ControlRequest::Accounts => ControlAnswer::Done(vec!["x".repeat(LONG)]),
                request => ControlAnswer::Done(vec![format!("{request:?}")]),
            };
            call.answer(answer);
        }
    }

    fn start(path: &Path) -> Result<ControlServer, RunError> {
        let (sender, calls) = mpsc::channel(4);
        let place = ControlPath::At(path.to_owned());
        let server = ControlServer::start(&place, Role::Hub, sender)?;
        tokio::spawn(answering(calls));
        Ok(server.expect("a named place is insisted on"))
    }

    /// Runs a request in its own thread, as another process would.
    async fn asked<R: Send + 'static>(ask: impl FnOnce() -> R + Send + 'static) -> R {
        tokio::task::spawn_blocking(ask).await.unwrap()
    }

    async fn assert_served(path: &Path) {
        let there = path.to_owned();
        let answer = asked(move || {
            ControlClient::connect(&there)
                .unwrap()
                .ask(&ControlRequest::Status { connections: false })
        });
        assert!(matches!(answer.await, Ok(ControlAnswer::Done(_))));
    }

    #[tokio::test]
    async fn several_requests_are_answered_on_one_connection() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let server = start(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        let there = path.clone();
        asked(move || {
            let mut control = ControlClient::connect(&there).unwrap();
            for connections in [false, true] {
                let answer = control.ask(&ControlRequest::Status { connections }).unwrap();
                let ControlAnswer::Done(said) = answer else { panic!("{answer:?}") };
                assert!(said[0].contains(&connections.to_string()));
            }
            assert_eq!(control.ask(&ControlRequest::Reload).unwrap_err().to_string(), "no");
        })
        .await;
        drop(server);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_living_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let server = start(&path).unwrap();
        let error = start(&path).unwrap_err().to_string();
        assert!(error.contains("running gateway"), "{error}");
        assert!(path.exists());
        drop(server);
        fs::write(&path, "precious").unwrap();
        let error = start(&path).unwrap_err().to_string();
        assert!(error.contains("not a socket"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[tokio::test]
    async fn silent_clients_shut_no_other_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let _server = start(&path).unwrap();
        let mut silent = Vec::new();
        for _ in 0..3 * MAX_CLIENTS {
            silent.push(UnixStream::connect(&path).await.unwrap());
        }
        assert_served(&path).await;
        // The oldest has given way.
        assert_eq!(silent[0].read(&mut [0]).await.unwrap(), 0);
    }

    /// A client that asks for a long answer, which begins to arrive and is not read.
    async fn deaf(path: &Path) -> UnixStream {
        let mut stream = UnixStream::connect(path).await.unwrap();
        stream.write_all(&write(&ControlRequest::Accounts)).await.unwrap();
        stream.readable().await.unwrap();
        stream
    }

    #[tokio::test]
    async fn clients_that_do_not_read_their_answers_shut_no_other_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let _server = start(&path).unwrap();
        let mut deaf_clients = Vec::new();
        for _ in 0..MAX_CLIENTS {
            deaf_clients.push(deaf(&path).await);
        }
        assert_served(&path).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_its_answer_is_disconnected_in_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let _server = start(&path).unwrap();
        let mut client = deaf(&path).await;
        sleep(2 * IDLE_TIMEOUT).await;
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        assert!(answer.len() < LONG, "{} bytes", answer.len());
    }

    #[tokio::test]
    async fn nonsense_is_answered() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let _server = start(&path).unwrap();
        for (said, told) in [
            ("hello\n", "cannot parse"),
            ("{\"skyhop\":9,\"say\":1}\n", "version 9"),
            ("no newline", "cannot parse"),
        ] {
            let mut stream = UnixStream::connect(&path).await.unwrap();
            stream.write_all(said.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.contains(told), "{said}: {answer}");
        }
    }
}
