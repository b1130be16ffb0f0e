//! nftables expressions for our rules. Each encodes itself for the kernel and prints itself in nft
//! syntax, so that the two cannot differ.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use os::netlink::netfilter::MessageBatch;
use pep::traffic::quic::{self, QuicVersions};
use pep::traffic::{IpFamily, PolicySubject, Prefix, TCP};

use crate::network::nft::policy;

/// Numbers of netlink attributes that several expressions share (`linux/netfilter/nf_tables.h`).
mod attribute {
    pub(super) const LIST_ELEMENT: u16 = 1;
    pub(super) const EXPRESSION_NAME: u16 = 1;
    pub(super) const EXPRESSION_DATA: u16 = 2;
    pub(super) const DATA_VALUE: u16 = 1;
    pub(super) const DATA_VERDICT: u16 = 2;
    pub(super) const VERDICT_CODE: u16 = 1;
    pub(super) const VERDICT_CHAIN: u16 = 2;
}

const REGISTER: u32 = libc::NFT_REG_1 as u32;
const VERDICT_REGISTER: u32 = libc::NFT_REG_VERDICT as u32;
/// Offset of the flags in the TCP header (RFC 9293 §3.1).
const TCP_FLAGS_OFFSET: u32 = 13;
const FIN_SYN_RST_ACK: u8 = 0x17;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
/// Name of the counter of prohibited packets.
pub(crate) const REFUSED: &str = "refused";
/// Name of the counter of packets whose connection has begun outside of the tunnel.
pub(crate) const BEGUN_OUTSIDE: &str = "begun-outside";
/// Object type of a named counter: NFT_OBJECT_COUNTER.
pub(crate) const COUNTER: u32 = 1;
/// Offset of the first byte of the DNS flags in a UDP datagram; the mask of QR, opcode and RD in it; and RD
/// (RFC 1035 §4.1.1).
const DNS_FLAGS_OFFSET: u32 = 8 + 2;
const QR_OPCODE_RD: u8 = 0xf9;
const RD: u8 = 0x01;
/// Length of the UDP header, and offset of the length in it (RFC 768).
const UDP_HEADER: u16 = 8;
const UDP_LENGTH_OFFSET: u32 = 4;
/// Kinds of refusals: NFT_REJECT_ICMPX_UNREACH, and NFT_REJECT_TCP_RST, which has no code.
const REJECT_BY_ICMP: u32 = 2;
const REJECT_BY_RESET: u32 = 1;
const NO_CODE: u8 = 0;
/// NFT_REJECT_ICMPX_PORT_UNREACH, which the kernel translates for each IP version.
const PORT_UNREACHABLE: u8 = 1;
const FIB_BY_SOURCE: u32 = 1 << 0;
const FIB_BY_DESTINATION: u32 = 1 << 1;
/// Hardware type of Ethernet (`linux/if_arp.h`).
const ARPHRD_ETHER: u16 = 1;
const FIB_WITH_MARK: u32 = 1 << 2;
/// Results of a route look-up: NFT_FIB_RESULT_OIFNAME, NFT_FIB_RESULT_ADDRTYPE.
const FIB_INTERFACE: u32 = 2;
const FIB_ADDRESS_TYPE: u32 = 3;

/// A value of some bits of a packet or connection mark. Bits outside the mask stay unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FirewallMark {
    pub(crate) value: u32,
    pub(crate) mask: u32,
}

impl FirewallMark {
    /// The mark with the bits of its mask cleared.
    pub(crate) fn cleared(self) -> Self {
        Self { value: 0, ..self }
    }
}

/// Mark of packets that no gateway intercepts: the gateways' own connections, and withheld SYNs that they
/// reinject.
pub(crate) const PASS_MARK: FirewallMark = FirewallMark { value: 1 << 24, mask: 1 << 24 };

