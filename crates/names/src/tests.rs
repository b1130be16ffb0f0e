//! The terminal's resolver and the hub's lookups, in virtual time.

mod lookup;
mod resolver;
mod seeds;

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, CNAME, SOA, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use pep::traffic::IpFamily;
use units::{ByteCount, Instant, Machine};

use super::*;

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

fn client(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

/// A question with EDNS; `dnssec` sets DO.
fn question(id: u16, of: &str, kind: RecordType, dnssec: bool) -> Message {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name(of), kind));
    let mut edns = Edns::new();
    edns.set_max_payload(4096).set_dnssec_ok(dnssec);
    message.set_edns(edns);
    message
}

fn bytes(message: &Message) -> Vec<u8> {
    message.to_vec().unwrap()
}

fn read(bytes: &[u8]) -> Message {
    Message::from_vec(bytes).unwrap()
}

/// The hub's reply to a message, with these answers.
fn reply(to: &[u8], code: ResponseCode, answers: Vec<Record>) -> Message {
    let to = read(to);
    let mut message = Message::error_msg(to.metadata.id, OpCode::Query, code);
    message.metadata.recursion_available = true;
    message.add_queries(to.queries.iter().cloned());
    message.add_answers(answers);
    message
}

fn address(of: &str, ttl: u32, last: u8) -> Record {
    Record::from_rdata(name(of), ttl, RData::A(A(Ipv4Addr::new(192, 0, 2, last))))
}

/// Seconds for which an answer without records may be kept (RFC 2308 §5).
fn negative_ttl(answer: &Message) -> u32 {
    let [authority] = &answer.authorities[..] else { panic!("{answer:?}") };
    let RData::SOA(soa) = &authority.data else { panic!("{answer:?}") };
    soa.minimum.min(authority.ttl)
}

/// The authority of a negative answer (RFC 2308).
fn soa(ttl: u32, minimum: u32) -> Record {
    let soa = SOA::new(name("ns.example."), name("admin.example."), 1, 2, 3, 4, minimum);
    Record::from_rdata(name("example."), ttl, RData::SOA(soa))
}
