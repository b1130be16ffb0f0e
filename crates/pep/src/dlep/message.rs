//! DLEP signals and messages (RFC 8175 §11, §12).

use super::DlepStatusCode;
use super::item::{DataItem, LinkAddress, code, number, split};
use crate::work::cost;
use crate::work::inbox::Inbox;

/// Type and length of a message (§11.2), in bytes.
const HEADER: usize = 4;
/// Maximum length of a message with its header, in bytes.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) const LONGEST: usize = HEADER + u16::MAX as usize;
/// Prefix of every signal (§11.1).
const SIGNAL: &[u8] = b"DLEP";
const PEER_DISCOVERY: u16 = 1;
const PEER_OFFER: u16 = 2;

/// Message types (§12, Table 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum MessageKind {
    /// Session Initialization (§12.5).
    SessionInitialization = 1,
    /// Session Initialization Response (§12.6).
    SessionInitializationResponse,
    /// Session Update (§12.7).
    SessionUpdate,
    /// Session Update Response (§12.8).
    SessionUpdateResponse,
    /// Session Termination (§12.9).
    SessionTermination,
    /// Session Termination Response (§12.10).
    SessionTerminationResponse,
    /// Destination Up (§12.11).
    DestinationUp,
    /// Destination Up Response (§12.12).
    DestinationUpResponse,
    /// Destination Announce (§12.13).
    DestinationAnnounce,
    /// Destination Announce Response (§12.14).
    DestinationAnnounceResponse,
    /// Destination Down (§12.15).
    DestinationDown,
    /// Destination Down Response (§12.16).
    DestinationDownResponse,
    /// Destination Update (§12.17).
    DestinationUpdate,
    /// Link Characteristics Request (§12.18).
    LinkCharacteristicsRequest,
    /// Link Characteristics Response (§12.19).
    LinkCharacteristicsResponse,
    /// Heartbeat (§12.20).
    Heartbeat,
}

impl MessageKind {
    const ALL: [Self; 16] = [
        Self::SessionInitialization,
        Self::SessionInitializationResponse,
        Self::SessionUpdate,
        Self::SessionUpdateResponse,
        Self::SessionTermination,
        Self::SessionTerminationResponse,
        Self::DestinationUp,
        Self::DestinationUpResponse,
        Self::DestinationAnnounce,
        Self::DestinationAnnounceResponse,
        Self::DestinationDown,
        Self::DestinationDownResponse,
        Self::DestinationUpdate,
        Self::LinkCharacteristicsRequest,
        Self::LinkCharacteristicsResponse,
        Self::Heartbeat,
    ];

    /// Items that a message of this type must contain exactly once.
    fn required(self) -> &'static [u16] {
        use code::*;
        match self {
            // §12.6: with default values for every metric that is mandatory.
            Self::SessionInitializationResponse => &[
                STATUS,
                PEER_TYPE,
                HEARTBEAT_INTERVAL,
                MAXIMUM_DATA_RATE_RECEIVE,
                MAXIMUM_DATA_RATE_TRANSMIT,
                CURRENT_DATA_RATE_RECEIVE,
                CURRENT_DATA_RATE_TRANSMIT,
                LATENCY,
            ],
            Self::SessionInitialization => &[HEARTBEAT_INTERVAL, PEER_TYPE],
            Self::SessionTermination | Self::SessionUpdateResponse => &[STATUS],
            Self::DestinationUpResponse | Self::DestinationDownResponse => &[MAC_ADDRESS, STATUS],
            Self::DestinationUp
            | Self::DestinationDown
            | Self::DestinationUpdate
            | Self::DestinationAnnounce
            | Self::LinkCharacteristicsRequest
            | Self::LinkCharacteristicsResponse => &[MAC_ADDRESS],
            _ => &[],
        }
    }

    /// Returns `true` if a message of this type may contain this item in addition to the required ones.
    fn permits(self, code: u16) -> bool {
        use code::*;
        let link = matches!(code, IPV4_ADDRESS..=MAXIMUM_TRANSMISSION_UNIT);
        match self {
            Self::SessionInitialization => code == EXTENSIONS_SUPPORTED,
            Self::SessionInitializationResponse => link || code == EXTENSIONS_SUPPORTED,
            Self::DestinationAnnounce => matches!(code, IPV4_ADDRESS..=IPV6_ATTACHED_SUBNET),
            Self::LinkCharacteristicsRequest => {
                matches!(code, MAXIMUM_DATA_RATE_RECEIVE..=MAXIMUM_TRANSMISSION_UNIT)
            }
            Self::LinkCharacteristicsResponse => link || code == STATUS,
            Self::SessionUpdate | Self::DestinationUp | Self::DestinationUpdate => link,
            _ => false,
        }
    }
}

