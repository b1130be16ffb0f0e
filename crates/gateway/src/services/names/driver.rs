//! Drives a terminal's resolver: hands it questions and the time, and carries out its outputs.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use config::{DnsConfig, TerminalConfig};
use control::status::{DnsStatus, GatewayStatus};
use names::{QueryId, Question, QuestionSource, Resolver, ResolverOutput, Upstream, UpstreamQuery};
use slacp::{HostName, SessionId, client_network};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use units::{Instant, Machine};

use super::carry::{self, NameCarrier};
use super::question_slots::{MAX_CONNECTIONS, QuestionSlots};
use super::secure::{self, DnsTransport};
use super::servers::ResolverList;
use super::sockets::ResolverSockets;
use super::tcp::{self, QuestionOrigin};
use super::udp::{DnsSocket, PORT};
use super::{exchange, lookup};
use crate::hop::Hop;
use crate::hop::udp::ReceiveMemory;
use crate::intercept::listener::{AcceptOutcome, AcceptedConnection, Listener};
use crate::network::connection_slots::HeldSlot;
use crate::network::socket_options::reset;
use crate::process::clock;
use crate::process::error::RunError;
use crate::process::runtime::log_panic;
use crate::relay::route::{ClientRoute, Upstreams};
use crate::services::{Config, Service, Surroundings, http};

/// Limit of questions waiting for the driver. Those beyond it are dropped, and clients repeat them.
const MAX_QUEUED: usize = 1024;

/// The client of a question, and where its answer goes.
#[derive(Clone)]
pub(super) enum QuestionClient {
    Udp { socket: Arc<DnsSocket>, client: SocketAddr, local: Option<IpAddr>, id: u16 },
    Tcp { connection: u64, id: u16, answers: mpsc::Sender<Vec<u8>> },
}

/// Equal for the same client with the same question ID, which repeats its question.
impl PartialEq for QuestionClient {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Udp { socket, client, local, id },
                Self::Udp { socket: socket2, client: client2, local: local2, id: id2 },
            ) => Arc::ptr_eq(socket, socket2) && (client, local, id) == (client2, local2, id2),
            (
                Self::Tcp { connection, id, .. },
                Self::Tcp { connection: connection2, id: id2, .. },
            ) => (connection, id) == (connection2, id2),
            _ => false,
        }
    }
}

impl QuestionClient {
    pub(super) fn answer(&self, message: Vec<u8>) {
        match self {
            Self::Udp { socket, client, local, .. } => socket.answer(*client, *local, &message),
            Self::Tcp { answers, .. } => {
                // Fails for a client that is gone or does not read; it may ask again.
                let _ = answers.try_send(message);
            }
        }
    }
}

/// Accepts questions for the driver.
pub(super) struct QuestionQueue {
    inputs: mpsc::Sender<(QuestionClient, QuestionOrigin, Vec<u8>)>,
    connections: AtomicU64,
}

impl QuestionQueue {
    pub(super) fn new(inputs: mpsc::Sender<(QuestionClient, QuestionOrigin, Vec<u8>)>) -> Self {
        Self { inputs, connections: AtomicU64::new(0) }
    }

    pub(super) fn next_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn ask(&self, asker: QuestionClient, origin: QuestionOrigin, message: &[u8]) {
        // A closed queue means that the gateway ends.
        if let Err(TrySendError::Full(_)) = self.inputs.try_send((asker, origin, message.to_vec()))
        {
            tracing::debug!("DNS queue full: dropped a question from {}", origin.client);
        }
    }
}

type SharedResolver = Arc<Mutex<Resolver<QuestionClient>>>;

fn lock(resolver: &SharedResolver) -> MutexGuard<'_, Resolver<QuestionClient>> {
    resolver.lock().expect("nobody panics while holding the resolver")
}

/// A running resolver. Dropping it closes all its sockets.
pub(crate) struct NameService {
    resolver: SharedResolver,
    route: watch::Sender<ClientRoute>,
    task: AbortHandle,
    /// The hub session in use last, so that each is warned of once.
    uplink: Option<SessionId>,
}

