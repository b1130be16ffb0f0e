//! An etcd with one member and no disk, for tests: the part of its JSON API that is used.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::sync::{broadcast, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use super::api::MemberConnection;

/// Who may ask.
#[derive(Default)]
pub(crate) struct FakeAccess {
    /// Asks for TLS.
    pub(crate) acceptor: Option<TlsAcceptor>,
    /// A user and a password.
    pub(crate) login: Option<(String, String)>,
    /// How often tokens have expired.
    pub(crate) expired: AtomicU64,
    /// Who watches is told something all the time, but no change.
    pub(crate) noise: bool,
}

impl FakeAccess {
    fn token(&self) -> String {
        format!("token.{}", self.expired.load(Ordering::Relaxed))
    }

    /// Answers a request that the store does not: somebody logs in, or must do so.
    fn answer(&self, path: &str, shown: &str, asked: &Value) -> Option<(u16, Value)> {
        let (user, password) = self.login.as_ref()?;
        if path != "/v3/auth/authenticate" {
            let known = shown == self.token();
            return (!known).then(|| (401, json!({ "error": "etcdserver: invalid auth token" })));
        }
        let known = asked["name"] == **user && asked["password"] == **password;
        Some(match known {
            true => (200, json!({ "header": {}, "token": self.token() })),
            false => (400, json!({ "error": "etcdserver: authentication failed" })),
        })
    }
}

/// A running member. Its connections end when it is dropped; what it holds can be given to another.
pub(crate) struct FakeMember {
    pub(crate) address: SocketAddr,
    pub(crate) store: FakeStore,
    _tasks: JoinSet<()>,
}

/// What it holds.
#[derive(Clone)]
pub(crate) struct FakeStore {
    held: Arc<Mutex<FakeState>>,
    changes: broadcast::Sender<Value>,
    /// The revision from which changes were asked for last.
    watched: watch::Sender<usize>,
}

#[derive(Clone)]
pub(crate) struct FakeState {
    revision: i64,
    /// Value and revision of each key.
    keys: BTreeMap<String, (String, i64)>,
    /// All changes, the first one of revision 1.
    changes: Vec<Value>,
}

impl FakeStore {
    pub(crate) fn new() -> Self {
        let held = FakeState { revision: 0, keys: BTreeMap::new(), changes: Vec::new() };
        Self {
            held: Arc::new(Mutex::new(held)),
            changes: broadcast::channel(64).0,
            watched: watch::channel(0).0,
        }
    }

    /// A copy of what it holds, to which it can return.
    pub(crate) fn backup(&self) -> FakeState {
        self.held.lock().unwrap().clone()
    }

    /// Returns to an earlier state. Connections stay.
    pub(crate) fn restore(&self, backup: FakeState) {
        *self.held.lock().unwrap() = backup;
    }

    /// The revision from which changes were asked for last.
    pub(crate) fn watched(&self) -> watch::Receiver<usize> {
        self.watched.subscribe()
    }

    pub(crate) fn put(&self, key: &str, value: &str) {
        self.change(&STANDARD.encode(key), Some(&STANDARD.encode(value)));
    }

    pub(crate) fn remove(&self, key: &str) {
        self.change(&STANDARD.encode(key), None);
    }

    pub(crate) fn get(&self, key: &str) -> Option<String> {
        let held = self.held.lock().unwrap();
        let (value, _) = held.keys.get(&STANDARD.encode(key))?;
        Some(String::from_utf8(STANDARD.decode(value).unwrap()).unwrap())
    }

    fn change(&self, key: &str, value: Option<&str>) -> bool {
        let mut held = self.held.lock().unwrap();
        held.revision += 1;
        let revision = held.revision;
        let before = match value {
            Some(value) => held.keys.insert(key.to_owned(), (value.to_owned(), revision)),
            None => held.keys.remove(key),
        };
        let mut change = json!({ "kv": { "key": key, "mod_revision": revision.to_string() } });
        match value {
            Some(value) => change["kv"]["value"] = value.into(),
            None => change["type"] = "DELETE".into(),
        }
        let told = json!({ "result": { "header": { "revision": revision.to_string() }, "events": [change] } });
        held.changes.push(told.clone());
        // Nobody may be watching.
        let _ = self.changes.send(told);
        before.is_some()
    }

    fn answer(&self, path: &str, asked: &Value) -> Value {
        match path {
            "/v3/kv/range" => self.range(asked),
            "/v3/kv/deleterange" => {
                let key = asked["key"].as_str().unwrap();
                let known = self.held.lock().unwrap().keys.contains_key(key);
                if known && self.change(key, None) {
                    json!({ "header": {}, "deleted": "1" })
                } else {
                    json!({ "header": {} })
                }
            }
            "/v3/kv/txn" => {
                let compare = &asked["compare"][0];
                let key = compare["key"].as_str().unwrap();
                let present =
                    self.held.lock().unwrap().keys.get(key).map(|(_, revision)| *revision);
                let wanted = match compare["target"].as_str().unwrap() {
                    "CREATE" => &compare["create_revision"],
                    _ => &compare["mod_revision"],
                };
                if *wanted != json!(present.unwrap_or(0).to_string()) {
                    return json!({ "header": {} });
                }
                let put = &asked["success"][0]["request_put"];
                self.change(key, put["value"].as_str());
                json!({ "header": {}, "succeeded": true })
            }
            other => panic!("nobody asks for {other}"),
        }
    }