/// Returns `true` for items that may be repeated.
fn may_repeat(code: u16) -> bool {
    matches!(code, code::IPV4_ADDRESS..=code::IPV6_ATTACHED_SUBNET)
}

/// A valid message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DlepMessage {
    /// Its type, which decides the items that it may have.
    pub kind: MessageKind,
    /// Its data items, in order.
    pub items: Vec<DataItem>,
}

/// Bytes received on a connection and not yet handled: at most one incomplete message once all complete
/// ones are taken.
#[derive(Debug, Default)]
pub(super) struct MessageInbox(Inbox);

impl MessageInbox {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.0.push(bytes);
    }

    /// Takes the next complete message.
    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        let message = first(self.0.unused())?.to_vec();
        cost::count(message.len());
        self.0.consume(message.len());
        Some(message)
    }

    /// Bytes that are not yet taken.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// The bytes of the first message in `stream`; `None` if it is incomplete.
fn first(stream: &[u8]) -> Option<&[u8]> {
    let length = number(stream.get(2..HEADER)?) as usize;
    stream.get(..HEADER + length)
}

impl DlepMessage {
    /// Parses a complete message of a type accepted by `expected`.
    ///
    /// # Errors
    /// The status code for terminating the session (§12.1).
    pub fn parse(
        bytes: &[u8],
        expected: impl Fn(MessageKind) -> bool,
    ) -> Result<Self, DlepStatusCode> {
        let (header, mut rest) = bytes.split_at(HEADER);
        let number = number(&header[..2]) as usize;
        // Types are numbered from 1 without a gap (Table 1).
        let kind = number.checked_sub(1).and_then(|at| MessageKind::ALL.get(at).copied());
        let kind = kind.ok_or(DlepStatusCode::UNKNOWN_MESSAGE)?;
        if !expected(kind) {
            return Err(DlepStatusCode::UNEXPECTED_MESSAGE);
        }
        let mut message = Self { kind, items: Vec::new() };
        let mut unknown = false;
        while !rest.is_empty() {
            let (code, value) = split(&mut rest).ok_or(DlepStatusCode::INVALID_DATA)?;
            match DataItem::parse(code, value) {
                Some(Ok(item)) if message.takes(code) => message.items.push(item),
                Some(_) => return Err(DlepStatusCode::INVALID_DATA),
                None => unknown = true,
            }
        }
        let good = message.is_complete() && (!unknown || message.may_have_unknown());
        good.then_some(message).ok_or(DlepStatusCode::INVALID_DATA)
    }

    /// Returns `true` if the message may contain another item of this type.
    fn takes(&self, code: u16) -> bool {
        (self.kind.permits(code) || self.kind.required().contains(&code))
            && (may_repeat(code) || self.items.iter().all(|item| item.code() != code))
    }

    /// Returns `true` if all required items are present. A refusal need not contain the metrics.
    fn is_complete(&self) -> bool {
        let refusal = self.status().is_some_and(|(status, _)| status != DlepStatusCode::SUCCESS);
        let has = |code: &u16| self.items.iter().any(|item| item.code() == *code);
        refusal || self.kind.required().iter().all(has)
    }

    /// §12.6: items of extensions may appear here. No extension is supported, so all of them are unknown.
    fn may_have_unknown(&self) -> bool {
        let announces =
            |item: &DataItem| matches!(item, DataItem::ExtensionsSupported(all) if !all.is_empty());
        matches!(
            self.kind,
            MessageKind::SessionInitialization | MessageKind::SessionInitializationResponse
        ) && self.items.iter().any(announces)
    }

    /// The destination that the message concerns.
    pub(super) fn mac(&self) -> Option<LinkAddress> {
        self.items.iter().find_map(|item| match item {
            DataItem::MacAddress(mac) => Some(*mac),
            _ => None,
        })
    }

    /// The status item, with its text.
    pub fn status(&self) -> Option<(DlepStatusCode, &str)> {
        self.items.iter().find_map(|item| match item {
            DataItem::Status(status, text) => Some((*status, text.as_str())),
            _ => None,
        })
    }