impl Drop for NameService {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl NameService {
    /// Starts to answer at `sockets`. Connections to pool addresses reach their destinations by
    /// `upstreams`; `http` serves requests of cleartext HTTP.
    pub(crate) fn start(
        config: DnsConfig,
        sockets: ResolverSockets,
        upstreams: Upstreams,
        http: Option<Arc<http::HttpShared>>,
    ) -> Self {
        let (sender, route) = watch::channel(ClientRoute::default());
        let own = sockets.addresses().collect();
        let carrier = Arc::new(NameCarrier { upstreams, http });
        let mut driver = ResolverDriver::new(config, own, carrier, route);
        let resolver = driver.resolver.clone();
        let task = tokio::spawn(async move { driver.run(sockets).await }).abort_handle();
        Self { resolver, route: sender, task, uplink: None }
    }

    fn warn_once(&mut self, hop: &Hop, session: SessionId) {
        if self.uplink.replace(session) != Some(session) && !hop.peer_answers(session) {
            tracing::warn!("the hub has no section [dns]: names are resolved without the hop");
        }
    }
}

impl Service for NameService {
    fn follow_uplink(&mut self, role: &mut Surroundings<'_>) {
        if let (Some(hop), Some(session)) = (role.hop, role.uplink.session) {
            self.warn_once(hop, session);
        }
        let route = role.uplink.route();
        // Called after every event of the gateway: only a change wakes the driver.
        self.route.send_if_modified(|current| std::mem::replace(current, route) != route);
    }

    /// While there is a session, even if its hub cannot be reached: the cache may have the answer.
    fn takes_questions(&self, role: &Surroundings<'_>) -> bool {
        role.hop.zip(role.uplink.session).is_some_and(|(hop, session)| hop.peer_answers(session))
    }

    /// The key `quic` takes effect without a restart.
    fn configure(&mut self, _: &mut Surroundings<'_>, config: Config<'_>) -> Result<(), RunError> {
        if let Config::Terminal(TerminalConfig { dns: Some(dns), .. }) = config {
            lock(&self.resolver).set_hides_http_3(dns.names.hides_http_3);
        }
        Ok(())
    }

    fn add_status(&self, _: &Surroundings<'_>, status: &mut GatewayStatus) {
        status.dns = Some(DnsStatus::new(&lock(&self.resolver).stats()));
    }
}

enum ResolverEvent {
    Reply(QueryId, Option<Vec<u8>>),
    Redirected(AcceptedConnection),
    /// A client's connection to one of our addresses.
    Direct(TcpStream, SocketAddr, DnsTransport),
}

struct ResolverDriver {
    queue: Arc<QuestionQueue>,
    resolver: SharedResolver,
    questions: mpsc::Receiver<(QuestionClient, QuestionOrigin, Vec<u8>)>,
    route: watch::Receiver<ClientRoute>,
    config: Arc<DnsConfig>,
    servers: Arc<ResolverList>,
    /// The addresses at which we answer.
    own: Vec<SocketAddr>,
    carrier: Arc<NameCarrier>,
    /// Questions being answered by the hub or by resolvers.
    tasks: JoinSet<ResolverEvent>,
    /// Slots of clients' TCP connections with questions.
    slots: QuestionSlots,
    /// These connections, also those carried to their servers, and the tasks at the sockets.
    connection_tasks: JoinSet<()>,
    /// Connections to names. Like all intercepted connections they are limited by the gateway's
    /// total: at the limit, new names get no pool addresses ([`ClientRoute::by_name`]).
    carried_connections: JoinSet<()>,
}

impl ResolverDriver {
    /// A resolver that answers at its `own` addresses.
    fn new(
        config: DnsConfig,
        own: Vec<SocketAddr>,
        carrier: Arc<NameCarrier>,
        route: watch::Receiver<ClientRoute>,
    ) -> Self {
        let (inputs, questions) = mpsc::channel(MAX_QUEUED);
        Self {
            queue: Arc::new(QuestionQueue::new(inputs)),
            resolver: Arc::new(Mutex::new(Resolver::new(config.names.clone()))),
            questions,
            route,
            servers: Arc::new(ResolverList::new(config.keys.servers.to_vec(), own.clone())),
            config: Arc::new(config),
            own,
            carrier,
            tasks: JoinSet::new(),
            slots: QuestionSlots::default(),
            connection_tasks: JoinSet::new(),
            carried_connections: JoinSet::new(),
        }
    }

