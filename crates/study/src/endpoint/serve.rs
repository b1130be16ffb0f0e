//! Serves test objects over HTTP with endpoints of `tcp`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use lab::TestObject;
use meter::http::head::{self, HeadError, ParsedRequest};
use os::station::Station;
use tcp::{
    Config, Connection, ConnectionEvent, ConnectionStats, Segment, SeqNr, SynData, TcpState,
    refusal, wire,
};
use units::{ByteCount, Instant, Machine};

use super::drive::{ConnectionOwner, drive, reverse};
use super::report::ServedConnection;

/// Maximum number of concurrent connections; further SYNs are ignored.
const MOST: usize = 1000;
/// Bytes written ahead of what can be sent. The rest is generated meanwhile: generating the whole
/// object first would delay its first byte.
const AHEAD: ByteCount = ByteCount::new(256 << 10);

/// The client's address and port, and this server's.
type FlowKey = (SocketAddr, SocketAddr);

/// Serves connections to `port` of the station, at most `left` of them, and reports each once it
/// has ended.
///
/// # Errors
/// If the device is gone.
pub fn serve(
    station: &mut Station,
    config: Config,
    port: u16,
    left: Option<u64>,
    on_end: impl FnMut(&ServedConnection),
) -> io::Result<()> {
    drive(station, &mut ObjectServer::new(config, port, left, on_end))
}

/// All connections of a server.
struct ObjectServer<F> {
    config: Config,
    port: u16,
    flows: BTreeMap<FlowKey, ServedFlow>,
    /// Connections that may have something to send.
    ready: BTreeSet<FlowKey>,
    refusals: VecDeque<(wire::SegmentPath, Segment<Bytes>)>,
    /// Secret for Fast Open cookies.
    secret: RandomState,
    /// Connections left to serve; `None` is unlimited.
    left: Option<u64>,
    /// Called for every connection that has ended.
    on_end: F,
}

impl<F: FnMut(&ServedConnection)> ObjectServer<F> {
    fn new(config: Config, port: u16, left: Option<u64>, on_end: F) -> Self {
        Self {
            config,
            port,
            flows: BTreeMap::new(),
            ready: BTreeSet::new(),
            refusals: VecDeque::new(),
            secret: RandomState::new(),
            left,
            on_end,
        }
    }

    fn accept(&mut self, now: Instant, path: &wire::SegmentPath, segment: &Segment<Bytes>) {
        if path.to_port != self.port || !segment.flags.syn || segment.ack.is_some() {
            // RFC 9293 §3.10.7.1: a segment without a connection is answered with a reset.
            let answer = refusal(segment).map(|reset| (reverse(path), reset));
            self.refusals.extend(answer);
            return;
        }
        // No reset: the client retransmits its SYN, and may find room then.
        if self.flows.len() >= MOST {
            return;
        }
        let mut config = super::fit_to_ethernet(&self.config, path.to);
        if let SynData::FastOpen { cookie } = &mut config.syn_data {
            // RFC 7413 §4.1.2: a function of the client's address and a secret.
            *cookie = self.secret.hash_one(path.from).to_be_bytes().into_iter().collect();
        }
        let tcp = Connection::listen(config, SeqNr::new(super::random() as u32));
        let flow = ServedFlow {
            tcp,
            way: reverse(path),
            talk: ReplyState::Head(Vec::new()),
            begun: now,
            asked: None,
            served: None,
        };
        self.flows.insert(key(path), flow);
    }

    /// Services a connection after an event; reports it if it has ended.
    fn service_flow(&mut self, now: Instant, key: FlowKey) {
        let Some(flow) = self.flows.get_mut(&key) else { return };
        if let Some(served) = flow.service(now) {
            (self.on_end)(&served);
            self.left = self.left.map(|left| left.saturating_sub(1));
        }
        self.ready.insert(key);
    }
}

fn key(path: &wire::SegmentPath) -> FlowKey {
    (SocketAddr::new(path.from, path.from_port), SocketAddr::new(path.to, path.to_port))
}

