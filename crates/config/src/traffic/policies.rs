//! Sections `[[policy]]`: rules by which traffic is split, tunnelled, bypassed or refused; and the key `quic`.

use pep::traffic::{MOST_RULES, PolicyAction, Prefix, TrafficPolicy, policy_rules};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::file::FileError;
use crate::file::item::{DSCP_FORM, Item, code_point};
use crate::file::place::{KeyContext, quoted};
use crate::file::text::TextList;
use crate::traffic::classes::{PORTS_FORM, each, ports};
use crate::values::{Action, QuicChoice};

/// A rule for traffic that matches all of `to`, `from`, `ports` and `dscp`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Policy")]
pub(crate) struct PolicySection {
    /// A unique name for `skyhop status` and metrics. Default: the policy's number.
    pub(crate) name: Option<String>,
    /// Destinations (prefixes). Default: all. A policy matches if every list that it has matches; one without
    /// lists must be the last.
    #[serde(default)]
    pub(crate) to: TextList<Prefix>,
    /// Sources (prefixes). Default: all.
    #[serde(default)]
    pub(crate) from: TextList<Prefix>,
    /// Destination ports, such as `22`, `"5060-5061"` or `"udp/443"`. Default: all.
    #[serde(default)]
    #[schemars(extend("examples" = [[22, "5060-5061", "udp/443"]]))]
    pub(crate) ports: Vec<Item>,
    /// Code points, by name or number. Default: all.
    #[serde(default)]
    #[schemars(extend("examples" = [["EF", "AF41", 8]]))]
    pub(crate) dscp: Vec<Item>,
    /// `"split"`, `"tunnel"`, `"bypass"` or `"refuse"`. Split traffic that is not TCP takes the tunnel if there is
    /// one; tunnelled TCP crosses the hop whole, and the server sees the client; bypassed traffic passes as without
    /// skyhop; clients' refused connections and UDP datagrams are [answered with an
    /// error](traffic.md#refuse-traffic). Tunnel needs `[tunnel]`; not on a solo gateway. Refuse needs
    /// `[intercept]`.
    #[schemars(required)]
    pub(crate) action: Option<Action>,
}

/// Name of the policy that represents `intercept.bypass`.
const BYPASS: &str = "intercept.bypass";

/// The actions available to policies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PolicyActions {
    /// True if connections are intercepted.
    pub(crate) split: bool,
    /// True if clients' traffic is intercepted.
    pub(crate) refuse: bool,
    /// True if there is a tunnel; never on a solo gateway.
    pub(crate) tunnel: bool,
}

/// Reads all policies of a gateway. The first one represents `bypass`.
pub(crate) fn read(
    place: &KeyContext<'_>,
    bypass: Vec<Prefix>,
    raw: Vec<PolicySection>,
    choice: PolicyActions,
) -> Result<Vec<TrafficPolicy>, FileError> {
    let mut policies = Vec::with_capacity(raw.len() + 1);
    if !bypass.is_empty() {
        // First, because the first match decides.
        policies
            .push(TrafficPolicy { to: bypass, ..TrafficPolicy::new(BYPASS, PolicyAction::Bypass) });
    }
    if !raw.is_empty() && !choice.split && !choice.tunnel {
        const EXPECTED: &str = "the interfaces to the clients, like [\"lan0\"]: [[policy]] \
                                applies to intercepted traffic";
        return Err(place.missing_key("intercept.interfaces", EXPECTED));
    }
    for (index, raw) in raw.into_iter().enumerate() {
        let place = place.within("policy").within(index);
        let policy = policy(&place, index + 1, raw, choice)?;
        check_order(&place, &policies, &policy)?;
        policies.push(policy);
    }
    check_number(place, &policies)?;
    Ok(policies)
}

