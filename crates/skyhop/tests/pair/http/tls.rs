//! Sites by TLS: clients and servers of them.

use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use rcgen::{CertifiedKey, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use tempfile::TempDir;

use crate::inside::{connect, listen};

/// A certificate for some hosts, in files.
pub(crate) struct Identity {
    made: CertifiedKey<KeyPair>,
    folder: TempDir,
}

impl Identity {
    pub(crate) fn new(hosts: &[&str]) -> Self {
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(hosts).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("certificate"), made.cert.pem()).unwrap();
        let key = folder.path().join("key");
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        std::fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
        Self { made, folder }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn certificate(&self) -> CertificateDer<'static> {
        self.made.cert.der().clone()
    }

    fn server(&self) -> Arc<ServerConfig> {
        let key = PrivateKeyDer::from_pem_file(self.file("key")).unwrap();
        let config = ServerConfig::builder().with_no_client_auth();
        Arc::new(config.with_single_cert(vec![self.certificate()], key).unwrap())
    }

    /// A client that trusts this certificate only.
    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate()).unwrap();
        Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
    }
}

/// A server that answers with what it was asked, fresh for 100 s.
#[derive(Clone, Default)]
pub(crate) struct TlsServer(Arc<Mutex<Vec<String>>>);

impl TlsServer {
    pub(crate) fn start(port: u16, identity: &Identity) -> Self {
        let (server, listener, config) = (Self::default(), listen(port), identity.server());
        let serving = server.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let (server, config) = (serving.clone(), config.clone());
                thread::spawn(move || server.serve(client.unwrap(), config));
            }
        });
        server
    }

    /// Requests that came: method and target.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn serve(&self, socket: TcpStream, config: Arc<ServerConfig>) -> Option<()> {
        let mut tls = StreamOwned::new(ServerConnection::new(config).unwrap(), socket);
        loop {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                tls.read_exact(&mut byte).ok()?;
                head.push(byte[0]);
            }
            let head = String::from_utf8(head).unwrap();
            let asked = head.split(" HTTP").next()?.to_owned();
            self.0.lock().unwrap().push(asked.clone());
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
            tls.read_exact(&mut body).ok()?;
            let text = answer(&asked) + &String::from_utf8(body).unwrap();
            let length = text.len();
            let reply = format!(
                "HTTP/1.1 200 OK\r\nCache-Control: max-age=100\r\nContent-Type: text/plain\r\n\
                 Content-Length: {length}\r\n\r\n{text}"
            );
            tls.write_all(reply.as_bytes()).ok()?;
            if head.contains("Connection: close") {
                tls.conn.send_close_notify();
                return tls.flush().ok();
            }
        }
    }
}

/// What the server answers.
pub(crate) fn answer(asked: &str) -> String {
    asked.repeat(if asked.contains("large") { 20_000 } else { 1 })
}

/// Sends a request to a host, and returns the head and the body of the answer. The connection must end as TLS does.
pub(crate) fn ask(
    (address, host): (SocketAddr, &str),
    trusted: &Identity,
    request: &str,
) -> io::Result<(String, String)> {
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let client = ClientConnection::new(trusted.client(), name).unwrap();
    let mut tls = StreamOwned::new(client, connect(address));
    tls.write_all(request.as_bytes())?;
    let mut said = String::new();
    tls.read_to_string(&mut said)?;
    let (head, body) = said.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok((head.to_owned(), body.to_owned()))
}

/// A site's section of a terminal's file.
pub(crate) fn site(own: &Identity, authorities: &Path, hosts: &str) -> String {
    let (certificate, key) = (own.file("certificate"), own.file("key"));
    format!(
        "authorities = {authorities:?}\n[[http.site]]\nhosts = [{hosts}]\ncertificate = {certificate:?}\nkey = {key:?}\n"
    )
}
