//! May a stream that a terminal opens at a hub pass, and how?
//!
//! Two questions, because a name may have to be resolved in between: [`StreamRequest::admit`] judges
//! the stream as it was opened, [`choose_passage`] its destination's permitted addresses. The caller
//! gathers the facts and acts on the answers; it decides nothing.

use std::net::SocketAddr;

use slacp::{Destination, ResetReason, StreamOpening};

use crate::routes::{PermittedTerminal, StreamRoute, TerminalSites};

/// A stream that a terminal has opened, and what decides about it.
#[derive(Debug, Clone, Copy)]
pub struct StreamRequest<'a> {
    /// The terminal of its session; `None` if that is no longer permitted.
    pub terminal: Option<&'a PermittedTerminal>,
    /// The destination in its opening.
    pub destination: &'a Destination,
    /// It asks for enrolment.
    pub enrols: bool,
    /// The terminal's volume is used up, and nothing passes until it is renewed.
    pub is_blocked: bool,
    /// A service of the hub answers the destination.
    pub is_served: bool,
    /// The hub has HTTP exchanges for terminals.
    pub has_exchanges: bool,
    /// The hub is draining, or at its limit of connections or memory.
    pub is_full: bool,
}

/// The way in which an admitted stream is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamTreatment {
    /// A service answers it.
    Serve,
    /// It carries a connection, within the terminal's quota.
    Connect,
    /// It carries an HTTP exchange, which counts like a connection.
    Exchange,
}

impl StreamRequest<'_> {
    /// Decides about the stream.
    ///
    /// # Errors
    /// The reason to reset it.
    pub fn admit(&self) -> Result<StreamTreatment, ResetReason> {
        let terminal = self.terminal.ok_or(ResetReason::Prohibited)?;
        // An invitation serves for enrolment only, and enrolment needs one. A blocked terminal may
        // still enrol.
        if self.enrols != terminal.invited || (self.is_blocked && !self.enrols) {
            return Err(ResetReason::Prohibited);
        }
        if self.is_served {
            return Ok(StreamTreatment::Serve);
        }
        let treatment = match self.destination {
            Destination::Address(_) | Destination::Name(..) => StreamTreatment::Connect,
            Destination::Exchange(_) if self.has_exchanges => StreamTreatment::Exchange,
            // The terminal asks for what this hub did not announce.
            Destination::Exchange(_) | Destination::Resolver | Destination::Bundles => {
                return Err(ResetReason::Prohibited);
            }
        };
        // The terminal lets new connections pass unaccelerated for a while.
        if self.is_full { Err(ResetReason::Limit) } else { Ok(treatment) }
    }
}

/// The way that an admitted connection or exchange takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Passage<S> {
    /// The hub connects to the first of these addresses that answers.
    Here(Vec<SocketAddr>),
    /// The terminal of this session connects to this address.
    Across(S, SocketAddr),
}