    /// Value of the link metric with this type code ([`code`]).
    pub fn metric(&self, code: u16) -> Option<u64> {
        self.items.iter().find_map(|item| match item {
            DataItem::Metric(at, value) if *at == code => Some(*value),
            _ => None,
        })
    }
}

/// Encodes a message with these items.
pub fn emit(kind: MessageKind, items: &[DataItem]) -> Vec<u8> {
    let mut out = (kind as u16).to_be_bytes().to_vec();
    with_length(&mut out, items);
    out
}

/// Appends the length of the items, and the items, to `out`.
fn with_length(out: &mut Vec<u8>, items: &[DataItem]) {
    let at = out.len();
    out.extend([0; 2]);
    items.iter().for_each(|item| item.emit(out));
    let length = u16::try_from(out.len() - at - 2).expect("our messages are short");
    out[at..at + 2].copy_from_slice(&length.to_be_bytes());
}

/// The Peer Discovery signal (§12.3).
pub fn discovery(items: &[DataItem]) -> Vec<u8> {
    signal(PEER_DISCOVERY, items)
}

/// The Peer Offer signal (§12.4).
pub(super) fn offer_of(items: &[DataItem]) -> Vec<u8> {
    signal(PEER_OFFER, items)
}

fn signal(kind: u16, items: &[DataItem]) -> Vec<u8> {
    let mut out = [SIGNAL, &kind.to_be_bytes()].concat();
    with_length(&mut out, items);
    out
}

/// Returns `true` if a datagram is a valid Peer Discovery.
pub(super) fn is_discovery(datagram: &[u8]) -> bool {
    let items = signal_items(PEER_DISCOVERY, datagram);
    items.is_some_and(|items| matches!(items[..], [] | [DataItem::PeerType(_)]))
}

/// Parses a Peer Offer signal (§12.4). Returns its items, or `None` if it is invalid and must be
/// ignored (§12.1).
pub(super) fn offer(datagram: &[u8]) -> Option<Vec<DataItem>> {
    signal_items(PEER_OFFER, datagram)
}

/// Parses a signal of this type; `None` if it contains items that signals cannot have.
fn signal_items(kind: u16, datagram: &[u8]) -> Option<Vec<DataItem>> {
    let rest = datagram.strip_prefix(SIGNAL)?;
    let (header, mut rest) = rest.split_at_checked(HEADER)?;
    if number(&header[..2]) as u16 != kind || number(&header[2..]) as usize != rest.len() {
        return None;
    }
    let mut items: Vec<DataItem> = Vec::new();
    while !rest.is_empty() {
        let (code, value) = split(&mut rest)?;
        let item = DataItem::parse(code, value)?.ok()?;
        // A modem may offer several connection points, but describes itself once (§12.4).
        let again = items.iter().any(|other| other.code() == code);
        match item {
            DataItem::PeerType(_) if !again => items.push(item),
            DataItem::ConnectionPoint { .. } => items.push(item),
            _ => return None,
        }
    }
    Some(items)
}