    fn range(&self, asked: &Value) -> Value {
        let held = self.held.lock().unwrap();
        let bytes = |value: &Value| value.as_str().map(|text| STANDARD.decode(text).unwrap());
        let first = bytes(&asked["key"]).unwrap();
        let end = bytes(&asked["range_end"]);
        let is_in = |key: &&String| {
            let key = STANDARD.decode(key).unwrap();
            end.as_ref().map_or(key == first, |end| key >= first && key < *end)
        };
        let found = held.keys.keys().filter(is_in).map(|key| {
            let (value, revision) = &held.keys[key];
            json!({ "key": key, "value": value, "mod_revision": revision.to_string() })
        });
        let kvs: Vec<Value> = found.collect();
        let mut answer = json!({ "header": { "revision": held.revision.to_string() } });
        // It leaves out what is empty.
        if !kvs.is_empty() {
            answer["kvs"] = kvs.into();
        }
        answer
    }

    /// What a watch begins with, the changes from a revision on, and those to come.
    fn watch(&self, from: usize) -> (Value, Vec<Value>, broadcast::Receiver<Value>) {
        let held = self.held.lock().unwrap();
        let header = json!({ "revision": held.revision.to_string() });
        let created = json!({ "result": { "header": header, "created": true } });
        let past = held.changes.iter().skip(from.saturating_sub(1)).cloned().collect();
        self.watched.send_replace(from);
        (created, past, self.changes.subscribe())
    }
}

impl FakeMember {
    /// A member with this store, at a free port, or at this address.
    pub(crate) async fn start(store: FakeStore, at: Option<SocketAddr>) -> Self {
        Self::behind(Arc::default(), store, at).await
    }

    /// The same, for those that the door lets in.
    pub(crate) async fn behind(
        door: Arc<FakeAccess>,
        store: FakeStore,
        at: Option<SocketAddr>,
    ) -> Self {
        let at = at.unwrap_or_else(|| ([127, 0, 0, 1], 0).into());
        let listener = TcpListener::bind(at).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mut tasks, held) = (JoinSet::new(), store.clone());
        tasks.spawn(async move {
            let mut clients = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (store, door) = (held.clone(), door.clone());
                clients.spawn(async move {
                    match &door.acceptor {
                        Some(acceptor) => {
                            #[expect(clippy::disallowed_methods, reason = "a test's server")]
                            let secure = acceptor.accept(stream).await?;
                            serve(secure, &store, &door).await
                        }
                        None => serve(stream, &store, &door).await,
                    }
                });
            }
        });
        Self { address, store, _tasks: tasks }
    }
}

/// Answers one request.
async fn serve(
    stream: impl MemberConnection,
    store: &FakeStore,
    door: &FakeAccess,
) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let (mut path, mut length, mut shown) = (String::new(), 0, String::new());
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let line = line.trim().to_ascii_lowercase();
        if let Some(rest) = line.strip_prefix("post ") {
            path = rest.split(' ').next().unwrap().to_owned();
        } else if let Some(rest) = line.strip_prefix("content-length:") {
            length = rest.trim().parse().unwrap();
        } else if let Some(rest) = line.strip_prefix("authorization:") {
            shown = rest.trim().to_owned();
        } else if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let asked: Value = serde_json::from_slice(&body).unwrap();
    let at_door = door.answer(&path, &shown, &asked);
    if path == "/v3/watch" && at_door.is_none() {
        return match door.noise {
            true => noise(stream.into_inner()).await,
            false => watch(stream.into_inner(), store, &asked).await,
        };
    }
    let (status, answer) = at_door.unwrap_or_else(|| (200, store.answer(&path, &asked)));
    let answer = answer.to_string();
    let head = format!("HTTP/1.1 {status} Said\r\nContent-Length: {}\r\n\r\n", answer.len());
    stream.write_all((head + &answer).as_bytes()).await?;
    stream.shutdown().await
}

async fn watch(
    mut stream: impl MemberConnection,
    store: &FakeStore,
    asked: &Value,
) -> io::Result<()> {
    let from = &asked["create_request"]["start_revision"];
    let (created, past, mut coming) = store.watch(from.as_str().unwrap().parse().unwrap());
    stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await?;
    for line in std::iter::once(created).chain(past) {
        chunk(&mut stream, &line).await?;
    }
    while let Ok(line) = coming.recv().await {
        chunk(&mut stream, &line).await?;
    }
    Ok(())
}

async fn noise(mut stream: impl MemberConnection) -> io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await?;
    loop {
        chunk(&mut stream, &json!({ "result": {} })).await?;
        sleep(Duration::from_millis(100)).await;
    }
}

/// Sends a line in two chunks, as a network may.
async fn chunk(stream: &mut impl MemberConnection, line: &Value) -> io::Result<()> {
    let line = format!("{line}\n");
    for part in [&line[..line.len() / 2], &line[line.len() / 2..]] {
        stream.write_all(format!("{:x}\r\n{part}\r\n", part.len()).as_bytes()).await?;
    }
    stream.flush().await?;
    Ok(())
}