/// A term of a rule: a match, or an action for packets that matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Term {
    /// The packet is IPv4, or IPv6.
    Version(IpFamily),
    /// The packet is a TCP segment, of either IP version.
    Tcp,
    /// The packet is anything but TCP.
    NotTcp,
    /// The packet is a UDP datagram, of either IP version.
    Udp,
    /// The packet is UDP from this port.
    UdpFrom(u16),
    /// The packet is a DNS query over UDP with recursion desired (RFC 1035 §4.1.1).
    RecursionDesired,
    /// The UDP datagram is the first of a flow, and begins QUIC with one of these versions
    /// ([`quic::begins_quic`]).
    BeginsQuic(QuicVersions),
    /// The packet has any of these mark bits.
    HasAnyMark(u32),
    /// The packet is a SYN without ACK.
    OnlySyn,
    /// The packet is a SYN with ACK.
    SynAck,
    /// The packet came in by this interface.
    FromInterface(String),
    /// The packet goes out by this interface.
    ToInterface(String),
    /// The packet has the mark.
    HasMark(FirewallMark),
    /// The packet's connection has the mark.
    ConnectionHasMark(FirewallMark),
    /// The destination is in the prefix (of the version matched before).
    ToPrefix(Prefix),
    /// The source is in the prefix (of the version matched before).
    FromPrefix(Prefix),
    /// The protocol is this one (TCP or UDP), and the destination port is in this range.
    ToPorts(u8, u16, u16),
    /// The packet has this DSCP (for the version matched before).
    Dscp(IpFamily, u8),
    /// The packet is in the reply direction of its connection.
    IsReply,
    /// The packet belongs to an established connection, or is an error about one.
    IsEstablished,
    /// The packet is an ICMP error about a connection, or begins one that another announced.
    IsRelated,
    /// The packet is not the first one of its connection, answered or not.
    IsOfKnownConnection,
    /// The destination is not an address of this machine.
    NotToThisMachine,
    /// The source is not an address of this machine.
    NotFromThisMachine,
    /// The destination of the connection was translated (DNAT or a redirect).
    HasTranslatedDestination,
    /// The route to the destination leads out by this interface. The kernel looks it up with the
    /// packet's source and mark, but without the interface that it came in by.
    RoutedTo(String),
    /// The frame is for another station than the one with this hardware address.
    NotToMac([u8; 6]),
    /// The destination is a single host, neither broadcast, multicast nor anycast. A router itself
    /// accepts packets to the anycast addresses of its subnets (RFC 4291 §2.6.1).
    ToUnicast,
    /// The packet belongs to a transparent socket of this machine.
    OfTransparentSocket,
    /// Redirect to the listener on a loopback port (for the version matched before).
    Tproxy(IpFamily, u16),
    /// Redirect to the socket with this address and port.
    TproxyTo(SocketAddr),
    /// Reject with an ICMP error: the port is unreachable.
    RejectUnreachable,
    /// Reject a TCP segment with a reset.
    RejectReset,
    /// Set the packet's mark, within the mask.
    SetMark(FirewallMark),
    /// Set the connection's mark, within the mask.
    MarkConnection(FirewallMark),
    /// Count for the policy with this index.
    Count(usize, PolicySubject),
    /// Count as prohibited, in the counter [`REFUSED`].
    CountRefused,
    /// Count in the counter [`BEGUN_OUTSIDE`].
    CountBegunOutside,
    /// Copy to the log group.
    Log(u16),
    /// Match at most this many packets a second, after a burst of the same number.
    RateLimit(u32),
    /// Translate the source address into this machine's.
    Masquerade,
    /// Accept: ends the hook's chain.
    Accept,
    /// Drop the packet without an answer.
    Drop,
    /// Return to the calling chain.
    Return,
    /// Call another chain, which may return to this one.
    Jump(&'static str),
    /// Continue in another chain without returning to this one.
    Goto(&'static str),
}

fn protocol_family(version: IpFamily) -> libc::c_int {
    match version {
        IpFamily::V4 => libc::NFPROTO_IPV4,
        IpFamily::V6 => libc::NFPROTO_IPV6,
    }
}

/// Position of a field in a header, in bytes.
#[derive(Clone, Copy)]
struct HeaderField {
    offset: u32,
    length: u32,
}

/// The source address in the IP header.
fn source(version: IpFamily) -> HeaderField {
    match version {
        IpFamily::V4 => HeaderField { offset: 12, length: 4 },
        IpFamily::V6 => HeaderField { offset: 8, length: 16 },
    }
}

/// The destination address in the IP header.
fn destination(version: IpFamily) -> HeaderField {
    match version {
        IpFamily::V4 => HeaderField { offset: 16, length: 4 },
        IpFamily::V6 => HeaderField { offset: 24, length: 16 },
    }
}

/// The IP version of a prefix.
fn version_of(prefix: &Prefix) -> IpFamily {
    IpFamily::of(prefix.address())
}

impl Term {
    /// Appends the term's expressions to a rule's list.
    pub(crate) fn encode(&self, list: &mut MessageBatch) {
        match self {
            Self::Version(version) => encode_version(list, *version),
            Self::Tcp => compare_protocol(list, libc::NFT_CMP_EQ, libc::IPPROTO_TCP),
            Self::NotTcp => compare_protocol(list, libc::NFT_CMP_NEQ, libc::IPPROTO_TCP),
            Self::Udp => compare_protocol(list, libc::NFT_CMP_EQ, libc::IPPROTO_UDP),
            Self::UdpFrom(port) => encode_udp_from(list, *port),
            Self::RecursionDesired => encode_recursion_desired(list),
            Self::BeginsQuic(versions) => encode_begins_quic(list, *versions),
            Self::HasAnyMark(any) => encode_has_any_mark(list, *any),
            Self::OnlySyn => compare_flags(list, SYN),
            Self::SynAck => compare_flags(list, SYN | ACK),
            Self::FromInterface(name) => encode_interface(list, libc::NFT_META_IIFNAME, name),
            Self::ToInterface(name) => encode_interface(list, libc::NFT_META_OIFNAME, name),
            Self::HasMark(mark) => encode_has_mark(list, *mark),
            Self::ConnectionHasMark(mark) => encode_connection_has_mark(list, *mark),
            Self::ToPrefix(prefix) => encode_prefix(list, destination(version_of(prefix)), *prefix),
            Self::FromPrefix(prefix) => encode_prefix(list, source(version_of(prefix)), *prefix),
            Self::ToPorts(protocol, first, last) => encode_ports(list, *protocol, *first, *last),
            Self::Dscp(version, dscp) => encode_dscp(list, *version, *dscp),
            Self::IsReply => encode_is_reply(list),
            Self::IsEstablished => {
                encode_connection_bits(list, CONNECTION_STATE, ESTABLISHED_OR_RELATED);
            }
            Self::IsRelated => encode_connection_bits(list, CONNECTION_STATE, RELATED),
            Self::IsOfKnownConnection => encode_connection_bits(list, CONNECTION_STATUS, CONFIRMED),
            Self::NotToThisMachine => encode_not_to(list, libc::RTN_LOCAL),
            Self::NotFromThisMachine => encode_not_of_kind(list, FIB_BY_SOURCE, libc::RTN_LOCAL),
            Self::HasTranslatedDestination => {
                encode_connection_bits(list, CONNECTION_STATUS, TRANSLATED_DESTINATION);
            }
            Self::RoutedTo(interface) => encode_routed_to(list, interface),
            Self::NotToMac(station) => encode_not_to_mac(list, station),
            Self::ToUnicast => encode_to_unicast(list),
            Self::OfTransparentSocket => encode_of_transparent_socket(list),
            Self::Tproxy(version, port) => encode_tproxy(list, listener(*version, *port)),
            Self::TproxyTo(socket) => encode_tproxy(list, *socket),
            Self::RejectUnreachable => encode_refusal(list, REJECT_BY_ICMP, PORT_UNREACHABLE),
            Self::RejectReset => encode_refusal(list, REJECT_BY_RESET, NO_CODE),
            Self::SetMark(mark) => encode_mark(list, *mark),
            Self::MarkConnection(mark) => encode_connection_mark(list, *mark),
            Self::Log(group) => expression(list, "log", |data| data.bytes(1, &group.to_be_bytes())),
            Self::RateLimit(rate) => encode_limit(list, *rate),
            Self::Count(index, subject) => encode_count(list, &policy::counter(*index, *subject)),
            Self::CountRefused => encode_count(list, REFUSED),
            Self::CountBegunOutside => encode_count(list, BEGUN_OUTSIDE),
            Self::Masquerade => expression(list, "masq", |_| {}),
            Self::Drop => verdict(list, libc::NF_DROP, None),
            Self::Goto(chain) => verdict(list, libc::NFT_GOTO, Some(chain)),
            Self::Accept => verdict(list, libc::NF_ACCEPT, None),
            Self::Return => verdict(list, libc::NFT_RETURN, None),
            Self::Jump(chain) => verdict(list, libc::NFT_JUMP, Some(chain)),
        }
    }
}

fn encode_version(list: &mut MessageBatch, version: IpFamily) {
    load_meta(list, libc::NFT_META_NFPROTO);
    compare(list, libc::NFT_CMP_EQ, &[protocol_family(version) as u8]);
}

fn encode_udp_from(list: &mut MessageBatch, port: u16) {
    compare_protocol(list, libc::NFT_CMP_EQ, libc::IPPROTO_UDP);
    load_header(list, libc::NFT_PAYLOAD_TRANSPORT_HEADER, 0, 2);
    compare(list, libc::NFT_CMP_EQ, &port.to_be_bytes());
}

fn encode_recursion_desired(list: &mut MessageBatch) {
    // A resolver asks without RD, and would take our answer for that of a lame server.
    load_header(list, libc::NFT_PAYLOAD_TRANSPORT_HEADER, DNS_FLAGS_OFFSET, 1);
    mask(list, &[QR_OPCODE_RD], &[0]);
    compare(list, libc::NFT_CMP_EQ, &[RD]);
}

/// Each part is one that [`quic::begins_quic`] looks at.
fn encode_begins_quic(list: &mut MessageBatch, versions: QuicVersions) {
    let load_payload = |list: &mut MessageBatch, offset: u8, length| {
        let offset = u32::from(UDP_HEADER) + u32::from(offset);
        load_header(list, libc::NFT_PAYLOAD_TRANSPORT_HEADER, offset, length);
    };
    encode_connection_bits(list, CONNECTION_STATE, NEW);
    load_header(list, libc::NFT_PAYLOAD_TRANSPORT_HEADER, UDP_LENGTH_OFFSET, 2);
    compare(list, libc::NFT_CMP_GTE, &(UDP_HEADER + quic::SHORTEST_FIRST).to_be_bytes());
    load_payload(list, 0, 1);
    mask(list, &[quic::LONG_HEADER], &[0]);
    compare(list, libc::NFT_CMP_EQ, &[quic::LONG_HEADER]);
    load_payload(list, quic::VERSION_OFFSET, 4);
    if versions.mask != u32::MAX {
        mask(list, &versions.mask.to_be_bytes(), &[0; 4]);
    }
    compare(list, libc::NFT_CMP_EQ, &versions.value.to_be_bytes());
}

fn encode_has_any_mark(list: &mut MessageBatch, any: u32) {
    load_meta(list, libc::NFT_META_MARK);
    mask(list, &any.to_ne_bytes(), &[0; 4]);
    compare(list, libc::NFT_CMP_NEQ, &[0; 4]);
}

fn encode_has_mark(list: &mut MessageBatch, mark: FirewallMark) {
    load_meta(list, libc::NFT_META_MARK);
    encode_is_marked(list, mark);
}

fn encode_connection_has_mark(list: &mut MessageBatch, mark: FirewallMark) {
    load_connection(list, CONNECTION_MARK);
    encode_is_marked(list, mark);
}

fn encode_is_reply(list: &mut MessageBatch) {
    load_connection(list, CONNECTION_DIRECTION);
    compare(list, libc::NFT_CMP_EQ, &[REPLY]);
}

/// Matches connections that have any of these bits in the property `key`.
fn encode_connection_bits(list: &mut MessageBatch, key: u32, any: u32) {
    load_connection(list, key);
    mask(list, &any.to_ne_bytes(), &[0; 4]);
    compare(list, libc::NFT_CMP_NEQ, &[0; 4]);
}

fn encode_routed_to(list: &mut MessageBatch, interface: &str) {
    look_up(list, FIB_BY_DESTINATION | FIB_WITH_MARK, FIB_INTERFACE);
    compare(list, libc::NFT_CMP_EQ, &interface_name(interface));
}

fn encode_not_to_mac(list: &mut MessageBatch, station: &[u8; 6]) {
    // The station's address is read from an Ethernet header, which other devices lack.
    load_meta(list, libc::NFT_META_IIFTYPE);
    compare(list, libc::NFT_CMP_EQ, &ARPHRD_ETHER.to_ne_bytes());
    load_header(list, libc::NFT_PAYLOAD_LL_HEADER, 0, 6);
    compare(list, libc::NFT_CMP_NEQ, station);
}

fn encode_to_unicast(list: &mut MessageBatch) {
    encode_not_to(list, libc::RTN_BROADCAST);
    encode_not_to(list, libc::RTN_MULTICAST);
    encode_not_to(list, libc::RTN_ANYCAST);
}

fn encode_of_transparent_socket(list: &mut MessageBatch) {
    // NFT_SOCKET_TRANSPARENT: the result is 1 for a transparent socket.
    expression(list, "socket", |data| {
        data.number(1, 0);
        data.number(2, REGISTER);
    });
    compare(list, libc::NFT_CMP_EQ, &[1]);
}

/// References a counter of the table by name.
fn encode_count(list: &mut MessageBatch, counter: &str) {
    expression(list, "objref", |data| {
        data.number(1, COUNTER);
        data.text(2, counter);
    });
}

fn expression(list: &mut MessageBatch, name: &str, data: impl FnOnce(&mut MessageBatch)) {
    list.nest(attribute::LIST_ELEMENT, |element| {
        element.text(attribute::EXPRESSION_NAME, name);
        element.nest(attribute::EXPRESSION_DATA, data);
    });
}

fn value(data: &mut MessageBatch, kind: u16, bytes: &[u8]) {
    data.nest(kind, |value| value.bytes(attribute::DATA_VALUE, bytes));
}

fn load_meta(list: &mut MessageBatch, key: libc::c_int) {
    expression(list, "meta", |data| {
        data.number(1, REGISTER);
        data.number(2, key as u32);
    });
}

fn load_header(list: &mut MessageBatch, base: libc::c_int, offset: u32, length: u32) {
    expression(list, "payload", |data| {
        data.number(1, REGISTER);
        data.number(2, base as u32);
        data.number(3, offset);
        data.number(4, length);
    });
}

fn compare(list: &mut MessageBatch, operation: libc::c_int, with: &[u8]) {
    expression(list, "cmp", |data| {
        data.number(1, REGISTER);
        data.number(2, operation as u32);
        value(data, 3, with);
    });
}

/// Computes `register & and ^ xor` into the register.
fn mask(list: &mut MessageBatch, and: &[u8], xor: &[u8]) {
    expression(list, "bitwise", |data| {
        data.number(1, REGISTER);
        data.number(2, REGISTER);
        data.number(3, and.len() as u32);
        value(data, 4, and);
        value(data, 5, xor);
    });
}

fn compare_protocol(list: &mut MessageBatch, operation: libc::c_int, protocol: libc::c_int) {
    load_meta(list, libc::NFT_META_L4PROTO);
    compare(list, operation, &[protocol as u8]);
}

fn compare_flags(list: &mut MessageBatch, flags: u8) {
    load_header(list, libc::NFT_PAYLOAD_TRANSPORT_HEADER, TCP_FLAGS_OFFSET, 1);
    mask(list, &[FIN_SYN_RST_ACK], &[0]);
    compare(list, libc::NFT_CMP_EQ, &[flags]);
}

/// Loads a property (`result`) of the route to, or back to, an address of the packet.
fn look_up(list: &mut MessageBatch, by: u32, result: u32) {
    expression(list, "fib", |data| {
        data.number(1, REGISTER);
        data.number(2, result);
        data.number(3, by);
    });
}

/// Matches destinations of another address type than `kind`.
fn encode_not_to(list: &mut MessageBatch, kind: libc::c_uchar) {
    encode_not_of_kind(list, FIB_BY_DESTINATION, kind);
}

fn encode_not_of_kind(list: &mut MessageBatch, by: u32, kind: libc::c_uchar) {
    look_up(list, by, FIB_ADDRESS_TYPE);
    compare(list, libc::NFT_CMP_NEQ, &u32::from(kind).to_ne_bytes());
}

/// Matches at most `rate` packets a second.
fn encode_limit(list: &mut MessageBatch, rate: u32) {
    // The kernel's unit of time is the second.
    const SECOND: u64 = 1;
    expression(list, "limit", |data| {
        data.bytes(1, &u64::from(rate).to_be_bytes());
        data.bytes(2, &SECOND.to_be_bytes());
        data.number(3, rate);
    });
}

/// Matches an address of the IP header against the prefix.
fn encode_prefix(list: &mut MessageBatch, field: HeaderField, prefix: Prefix) {
    load_header(list, libc::NFT_PAYLOAD_NETWORK_HEADER, field.offset, field.length);
    mask(list, &prefix.mask(), &vec![0; field.length as usize]);
    match prefix.address() {
        IpAddr::V4(address) => compare(list, libc::NFT_CMP_EQ, &address.octets()),
        IpAddr::V6(address) => compare(list, libc::NFT_CMP_EQ, &address.octets()),
    }
}

fn encode_ports(list: &mut MessageBatch, protocol: u8, first: u16, last: u16) {
    const DESTINATION_PORT: u32 = 2;
    compare_protocol(list, libc::NFT_CMP_EQ, libc::c_int::from(protocol));
    load_header(list, libc::NFT_PAYLOAD_TRANSPORT_HEADER, DESTINATION_PORT, 2);
    if first == last {
        return compare(list, libc::NFT_CMP_EQ, &first.to_be_bytes());
    }
    expression(list, "range", |data| {
        data.number(1, REGISTER);
        data.number(2, libc::NFT_RANGE_EQ as u32);
        value(data, 3, &first.to_be_bytes());
        value(data, 4, &last.to_be_bytes());
    });
}

/// Matches the code point (RFC 2474 §3).
fn encode_dscp(list: &mut MessageBatch, version: IpFamily, dscp: u8) {
    match version {
        IpFamily::V4 => {
            load_header(list, libc::NFT_PAYLOAD_NETWORK_HEADER, 1, 1);
            mask(list, &[0xfc], &[0]);
            compare(list, libc::NFT_CMP_EQ, &[dscp << 2]);
        }
        IpFamily::V6 => {
            // Four bits are in the first byte, two in the second (RFC 8200 §3).
            load_header(list, libc::NFT_PAYLOAD_NETWORK_HEADER, 0, 2);
            mask(list, &0x0fc0_u16.to_be_bytes(), &[0; 2]);
            compare(list, libc::NFT_CMP_EQ, &(u16::from(dscp) << 6).to_be_bytes());
        }
    }
}

/// Address of a listener on loopback, which packets from other machines can only reach by redirection.
fn listener(version: IpFamily, port: u16) -> SocketAddr {
    match version {
        IpFamily::V4 => (Ipv4Addr::LOCALHOST, port).into(),
        IpFamily::V6 => (Ipv6Addr::LOCALHOST, port).into(),
    }
}

/// Redirects to the socket at this address (`tproxy`).
fn encode_tproxy(list: &mut MessageBatch, to: SocketAddr) {
    const ADDRESS_REGISTER: u32 = REGISTER;
    const PORT_REGISTER: u32 = libc::NFT_REG_2 as u32;
    let mut immediate = |register: u32, bytes: &[u8]| {
        expression(list, "immediate", |data| {
            data.number(1, register);
            value(data, 2, bytes);
        });
    };
    match to.ip() {
        IpAddr::V4(address) => immediate(ADDRESS_REGISTER, &address.octets()),
        IpAddr::V6(address) => immediate(ADDRESS_REGISTER, &address.octets()),
    }
    immediate(PORT_REGISTER, &to.port().to_be_bytes());
    expression(list, "tproxy", |data| {
        data.number(1, protocol_family(IpFamily::of(to.ip())) as u32);
        data.number(2, ADDRESS_REGISTER);
        data.number(3, PORT_REGISTER);
    });
}

fn encode_refusal(list: &mut MessageBatch, kind: u32, code: u8) {
    expression(list, "reject", |data| {
        data.number(1, kind);
        data.bytes(2, &[code]);
    });
}

fn encode_interface(list: &mut MessageBatch, key: libc::c_int, interface: &str) {
    load_meta(list, key);
    compare(list, libc::NFT_CMP_EQ, &interface_name(interface));
}

fn interface_name(interface: &str) -> [u8; libc::IFNAMSIZ] {
    // With the padding, so that a longer name with the same beginning does not match.
    let mut name = [0; libc::IFNAMSIZ];
    name[..interface.len()].copy_from_slice(interface.as_bytes());
    name
}

/// Compares the mark in the register with `wanted`, within its mask.
fn encode_is_marked(list: &mut MessageBatch, wanted: FirewallMark) {
    // Marks are in host byte order, unlike header fields.
    mask(list, &wanted.mask.to_ne_bytes(), &[0; 4]);
    compare(list, libc::NFT_CMP_EQ, &wanted.value.to_ne_bytes());
}

/// Sets the bits of `wanted` in the mark in the register.
fn encode_remark(list: &mut MessageBatch, wanted: FirewallMark) {
    mask(list, &(!wanted.mask).to_ne_bytes(), &wanted.value.to_ne_bytes());
}

/// NFT_CT_STATE, and nftables' bits for IP_CT_NEW, and for IP_CT_ESTABLISHED and IP_CT_RELATED.
const CONNECTION_STATE: u32 = 0;
const NEW: u32 = 1 << 3;
const RELATED: u32 = 1 << 2;
const ESTABLISHED_OR_RELATED: u32 = 1 << 1 | RELATED;
/// NFT_CT_DIRECTION, and its value IP_CT_DIR_REPLY for packets towards the originator.
const CONNECTION_DIRECTION: u32 = 1;
const REPLY: u8 = 1;
/// NFT_CT_MARK, in host byte order.
const CONNECTION_MARK: u32 = 3;

/// NFT_CT_STATUS, and its bits IPS_CONFIRMED and IPS_DST_NAT.
const CONNECTION_STATUS: u32 = 2;
const CONFIRMED: u32 = 1 << 3;
const TRANSLATED_DESTINATION: u32 = 1 << 5;

fn load_connection(list: &mut MessageBatch, key: u32) {
    expression(list, "ct", |data| {
        data.number(1, REGISTER);
        data.number(2, key);
    });
}

fn encode_connection_mark(list: &mut MessageBatch, mark: FirewallMark) {
    load_connection(list, CONNECTION_MARK);
    encode_remark(list, mark);
    expression(list, "ct", |data| {
        data.number(2, CONNECTION_MARK);
        data.number(4, REGISTER);
    });
}

fn encode_mark(list: &mut MessageBatch, mark: FirewallMark) {
    const MARK_KEY: u32 = libc::NFT_META_MARK as u32;
    load_meta(list, libc::NFT_META_MARK);
    encode_remark(list, mark);
    expression(list, "meta", |data| {
        data.number(2, MARK_KEY);
        data.number(3, REGISTER);
    });
}

fn verdict(list: &mut MessageBatch, code: libc::c_int, chain: Option<&str>) {
    expression(list, "immediate", |data| {
        data.number(1, VERDICT_REGISTER);
        data.nest(2, |data| {
            data.nest(attribute::DATA_VERDICT, |verdict| {
                verdict.number(attribute::VERDICT_CODE, code as u32);
                if let Some(chain) = chain {
                    verdict.text(attribute::VERDICT_CHAIN, chain);
                }
            });
        });
    });
}

/// Name of the version's header in nft syntax.
fn header(version: IpFamily) -> &'static str {
    match version {
        IpFamily::V4 => "ip",
        IpFamily::V6 => "ip6",
    }
}

