//! Answers terminals' questions at the hub.

use std::sync::Arc;
use std::time::Duration;

use pep::config::HubDnsConfig;
use slacp::{PublicKey, ResetReason};
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
