//! DLEP data items (RFC 8175 §13), the contents of signals and messages.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::traffic::Prefix;

use super::DlepStatusCode;

/// Length of an item's type and length fields, in bytes.
const HEADER: usize = 4;
/// The first flag of every item. For an address or subnet it means that it is added, otherwise removed.
const FLAG: u8 = 1;

/// Type codes (RFC 8175 §13, Table 3).
pub mod code {
    /// Status (§13.1).
    pub const STATUS: u16 = 1;
    /// IPv4 Connection Point (§13.2).
    pub const IPV4_CONNECTION_POINT: u16 = 2;
    /// IPv6 Connection Point (§13.3).
    pub const IPV6_CONNECTION_POINT: u16 = 3;
    /// Peer Type (§13.4).
    pub const PEER_TYPE: u16 = 4;
    /// Heartbeat Interval (§13.5).
    pub const HEARTBEAT_INTERVAL: u16 = 5;
    /// Extensions Supported (§13.6).
    pub const EXTENSIONS_SUPPORTED: u16 = 6;
    /// MAC Address (§13.7).
    pub const MAC_ADDRESS: u16 = 7;
    /// IPv4 Address (§13.8).
    pub const IPV4_ADDRESS: u16 = 8;
    /// IPv6 Address (§13.9).
    pub const IPV6_ADDRESS: u16 = 9;
    /// IPv4 Attached Subnet (§13.10).
    pub const IPV4_ATTACHED_SUBNET: u16 = 10;
    /// IPv6 Attached Subnet (§13.11).
    pub const IPV6_ATTACHED_SUBNET: u16 = 11;
    /// Maximum Data Rate (Receive), bit/s (§13.12).
    pub const MAXIMUM_DATA_RATE_RECEIVE: u16 = 12;
    /// Maximum Data Rate (Transmit), bit/s (§13.13).
    pub const MAXIMUM_DATA_RATE_TRANSMIT: u16 = 13;
    /// Current Data Rate (Receive), bit/s (§13.14).
    pub const CURRENT_DATA_RATE_RECEIVE: u16 = 14;
    /// Current Data Rate (Transmit), bit/s (§13.15).
    pub const CURRENT_DATA_RATE_TRANSMIT: u16 = 15;
    /// Latency, µs (§13.16).
    pub const LATENCY: u16 = 16;
    /// Resources, percent (§13.17).
    pub const RESOURCES: u16 = 17;
    /// Relative Link Quality (Transmit), percent (§13.19).
    pub const RELATIVE_LINK_QUALITY_TRANSMIT: u16 = 19;
    /// Maximum Transmission Unit, bytes (§13.20).
    pub const MAXIMUM_TRANSMISSION_UNIT: u16 = 20;
}

/// Link-layer address of a destination: EUI-48 or EUI-64 (RFC 8175 §13.7).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkAddress {
    bytes: [u8; 8],
    length: u8,
}

impl LinkAddress {
    /// An address of 6 or 8 bytes; `None` for any other length.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut mac = Self { bytes: [0; 8], length: bytes.len() as u8 };
        matches!(bytes.len(), 6 | 8).then(|| mac.bytes[..bytes.len()].copy_from_slice(bytes))?;
        Some(mac)
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl fmt::Display for LinkAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes: Vec<String> = self.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        f.write_str(&bytes.join(":"))
    }
}

impl fmt::Debug for LinkAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A parsed item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataItem {
    /// Outcome of a message, with explanatory text (§13.1).
    Status(DlepStatusCode, String),
    /// Address at which the modem accepts a session (§13.2, §13.3).
    ConnectionPoint {
        /// The modem's address for the TCP connection.
        address: IpAddr,
        /// Its TCP port; `None` for the default, 854.
        port: Option<u16>,
        /// `true` if sessions are accepted over TLS only.
        tls: bool,
    },
    /// Description of the peer (§13.4).
    PeerType(String),
    /// Interval of the peer's heartbeats (§13.5).
    HeartbeatInterval(Duration),
    /// Extensions to RFC 8175 that the peer supports (§13.6).
    ExtensionsSupported(Vec<u16>),
    /// The destination that the message concerns (§13.7).
    MacAddress(LinkAddress),
    /// An address of a destination, as a prefix of full length, or a subnet behind it (§13.8 to
    /// §13.11).
    Network {
        /// `true` for a subnet behind the destination, `false` for an address of it.
        subnet: bool,
        /// `true` if it is added, `false` if it is removed.
        add: bool,
        /// The address, as a prefix of full length, or the subnet.
        prefix: Prefix,
    },
    /// A link metric (§13.12 to §13.20): type code, and value in bit/s, microseconds, percent or
    /// bytes.
    Metric(u16, u64),
}