/// A modem's Session Initialization Response with this current rate.
#[cfg(test)]
pub(super) fn response(rate: u64) -> Vec<DataItem> {
    let metrics = (code::MAXIMUM_DATA_RATE_RECEIVE..=code::LATENCY).map(|code| match code {
        code::CURRENT_DATA_RATE_TRANSMIT => DataItem::Metric(code, rate),
        _ => DataItem::Metric(code, 1_000_000_000),
    });
    let mut items = vec![
        DataItem::Status(DlepStatusCode::SUCCESS, String::new()),
        DataItem::PeerType("test modem".into()),
        DataItem::HeartbeatInterval(std::time::Duration::from_secs(10)),
    ];
    items.extend(metrics);
    items
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::super::item::LinkAddress;
    use super::*;

    fn parse(kind: MessageKind, items: &[DataItem]) -> Result<DlepMessage, DlepStatusCode> {
        DlepMessage::parse(&emit(kind, items), |_| true)
    }

    fn mac(last: u8) -> DataItem {
        DataItem::MacAddress(LinkAddress::new(&[2, 0, 0, 0, 0, last]).unwrap())
    }

    #[test]
    fn a_session_initialization_is_as_the_standard_writes_it() {
        let items = [
            DataItem::HeartbeatInterval(Duration::from_secs(5)),
            DataItem::PeerType("skyhop".into()),
        ];
        let wire = b"\x00\x01\x00\x13\x00\x05\x00\x04\x00\x00\x13\x88\x00\x04\x00\x07\x00skyhop";
        assert_eq!(emit(MessageKind::SessionInitialization, &items), wire);
        assert_eq!(discovery(&items[1..]), b"DLEP\x00\x01\x00\x0b\x00\x04\x00\x07\x00skyhop");
    }

    #[test]
    fn all_sixteen_kinds_have_their_numbers() {
        for (at, kind) in MessageKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, at + 1);
        }
    }

    /// §12.1
    #[test]
    fn each_fault_of_a_message_has_its_status() {
        assert_eq!(parse(MessageKind::DestinationUp, &[mac(1)]).unwrap().items, [mac(1)]);
        let unexpected = DlepMessage::parse(&emit(MessageKind::Heartbeat, &[]), |_| false);
        assert_eq!(unexpected, Err(DlepStatusCode::UNEXPECTED_MESSAGE));
        for wire in [&[0, 0, 0, 0], &[0, 17, 0, 0]] {
            assert_eq!(DlepMessage::parse(wire, |_| true), Err(DlepStatusCode::UNKNOWN_MESSAGE));
        }
        for (kind, items) in [
            // An item repeated, one that does not belong, and one missing.
            (MessageKind::DestinationUp, vec![mac(1), mac(1)]),
            (MessageKind::Heartbeat, vec![mac(1)]),
            (MessageKind::DestinationUpdate, vec![DataItem::Metric(code::LATENCY, 1)]),
            (MessageKind::SessionUpdate, vec![DataItem::Metric(15, 1), DataItem::Metric(15, 1)]),
            (MessageKind::SessionInitializationResponse, response(1)[1..].to_vec()),
        ] {
            assert_eq!(
                parse(kind, &items),
                Err(DlepStatusCode::INVALID_DATA),
                "{kind:?} {items:?}"
            );
        }
        let truncated = [0, 16, 0, 3, 0, 1, 0];
        assert_eq!(DlepMessage::parse(&truncated, |_| true), Err(DlepStatusCode::INVALID_DATA));
    }

    /// §12.6, the exception to §12.1.
    #[test]
    fn unknown_items_pass_with_unknown_extensions_only() {
        let with_unknown = |kind, items: &[DataItem]| {
            let mut wire = emit(kind, items);
            wire.extend([0xf0, 0, 0, 1, 7]);
            let length = (wire.len() - HEADER) as u16;
            wire[2..4].copy_from_slice(&length.to_be_bytes());
            DlepMessage::parse(&wire, |_| true)
        };
        let mut items = response(1);
        let kind = MessageKind::SessionInitializationResponse;
        assert_eq!(with_unknown(kind, &items), Err(DlepStatusCode::INVALID_DATA));
        items.push(DataItem::ExtensionsSupported(vec![0xf000]));
        assert_eq!(with_unknown(kind, &items).unwrap().items, items);
        assert_eq!(with_unknown(MessageKind::Heartbeat, &[]), Err(DlepStatusCode::INVALID_DATA));
    }

    #[test]
    fn a_refusal_needs_no_metrics() {
        let refusal = [DataItem::Status(DlepStatusCode::from(2), "full".into())];
        let message = parse(MessageKind::SessionInitializationResponse, &refusal).unwrap();
        assert_eq!(message.status(), Some((DlepStatusCode::from(2), "full")));
    }

    #[test]
    fn offers_are_read_and_others_ignored() {
        let point = DataItem::ConnectionPoint {
            address: [192, 0, 2, 1].into(),
            port: Some(854),
            tls: false,
        };
        let items = [DataItem::PeerType("m".into()), point];
        let mut wire = discovery(&items);
        assert_eq!(offer(&wire), None, "a discovery is no offer");
        wire[5] = PEER_OFFER as u8;
        assert_eq!(offer(&wire), Some(items.to_vec()));
        for length in 0..wire.len() {
            assert_eq!(offer(&wire[..length]), None);
        }
        let twice = discovery(&[items[0].clone(), items[0].clone()]);
        let strange = discovery(&[mac(1)]);
        for mut wire in [twice, strange] {
            wire[5] = PEER_OFFER as u8;
            assert_eq!(offer(&wire), None);
        }
    }

    proptest! {
        #[test]
        fn foreign_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = offer(&bytes);
            if let Some(message) = first(&bytes) {
                let _ = DlepMessage::parse(message, |_| true);
            }
        }
    }
}
