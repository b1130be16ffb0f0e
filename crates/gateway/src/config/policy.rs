//! Sections `[[policy]]`: what to split, tunnel or bypass.

use pep::traffic::{Action, MOST_RULES, Policy, Prefix, policy_rules};

use super::classes::{DSCP_FORM, PORTS_FORM, code_point, ports};
use super::parse::quoted;
use super::{ConfigError, Source, raw};

/// Name of the policy that stands for `intercept.bypass`.
const BYPASS: &str = "intercept.bypass";

/// The actions available to policies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Choice {
    /// Whether connections are intercepted.
    pub(super) split: bool,
    /// Whether there is a tunnel; never on a solo gateway.
    pub(super) tunnel: bool,
}

impl Source {
    /// All policies of a gateway, starting with those of `bypass`.
    pub(super) fn policies(
        &self,
        bypass: Vec<Prefix>,
        raw: Vec<raw::Policy>,
        choice: Choice,
    ) -> Result<Vec<Policy>, ConfigError> {
        let mut policies = Vec::with_capacity(raw.len() + 1);
        if !bypass.is_empty() {
            policies.push(Policy { to: bypass, ..Policy::new(BYPASS, Action::Bypass) });
        }
        if !raw.is_empty() && !choice.split && !choice.tunnel {
            const ACCEPTED: &str = "the interfaces to the clients, like [\"lan0\"]: [[policy]] \
                                    applies to intercepted traffic";
            return Err(self.missing("intercept.interfaces", ACCEPTED));
        }
        for (index, entry) in raw.into_iter().enumerate() {
            let policy = self.policy(index + 1, entry, choice)?;
            self.check_order(&policies, &policy)?;
            policies.push(policy);
        }
        let rules = policy_rules(&policies);
        if rules > MOST_RULES {
            let problem = format!(
                "each combination of `to`, `from`, `ports` and `dscp` makes a rule: expected at \
                 most {MOST_RULES} in all"
            );
            return Err(self.value("policy", format!("{rules} rules"), problem));
        }
        Ok(policies)
    }

    fn policy(
        &self,
        number: usize,
        raw: raw::Policy,
        choice: Choice,
    ) -> Result<Policy, ConfigError> {
        let policy = Policy {
            name: raw.name.unwrap_or_else(|| number.to_string()),
            to: self.prefixes("policy.to", raw.to)?,
            from: self.prefixes("policy.from", raw.from)?,
            ports: self.each("policy.ports", &raw.ports, PORTS_FORM, ports)?,
            dscp: self.each("policy.dscp", &raw.dscp, DSCP_FORM, code_point)?,
            action: self.action(raw.action)?,
        };
        let refused =
            |problem| Err(self.value("policy.action", quoted(policy.action.as_str()), problem));
        match policy.action {
            Action::Tunnel if !choice.tunnel => {
                refused("section [tunnel] is missing: expected one, or \"split\" or \"bypass\"")
            }
            Action::Split if !choice.split => {
                refused("section [intercept] is missing: expected one, or \"tunnel\" or \"bypass\"")
            }
            Action::Split if !policy.fits_tcp() => {
                refused("only TCP can be split: expected TCP ports, or \"tunnel\" or \"bypass\"")
            }
            _ => Ok(policy),
        }
    }

    fn action(&self, text: Option<String>) -> Result<Action, ConfigError> {
        const ACCEPTED: &str = "\"split\", \"tunnel\" or \"bypass\"";
        let text = text.ok_or_else(|| self.missing("policy.action", ACCEPTED))?;
        let known = Action::ALL.into_iter().find(|action| action.as_str() == text);
        known.ok_or_else(|| {
            self.value("policy.action", quoted(&text), format!("expected {ACCEPTED}"))
        })
    }

    /// Checks that a policy has a unique name, and that earlier policies do not shadow it.
    fn check_order(&self, before: &[Policy], policy: &Policy) -> Result<(), ConfigError> {
        let name = quoted(&policy.name);
        if before.iter().any(|other| other.name == policy.name) {
            let problem = "this name is used twice: expected another";
            return Err(self.value("policy.name", name, problem));
        }
        if let Some(other) = before.iter().find(|other| other.fits_all()) {
            let problem = format!(
                "the earlier policy {:?} matches everything: expected to, from, ports or dscp \
                 there, or another order",
                other.name
            );
            return Err(self.value("policy.name", name, problem));
        }
        Ok(())
    }
}