/// The item's length or value does not fit its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidItem;

impl DataItem {
    /// Parses an item's value; `None` if RFC 8175 does not define the type.
    pub fn parse(code: u16, value: &[u8]) -> Option<Result<Self, InvalidItem>> {
        use code::*;
        let item = match code {
            STATUS => value
                .split_first()
                .map(|(status, text)| Self::Status(DlepStatusCode::from(*status), printable(text))),
            IPV4_CONNECTION_POINT | IPV6_CONNECTION_POINT => connection_point(code, value),
            // The flags only tell whether the medium is secured (§13.4).
            PEER_TYPE => value.split_first().map(|(_, text)| Self::PeerType(printable(text))),
            HEARTBEAT_INTERVAL => heartbeat_interval(value),
            EXTENSIONS_SUPPORTED => value.len().is_multiple_of(2).then(|| {
                let pairs = value.chunks_exact(2);
                Self::ExtensionsSupported(pairs.map(|pair| number(pair) as u16).collect())
            }),
            MAC_ADDRESS => LinkAddress::new(value).map(Self::MacAddress),
            IPV4_ADDRESS..=IPV6_ATTACHED_SUBNET => network(code, value),
            MAXIMUM_DATA_RATE_RECEIVE..=MAXIMUM_TRANSMISSION_UNIT => metric(code, value),
            _ => return None,
        };
        Some(item.ok_or(InvalidItem))
    }

    /// The type code, which for addresses also tells the IP version (Table 3).
    pub fn code(&self) -> u16 {
        match self {
            Self::Status(..) => code::STATUS,
            Self::ConnectionPoint { address: IpAddr::V4(_), .. } => code::IPV4_CONNECTION_POINT,
            Self::ConnectionPoint { .. } => code::IPV6_CONNECTION_POINT,
            Self::PeerType(_) => code::PEER_TYPE,
            Self::HeartbeatInterval(_) => code::HEARTBEAT_INTERVAL,
            Self::ExtensionsSupported(_) => code::EXTENSIONS_SUPPORTED,
            Self::MacAddress(_) => code::MAC_ADDRESS,
            Self::Network { subnet, prefix, .. } => match (subnet, prefix.address()) {
                (false, IpAddr::V4(_)) => code::IPV4_ADDRESS,
                (false, IpAddr::V6(_)) => code::IPV6_ADDRESS,
                (true, IpAddr::V4(_)) => code::IPV4_ATTACHED_SUBNET,
                (true, IpAddr::V6(_)) => code::IPV6_ATTACHED_SUBNET,
            },
            Self::Metric(code, _) => *code,
        }
    }

    /// Appends the encoded item to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend([0; HEADER]);
        match self {
            Self::Status(status, text) => {
                out.push(u8::from(*status));
                out.extend(text.as_bytes());
            }
            Self::ConnectionPoint { address, port, tls } => {
                out.push(u8::from(*tls) * FLAG);
                emit_address(*address, out);
                port.iter().for_each(|port| out.extend(port.to_be_bytes()));
            }
            Self::PeerType(text) => {
                out.push(0);
                out.extend(text.as_bytes());
            }
            Self::HeartbeatInterval(interval) => {
                let ms = u32::try_from(interval.as_millis()).unwrap_or(u32::MAX);
                out.extend(ms.to_be_bytes());
            }
            Self::ExtensionsSupported(extensions) => {
                extensions.iter().for_each(|extension| out.extend(extension.to_be_bytes()));
            }
            Self::MacAddress(mac) => out.extend(mac.as_bytes()),
            Self::Network { subnet, add, prefix } => {
                out.push(u8::from(*add) * FLAG);
                emit_address(prefix.address(), out);
                subnet.then(|| out.push(prefix.length()));
            }
            Self::Metric(code, value) => out.extend(&value.to_be_bytes()[8 - width(*code)..]),
        }
        let length = out.len() - start - HEADER;
        out[start..start + 2].copy_from_slice(&self.code().to_be_bytes());
        let length = u16::try_from(length).expect("we write no long texts");
        out[start + 2..start + HEADER].copy_from_slice(&length.to_be_bytes());
    }
}