impl<F: FnMut(&ServedConnection)> ConnectionOwner for ObjectServer<F> {
    fn handle_segment(&mut self, now: Instant, path: &wire::SegmentPath, segment: &Segment<Bytes>) {
        if !self.flows.contains_key(&key(path)) {
            self.accept(now, path, segment);
        }
        if let Some(flow) = self.flows.get_mut(&key(path)) {
            flow.tcp.handle_segment(now, segment);
            self.service_flow(now, key(path));
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        self.flows.values().filter_map(|flow| Some(flow.tcp.poll_timeout()?.0)).min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        let due = |flow: &ServedFlow| flow.tcp.poll_timeout().is_some_and(|(at, _)| at <= now);
        let keys: Vec<FlowKey> =
            self.flows.iter().filter(|(_, flow)| due(flow)).map(|(key, _)| *key).collect();
        for key in keys {
            if let Some(flow) = self.flows.get_mut(&key) {
                flow.tcp.handle_timeout(now);
            }
            self.service_flow(now, key);
        }
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<(wire::SegmentPath, Segment<Bytes>)> {
        if let Some(refusal) = self.refusals.pop_front() {
            return Some(refusal);
        }
        while let Some(key) = self.ready.first().copied() {
            if let Some(flow) = self.flows.get_mut(&key) {
                if let Some(segment) = flow.tcp.poll_transmit(now) {
                    // What was sent makes room for more.
                    flow.write();
                    return Some((flow.way, segment));
                }
                // Only once it has nothing to send: a reset leaves after the connection has closed.
                if matches!(flow.tcp.state(), TcpState::Closed | TcpState::Listen) {
                    self.flows.remove(&key);
                }
            }
            // It has nothing more to send until something happens on it.
            self.ready.remove(&key);
        }
        None
    }

    fn is_over(&self) -> bool {
        self.left == Some(0)
    }
}

/// One connection of the server.
struct ServedFlow {
    tcp: Connection<Bytes>,
    way: wire::SegmentPath,
    talk: ReplyState,
    begun: Instant,
    asked: Option<TestObject>,
    served: Option<ServedConnection>,
}

enum ReplyState {
    /// The part of the request received so far.
    Head(Vec<u8>),
    /// The reply: its prepared part, and the rest, generated as there is room.
    Reply(Bytes, Box<dyn Iterator<Item = Vec<u8>>>),
    Over,
}

impl ServedFlow {
    /// Reads and writes as much as possible. Returns the report once, when the connection has
    /// ended.
    fn service(&mut self, now: Instant) -> Option<ServedConnection> {
        let mut ended = None;
        while let Some(event) = self.tcp.poll_event() {
            match event {
                // A client that finishes before its request is complete gets no reply.
                ConnectionEvent::Finished if matches!(self.talk, ReplyState::Head(_)) => {
                    self.finish();
                }
                ConnectionEvent::Closed => ended = Some(None),
                ConnectionEvent::Aborted(why) => ended = Some(Some(why)),
                _ => {}
            }
        }
        while let Some(data) = self.tcp.read(usize::MAX) {
            self.receive(&data);
        }
        self.write();
        let error = ended.filter(|_| self.served.is_none())?;
        let time = now.saturating_since(self.begun);
        let peer = SocketAddr::new(self.way.to, self.way.to_port);
        let stats: ConnectionStats = self.tcp.stats();
        let served = ServedConnection::new(peer, self.asked, time, error, &stats);
        self.served = Some(served.clone());
        Some(served)
    }

    fn receive(&mut self, data: &Bytes) {
        let ReplyState::Head(head) = &mut self.talk else { return };
        head.extend_from_slice(data);
        let Some((reply, object)) = answer(head) else { return };
        self.asked = object;
        let rest: Box<dyn Iterator<Item = Vec<u8>>> = match object {
            Some(object) => Box::new(object.chunks()),
            None => Box::new(core::iter::empty()),
        };
        self.talk = ReplyState::Reply(reply.into(), rest);
    }

    /// Writes until enough is queued.
    fn write(&mut self) {
        while self.tcp.unsent() < AHEAD
            && let ReplyState::Reply(part, rest) = &mut self.talk
        {
            if part.is_empty() {
                match rest.next() {
                    Some(next) => *part = next.into(),
                    None => return self.finish(),
                }
            }
            let Ok(taken) = self.tcp.write(part) else { return };
            *part = part.slice(taken..);
            if !part.is_empty() {
                return;
            }
        }
    }

    fn finish(&mut self) {
        self.talk = ReplyState::Over;
        self.tcp.close();
    }
}

/// Returns the head of the reply, and the object that follows; `None` until the request is
/// complete.
fn answer(bytes: &[u8]) -> Option<(String, Option<TestObject>)> {
    let refuse = |status| Some((head::refusal(status), None));
    let request = match ParsedRequest::parse(bytes) {
        Ok(None) => return None,
        Ok(Some(request)) => request,
        Err(HeadError::TooLong) => return refuse("431 Request Header Fields Too Large"),
        Err(_) => return refuse("400 Bad Request"),
    };
    let is_head = request.method == "HEAD";
    if request.method != "GET" && !is_head {
        return refuse("405 Method Not Allowed");
    }
    let name = request.target.strip_prefix('/');
    let Some(object) = name.and_then(TestObject::named) else {
        return refuse("404 Not Found");
    };
    Some((head_of(object), (!is_head).then_some(object)))
}

/// Returns the reply's head for an object.
pub(crate) fn head_of(object: TestObject) -> String {
    head::ok(object.size().get(), false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_answered() {
        let status = |request: &str| {
            let (reply, object) = answer(request.as_bytes())?;
            Some((reply.split(' ').nth(1)?.to_owned(), object.is_some()))
        };
        let get = |path: &str| status(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
        assert_eq!(get("/10MB"), Some(("200".into(), true)));
        assert_eq!(get("/nothing"), Some(("404".into(), false)));
        assert_eq!(status("HEAD /1kB HTTP/1.0\r\n\r\n"), Some(("200".into(), false)));
        assert_eq!(status("PUT /1kB HTTP/1.0\r\n\r\n"), Some(("405".into(), false)));
        assert_eq!(status("GET\0/1kB\r\n\r\n"), Some(("400".into(), false)));
        assert_eq!(status("GET /1kB HTTP/1.1\r\nHost: x\r\n"), None);
    }
}