/// Checks that the policies do not make too many rules.
fn check_number(place: &KeyContext<'_>, policies: &[TrafficPolicy]) -> Result<(), FileError> {
    let rules = policy_rules(policies);
    let expected = format!(
        "at most {MOST_RULES} in all: each combination of `to`, `from`, `ports` and `dscp` makes \
         a rule"
    );
    place.check(rules <= MOST_RULES, "policy", format!("{rules} rules"), expected)
}

/// Adds the policy that `quic` stands for, behind all others, so that they can exempt flows.
pub(crate) fn add_quic(
    place: &KeyContext<'_>,
    policies: &mut Vec<TrafficPolicy>,
    quic: QuicChoice,
    choice: PolicyActions,
) -> Result<(), FileError> {
    const INTERCEPT: &str = "section [intercept] with it, or \"pass\"";
    const TUNNEL: &str = "section [tunnel] with it, or \"tcp\" or \"pass\"";
    let policy = match quic {
        QuicChoice::Tcp => {
            place.check(choice.refuse, "quic", quic, INTERCEPT)?;
            TrafficPolicy::of_quic(PolicyAction::Refuse)
        }
        // As what no policy matches.
        QuicChoice::Carry => return place.check(choice.tunnel, "quic", quic, TUNNEL),
        QuicChoice::Pass => TrafficPolicy::of_quic(PolicyAction::Bypass),
    };
    let earlier = policies.iter().find(|other| other.fits_all() || other.name == policy.name);
    if let Some(other) = earlier {
        let expected = format!(
            "no policy {:?}, as policies come before it: one must not match everything, and none be named \
             \"quic\"",
            other.name
        );
        return Err(place.wrong_value("quic", quic, expected));
    }
    policies.push(policy);
    check_number(place, policies)
}

fn policy(
    place: &KeyContext<'_>,
    number: usize,
    raw: PolicySection,
    choice: PolicyActions,
) -> Result<TrafficPolicy, FileError> {
    const ACTIONS: &str = "\"split\", \"tunnel\", \"bypass\" or \"refuse\"";
    let policy = TrafficPolicy {
        name: raw.name.unwrap_or_else(|| number.to_string()),
        to: raw.to.to_vec(),
        from: raw.from.to_vec(),
        ports: each(place, "ports", &raw.ports, PORTS_FORM, ports)?,
        dscp: each(place, "dscp", &raw.dscp, DSCP_FORM, code_point)?,
        only_quic: false,
        action: raw.action.ok_or_else(|| place.missing_key("action", ACTIONS))?.into(),
    };
    let refused =
        |expected| Err(place.wrong_value("action", quoted(policy.action.as_str()), expected));
    match policy.action {
        PolicyAction::Tunnel if !choice.tunnel => {
            refused("section [tunnel] with it, or \"split\" or \"bypass\"")
        }
        PolicyAction::Split if !choice.split => {
            refused("section [intercept] with it, or \"tunnel\" or \"bypass\"")
        }
        PolicyAction::Refuse if !choice.refuse => {
            refused("section [intercept] with it, or \"tunnel\" or \"bypass\"")
        }
        PolicyAction::Split if !policy.fits_tcp() => {
            refused("TCP ports, as only TCP can be split, or \"tunnel\" or \"bypass\"")
        }
        _ => Ok(policy),
    }
}

/// Checks that a policy has a unique name, and that earlier policies do not shadow it.
fn check_order(
    place: &KeyContext<'_>,
    before: &[TrafficPolicy],
    policy: &TrafficPolicy,
) -> Result<(), FileError> {
    let name = quoted(&policy.name);
    let is_new = before.iter().all(|other| other.name != policy.name);
    place.check(is_new, "name", &name, "a name that no earlier policy has")?;
    let Some(other) = before.iter().find(|other| other.fits_all()) else { return Ok(()) };
    let expected = format!(
        "another order, or to, from, ports or dscp in the earlier policy {:?}, which matches \
         everything",
        other.name
    );
    Err(place.wrong_value("name", name, expected))
}