    async fn run(&mut self, sockets: ResolverSockets) {
        let (sender, mut arrivals) = mpsc::channel(MAX_CONNECTIONS);
        self.open(sockets, &sender);
        loop {
            let until = lock(&self.resolver).poll_timeout().map(|(until, _)| until);
            tokio::select! {
                Some((asker, origin, message)) = self.questions.recv() => {
                    self.handle_question(clock::now(), asker, origin, &message);
                }
                Some(Ok(done)) = self.tasks.join_next() => self.handle_done(clock::now(), done),
                Some(arrived) = arrivals.recv() => self.handle_done(clock::now(), arrived),
                Some(ended) = self.connection_tasks.join_next() => log_panic(ended),
                Some(ended) = self.carried_connections.join_next() => log_panic(ended),
                Ok(()) = self.route.changed() => {
                    let hub = self.route.borrow_and_update().hub;
                    let hop = &self.carrier.upstreams.hop;
                    let answers = hub.is_some_and(|hub| hop.peer_answers(hub));
                    lock(&self.resolver).set_hub(clock::now(), answers);
                }
                () = clock::sleep_until(until) => {
                    lock(&self.resolver).handle_timeout(clock::now());
                }
            }
            self.carry_out();
        }
    }

    /// Starts the tasks that receive questions and connections.
    fn open(&mut self, sockets: ResolverSockets, arrivals: &mpsc::Sender<ResolverEvent>) {
        for socket in sockets.redirected {
            self.connection_tasks.spawn(receive_redirected(
                self.queue.clone(),
                socket,
                self.own.clone(),
            ));
        }
        for listener in sockets.listeners {
            self.connection_tasks.spawn(accept_redirected(listener, arrivals.clone()));
        }
        for (socket, listener) in sockets.listening {
            self.connection_tasks.spawn(receive_at_own(
                self.queue.clone(),
                socket,
                self.config.clone(),
            ));
            self.accept(listener, DnsTransport::Plain, arrivals);
        }
        for (listener, transport) in sockets.secure {
            self.accept(listener, transport, arrivals);
        }
    }

    fn accept(
        &mut self,
        listener: TcpListener,
        transport: DnsTransport,
        arrivals: &mpsc::Sender<ResolverEvent>,
    ) {
        let accept = accept(listener, transport, self.config.clone(), arrivals.clone());
        self.connection_tasks.spawn(accept);
    }

    fn handle_question(
        &self,
        now: Instant,
        asker: QuestionClient,
        origin: QuestionOrigin,
        message: &[u8],
    ) {
        // Connections to pool addresses come here only from clients that are intercepted.
        let by_name = origin.intercepted && {
            let ClientRoute { hub, by_name } = *self.route.borrow();
            by_name && hub.is_some_and(|hub| self.carrier.upstreams.hop.peer_resolves(hub))
        };
        let asked = QuestionSource {
            over_tcp: matches!(asker, QuestionClient::Tcp { .. }),
            asker,
            client: client_network(origin.client.ip()),
            resolver: origin.resolver,
            uses_pool: by_name,
        };
        lock(&self.resolver).handle_message(now, asked, message);
    }

    fn handle_done(&mut self, now: Instant, done: ResolverEvent) {
        match done {
            ResolverEvent::Reply(id, reply) => {
                lock(&self.resolver).handle_reply(now, id, reply.as_deref());
            }
            ResolverEvent::Redirected(accepted) => self.handle_arrival(now, accepted),
            ResolverEvent::Direct(socket, client, transport) => {
                let origin = QuestionOrigin { client, resolver: None, intercepted: false };
                self.serve_client(socket, origin, transport);
            }
        }
    }

