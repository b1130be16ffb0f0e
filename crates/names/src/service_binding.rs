//! Service bindings (RFC 9460) without HTTP/3, for clients whose QUIC the gateway refuses.

use hickory_proto::op::Message;
use hickory_proto::rr::rdata::SVCB;
use hickory_proto::rr::rdata::svcb::{SvcParamKey, SvcParamValue};
use hickory_proto::rr::{RData, Record};

/// Removes HTTP/3 from the service bindings of a reply, and keeps everything else, such as `ech`. Endpoints that have
/// nothing else are removed. AD is cleared if anything changed, because the result was not validated.
pub(super) fn remove_http_3(reply: &mut Message) {
    let mut has_changed = false;
    for section in [&mut reply.answers, &mut reply.additionals] {
        section.retain_mut(|record| {
            let outcome = binding(record).map_or(BindingOutcome::Unchanged, without_http_3);
            has_changed |= outcome != BindingOutcome::Unchanged;
            outcome != BindingOutcome::NothingLeft
        });
    }
    if has_changed {
        reply.metadata.authentic_data = false;
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BindingOutcome {
    Unchanged,
    Changed,
    /// The endpoint speaks only HTTP/3.
    NothingLeft,
}

/// The service binding in a record.
fn binding(record: &mut Record) -> Option<&mut SVCB> {
    match &mut record.data {
        RData::HTTPS(https) => Some(&mut https.0),
        RData::SVCB(binding) => Some(binding),
        _ => None,
    }
}

fn without_http_3(binding: &mut SVCB) -> BindingOutcome {
    let protocols = binding.svc_params.iter_mut().find_map(|(_, value)| match value {
        SvcParamValue::Alpn(alpn) => Some(&mut alpn.0),
        _ => None,
    });
    let Some(protocols) = protocols else { return BindingOutcome::Unchanged };
    let before = protocols.len();
    protocols.retain(|protocol| !is_http_3(protocol));
    if protocols.len() == before {
        return BindingOutcome::Unchanged;
    }
    if !protocols.is_empty() {
        return BindingOutcome::Changed;
    }
    // Without `alpn` the endpoint has the default protocol, over TCP, unless it says that it has not (RFC 9460
    // §7.1.2).
    if binding.svc_params.iter().any(|(key, _)| *key == SvcParamKey::NoDefaultAlpn) {
        return BindingOutcome::NothingLeft;
    }
    remove_alpn(binding);
    BindingOutcome::Changed
}

/// `h3`, and drafts of it such as `h3-29`.
fn is_http_3(protocol: &str) -> bool {
    protocol == "h3" || protocol.starts_with("h3-")
}

/// Removes `alpn`, which must not be empty (RFC 9460 §7.1.1), also from the list of mandatory keys, all of which must
/// be present. That list must not be empty either (§8).
fn remove_alpn(binding: &mut SVCB) {
    binding.svc_params.retain_mut(|(key, value)| match value {
        SvcParamValue::Mandatory(mandatory) => {
            mandatory.0.retain(|key| *key != SvcParamKey::Alpn);
            !mandatory.0.is_empty()
        }
        _ => *key != SvcParamKey::Alpn,
    });
}

#[cfg(test)]
mod tests {
    use hickory_proto::op::{MessageType, OpCode};
    use hickory_proto::rr::Name;
    use hickory_proto::rr::rdata::HTTPS;
    use hickory_proto::rr::rdata::svcb::{Alpn, EchConfigList, Mandatory};

    use super::*;

    type Parameter = (SvcParamKey, SvcParamValue);

    fn alpn(protocols: &[&str]) -> Parameter {
        let protocols = protocols.iter().map(|protocol| (*protocol).to_owned()).collect();
        (SvcParamKey::Alpn, SvcParamValue::Alpn(Alpn(protocols)))
    }

    fn mandatory(keys: &[SvcParamKey]) -> Parameter {
        (SvcParamKey::Mandatory, SvcParamValue::Mandatory(Mandatory(keys.to_vec())))
    }

    fn ech() -> Parameter {
        (SvcParamKey::EchConfigList, SvcParamValue::EchConfigList(EchConfigList(vec![1, 2, 3])))
    }

    fn port() -> Parameter {
        (SvcParamKey::Port, SvcParamValue::Port(8443))
    }

    fn no_default() -> Parameter {
        (SvcParamKey::NoDefaultAlpn, SvcParamValue::NoDefaultAlpn)
    }

    /// A validated reply with an HTTPS and an SVCB record that have these parameters.
    fn reply(parameters: &[Parameter]) -> Message {
        let binding = SVCB::new(1, Name::root(), parameters.to_vec());
        let mut reply = Message::new(0, MessageType::Response, OpCode::Query);
        reply.metadata.authentic_data = true;
        for data in [RData::HTTPS(HTTPS(binding.clone())), RData::SVCB(binding)] {
            reply.add_answer(Record::from_rdata(Name::root(), 60, data));
        }
        // As it arrives.
        Message::from_vec(&reply.to_vec().unwrap()).unwrap()
    }

    /// The parameters of both records after the removal; `None` without records.
    fn left(parameters: &[Parameter]) -> Option<Vec<Parameter>> {
        let mut reply = reply(parameters);
        let before = reply.clone();
        remove_http_3(&mut reply);
        assert_eq!(reply.metadata.authentic_data, reply == before, "AD of a changed reply");
        let mut reply = Message::from_vec(&reply.to_vec().unwrap()).unwrap();
        let mut found: Vec<Vec<Parameter>> = reply
            .answers
            .iter_mut()
            .filter_map(|record| Some(binding(record)?.svc_params.clone()))
            .collect();
        let last = found.pop();
        assert_eq!(found.pop(), last, "HTTPS and SVCB");
        last
    }

    #[test]
    fn a_binding_loses_http_3_and_nothing_else() {
        let many = [alpn(&["h3", "h2", "h3-29", "http/1.1"]), port(), ech()];
        assert_eq!(left(&many), Some(vec![alpn(&["h2", "http/1.1"]), port(), ech()]));
        let strict = [mandatory(&[SvcParamKey::Alpn]), alpn(&["h3", "h2"]), no_default()];
        let expected = vec![mandatory(&[SvcParamKey::Alpn]), alpn(&["h2"]), no_default()];
        assert_eq!(left(&strict), Some(expected));
    }

    #[test]
    fn an_empty_list_of_protocols_goes_with_its_mention() {
        assert_eq!(left(&[alpn(&["h3"]), ech()]), Some(vec![ech()]));
        let alone = [mandatory(&[SvcParamKey::Alpn]), alpn(&["h3"])];
        assert_eq!(left(&alone), Some(vec![]));
        let both = [mandatory(&[SvcParamKey::Alpn, SvcParamKey::Port]), alpn(&["h3"]), port()];
        assert_eq!(left(&both), Some(vec![mandatory(&[SvcParamKey::Port]), port()]));
    }

    #[test]
    fn an_endpoint_with_http_3_only_is_removed() {
        assert_eq!(left(&[alpn(&["h3"]), no_default(), port()]), None);
    }

    #[test]
    fn other_bindings_stay_as_they_are() {
        for parameters in [
            vec![],
            vec![ech()],
            vec![alpn(&["h2", "h3x", "doq"]), ech()],
            vec![mandatory(&[SvcParamKey::Port]), port()],
        ] {
            assert_eq!(left(&parameters), Some(parameters.clone()));
        }
    }
}
