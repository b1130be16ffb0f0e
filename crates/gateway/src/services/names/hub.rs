//! Answers terminals' DNS questions at the hub.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use config::{HubDnsSection, PermittedTerminal};
use control::status::{DnsStatus, GatewayStatus};
use names::{addresses_in, question_for};
use pep::admission::SlotShare;
use pep::relay::alternating;
use pep::traffic::IpFamily;
use slacp::{Destination, HostName, PublicKey, ResetReason, StreamOpening, client_network};
use tokio::time::timeout;

use super::super::{Service, Surroundings};
use super::servers::ResolverList;
use super::{exchange, lookup};
use crate::figures::counters::GatewayCounters;
use crate::hop::SessionStream;
use crate::process::clock;
use crate::relay::turns::{SlotAsker, WorkSlots};

/// Limit of questions being asked, for all terminals: each takes a socket.
const MAX_QUESTIONS: usize = 512;
/// Time for a terminal to send its question after opening the stream.
const QUESTION_LIMIT: Duration = Duration::from_secs(10);

/// Limit of name lookups for streams, for all terminals: each takes two sockets.
const MAX_LOOKUPS: usize = 128;

/// A hub's resolver, shared fairly among terminals and their clients. Questions and the names of
/// streams have queues of their own, so that unanswered questions delay no connection.
#[derive(Clone)]
pub(crate) struct HubResolver {
    servers: Arc<ResolverList>,
    questions: WorkSlots<PublicKey>,
    lookups: WorkSlots<PublicKey>,
    /// Limits of concurrent questions per terminal and per client.
    share: SlotShare,
    counters: Arc<GatewayCounters>,
}

/// Returns the asker of a lookup for a stream: its client, among those of its terminal.
pub(crate) fn asker(
    terminal: &PermittedTerminal,
    open: &StreamOpening<Destination>,
    share: SlotShare,
) -> SlotAsker<PublicKey> {
    SlotAsker { group: terminal.key, client: client_network(open.source.ip()), share }
}

impl HubResolver {
    pub(crate) fn new(keys: &HubDnsSection, counters: Arc<GatewayCounters>) -> Self {
        Self {
            servers: Arc::new(ResolverList::new(keys.servers.to_vec(), Vec::new())),
            questions: WorkSlots::new(MAX_QUESTIONS),
            lookups: WorkSlots::new(MAX_LOOKUPS),
            share: SlotShare::of_group(keys.questions.count()),
            counters,
        }
    }

    /// Resolves a host by the configured resolvers, so that a name's addresses are the same for
    /// connections as in answers to clients. IPv4 comes first, which a hub is most likely to have.
    /// [`None`] without configured resolvers: the machine's own also knows names outside the DNS.
    ///
    /// # Errors
    /// [`ResetReason::Unreachable`] without an address; [`ResetReason::Limit`] if the client has
    /// too many lookups waiting.
    pub(crate) async fn addresses(
        &self,
        asker: SlotAsker<PublicKey>,
        host: &HostName,
        port: u16,
    ) -> Option<Result<Vec<SocketAddr>, ResetReason>> {
        let servers = self.servers.configured()?;
        let turn = match self.lookups.acquire(asker).await {
            Ok(turn) => turn,
            Err(reason) => return Some(Err(reason)),
        };
        let ask = async |version| {
            let question = question_for(host, version)?;
            lookup::look_up(&question, servers, None).await
        };
        let answers = tokio::join!(ask(IpFamily::V4), ask(IpFamily::V6));
        // The sockets are closed: the next lookup may take its turn.
        drop(turn);
        let found = [answers.0, answers.1].into_iter().flatten();
        let found = found.flat_map(|answer| addresses_in(&answer));
        let addresses = alternating(found.map(|address| SocketAddr::new(address, port)));
        Some(if addresses.is_empty() { Err(ResetReason::Unreachable) } else { Ok(addresses) })
    }

    /// Answers the question on a stream of a terminal's client.
    async fn answer_question(self, asker: SlotAsker<PublicKey>, stream: SessionStream) {
        self.counters.dns_queries.increment();
        let answered = tokio::select! {
            answered = self.resolve_question(asker, &stream) => answered,
            reason = stream.reset_by_peer() => Err(reason),
        };
        if let Err(reason) = answered {
            self.counters.dns_failures.increment();
            stream.reset(reason);
        }
    }

    async fn resolve_question(
        &self,
        asker: SlotAsker<PublicKey>,
        stream: &SessionStream,
    ) -> Result<(), ResetReason> {
        let _turn = self.questions.acquire(asker).await?;
        let question = timeout(QUESTION_LIMIT, exchange::read(stream)).await;
        let question = question.map_err(|_| ResetReason::TimedOut)??;
        let servers = self.servers.list(clock::now());
        let answer = lookup::look_up(&question, &servers, None).await;
        exchange::write(stream, &answer.ok_or(ResetReason::TimedOut)?).await
    }
}

impl Service for HubResolver {
    fn answers(&self, destination: &Destination) -> bool {
        *destination == Destination::Resolver
    }

    fn answer(
        &mut self,
        role: &mut Surroundings<'_>,
        stream: SessionStream,
        open: &StreamOpening<Destination>,
    ) {
        let Some(terminal) = role.terminal(stream.session()) else {
            return role.refuse(stream, open, ResetReason::Prohibited);
        };
        let asker = asker(terminal, open, self.share);
        role.relays.spawn(self.clone().answer_question(asker, stream));
    }

    fn add_status(&self, _: &Surroundings<'_>, status: &mut GatewayStatus) {
        let counters = &self.counters;
        let dns = DnsStatus::of_hub(counters.dns_queries.get(), counters.dns_failures.get());
        status.dns = Some(dns);
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UdpSocket;

    use super::*;
    use crate::testkit::permitted;
    use config::Number;

    #[test]
    fn each_client_of_a_terminal_has_a_share_of_its_own() {
        let terminals = [1, 2].map(|seed| permitted("ship", PublicKey([seed; 32])));
        let asker_of = |terminal: usize, client: &str| {
            let source = SocketAddr::new(client.parse().unwrap(), 4000);
            let open = StreamOpening { destination: Destination::Resolver, source, dscp: None };
            asker(&terminals[terminal], &open, SlotShare::each(1))
        };
        let first = asker_of(0, "10.0.0.1");
        assert_eq!(asker_of(0, "10.0.0.1"), first);
        assert_ne!(asker_of(0, "10.0.0.2"), first);
        assert_ne!(asker_of(1, "10.0.0.1"), first);
        assert_eq!(
            asker_of(0, "2001:db8::1"),
            asker_of(0, "2001:db8::2"),
            "a client has a whole /64"
        );
    }

    #[tokio::test]
    async fn questions_that_nobody_answers_hold_up_no_connection() {
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let keys = HubDnsSection {
            questions: Number::new(4).unwrap(),
            servers: vec![server.local_addr().unwrap()].into(),
        };
        let names = HubResolver::new(&keys, Arc::default());
        let client = SlotAsker {
            group: PublicKey([1; 32]),
            client: [10, 0, 0, 1].into(),
            share: names.share,
        };
        let mut unanswered = Vec::new();
        for _ in 0..3 {
            unanswered.push(names.questions.acquire(client).await.unwrap());
        }
        let host = HostName::new("server.example").unwrap();
        let mut question = [0; 600];
        let asked = async {
            tokio::select! {
                found = names.addresses(client, &host, 80) => panic!("{found:?}"),
                asked = server.recv_from(&mut question) => asked.unwrap().0,
            }
        };
        assert!(timeout(QUESTION_LIMIT, asked).await.unwrap() > 12);
    }
}