/// Formats the term in nft syntax.
impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(IpFamily::V4) => f.write_str("meta nfproto ipv4"),
            Self::Version(IpFamily::V6) => f.write_str("meta nfproto ipv6"),
            Self::Tcp => f.write_str("meta l4proto tcp"),
            Self::NotTcp => f.write_str("meta l4proto != tcp"),
            Self::Udp => f.write_str("meta l4proto udp"),
            Self::UdpFrom(port) => write!(f, "udp sport {port}"),
            Self::BeginsQuic(versions) => write_begins_quic(f, *versions),
            Self::HasAnyMark(any) => write!(f, "meta mark & {any:#010x} != 0x00000000"),
            Self::OnlySyn => f.write_str("tcp flags & (fin | syn | rst | ack) == syn"),
            Self::SynAck => f.write_str("tcp flags & (fin | syn | rst | ack) == (syn | ack)"),
            Self::FromInterface(interface) => write!(f, "iifname {interface:?}"),
            Self::ToPrefix(to) => write!(f, "{} daddr {to}", header(version_of(to))),
            Self::FromPrefix(from) => write!(f, "{} saddr {from}", header(version_of(from))),
            Self::ToPorts(protocol, first, last) => write_ports(f, *protocol, *first, *last),
            Self::Dscp(version, dscp) => write!(f, "{} dscp {dscp}", header(*version)),
            Self::IsReply => f.write_str("ct direction reply"),
            Self::Count(index, subject) => write_count(f, &policy::counter(*index, *subject)),
            Self::CountRefused => write_count(f, REFUSED),
            Self::CountBegunOutside => write_count(f, BEGUN_OUTSIDE),
            Self::IsEstablished => f.write_str("ct state established,related"),
            Self::IsRelated => f.write_str("ct state related"),
            Self::IsOfKnownConnection => f.write_str("ct status confirmed"),
            Self::NotToThisMachine => f.write_str("fib daddr type != local"),
            Self::NotFromThisMachine => f.write_str("fib saddr type != local"),
            Self::HasTranslatedDestination => f.write_str("ct status dnat"),
            Self::RoutedTo(interface) => write!(f, "fib daddr . mark oifname {interface:?}"),
            Self::NotToMac(station) => write_not_to_mac(f, station),
            Self::RateLimit(rate) => write!(f, "limit rate {rate}/second burst {rate} packets"),
            Self::ToUnicast => f.write_str(TO_UNICAST),
            Self::OfTransparentSocket => f.write_str("socket transparent 1"),
            Self::Tproxy(version, port) => Self::TproxyTo(listener(*version, *port)).fmt(f),
            Self::TproxyTo(to) => write!(f, "tproxy {} to {to}", header(IpFamily::of(to.ip()))),
            Self::RejectUnreachable => f.write_str("reject with icmpx port-unreachable"),
            Self::RejectReset => f.write_str("reject with tcp reset"),
            Self::RecursionDesired => f.write_str("@th,80,8 & 0xf9 == 0x1"),
            Self::SetMark(mark) => write_set_mark(f, "meta", *mark),
            Self::ToInterface(interface) => write!(f, "oifname {interface:?}"),
            Self::HasMark(mark) => write_has_mark(f, "meta", *mark),
            Self::ConnectionHasMark(mark) => write_has_mark(f, "ct", *mark),
            Self::MarkConnection(mark) => write_set_mark(f, "ct", *mark),
            Self::Log(group) => write!(f, "log group {group}"),
            Self::Masquerade => f.write_str("masquerade"),
            Self::Drop => f.write_str("drop"),
            Self::Goto(chain) => write!(f, "goto {chain}"),
            Self::Accept => f.write_str("accept"),
            Self::Return => f.write_str("return"),
            Self::Jump(chain) => write!(f, "jump {chain}"),
        }
    }
}

