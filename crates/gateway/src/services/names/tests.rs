//! Questions within TLS, over loopback, from clients of other libraries.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use config::{SecureDns, TlsFiles};
use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::driver::QuestionQueue;
use super::secure::{self, DnsTransport};
use super::tcp::QuestionOrigin;
use crate::config::whole_file::{self, PRIVATE};

/// Listeners for both, whose questions get the address 192.0.2.7 but for a lost one.
struct Resolver {
    addresses: Vec<SocketAddr>,
    roots: RootCertStore,
    tasks: JoinSet<()>,
    _files: tempfile::TempDir,
}

impl Resolver {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["dns.example".to_owned()]).unwrap();
        let files = TlsFiles {
            certificate: folder.path().join("certificate"),
            key: folder.path().join("key"),
        };
        std::fs::write(&files.certificate, made.cert.pem()).unwrap();
        let pem = made.signing_key.serialize_pem();
        whole_file::replace(&files.key, pem.as_bytes(), PRIVATE).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let any: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
        let secure = SecureDns { tls: vec![any], https: vec![any], files };
        let (sender, mut questions) = mpsc::channel(100);
        let (queue, mut tasks) = (Arc::new(QuestionQueue::new(sender)), JoinSet::new());
        let mut addresses = Vec::new();
        for (listener, transport) in secure::listen(&secure).await.unwrap() {
            addresses.push(listener.local_addr().unwrap());
            let queue = queue.clone();
            tasks.spawn(async move {
                loop {
                    let (socket, client) = listener.accept().await.unwrap();
                    let origin = QuestionOrigin { client, resolver: None, intercepted: false };
                    let transport: DnsTransport = transport.clone();
                    tokio::spawn(secure::serve(queue.clone(), socket, origin, transport));
                }
            });
        }
        tasks.spawn(async move {
            while let Some((asker, _, message)) = questions.recv().await {
                if let Some(answer) = answer(&message) {
                    asker.answer(answer);
                }
            }
        });
        Self { addresses, roots, tasks, _files: folder }
    }

    async fn connect(&self, place: usize, protocols: &[&[u8]]) -> TlsStream<TcpStream> {
        let config = ClientConfig::builder().with_root_certificates(self.roots.clone());
        let mut config = config.with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let socket = TcpStream::connect(self.addresses[place]).await.unwrap();
        let name = ServerName::try_from("dns.example").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, socket).await.unwrap()
    }
}

fn question(name: &str) -> Vec<u8> {
    let mut message = Message::new(7, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
    message.to_vec().unwrap()
}

fn answer(message: &[u8]) -> Option<Vec<u8>> {
    let mut message = Message::from_vec(message).ok()?;
    let name = message.queries[0].name().clone();
    if name.to_string().starts_with("lost") {
        return None;
    }
    message.metadata.message_type = MessageType::Response;
    let address = RData::A(A(Ipv4Addr::new(192, 0, 2, 7)));
    message.add_answer(Record::from_rdata(name, 60, address));
    message.to_vec().ok()
}

/// Sends a request by GET or POST, over HTTP/1.1 or HTTP/2.
async fn fetch(
    resolver: &Resolver,
    protocol: &'static [u8],
    request: Request<Full<Bytes>>,
) -> Response<Incoming> {
    let stream = resolver.connect(1, &[protocol]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol));
    let stream = TokioIo::new(stream);
    if protocol == b"h2" {
        let client = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let (mut sender, connection) = client.handshake(stream).await.unwrap();
        tokio::spawn(connection);
        return sender.send_request(request).await.unwrap();
    }
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    sender.send_request(request).await.unwrap()
}

fn get(query: &str) -> Request<Full<Bytes>> {
    let request = Request::get(format!("https://dns.example/dns-query?{query}"));
    request.header("host", "dns.example").body(Full::default()).unwrap()
}

fn post(kind: &str, body: Vec<u8>) -> Request<Full<Bytes>> {
    let request = Request::post("https://dns.example/dns-query");
    let request = request.header("host", "dns.example").header("content-type", kind);
    request.body(Full::from(body)).unwrap()
}

/// Several questions on one connection, of a client with and of one without the protocol's name.
#[tokio::test]
async fn questions_over_tls_are_answered_in_messages_with_their_length() {
    let resolver = Resolver::start().await;
    const DOT: &[&[u8]] = &[b"dot"];
    for protocols in [&[], DOT] {
        let mut stream = resolver.connect(0, protocols).await;
        for name in ["one.example.", "two.example."] {
            let question = question(name);
            let length = (question.len() as u16).to_be_bytes();
            stream.write_all(&[&length[..], &question].concat()).await.unwrap();
            let mut answer = vec![0; usize::from(stream.read_u16().await.unwrap())];
            stream.read_exact(&mut answer).await.unwrap();
            assert_eq!(Some(answer), super::tests::answer(&question), "{name}");
        }
        stream.shutdown().await.unwrap();
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0, "it ends when the client does");
    }
    assert!(!resolver.tasks.is_empty());
}

#[tokio::test]
async fn questions_over_https_are_answered_by_get_and_post() {
    let resolver = Resolver::start().await;
    let question = question("www.example.");
    let coded = {
        use base64::Engine as _;
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(&question)
    };
    for protocol in [&b"h2"[..], b"http/1.1"] {
        for request in
            [get(&format!("dns={coded}")), post("application/dns-message", question.clone())]
        {
            let response = fetch(&resolver, protocol, request).await;
            assert_eq!(response.status(), 200);
            let field = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
            assert_eq!(field("content-type"), "application/dns-message");
            assert_eq!(field("cache-control"), "max-age=60");
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(Some(body.to_vec()), answer(&question));
        }
    }
}

#[tokio::test]
async fn what_is_no_question_or_has_no_answer_gets_a_status() {
    let resolver = Resolver::start().await;
    let long = vec![0; 5000];
    let elsewhere = Request::get("https://dns.example/").body(Full::default()).unwrap();
    for (request, status) in [
        (get("dns=A"), 400),
        (elsewhere, 404),
        (post("text/plain", question("www.example.")), 415),
        (post("application/dns-message", long), 413),
        // Nobody answers, and nobody keeps the question.
        (post("application/dns-message", question("lost.example.")), 503),
    ] {
        assert_eq!(fetch(&resolver, b"h2", request).await.status(), status);
    }
}

/// Neither a client that does not speak TLS nor one of another protocol within it gets anything.
#[tokio::test]
async fn others_are_turned_away() {
    let resolver = Resolver::start().await;
    for address in &resolver.addresses {
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(&question("www.example.")).await.unwrap();
        let mut said = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(5), socket.read_to_end(&mut said));
        // An alert, and the end.
        let _ = read.await.expect("the connection ends");
        assert!(said.len() < 16, "{said:?}");
    }
    let config = ClientConfig::builder().with_root_certificates(resolver.roots.clone());
    let mut config = config.with_no_client_auth();
    config.alpn_protocols = vec![b"smtp".to_vec()];
    let socket = TcpStream::connect(resolver.addresses[0]).await.unwrap();
    let name = ServerName::try_from("dns.example").unwrap();
    let refused = TlsConnector::from(Arc::new(config)).connect(name, socket).await;
    assert!(refused.is_err());
}