    /// Handles an intercepted connection: to a resolver, or to a pool address.
    fn handle_arrival(&mut self, now: Instant, accepted: AcceptedConnection) {
        let destination = accepted.open.destination;
        let name: Option<HostName> = lock(&self.resolver).name_of(now, destination.ip());
        let route = *self.route.borrow();
        // Port 53 of a pool address is a port of the named host, not of a resolver.
        let is_question = destination.port() == PORT && !self.is_of_pool(destination.ip());
        let client = accepted.open.source.ip();
        if let Some(name) =
            name.filter(|_| self.carrier.upstreams.counters.live.admits(now, client))
        {
            let carrier = self.carrier.clone();
            self.carried_connections.spawn(carry::carry_to_name(carrier, route, accepted, name));
        } else if is_question && let Some(slot) = self.slots.take(accepted.open.source.ip()) {
            let queue = self.queue.clone();
            let carrier = self.carrier.clone();
            // Our own address as the resolver would be a loop.
            let resolver = Some(destination).filter(|resolver| !self.is_own(*resolver));
            let origin =
                QuestionOrigin { client: accepted.open.source, resolver, intercepted: true };
            self.slots.0.serve(&mut self.connection_tasks, slot, |slot| {
                answer_or_carry(queue, carrier, route, accepted, origin, slot)
            });
        } else {
            // A pool address without a name, or a client beyond its share.
            reset(accepted.socket);
        }
    }

    fn serve_client(&mut self, socket: TcpStream, origin: QuestionOrigin, transport: DnsTransport) {
        let Some(slot) = self.slots.take(origin.client.ip()) else { return };
        let queue = self.queue.clone();
        self.slots.0.serve(&mut self.connection_tasks, slot, async move |slot| {
            secure::serve(queue, socket, origin, transport).await;
            drop(slot);
        });
    }

    fn is_of_pool(&self, address: IpAddr) -> bool {
        let pool = self.config.names.pool.as_ref();
        pool.is_some_and(|pool| pool.prefixes.iter().any(|prefix| prefix.contains(address)))
    }

    fn is_own(&self, address: SocketAddr) -> bool {
        is_own(&self.own, address)
    }

    /// Carries out the resolver's outputs.
    fn carry_out(&mut self) {
        loop {
            let Some(output) = lock(&self.resolver).poll_output() else { return };
            match output {
                ResolverOutput::Answer(asker, message) => asker.answer(message),
                ResolverOutput::Ask(ask) => self.ask(ask),
            }
        }
    }

