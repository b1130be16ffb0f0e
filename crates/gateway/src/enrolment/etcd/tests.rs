use std::time::Duration;

use pep::config::EtcdConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch::{self, Receiver};
use tokio::time::timeout;

use super::fake::{Fake, Store};
use super::{Cache, Etcd, EtcdError, Texts, follow};

/// A client of members at these addresses.
fn client(members: &[std::net::SocketAddr]) -> Etcd {
    let members = members.iter().map(|at| at.to_string().parse().unwrap()).collect();
    Etcd::new(&EtcdConfig { members, prefix: "/ships/".to_owned() })
}

fn texts(all: &[(&str, &str)]) -> Texts {
    all.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

/// Waits until the permits are these.
async fn becomes(followed: &mut Receiver<Option<Texts>>, all: &[(&str, &str)]) {
    let wanted = Some(texts(all));
    let wait = Duration::from_secs(20);
    let found = timeout(wait, followed.wait_for(|it| *it == wanted)).await;
    let seen = found.is_ok_and(|found| found.is_ok());
    assert!(seen, "{:?} and not {wanted:?}", followed.borrow());
}

#[tokio::test]
async fn permits_are_written_once_changed_knowingly_and_removed() {
    let fake = Fake::start(Store::new(), None).await;
    let etcd = client(&[fake.address]);
    assert_eq!(etcd.read().await.unwrap(), Texts::new());
    etcd.put("ship", None, "one").await.unwrap();
    assert!(matches!(etcd.put("ship", None, "two").await, Err(EtcdError::Changed)));
    let kept = etcd.get("ship").await.unwrap().unwrap();
    etcd.put("ship", Some(&kept), "three").await.unwrap();
    assert!(matches!(etcd.put("ship", Some(&kept), "four").await, Err(EtcdError::Changed)));
    assert_eq!(fake.store.get("/ships/ship").unwrap(), "three");
    // What others keep beside it is nobody's permit.
    fake.store.put("/ships0", "x");
    fake.store.put("/other/ship", "x");
    assert_eq!(etcd.read().await.unwrap(), texts(&[("ship", "three")]));
    assert!(etcd.remove("ship").await.unwrap() && !etcd.remove("ship").await.unwrap());
    assert_eq!(etcd.get("ship").await.unwrap(), None);
}

#[tokio::test]
async fn changes_are_followed_and_nothing_changes_while_etcd_is_away() {
    let fake = Fake::start(Store::new(), None).await;
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
    assert_eq!(*followed.borrow(), Some(texts(&[("b", "2")])));
    let fake = Fake::start(store, Some(address)).await;
    becomes(&mut followed, &[("c", "3")]).await;
    fake.store.put("/ships/c", "4");
    becomes(&mut followed, &[("c", "4")]).await;
    task.abort();
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

#[test]
fn permits_are_saved_for_a_start_without_etcd() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::new(directory.path());
    assert_eq!(cache.load(), None);
    let permits = texts(&[("a", "1")]);
    cache.save(&permits);
    assert_eq!(cache.load(), Some(permits));
    for damaged in ["{", "{\"skyhop_permits\":2,\"permits\":{}}"] {
        std::fs::write(directory.path().join("hub-permits.json"), damaged).unwrap();
        assert_eq!(cache.load(), None, "{damaged}");
    }
}