/// Chooses the way to a destination with these `permitted` addresses, at least one. If the first is
/// behind a terminal or refused, the others are not tried: all lead to the same host.
///
/// # Errors
/// The reason to reset the stream.
pub fn choose_passage<S: Copy + Ord>(
    sites: &TerminalSites<S>,
    from: S,
    open: &StreamOpening<Destination>,
    mut permitted: Vec<SocketAddr>,
    treatment: StreamTreatment,
    is_blocked: impl Fn(S) -> bool,
) -> Result<Passage<S>, ResetReason> {
    let route = |address| sites.route(from, open.to(address));
    let first = *permitted.first().ok_or(ResetReason::Unreachable)?;
    match route(first) {
        StreamRoute::Local => {
            permitted.retain(|address| matches!(route(*address), StreamRoute::Local));
            Ok(Passage::Here(permitted))
        }
        // A terminal has no exchanges for others, and a blocked one gets nothing.
        StreamRoute::Forward(to) if treatment == StreamTreatment::Exchange || is_blocked(to) => {
            Err(ResetReason::Prohibited)
        }
        StreamRoute::Forward(to) => Ok(Passage::Across(to, first)),
        StreamRoute::Reset(reason) => Err(reason),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use slacp::{Host, PublicKey};

    use super::*;
    use crate::egress::EgressRules;
    use crate::routes::TerminalQuota;

    const WEB: &str = "198.51.100.7:443";

    fn terminal(number: u8) -> PermittedTerminal {
        PermittedTerminal {
            name: format!("ship{number}"),
            key: PublicKey([number; 32]),
            networks: vec![format!("10.{number}.0.0/16").parse().unwrap()],
            egress: EgressRules::everywhere(),
            carrier: None,
            cache: None,
            quota: TerminalQuota::default(),
            classes: BTreeMap::new(),
            links: BTreeMap::new(),
            volume: None,
            expires: None,
            address: None,
            invited: false,
        }
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn request<'a>(
        terminal: &'a PermittedTerminal,
        destination: &'a Destination,
    ) -> StreamRequest<'a> {
        StreamRequest {
            terminal: Some(terminal),
            destination,
            enrols: false,
            is_blocked: false,
            is_served: false,
            has_exchanges: false,
            is_full: false,
        }
    }

    #[test]
    fn connections_pass_unless_the_terminal_or_the_hub_may_not_have_more() {
        let (member, to) = (terminal(1), Destination::Address(address(WEB)));
        let usual = request(&member, &to);
        assert_eq!(usual.admit(), Ok(StreamTreatment::Connect));
        for (request, reason) in [
            (StreamRequest { terminal: None, ..usual }, ResetReason::Prohibited),
            (StreamRequest { is_blocked: true, ..usual }, ResetReason::Prohibited),
            (StreamRequest { enrols: true, ..usual }, ResetReason::Prohibited),
            (StreamRequest { is_full: true, ..usual }, ResetReason::Limit),
        ] {
            assert_eq!(request.admit(), Err(reason), "{request:?}");
        }
    }

    #[test]
    fn an_invitation_serves_for_enrolment_only_even_if_the_volume_is_used_up() {
        let invited = PermittedTerminal { invited: true, ..terminal(1) };
        let to = Destination::Address(address(WEB));
        let usual = request(&invited, &to);
        assert_eq!(usual.admit(), Err(ResetReason::Prohibited));
        let enrols = StreamRequest { enrols: true, is_served: true, is_blocked: true, ..usual };
        assert_eq!(enrols.admit(), Ok(StreamTreatment::Serve));
    }

    #[test]
    fn services_answer_even_at_a_full_hub_and_what_is_not_offered_is_prohibited() {
        let member = terminal(1);
        let exchange = Destination::Exchange(Host::Address(address(WEB)));
        for to in [&Destination::Resolver, &Destination::Bundles, &exchange] {
            let usual = request(&member, to);
            assert_eq!(usual.admit(), Err(ResetReason::Prohibited), "{to:?}");
            let served = StreamRequest { is_served: true, is_full: true, ..usual };
            assert_eq!(served.admit(), Ok(StreamTreatment::Serve), "{to:?}");
        }
        let offered = StreamRequest { has_exchanges: true, ..request(&member, &exchange) };
        assert_eq!(offered.admit(), Ok(StreamTreatment::Exchange));
        let full = StreamRequest { is_full: true, ..offered };
        assert_eq!(full.admit(), Err(ResetReason::Limit));
    }

    /// Two terminals, with sessions 1 and 2.
    fn passage(
        to: &[&str],
        treatment: StreamTreatment,
        blocked: Option<u8>,
    ) -> Result<Passage<u8>, ResetReason> {
        let mut sites = TerminalSites::new(vec![terminal(1), terminal(2)], true, false);
        sites.add(1, &PublicKey([1; 32]));
        sites.add(2, &PublicKey([2; 32]));
        let (source, destination) = (address("10.1.0.5:4000"), Destination::Resolver);
        let open = StreamOpening { destination, source, dscp: None };
        let to = to.iter().map(|text| address(text)).collect();
        choose_passage(&sites, 1, &open, to, treatment, |session| Some(session) == blocked)
    }

    #[test]
    fn addresses_behind_another_terminal_are_reached_across_and_others_here() {
        use StreamTreatment::{Connect, Exchange};
        let here = |to: &[&str]| Ok(Passage::Here(to.iter().map(|to| address(to)).collect()));
        let ship = "10.2.0.9:80";
        assert_eq!(passage(&[WEB, ship], Connect, Some(2)), here(&[WEB]));
        assert_eq!(passage(&[WEB], Exchange, None), here(&[WEB]));
        assert_eq!(passage(&[ship, WEB], Connect, None), Ok(Passage::Across(2, address(ship))));
        assert_eq!(passage(&[ship], Connect, Some(2)), Err(ResetReason::Prohibited));
        assert_eq!(passage(&[ship], Exchange, None), Err(ResetReason::Prohibited));
        assert_eq!(
            passage(&["10.1.0.9:80"], Connect, None),
            Ok(Passage::Across(1, address("10.1.0.9:80")))
        );
    }
}