/// Splits the next item off `bytes`: type code and value. `None` if it is incomplete (RFC 8175
/// §11.3).
pub(super) fn split<'a>(bytes: &mut &'a [u8]) -> Option<(u16, &'a [u8])> {
    let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
    let (value, rest) = rest.split_at_checked(number(&header[2..]) as usize)?;
    *bytes = rest;
    Some((number(&header[..2]) as u16, value))
}

/// A big-endian number of up to eight bytes.
pub(super) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Makes untrusted text safe to show on a terminal.
fn printable(text: &[u8]) -> String {
    let shown = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    String::from_utf8_lossy(text).chars().map(shown).collect()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(Ipv4Addr::from_bits(number(bytes) as u32).into()),
        16 => <[u8; 16]>::try_from(bytes).ok().map(|bytes| Ipv6Addr::from(bytes).into()),
        _ => None,
    }
}

fn emit_address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(v4) => out.extend(v4.octets()),
        IpAddr::V6(v6) => out.extend(v6.octets()),
    }
}

fn connection_point(code: u16, value: &[u8]) -> Option<DataItem> {
    let (flags, rest) = value.split_first()?;
    let length = if code == code::IPV4_CONNECTION_POINT { 4 } else { 16 };
    let (bytes, port) = rest.split_at_checked(length)?;
    let port = match port.len() {
        0 => None,
        2 => Some(number(port) as u16),
        _ => return None,
    };
    Some(DataItem::ConnectionPoint { address: address(bytes)?, port, tls: flags & FLAG != 0 })
}

fn heartbeat_interval(value: &[u8]) -> Option<DataItem> {
    let ms = (value.len() == 4).then(|| number(value))?;
    // §13.5: must not be 0.
    (ms > 0).then(|| DataItem::HeartbeatInterval(Duration::from_millis(ms)))
}

fn network(code: u16, value: &[u8]) -> Option<DataItem> {
    let (flags, rest) = value.split_first()?;
    let subnet = matches!(code, code::IPV4_ATTACHED_SUBNET | code::IPV6_ATTACHED_SUBNET);
    let is_v4 = matches!(code, code::IPV4_ADDRESS | code::IPV4_ATTACHED_SUBNET);
    let full = if is_v4 { 4 } else { 16 };
    let (bytes, rest) = rest.split_at_checked(full)?;
    let length = match (subnet, rest) {
        (false, []) => full as u8 * 8,
        (true, [length]) => *length,
        _ => return None,
    };
    let prefix = Prefix::around(address(bytes)?, length)?;
    Some(DataItem::Network { subnet, add: flags & FLAG != 0, prefix })
}

fn metric(code: u16, value: &[u8]) -> Option<DataItem> {
    let number = (value.len() == width(code)).then(|| number(value))?;
    (!is_percentage(code) || number <= 100).then_some(DataItem::Metric(code, number))
}

/// Width of a metric's value, in bytes.
fn width(code: u16) -> usize {
    match code {
        _ if is_percentage(code) => 1,
        code::MAXIMUM_TRANSMISSION_UNIT => 2,
        _ => 8,
    }
}