const TO_UNICAST: &str =
    "fib daddr type != broadcast fib daddr type != multicast fib daddr type != anycast";

fn write_ports(f: &mut fmt::Formatter<'_>, protocol: u8, first: u16, last: u16) -> fmt::Result {
    let protocol = if protocol == TCP { "tcp" } else { "udp" };
    write!(f, "{protocol} dport {first}")?;
    if first == last { Ok(()) } else { write!(f, "-{last}") }
}

fn write_begins_quic(f: &mut fmt::Formatter<'_>, versions: QuicVersions) -> fmt::Result {
    let payload = |offset: u8| 8 * (u32::from(UDP_HEADER) + u32::from(offset));
    let (header, version) = (payload(0), payload(quic::VERSION_OFFSET));
    let length = UDP_HEADER + quic::SHORTEST_FIRST;
    let long = quic::LONG_HEADER;
    write!(f, "ct state new udp length >= {length} @th,{header},8 & {long:#x} == {long:#x}")?;
    match versions {
        QuicVersions { mask: u32::MAX, value } => write!(f, " @th,{version},32 == {value:#x}"),
        QuicVersions { mask, value } => {
            write!(f, " @th,{version},32 & {mask:#x} == {value:#x}")
        }
    }
}

fn write_count(f: &mut fmt::Formatter<'_>, counter: &str) -> fmt::Result {
    write!(f, "counter name {counter:?}")
}

fn write_not_to_mac(f: &mut fmt::Formatter<'_>, station: &[u8; 6]) -> fmt::Result {
    let bytes = station.map(|byte| format!("{byte:02x}"));
    write!(f, "ether daddr != {}", bytes.join(":"))
}

/// Writes the match of a mark of the packet (`meta`) or its connection (`ct`).
fn write_has_mark(f: &mut fmt::Formatter<'_>, of: &str, mark: FirewallMark) -> fmt::Result {
    let FirewallMark { value, mask } = mark;
    write!(f, "{of} mark & {mask:#010x} == {value:#010x}")
}

/// Writes the setting of a mark of the packet (`meta`) or its connection (`ct`).
fn write_set_mark(f: &mut fmt::Formatter<'_>, of: &str, mark: FirewallMark) -> fmt::Result {
    let FirewallMark { value, mask } = mark;
    write!(f, "{of} mark set {of} mark & {:#010x} | {value:#010x}", !mask)
}
