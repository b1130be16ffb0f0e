use std::fs::Permissions;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use config::{EtcdConfig, EtcdLogin, EtcdTls, TlsFiles};
use hyper::StatusCode;
use nix::sys::statvfs::{Statvfs, statvfs};
use os::testkit::skip;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch::{self, Receiver};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::fake::{FakeAccess, FakeMember, FakeStore};
use super::follow::follow_with_interval;
use super::{EtcdClient, EtcdError, PermitCache, PermitTexts, follow};
use crate::network::tls;

/// A client of members at these addresses.
fn client(members: &[SocketAddr]) -> EtcdClient {
    EtcdClient::new(&config(members))
}

fn config(members: &[SocketAddr]) -> EtcdConfig {
    let members = members.iter().map(|at| at.to_string().parse().unwrap()).collect();
    EtcdConfig { members, prefix: "/ships/".to_owned(), tls: None, login: None }
}

fn texts(all: &[(&str, &str)]) -> PermitTexts {
    all.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

/// Waits until the permits are these.
async fn becomes(followed: &mut Receiver<Option<PermitTexts>>, all: &[(&str, &str)]) {
    let wanted = Some(texts(all));
    let wait = Duration::from_secs(20);
    let found = timeout(wait, followed.wait_for(|permits| *permits == wanted)).await;
    let seen = found.is_ok_and(|found| found.is_ok());
    assert!(seen, "{:?} and not {wanted:?}", followed.borrow());
}

#[tokio::test]
async fn permits_are_written_once_changed_knowingly_and_removed() {
    let fake = FakeMember::start(FakeStore::new(), None).await;
    let etcd = client(&[fake.address]);
    assert_eq!(etcd.read().await.unwrap(), PermitTexts::new());
    etcd.put("ship", None, "one").await.unwrap();
    assert!(matches!(etcd.put("ship", None, "two").await, Err(EtcdError::Conflict)));
    let kept = etcd.get("ship").await.unwrap().unwrap();
    etcd.put("ship", Some(&kept), "three").await.unwrap();
    assert!(matches!(etcd.put("ship", Some(&kept), "four").await, Err(EtcdError::Conflict)));
    assert_eq!(fake.store.get("/ships/ship").unwrap(), "three");
    // What others keep beside it is nobody's permit.
    fake.store.put("/ships0", "x");
    fake.store.put("/other/ship", "x");
    assert_eq!(etcd.read().await.unwrap(), texts(&[("ship", "three")]));
    assert!(etcd.remove("ship").await.unwrap() && !etcd.remove("ship").await.unwrap());
    assert_eq!(etcd.get("ship").await.unwrap(), None);
}

/// Closes two connections to an address at once. Whoever makes the second knows that the first has failed.
async fn turn_away_twice(address: SocketAddr) {
    let listener = TcpListener::bind(address).await.unwrap();
    for _ in 0..2 {
        let arriving = timeout(Duration::from_secs(20), listener.accept());
        drop(arriving.await.expect("somebody tries again").unwrap());
    }
}

/// Its changes have other revisions than those that the former watch waits for.
#[tokio::test]
async fn a_store_that_returns_to_an_earlier_state_is_followed_from_there() {
    let fake = FakeMember::start(FakeStore::new(), None).await;
    let (store, mut watched) = (fake.store.clone(), fake.store.watched());
    store.put("/ships/a", "1");
    let backup = store.backup();
    store.put("/ships/b", "2");
    let (to, mut followed) = watch::channel(None);
    let often = Duration::from_millis(100);
    let task = tokio::spawn(follow_with_interval(client(&[fake.address]), to, often));
    becomes(&mut followed, &[("a", "1"), ("b", "2")]).await;
    for (backup, next) in [(None, 3), (Some(backup), 2)] {
        backup.into_iter().for_each(|backup| store.restore(backup));
        let asked = timeout(Duration::from_secs(20), watched.wait_for(|from| *from == next)).await;
        assert!(asked.is_ok(), "nobody asks for the changes from {next} on");
    }
    store.put("/ships/c", "3");
    becomes(&mut followed, &[("a", "1"), ("c", "3")]).await;
    task.abort();
}

#[tokio::test]
async fn changes_are_followed_and_nothing_changes_while_etcd_is_away() {
    let fake = FakeMember::start(FakeStore::new(), None).await;
    fake.store.put("/ships/a", "1");
    let (to, mut followed) = watch::channel(None);
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let task = tokio::spawn(follow(client(&[nobody, fake.address]), to));
    becomes(&mut followed, &[("a", "1")]).await;
    fake.store.put("/ships/b", "2");
    becomes(&mut followed, &[("a", "1"), ("b", "2")]).await;
    fake.store.remove("/ships/a");
    becomes(&mut followed, &[("b", "2")]).await;

    let (address, store) = (fake.address, fake.store.clone());
    drop(fake);
    store.put("/ships/c", "3");
    store.remove("/ships/b");
    tokio::task::yield_now().await;
    turn_away_twice(address).await;
    assert!(!followed.has_changed().unwrap(), "{:?}", followed.borrow());
    let fake = FakeMember::start(store, Some(address)).await;
    becomes(&mut followed, &[("c", "3")]).await;
    fake.store.put("/ships/c", "4");
    becomes(&mut followed, &[("c", "4")]).await;
    task.abort();
}

/// Files of a test, with the certificate of a member at 127.0.0.1.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        let mut wanted = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        // etcd refuses one with a common name on its HTTP API if users have passwords.
        wanted.distinguished_name = rcgen::DistinguishedName::new();
        let key = rcgen::KeyPair::generate().unwrap();
        files.write("member.pem", &wanted.self_signed(&key).unwrap().pem());
        files.write("member-key.pem", &key.serialize_pem());
        files
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        path
    }

    fn member(&self) -> TlsFiles {
        let at = |name| self.0.path().join(name);
        TlsFiles { certificate: at("member.pem"), key: at("member-key.pem") }
    }
}

