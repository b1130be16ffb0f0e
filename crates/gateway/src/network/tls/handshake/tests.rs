use std::thread::ThreadId;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::*;
use crate::testkit::connected;

const HOST: &str = "hub.example";

/// A certificate, and the threads that have looked for it.
#[derive(Debug)]
struct Resolver {
    key: Arc<CertifiedKey>,
    threads: Mutex<Vec<ThreadId>>,
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        lock(&self.threads).push(thread::current().id());
        Some(self.key.clone())
    }
}

fn sides() -> (Arc<Resolver>, TlsAcceptor, TlsConnector) {
    let made = rcgen::generate_simple_self_signed([HOST.to_owned()]).unwrap();
    let (certificate, key) = (made.cert.der().clone(), made.signing_key.serialize_der());
    let mut authorities = RootCertStore::empty();
    authorities.add(certificate.clone()).unwrap();
    let key = PrivateKeyDer::try_from(key).unwrap();
    let key = CertifiedKey::from_der(vec![certificate], key, &ring::default_provider()).unwrap();
    let resolver = Arc::new(Resolver { key: Arc::new(key), threads: Mutex::default() });
    let server = ServerConfig::builder().with_no_client_auth();
    let acceptor = TlsAcceptor::from(Arc::new(server.with_cert_resolver(resolver.clone())));
    let client = ClientConfig::builder().with_root_certificates(authorities);
    (resolver, acceptor, TlsConnector::from(Arc::new(client.with_no_client_auth())))
}

async fn accepted(
    acceptor: &TlsAcceptor,
    far: TcpStream,
) -> io::Result<TlsStream<EarlyStream<TcpStream>>> {
    accept(acceptor, IpAddr::from([192, 0, 2, 1]), far).await
}

#[tokio::test]
async fn a_handshake_is_computed_on_another_thread_and_loses_nothing_that_came_with_it() {
    let (resolver, acceptor, connector) = sides();
    let [near, far] = connected().await;
    let name = ServerName::try_from(HOST).unwrap();
    let client = async {
        // The client's last flight and its first data may arrive together.
        let mut near = connector.connect(name, near).await.unwrap();
        near.write_all(b"question").await.unwrap();
        let mut answer = [0; 6];
        near.read_exact(&mut answer).await.unwrap();
        answer
    };
    let server = async {
        let mut far = accepted(&acceptor, far).await.unwrap();
        let mut question = [0; 8];
        far.read_exact(&mut question).await.unwrap();
        far.write_all(b"answer").await.unwrap();
        far.flush().await.unwrap();
        question
    };
    let (answer, question) = tokio::join!(client, server);
    assert_eq!((&answer, &question), (b"answer", b"question"));
    let threads = lock(&resolver.threads);
    assert!(threads.len() == 1 && threads[0] != thread::current().id(), "{threads:?}");
}

#[tokio::test]
async fn who_speaks_no_tls_gets_an_alert_and_no_arithmetic() {
    let (resolver, acceptor, _) = sides();
    let [mut near, far] = connected().await;
    // A ClientHello of one byte.
    near.write_all(&[0x16, 3, 1, 0, 5, 1, 0, 0, 1, 3]).await.unwrap();
    assert!(accepted(&acceptor, far).await.is_err());
    let mut answer = Vec::new();
    near.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer.first(), Some(&0x15), "an alert (RFC 8446 §5.1): {answer:?}");
    assert!(lock(&resolver.threads).is_empty());
}

#[tokio::test]
async fn a_handshake_in_many_pieces_is_given_up() {
    let (_, acceptor, _) = sides();
    let (mut near, far) = tokio::io::duplex(1);
    let mut hello = vec![0x16, 3, 1, 3, 232, 1, 0, 3, 228];
    hello.resize(1005, 3);
    let drip = async {
        let mut sent = 0;
        while sent < hello.len() && near.write_all(&hello[sent..=sent]).await.is_ok() {
            sent += 1;
        }
        sent
    };
    let (end, sent) = tokio::join!(accept(&acceptor, IpAddr::from([192, 0, 2, 1]), far), drip);
    assert!(end.is_err() && sent <= MOST_READS + 1, "{sent}");
}
