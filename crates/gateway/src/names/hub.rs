//! Answers terminals' questions at the hub.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pep::config::HubDnsConfig;
use pep::names::{addresses_in, question_for};
use pep::relay::alternating;
use pep::traffic::Version;
use slacp::{HostName, PublicKey, ResetReason};
use tokio::time::timeout;

use super::servers::Servers;
use super::{exchange, lookup};
use crate::clock;
use crate::hop::Stream;
use crate::operate::counters::Counters;
use crate::operate::status::DnsStatus;
use crate::relay::turns::Turns;

/// Questions asked at once for all terminals: each takes a socket.
const MOST_QUESTIONS: usize = 512;
/// How long a terminal may take to send a question, once its stream is there.
const QUESTION_LIMIT: Duration = Duration::from_secs(10);

/// A hub's resolvers, shared fairly among its terminals.
#[derive(Clone)]
pub(crate) struct HubResolver {
    servers: Arc<Servers>,
    turns: Turns<PublicKey>,
    /// Questions of one terminal at once.
    share: usize,
    counters: Arc<Counters>,
}

impl HubResolver {
    pub(crate) fn new(config: HubDnsConfig, counters: Arc<Counters>) -> Self {
        let servers = Arc::new(Servers::new(config.servers, Vec::new()));
        Self { servers, turns: Turns::of(MOST_QUESTIONS), share: config.questions, counters }
    }

    pub(crate) fn status(&self) -> DnsStatus {
        DnsStatus::of_hub(self.counters.questions.get(), self.counters.questions_failed.get())
    }

    /// The addresses of a host, by the configured resolvers: what a terminal's clients hear of a name is
    /// then also where its connections lead. IPv4 comes first, which a hub is most likely to have.
    /// [`None`] without configured resolvers: the machine's own know more than the DNS.
    ///
    /// # Errors
    /// [`ResetReason::Unreachable`] if there are none; [`ResetReason::Limit`] if too many of the
    /// terminal's questions wait.
    pub(crate) async fn addresses(
        &self,
        terminal: PublicKey,
        (host, port): (&HostName, u16),
    ) -> Option<Result<Vec<SocketAddr>, ResetReason>> {
        let servers = self.servers.configured()?;
        let turn = match self.turns.take(terminal, self.share).await {
            Ok(turn) => turn,
            Err(reason) => return Some(Err(reason)),
        };
        let ask = async |version| {
            let question = question_for(host, version)?;
            lookup::look_up(&question, servers, None).await
        };
        let answers = tokio::join!(ask(Version::V4), ask(Version::V6));
        drop(turn);
        let found = [answers.0, answers.1].into_iter().flatten();
        let found = found.flat_map(|answer| addresses_in(&answer));
        let addresses = alternating(found.map(|it| SocketAddr::new(it, port)));
        Some(if addresses.is_empty() { Err(ResetReason::Unreachable) } else { Ok(addresses) })
    }

    /// Answers the question that a terminal's stream carries.
    pub(crate) async fn answer(self, terminal: PublicKey, stream: Stream) {
        self.counters.questions.increment();
        let answered = tokio::select! {
            answered = self.answered(terminal, &stream) => answered,
            reason = stream.reset_by_peer() => Err(reason),
        };
        if let Err(reason) = answered {
            self.counters.questions_failed.increment();
            stream.reset(reason);
        }
    }

    async fn answered(&self, terminal: PublicKey, stream: &Stream) -> Result<(), ResetReason> {
        let _turn = self.turns.take(terminal, self.share).await?;
        let question = timeout(QUESTION_LIMIT, exchange::read(stream)).await;
        let question = question.map_err(|_| ResetReason::TimedOut)??;
        let servers = self.servers.list(clock::now());
        let answer = lookup::look_up(&question, &servers, None).await;
        exchange::write(stream, &answer.ok_or(ResetReason::TimedOut)?).await
    }
}
