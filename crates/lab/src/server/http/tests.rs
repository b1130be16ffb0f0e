//! Requests as clients write them, over loopback.

use core::future::Future;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

/// A reply: its status, its headers in lower case, and its body.
struct Reply {
    status: u16,
    headers: String,
    body: Vec<u8>,
}

impl Reply {
    fn text(&self) -> &str {
        core::str::from_utf8(&self.body).unwrap()
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// Sends a request line and a body, and returns the reply.
fn ask(request: &str, body: &[u8]) -> Reply {
    let head = format!(
        "{request} HTTP/1.1\r\nHost: server\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    talk(&[head.as_bytes(), body].concat())
}

/// Sends these bytes, and returns the reply.
fn talk(bytes: &[u8]) -> Reply {
    let reply = block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener));
        let mut connection = TcpStream::connect(address).await.unwrap();
        connection.write_all(bytes).await.unwrap();
        let mut reply = Vec::new();
        connection.read_to_end(&mut reply).await.unwrap();
        reply
    });
    let end = reply.windows(4).position(|four| four == b"\r\n\r\n").expect("the end of the head");
    let head = core::str::from_utf8(&reply[..end]).unwrap();
    let (first, headers) = head.split_once("\r\n").unwrap();
    let status = first.strip_prefix("HTTP/1.1 ").unwrap()[..3].parse().unwrap();
    Reply { status, headers: headers.to_lowercase(), body: reply[end + 4..].to_vec() }
}

fn sha256_of(bytes: &[u8]) -> String {
    hex(Sha256::new_with_prefix(bytes))
}

#[test]
fn an_object_comes_whole_with_its_length() {
    let reply = ask("GET /200kB", b"");
    assert_eq!((reply.status, reply.body.len()), (200, 200_000));
    assert!(reply.headers.contains("content-length: 200000"), "{}", reply.headers);
    assert_eq!(sha256_of(&reply.body), TestObject::named("200kB").unwrap().sha256());
}

#[test]
fn the_digest_is_that_of_what_the_server_sends() {
    let object = ask("GET /64kB", b"");
    let digest = ask("GET /64kB.sha256", b"");
    assert_eq!((digest.status, digest.text()), (200, &*(sha256_of(&object.body) + "\n")));
}

#[test]
fn a_head_has_the_length_of_an_object_and_no_body() {
    let reply = ask("HEAD /100GB", b"");
    assert_eq!((reply.status, reply.body.len()), (200, 0));
    assert!(reply.headers.contains("content-length: 100000000000"), "{}", reply.headers);
}

#[test]
fn an_unknown_object_is_answered_with_what_there_is() {
    for name in ["index.html", "101GB", "10Mb", "10MB.sha512", "nothing.sha256"] {
        let reply = ask(&format!("GET /{name}"), b"");
        let asked = name.trim_end_matches(".sha256");
        let expected = format!("no object {asked:?}\n");
        assert_eq!(reply.status, 404, "{name}");
        assert!(reply.text().starts_with(&expected) && reply.text().contains("/upload"), "{name}");
    }
    assert_eq!(ask("GET /10MB/more", b"").status, 404);
}

#[test]
fn the_index_lists_the_requests() {
    let reply = ask("GET /", b"");
    assert_eq!((reply.status, reply.text()), (200, INDEX));
}

#[test]
fn uploads_of_any_size_are_digested() {
    // More than the 2 MB at which the library refuses bodies by default.
    let large = vec![7; 3_000_000];
    for (method, body) in [("PUT", &b""[..]), ("PUT", &large), ("POST", b"over the hop")] {
        let reply = ask(&format!("{method} /upload"), body);
        let expected = format!("{} {}\n", body.len(), sha256_of(body));
        assert_eq!((reply.status, reply.text()), (200, &*expected), "{method}");
    }
}

#[test]
fn an_upload_in_chunks_is_one_body() {
    let reply = talk(
        b"PUT /upload HTTP/1.1\r\nHost: server\r\nConnection: close\r\n\
          Transfer-Encoding: chunked\r\n\r\n5\r\nover \r\n7\r\nthe hop\r\n0\r\n\r\n",
    );
    assert_eq!(reply.text(), format!("12 {}\n", sha256_of(b"over the hop")));
}

#[test]
fn objects_cannot_be_replaced() {
    assert_eq!(ask("PUT /10MB", b"").status, 405);
    assert_eq!(ask("GET /upload", b"").status, 405);
}