#[tokio::test]
async fn a_member_must_prove_who_it_is() {
    let (files, others) = (Files::new(), Files::new());
    let acceptor = Some(tls::acceptor(&files.member()).unwrap());
    let door = Arc::new(FakeAccess { acceptor, ..FakeAccess::default() });
    let fake = FakeMember::behind(door, FakeStore::new(), None).await;
    fake.store.put("/ships/a", "1");
    let client = |authorities: &Files| {
        let authorities = Some(authorities.member().certificate);
        // What the hub shows is not asked for.
        let tls = EtcdTls { authorities, identity: Some(files.member()) };
        EtcdClient::new(&EtcdConfig { tls: Some(tls), ..config(&[fake.address]) })
    };
    assert_eq!(client(&files).read().await.unwrap(), texts(&[("a", "1")]));
    let (to, mut followed) = watch::channel(None);
    let task = tokio::spawn(follow(client(&files), to));
    becomes(&mut followed, &[("a", "1")]).await;
    fake.store.put("/ships/b", "2");
    becomes(&mut followed, &[("a", "1"), ("b", "2")]).await;
    task.abort();

    let unknown = client(&others).read().await.unwrap_err();
    assert!(unknown.to_string().contains("invalid peer certificate"), "{unknown}");
    std::fs::remove_file(others.member().certificate).unwrap();
    assert!(matches!(client(&others).read().await, Err(EtcdError::BadFile(_))));
}

#[tokio::test]
async fn who_has_a_password_logs_in_and_again_when_the_token_has_expired() {
    let files = Files::new();
    let login = Some(("hub".to_owned(), "secret".to_owned()));
    let door = Arc::new(FakeAccess { login, ..FakeAccess::default() });
    let fake = FakeMember::behind(door.clone(), FakeStore::new(), None).await;
    fake.store.put("/ships/a", "1");
    let password_file = files.write("password", "secret\n");
    let login = Some(EtcdLogin { user: "hub".to_owned(), password_file: password_file.clone() });
    let etcd = EtcdClient::new(&EtcdConfig { login, ..config(&[fake.address]) });
    for _ in 0..2 {
        assert_eq!(etcd.read().await.unwrap(), texts(&[("a", "1")]));
        door.expired.fetch_add(1, Ordering::Relaxed);
    }
    assert!(matches!(
        client(&[fake.address]).read().await,
        Err(EtcdError::Refused { status: StatusCode::UNAUTHORIZED, .. })
    ));
    files.write("password", "wrong");
    let refused = etcd.read().await.unwrap_err().to_string();
    assert!(refused.contains("authentication failed"), "{refused}");
    std::fs::set_permissions(&password_file, Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(etcd.read().await, Err(EtcdError::BadFile(_))));
}

