//! The rules for what policies refuse.

use pep::traffic::{PolicyAction, PolicySubject};

use super::{GatewaySlot, QUIC_REFUSAL_CHAIN, REFUSAL_CHAIN, Rules, Scope, UDP_POLICY_CHAIN};
use crate::network::nft::policy;
use crate::network::nft::rule::Term;
use crate::network::nft::table::NftRule;

/// Maximum packets logged per second to be refused: what a dozen clients may cause
/// ([`RefusalLimiter`](pep::admission::RefusalLimiter)), at a few per cent of a processor.
const LOGGED_REFUSALS: u32 = 2000;

impl Rules {
    /// Returns `true` if policies refuse anything while interception has this scope.
    pub(super) fn refuses(&self, scope: &Scope) -> bool {
        // Without a hub everything passes.
        self.can_refuse && matches!(scope, Scope::Everything | Scope::Only(_))
    }

    /// Subjects that the policies' counters count. They depend on the policies only.
    pub(super) fn counted(&self) -> &'static [PolicySubject] {
        if policy::refuse(&self.policies) {
            &[PolicySubject::Connections, PolicySubject::Packets]
        } else {
            &[PolicySubject::Connections]
        }
    }

    /// Returns the rules that match datagrams by interface and destination.
    pub(super) fn datagrams(&self, scope: &Scope) -> Vec<NftRule> {
        if !self.refuses(scope) || !policy::refuse(&self.policies) {
            return vec![];
        }
        let end = [Term::NotToThisMachine, Term::ToUnicast, Term::Goto(UDP_POLICY_CHAIN)];
        let decide = |within: NftRule| [&within[..], &end].concat();
        let decide: Vec<NftRule> = scope.terms().into_iter().map(decide).collect();
        self.client_rules(scope, &decide)
    }

    /// Returns the rules of the policies that refuse datagrams. Other datagrams pass; the tunnel's table counts
    /// them.
    pub(super) fn datagram_policies(&self, scope: &Scope) -> Vec<NftRule> {
        if !self.refuses(scope) || !policy::refuse(&self.policies) {
            return vec![];
        }
        let refused = |action| action == PolicyAction::Refuse;
        let usual = vec![Term::Return];
        let subject = PolicySubject::Packets;
        let policies =
            policy::chain(&self.policies, subject, refused, usual, |policy| match policy.action {
                PolicyAction::Refuse if policy.only_quic => vec![Term::Goto(QUIC_REFUSAL_CHAIN)],
                PolicyAction::Refuse => vec![Term::Goto(REFUSAL_CHAIN)],
                _ => vec![Term::Return],
            });
        // A client that serves others answers what was asked.
        let answers = std::iter::once(vec![Term::IsReply, Term::Return]);
        // Clients whose connections pass unaccelerated would gain nothing from TCP.
        answers.chain(self.exempt_clients()).chain(policies).collect()
    }

    /// Returns the rules for refused packets. Those beyond the limit get no answer.
    pub(super) fn refusal(&self, slot: GatewaySlot) -> Vec<NftRule> {
        let mut rules = self.quic_refusal(slot);
        if !rules.is_empty() {
            rules.push(vec![Term::Drop]);
        }
        rules
    }

    /// Returns the rules for refused QUIC. Datagrams beyond the limit pass.
    pub(super) fn quic_refusal(&self, slot: GatewaySlot) -> Vec<NftRule> {
        if !policy::refuse(&self.policies) {
            return vec![];
        }
        // The client knows another destination than the packet has by now, and would ignore the answer.
        let translated = vec![Term::HasTranslatedDestination, Term::Return];
        let limit = Term::RateLimit(LOGGED_REFUSALS);
        vec![translated, vec![limit, Term::Log(slot.refusal_group()), Term::Drop]]
    }
}
