//! Refusals of packets in the name of their destination: a RST for a SYN, *port unreachable* for a UDP datagram.

use std::net::IpAddr;

use super::icmp::port_unreachable;
use super::packet::Packet;
use super::ports::{TCP, UDP};
use super::syn::Syn;

/// An IP packet that refuses another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The sender of the refused packet.
    pub client: IpAddr,
    /// The packet to send to it, with the destination of the refused packet as source.
    pub packet: Vec<u8>,
}

impl Refusal {
    /// Builds the answer to the SYN or UDP datagram in an IP packet, of which the end may be missing if it is UDP.
    /// `None` for other packets and for addresses to which no error may be sent (RFC 1122 §3.2.2, RFC 4443 §2.4):
    /// broadcast, multicast, link-local and unspecified ones, and later fragments.
    pub fn of(packet: &[u8]) -> Option<Self> {
        let headers = Packet::parse(packet).filter(Packet::is_routable)?;
        let client = headers.source;
        match headers.protocol {
            TCP => Some(Self { client, packet: Syn::parse(packet)?.refusal() }),
            UDP if headers.ports.is_some() => {
                let packet = port_unreachable(headers.destination, client, packet);
                Some(Self { client, packet })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::header::{IPV4_HEADER, IPV6_HEADER, pseudo_header, sum};
    use super::super::packet::tests::udp;
    use super::super::syn::syn_packet;
    use super::*;

    #[test]
    fn a_datagram_is_answered_with_port_unreachable_from_its_destination() {
        for (client, server, header, kind) in [
            ("10.1.0.2", "192.0.2.7", IPV4_HEADER, [3, 3]),
            ("fd00:1::2", "2001:db8::7", IPV6_HEADER, [1, 4]),
        ] {
            let sent = [udp(client, server, 0, [5000, 443]), vec![0xc3; 1200]].concat();
            let Refusal { client: to, packet } = Refusal::of(&sent).unwrap();
            let [client, server]: [IpAddr; 2] = [client, server].map(|text| text.parse().unwrap());
            assert_eq!(to, client);
            let read = Packet::parse(&packet).unwrap();
            assert_eq!((read.source, read.destination), (server, client));
            let message = &packet[header..];
            assert_eq!(message[..2], kind);
            assert!(sent.starts_with(&message[8..]) && message.len() == 8 + 128);
            let pseudo = match server {
                IpAddr::V4(_) => 0,
                IpAddr::V6(_) => pseudo_header(server, client, 58, message.len()),
            };
            assert_eq!(sum(pseudo, message), 0xffff);
            let length = packet.len() - if server.is_ipv4() { 0 } else { IPV6_HEADER };
            let at = if server.is_ipv4() { 2 } else { 4 };
            assert_eq!(packet[at..at + 2], (length as u16).to_be_bytes());
        }
    }

    #[test]
    fn a_syn_is_answered_with_a_reset() {
        for v6 in [false, true] {
            let syn = syn_packet(v6, false, b"");
            let refusal = Refusal::of(&syn).unwrap();
            assert_eq!(refusal.packet, Syn::parse(&syn).unwrap().refusal());
            assert_eq!(Some(refusal.client), Packet::parse(&syn).map(|packet| packet.source));
        }
    }

    #[test]
    fn what_must_not_be_answered_is_not() {
        let mut later = udp("10.1.0.2", "192.0.2.7", 0, [5000, 443]);
        later[7] = 9;
        let mut echo = udp("10.1.0.2", "192.0.2.7", 0, [0x0800, 0]);
        echo[9] = 1;
        let mut reset = syn_packet(false, false, b"");
        reset[IPV4_HEADER + 13] = 0x04;
        let from_nobody = udp("0.0.0.0", "192.0.2.7", 0, [68, 67]);
        let to_all = udp("10.1.0.2", "224.0.0.251", 0, [5353, 5353]);
        for packet in [later, echo, reset, from_nobody, to_all] {
            assert_eq!(Refusal::of(&packet), None, "{packet:?}");
        }
    }

    proptest! {
        #[test]
        fn foreign_bytes_are_read_without_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..300), v6: bool,
        ) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = if v6 { 0x60 } else { 0x40 | *first & 0x0f };
            }
            if let Some(refusal) = Refusal::of(&bytes) {
                prop_assert!(refusal.packet.len() <= IPV6_HEADER + 8 + 128);
            }
        }
    }
}