/// A directory for an etcd, in memory if it fits: a write that waits for a busy disk takes longer than a client
/// waits for its answer.
fn data_directory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let preallocated_log = 64_000_000;
    let has_room =
        |free: Statvfs| free.blocks_available() * free.fragment_size() > 3 * preallocated_log;
    let in_memory = statvfs(memory).is_ok_and(has_room).then(|| tempfile::tempdir_in(memory));
    in_memory.and_then(Result::ok).unwrap_or_else(|| tempfile::tempdir().unwrap())
}

/// An etcd of this machine, at a port without TLS and at one with it.
struct Real {
    process: Child,
    _data: tempfile::TempDir,
    plain: SocketAddr,
    tls: SocketAddr,
}

impl Real {
    /// [`None`] if there is none on this machine.
    async fn start(files: &Files) -> Option<Self> {
        let free = || TcpListener::bind("127.0.0.1:0");
        // They are given up before etcd takes them.
        let ports = [free().await.unwrap(), free().await.unwrap(), free().await.unwrap()];
        let [plain, tls, peers] = ports.map(|listener| listener.local_addr().unwrap());
        let (clients, member) = (format!("http://{plain},https://{tls}"), files.member());
        let mut etcd = Command::new("etcd");
        let data = data_directory();
        etcd.arg("--data-dir").arg(data.path());
        etcd.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        etcd.args(["--listen-peer-urls", &format!("http://{peers}")]);
        etcd.arg("--cert-file").arg(&member.certificate).arg("--key-file").arg(&member.key);
        etcd.arg("--trusted-ca-file").arg(&member.certificate).arg("--client-cert-auth");
        // Hashed with the usual cost, eight passwords take a busy machine a second.
        etcd.args(["--bcrypt-cost", "4"]);
        etcd.env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH);
        let process = etcd.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
        let real = Self { process, _data: data, plain, tls };
        let (to, mut followed) = watch::channel(None);
        let task = tokio::spawn(follow(client(&[plain]), to));
        becomes(&mut followed, &[]).await;
        task.abort();
        Some(real)
    }

    /// Lets only users in from now on, one of whom may change permits.
    async fn demand_passwords(&self, user: &str, password: &str) {
        let plain = client(&[self.plain]);
        let permits = json!({
            "permType": "READWRITE",
            "key": STANDARD.encode("/ships/"),
            "range_end": STANDARD.encode("/ships0"),
        });
        for (path, asked) in [
            ("user/add", json!({ "name": "root", "password": "of all" })),
            ("role/add", json!({ "name": "root" })),
            ("user/grant", json!({ "user": "root", "role": "root" })),
            ("user/add", json!({ "name": user, "password": password })),
            ("role/add", json!({ "name": "permits" })),
            ("role/grant", json!({ "name": "permits", "perm": permits })),
            ("user/grant", json!({ "user": user, "role": "permits" })),
            ("enable", json!({})),
        ] {
            let _: Value = plain.ask(&format!("/v3/auth/{path}"), &asked).await.unwrap();
        }
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn a_real_etcd_takes_our_certificate_and_password() {
    let files = Files::new();
    let Some(real) = Real::start(&files).await else { return skip("no etcd") };
    real.demand_passwords("hub", "secret").await;
    let password_file = files.write("password", "secret");
    let login = Some(EtcdLogin { user: "hub".to_owned(), password_file });
    let authorities = Some(files.member().certificate);
    let secured = |identity| EtcdConfig {
        tls: Some(EtcdTls { authorities: authorities.clone(), identity }),
        login: login.clone(),
        ..config(&[real.tls])
    };
    let etcd = EtcdClient::new(&secured(Some(files.member())));
    etcd.put("ship", None, "one").await.unwrap();
    let (to, mut followed) = watch::channel(None);
    let task = tokio::spawn(follow(etcd.clone(), to));
    becomes(&mut followed, &[("ship", "one")]).await;
    assert!(etcd.remove("ship").await.unwrap());
    becomes(&mut followed, &[]).await;
    task.abort();
    // Without the one or the other it says no.
    assert!(EtcdClient::new(&secured(None)).read().await.is_err());
    let nobody = EtcdConfig { login: None, ..secured(Some(files.member())) };
    let refused = EtcdClient::new(&nobody).read().await.unwrap_err();
    assert!(matches!(refused, EtcdError::Refused { .. }), "{refused}");
}

/// What a client makes of a member that answers with these bytes.
async fn answered(bytes: &'static [u8]) -> EtcdError {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let etcd = client(&[listener.local_addr().unwrap()]);
    let member = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).await;
        stream.write_all(bytes).await.unwrap();
    });
    let error = etcd.read().await.unwrap_err();
    member.await.unwrap();
    error
}

