//! A DNS server on the far side: every name below `example` is that host, but a few.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use hickory_proto::op::{Message, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, SOA, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use lab::{Node, find_netns};

/// A name whose answer exceeds a datagram, with this many records.
pub(super) const LONG: &str = "long.example.";
pub(super) const LONG_RECORDS: usize = 20;
/// A name whose answer lasts a second.
pub(super) const SHORT: &str = "short.example.";
const TTL: u32 = 300;

/// The server, and what it was asked by whom.
#[derive(Clone)]
pub(crate) struct DnsServer {
    asked: Arc<Mutex<Vec<(String, IpAddr)>>>,
    /// It answers nobody.
    pub(super) silent: Arc<AtomicBool>,
}

impl DnsServer {
    pub(crate) fn start() -> Self {
        let server = Self { asked: Arc::default(), silent: Arc::default() };
        let address = (Ipv4Addr::UNSPECIFIED, 53);
        let netns = find_netns(Node::Server).unwrap();
        let udp = netns.run(|| UdpSocket::bind(address)).unwrap();
        let tcp = netns.run(|| TcpListener::bind(address)).unwrap();
        let (over_udp, over_tcp) = (server.clone(), server.clone());
        thread::spawn(move || over_udp.serve_udp(&udp));
        thread::spawn(move || {
            for client in tcp.incoming() {
                let (server, client) = (over_tcp.clone(), client.unwrap());
                thread::spawn(move || server.serve_tcp(client));
            }
        });
        server
    }

    /// How often this name was asked for.
    pub(super) fn asked(&self, name: &str) -> usize {
        self.askers(name).len()
    }

    /// Who has asked for this name.
    pub(super) fn askers(&self, name: &str) -> Vec<IpAddr> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|(it, _)| it == name).map(|(_, by)| *by).collect()
    }

    fn serve_udp(&self, socket: &UdpSocket) {
        let mut message = [0; 4096];
        while let Ok((length, from)) = socket.recv_from(&mut message) {
            let Some(answer) = self.answer(&message[..length], from.ip()) else { continue };
            let bytes = answer.to_vec().unwrap();
            let fits = bytes.len() <= 1232;
            let bytes = if fits { bytes } else { answer.truncate().to_vec().unwrap() };
            let _ = socket.send_to(&bytes, from);
        }
    }

    fn serve_tcp(&self, mut client: TcpStream) {
        let from = client.peer_addr().unwrap().ip();
        let mut length = [0; 2];
        while client.read_exact(&mut length).is_ok() {
            let mut message = vec![0; u16::from_be_bytes(length).into()];
            client.read_exact(&mut message).unwrap();
            let Some(answer) = self.answer(&message, from) else { return };
            let bytes = answer.to_vec().unwrap();
            let whole = [&(bytes.len() as u16).to_be_bytes(), &bytes[..]].concat();
            client.write_all(&whole).unwrap();
        }
    }

    fn answer(&self, message: &[u8], from: IpAddr) -> Option<Message> {
        let asked = Message::from_vec(message).unwrap();
        let query = asked.queries[0].clone();
        let name = query.name().to_lowercase().to_ascii();
        self.asked.lock().unwrap().push((name.clone(), from));
        if self.silent.load(Ordering::Relaxed) {
            return None;
        }
        let mut answer = Message::response(asked.metadata.id, OpCode::Query);
        answer.metadata.authoritative = true;
        answer.metadata.recursion_desired = asked.metadata.recursion_desired;
        answer.add_query(query.clone());
        let ttl = if name == SHORT { 1 } else { TTL };
        let record = |data| Record::from_rdata(query.name().clone(), ttl, data);
        match (&name[..], query.query_type()) {
            ("none.example.", _) => {
                answer.metadata.response_code = ResponseCode::NXDomain;
                answer.add_authority(soa());
            }
            (LONG, RecordType::TXT) => {
                let text = |number| RData::TXT(TXT::new(vec![format!("{number:0>100}")]));
                answer.add_answers((0..LONG_RECORDS).map(|number| record(text(number))));
            }
            (_, RecordType::A) => {
                answer.add_answer(record(RData::A(A(Node::Server.address4()))));
            }
            (_, RecordType::AAAA) => {
                answer.add_answer(record(RData::AAAA(AAAA(Node::Server.address6()))));
            }
            _ => {
                answer.add_authority(soa());
            }
        }
        Some(answer)
    }
}

fn soa() -> Record {
    let name = |text| Name::from_ascii(text).unwrap();
    let soa = SOA::new(name("ns.example."), name("admin.example."), 1, 2, 3, 4, 60);
    Record::from_rdata(name("example."), TTL, RData::SOA(soa))
}