    fn ask(&mut self, UpstreamQuery { id, message, to, client }: UpstreamQuery) {
        // The mark keeps interception from redirecting our own questions.
        let hop = self.carrier.upstreams.hop.clone();
        let mark = self.carrier.upstreams.dialer.mark;
        match (to, self.route.borrow().hub) {
            (Upstream::Hub, Some(session)) => {
                self.tasks.spawn(async move {
                    ResolverEvent::Reply(id, exchange::ask(hop, session, client, &message).await)
                });
            }
            // The hub is gone: the resolver gets to know it by the route, and asks others.
            (Upstream::Hub, None) => {}
            (Upstream::Direct(server), _) => {
                let servers = match server {
                    Some(server) => vec![server],
                    None => self.servers.list(clock::now()),
                };
                self.tasks.spawn(async move {
                    ResolverEvent::Reply(id, ask_directly(&message, &servers, mark).await)
                });
            }
        }
    }
}

/// Asks resolvers without the hop.
async fn ask_directly(
    message: &[u8],
    servers: &[SocketAddr],
    mark: Option<u32>,
) -> Option<Vec<u8>> {
    match (Question::parse(message), servers) {
        // Not a plain question, an update for instance: only its own server can answer.
        (Err(_), [server, ..]) => lookup::forward(message, *server, mark).await,
        _ => lookup::look_up(message, servers, mark).await,
    }
}

/// Returns `true` for an address at which we answer.
fn is_own(own: &[SocketAddr], address: SocketAddr) -> bool {
    // Not `==`, which also compares the scope of an IPv6 address.
    let at = |ours: &SocketAddr| ours.port() == address.port() && ours.ip() == address.ip();
    own.iter().any(at)
}

/// Receives redirected questions, which clients have sent to any resolver.
async fn receive_redirected(
    queue: Arc<QuestionQueue>,
    socket: Arc<DnsSocket>,
    own: Vec<SocketAddr>,
) {
    receive_questions(&queue, &socket, |client, local| {
        let resolver = local.map(|ip| SocketAddr::new(ip, PORT));
        let resolver = resolver.filter(|resolver| !is_own(&own, *resolver));
        Some(QuestionOrigin { client, resolver, intercepted: true })
    })
    .await;
}

/// Receives questions at one of our addresses.
async fn receive_at_own(queue: Arc<QuestionQueue>, socket: Arc<DnsSocket>, config: Arc<DnsConfig>) {
    receive_questions(&queue, &socket, |client, _| {
        let origin = QuestionOrigin { client, resolver: None, intercepted: false };
        config.serves(client.ip()).then_some(origin)
    })
    .await;
}

async fn receive_questions(
    queue: &QuestionQueue,
    socket: &Arc<DnsSocket>,
    origin: impl Fn(SocketAddr, Option<IpAddr>) -> Option<QuestionOrigin>,
) {
    let mut buffers = ReceiveMemory::new();
    loop {
        let taken = socket.receive(&mut buffers, |client, local, message| {
            let id = message.first_chunk().map_or(0, |id| u16::from_be_bytes(*id));
            if let Some(origin) = origin(client, local) {
                let asker = QuestionClient::Udp { socket: socket.clone(), client, local, id };
                queue.ask(asker, origin, message);
            }
        });
        if let Err(error) = taken.await {
            return tracing::error!(
                "DNS socket {} failed, UDP disabled: {error}",
                socket.address()
            );
        }
    }
}

async fn accept_redirected(listener: Listener, arrivals: mpsc::Sender<ResolverEvent>) {
    loop {
        match listener.accept().await {
            AcceptOutcome::Connection(accepted) => {
                if arrivals.send(ResolverEvent::Redirected(accepted)).await.is_err() {
                    return;
                }
            }
            AcceptOutcome::Nothing => {}
            AcceptOutcome::Exhausted(error) => pause(&error).await,
        }
    }
}

async fn accept(
    listener: TcpListener,
    transport: DnsTransport,
    config: Arc<DnsConfig>,
    arrivals: mpsc::Sender<ResolverEvent>,
) {
    loop {
        match listener.accept().await {
            Ok((socket, client)) if config.serves(client.ip()) => {
                if arrivals
                    .send(ResolverEvent::Direct(socket, client, transport.clone()))
                    .await
                    .is_err()
                {
                    return;
                }
            }
            // Not in `clients`.
            Ok(_) => {}
            Err(error) => pause(&error).await,
        }
    }
}

/// Waits for file descriptors to become free.
async fn pause(error: &std::io::Error) {
    tracing::debug!("DNS over TCP paused: cannot accept: {error}");
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
}

/// Answers the questions on a redirected connection. If only the server that it was for can answer
/// its first message, the connection is carried there like other intercepted ones, and gives its
/// slot back.
async fn answer_or_carry(
    queue: Arc<QuestionQueue>,
    carrier: Arc<NameCarrier>,
    route: ClientRoute,
    accepted: AcceptedConnection,
    origin: QuestionOrigin,
    slot: HeldSlot<IpAddr>,
) {
    let AcceptedConnection { mut socket, open } = accepted;
    match tcp::read_first(&mut socket).await {
        Some((framing, false)) => tcp::answer_questions(queue, socket, origin, framing).await,
        Some((framing, true)) if origin.resolver.is_some() => {
            drop(slot);
            carry::carry(carrier, route, socket, framing.rest(), open.into()).await;
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use names::{CacheLimits, NamesConfig, PoolConfig, addresses_in, question_for};
    use pep::egress::EgressRules;
    use pep::traffic::IpFamily;
    use slacp::StreamOpening;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::timeout;
    use units::ByteCount;

    use super::*;
    use crate::figures::connections::ArrivingConnection;
    use crate::figures::counters::GatewayCounters;
    use crate::relay::names::NameResolver as HostResolver;
    use crate::testkit::{Hops, connected, dialer};

    /// An update (RFC 2136), which only its server can answer: its header, behind its length.
    const UPDATE: [u8; 14] = [0, 12, 0, 7, 0x28, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    fn carrier() -> Arc<NameCarrier> {
        let [_, hop] = Hops::new().hops;
        let upstreams = Upstreams {
            hop,
            dialer: dialer(EgressRules::everywhere().and_loopback()),
            resolver: HostResolver::default(),
            counters: Arc::new(GatewayCounters::default()),
        };
        Arc::new(NameCarrier { upstreams, http: None })
    }

    /// Settings with addresses that stand for names.
    fn instant() -> DnsConfig {
        let prefixes = vec!["198.18.0.0/15".parse().unwrap()];
        let names = NamesConfig {
            cache: CacheLimits { bytes: ByteCount::new(1_000_000), entries: 1000 },
            stale: Duration::ZERO,
            prefetch: 0,
            real: Vec::new(),
            pool: Some(PoolConfig { prefixes, time: Duration::from_secs(3600) }),
            canary: false,
            hides_http_3: false,
        };
        DnsConfig { keys: config::DnsSection::default(), names, intercept: true, secure: None }
    }

    /// The address that a client gets for a new name at once.
    fn placeholder(driver: &ResolverDriver, client: IpAddr) -> IpAddr {
        let host = HostName::new("www.example.com").unwrap();
        let question = question_for(&host, IpFamily::V4).unwrap();
        let (answers, _answered) = mpsc::channel(1);
        let asker = QuestionClient::Tcp { connection: 0, id: 0, answers };
        let asked =
            QuestionSource { asker, client, resolver: None, over_tcp: true, uses_pool: true };
        let mut resolver = lock(&driver.resolver);
        resolver.set_hub(clock::now(), true);
        resolver.handle_message(clock::now(), asked, &question);
        let Some(ResolverOutput::Answer(_, answer)) = resolver.poll_output() else {
            panic!("no answer at once")
        };
        addresses_in(&answer)[0]
    }

    #[tokio::test]
    async fn a_client_with_its_share_of_the_connections_reaches_no_further_names() {
        let (carrier, (_sender, route)) = (carrier(), watch::channel(ClientRoute::default()));
        let counters = carrier.upstreams.counters.clone();
        let mut driver = ResolverDriver::new(instant(), Vec::new(), carrier, route);
        let [greedy, other] = [1, 2].map(|host| IpAddr::from([10, 0, 0, host]));
        let destination = SocketAddr::new(placeholder(&driver, greedy), 80);
        counters.live.set_limit(8);
        let _held = [(); 7].map(|()| ArrivingConnection::new(counters.clone(), greedy));
        for (client, carried) in [(greedy, 0), (other, 1)] {
            let [_client, socket] = connected().await;
            let open = StreamOpening { destination, source: (client, 4000).into(), dscp: None };
            driver.handle_arrival(clock::now(), AcceptedConnection { socket, open });
            assert_eq!(driver.carried_connections.len(), carried, "{client}");
        }
    }

    #[tokio::test]
    async fn a_connection_that_is_carried_leaves_its_slot_to_others() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let destination = server.local_addr().unwrap();
        let [mut client, socket] = connected().await;
        let source = client.local_addr().unwrap();
        let accepted =
            AcceptedConnection { socket, open: StreamOpening { destination, source, dscp: None } };
        let origin =
            QuestionOrigin { client: source, resolver: Some(destination), intercepted: true };
        let (slots, queue) =
            (QuestionSlots::default(), Arc::new(QuestionQueue::new(mpsc::channel(1).0)));
        let slot = slots.take(source.ip()).unwrap();
        let route = ClientRoute::default();
        let carrying =
            tokio::spawn(answer_or_carry(queue, carrier(), route, accepted, origin, slot));
        tokio::task::yield_now().await;
        assert_eq!(slots.0.taken(), 1, "it may be about to ask");
        client.write_all(&UPDATE).await.unwrap();
        let carried = async {
            let (mut socket, _) = server.accept().await.unwrap();
            let mut said = [0; UPDATE.len()];
            socket.read_exact(&mut said).await.unwrap();
            (socket, said)
        };
        let (_socket, said) = timeout(Duration::from_secs(10), carried).await.unwrap();
        assert_eq!(said, UPDATE);
        assert!(slots.0.taken() == 0 && !carrying.is_finished());
        carrying.abort();
    }
}