#[tokio::test]
async fn answers_that_make_no_sense_are_errors() {
    for (answer, told) in [
        (&b""[..], "etcd at 127.0.0.1"),
        (b"SSH-2.0-x\r\n", "etcd at 127.0.0.1"),
        (b"HTTP/1.1 503 No\r\nContent-Length: 5\r\n\r\nlater", "503 Service Unavailable: later"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "cannot be reached"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "missing field `header`"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n{\"header\":{\"revision\":\"many\"}}",
            "is no number",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 39\r\n\r\n{\"header\":{},\"kvs\":[{\"key\":\"?\"}],\"a\":1}",
            "makes no sense",
        ),
    ] {
        let error = answered(answer).await.to_string();
        assert!(error.contains(told), "{told}: {error}");
    }
}

/// What a broken member does with a connection.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// It says nothing.
    Silence,
    /// It says this, and then nothing.
    Stalls(&'static str),
    /// It says the first, and then the second for ever.
    Endless(&'static str, &'static str),
}

/// A member that is broken.
struct Broken {
    address: SocketAddr,
    /// Connections so far, and those still there.
    counts: Receiver<[usize; 2]>,
    _tasks: JoinSet<()>,
}

impl Broken {
    async fn start(fault: Fault) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mut tasks, (counter, counts)) = (JoinSet::new(), watch::channel([0, 0]));
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                counter.send_modify(|counts| *counts = counts.map(|count| count + 1));
                let counter = counter.clone();
                connections.spawn(async move {
                    let _ = fault.serve(stream).await;
                    counter.send_modify(|[_, open]| *open -= 1);
                });
            }
        });
        Self { address, counts, _tasks: tasks }
    }
}

impl Fault {
    /// Serves a connection until the other end closes it.
    async fn serve(self, stream: TcpStream) -> io::Result<()> {
        let (mut reader, mut writer) = stream.into_split();
        let (beginning, rest) = match self {
            Self::Silence => ("", ""),
            Self::Stalls(beginning) => (beginning, ""),
            Self::Endless(beginning, rest) => (beginning, rest),
        };
        let write = async {
            writer.write_all(beginning.as_bytes()).await?;
            while !rest.is_empty() {
                writer.write_all(rest.repeat(1000).as_bytes()).await?;
            }
            std::future::pending().await
        };
        let read = async { tokio::io::copy(&mut reader, &mut tokio::io::sink()).await };
        tokio::select! {
            written = write => written,
            read = read => read.map(|_| ()),
        }
    }
}

const FAULTS: [Fault; 9] = [
    Fault::Silence,
    Fault::Stalls("HTTP/1.1 200 OK\r\nContent-Le"),
    Fault::Stalls("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"header\":"),
    Fault::Stalls("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"),
    Fault::Stalls("HTTP/1.1 503 No\r\nContent-Length: 100\r\n\r\nno lea"),
    Fault::Endless("", "SSH-2.0-x\r\n"),
    Fault::Endless("HTTP/1.1 200 OK\r\n", "X-More: and more\r\n"),
    Fault::Endless("", "HTTP/1.1 100 Continue\r\n\r\n"),
    Fault::Endless("HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n", "2\r\n{}\r\n"),
];