fn is_percentage(code: u16) -> bool {
    (code::RESOURCES..=code::RELATIVE_LINK_QUALITY_TRANSMIT).contains(&code)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(code: u16, value: &[u8]) -> Option<Result<DataItem, InvalidItem>> {
        DataItem::parse(code, value)
    }

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    /// §13: the wire format of each type.
    #[test]
    fn each_item_is_read_as_the_standard_writes_it() {
        let subnet = |add, text| DataItem::Network { subnet: true, add, prefix: prefix(text) };
        let own = |add, text| DataItem::Network { subnet: false, add, prefix: prefix(text) };
        let point = |address: &str, port, tls| DataItem::ConnectionPoint {
            address: address.parse().unwrap(),
            port,
            tls,
        };
        let v6 = "20010db8000000000000000000000001";
        for (code, hex, item) in [
            (1, "846c617465", DataItem::Status(DlepStatusCode::TIMED_OUT, "late".into())),
            (1, "00", DataItem::Status(DlepStatusCode::SUCCESS, String::new())),
            (2, "00c0000201", point("192.0.2.1", None, false)),
            (2, "01c00002010356", point("192.0.2.1", Some(854), true)),
            (3, &format!("00{v6}"), point("2001:db8::1", None, false)),
            (3, &format!("00{v6}1000"), point("2001:db8::1", Some(4096), false)),
            (4, "016d6f64656d", DataItem::PeerType("modem".into())),
            (5, "0000ea60", DataItem::HeartbeatInterval(Duration::from_secs(60))),
            (6, "00010003", DataItem::ExtensionsSupported(vec![1, 3])),
            (
                7,
                "020000000001",
                DataItem::MacAddress(LinkAddress::new(&[2, 0, 0, 0, 0, 1]).unwrap()),
            ),
            (8, "010a000001", own(true, "10.0.0.1/32")),
            (9, &format!("00{v6}"), own(false, "2001:db8::1/128")),
            (10, "010a01020310", subnet(true, "10.1.0.0/16")),
            (11, &format!("00{v6}20"), subnet(false, "2001:db8::/32")),
            (15, "0000000001312d00", DataItem::Metric(15, 20_000_000)),
            (16, "0000000000044aa2", DataItem::Metric(16, 281_250)),
            (17, "64", DataItem::Metric(17, 100)),
            (20, "05dc", DataItem::Metric(20, 1500)),
        ] {
            assert_eq!(parse(code, &bytes(hex)), Some(Ok(item)), "{code}: {hex}");
        }
    }

    #[test]
    fn malformed_items_are_invalid() {
        for (code, hex) in [
            (1, ""),
            (2, "00c00002"),
            (2, "00c000020103"),
            (4, ""),
            (5, "00000000"),
            (5, "ea60"),
            (6, "000100"),
            (7, "02000000"),
            (8, "0a000001"),
            (8, "010a00000118"),
            (10, "010a010203"),
            (10, "010a01020321"),
            (15, "01312d00"),
            (17, "65"),
            (18, "ff"),
            (20, "05"),
        ] {
            assert_eq!(parse(code, &bytes(hex)), Some(Err(InvalidItem)), "{code}: {hex}");
        }
        assert_eq!((parse(0, &[]), parse(21, &[1]), parse(65_535, &[])), (None, None, None));
    }

    #[test]
    fn words_of_a_modem_write_nothing_else_on_a_terminal() {
        let item = parse(4, b"\0ok\x1b[2J\xff").unwrap().unwrap();
        assert_eq!(item, DataItem::PeerType("ok\u{fffd}[2J\u{fffd}".into()));
    }

    fn bytes(hex: &str) -> Vec<u8> {
        let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(digit).collect()
    }

    proptest! {
        /// A parsed item encodes to something that parses the same.
        #[test]
        fn what_is_read_is_written(code in 0u16..24, value in prop::collection::vec(any::<u8>(), 0..24)) {
            let Some(Ok(item)) = DataItem::parse(code, &value) else { return Ok(()) };
            prop_assert_eq!(item.code(), code);
            let mut out = Vec::new();
            item.emit(&mut out);
            let mut rest = out.as_slice();
            let (code, value) = split(&mut rest).unwrap();
            prop_assert!(rest.is_empty());
            prop_assert_eq!(DataItem::parse(code, value), Some(Ok(item)));
        }
    }
}