#[tokio::test]
async fn a_broken_member_takes_time_once_and_keeps_no_connection() {
    let mut tasks = JoinSet::new();
    for fault in FAULTS {
        tasks.spawn(async move {
            let (mut broken, fake) =
                (Broken::start(fault).await, FakeMember::start(FakeStore::new(), None).await);
            let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
            let etcd = client(&[broken.address, nobody, fake.address]);
            etcd.put("ship", None, "1").await.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
            // A terminal has 20 s to join, which takes two requests.
            let kept = etcd.get("ship").await.unwrap().unwrap();
            etcd.put("ship", Some(&kept), "2").await.unwrap();
            let (to, mut followed) = watch::channel(None);
            let task = tokio::spawn(follow(etcd.clone(), to));
            becomes(&mut followed, &[("ship", "2")]).await;
            fake.store.put("/ships/other", "3");
            becomes(&mut followed, &[("ship", "2"), ("other", "3")]).await;
            task.abort();
            assert_eq!(broken.counts.borrow()[0], 1, "{fault:?}: it is not asked again");
            let is_closed = broken.counts.wait_for(|[_, open]| *open == 0);
            let closed = timeout(Duration::from_secs(10), is_closed).await;
            assert!(matches!(closed, Ok(Ok(_))), "{fault:?}: its connection stays");
        });
    }
    tasks.join_all().await;
}

/// A member that hands all it hears to another, and says nothing.
async fn mute(other: SocketAddr) -> (SocketAddr, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, mut tasks) = (listener.local_addr().unwrap(), JoinSet::new());
    tasks.spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let mut far = TcpStream::connect(other).await.unwrap();
            let ((mut requests, _), (mut answers, mut to)) = (near.split(), far.split());
            let mut nothing = tokio::io::sink();
            let forward = tokio::io::copy(&mut requests, &mut to);
            let swallow = tokio::io::copy(&mut answers, &mut nothing);
            let _ = tokio::join!(forward, swallow);
        }
    });
    (address, tasks)
}

#[tokio::test]
async fn a_permit_that_was_written_without_an_answer_is_written() {
    let fake = FakeMember::start(FakeStore::new(), None).await;
    let (address, _tasks) = mute(fake.address).await;
    let etcd = client(&[address, fake.address]);
    etcd.put("ship", None, "1").await.unwrap();
    assert_eq!(fake.store.get("/ships/ship").unwrap(), "1");
    assert!(matches!(etcd.put("ship", None, "2").await, Err(EtcdError::Conflict)));
}

#[tokio::test]
async fn a_member_that_tells_something_else_for_ever_hides_no_change() {
    let door = Arc::new(FakeAccess { noise: true, ..FakeAccess::default() });
    let fake = FakeMember::behind(door, FakeStore::new(), None).await;
    fake.store.put("/ships/a", "1");
    let (to, mut followed) = watch::channel(None);
    let every = Duration::from_secs(1);
    let task = tokio::spawn(follow_with_interval(client(&[fake.address]), to, every));
    becomes(&mut followed, &[("a", "1")]).await;
    fake.store.remove("/ships/a");
    becomes(&mut followed, &[]).await;
    task.abort();
}

#[test]
fn permits_are_saved_for_a_start_without_etcd() {
    let directory = tempfile::tempdir().unwrap();
    let cache = PermitCache::new(directory.path());
    assert_eq!(cache.load(), None);
    let permits = texts(&[("a", "1")]);
    cache.save(&permits);
    assert_eq!(cache.load(), Some(permits));
    for damaged in ["{", "{\"skyhop_permits\":2,\"permits\":{}}"] {
        std::fs::write(directory.path().join("hub-permits.json"), damaged).unwrap();
        assert_eq!(cache.load(), None, "{damaged}");
    }
}
