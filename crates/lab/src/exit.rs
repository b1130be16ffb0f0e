//! The exit of a link's packets.

use std::net::IpAddr;

use os::packet::Port;

use crate::node::site_of;

/// The exit of a link's packets, as indices of the driver's ports.
pub(crate) enum Exit {
    /// All packets go to one port.
    To(usize),
    /// Each packet goes to the terminal with its address, multicast to all of them. The n-th port
    /// belongs to the n-th terminal.
    Terminals(Vec<usize>),
}

/// Numbers of packets that could not be sent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sent {
    /// Packets that the kernel refused.
    pub(crate) refused: u64,
    /// Packets whose address belongs to no terminal.
    pub(crate) astray: u64,
}

impl Exit {
    /// Sends IP packets, in order; returns the failures.
    pub(crate) fn send(&self, packets: &[Vec<u8>], ports: &[Port]) -> Sent {
        match self {
            Self::To(port) => Sent { refused: ports[*port].send(packets), astray: 0 },
            Self::Terminals(terminals) => spread(packets, |place, packets| match place {
                Place::Terminal(terminal) => match terminals.get(terminal) {
                    Some(port) => Sent { refused: ports[*port].send(packets), astray: 0 },
                    None => Sent { refused: 0, astray: packets.len() as u64 },
                },
                Place::Everybody => {
                    let send = |port: &usize| ports[*port].send(packets);
                    Sent { refused: terminals.iter().map(send).sum(), astray: 0 }
                }
                Place::Nobody => Sent { refused: 0, astray: packets.len() as u64 },
            }),
        }
    }
}

/// The recipient of a packet on the forward link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The terminal with this index, from 0.
    Terminal(usize),
    Everybody,
    Nobody,
}

/// Passes runs of packets with the same recipient to `send`.
fn spread(packets: &[Vec<u8>], send: impl Fn(Place, &[Vec<u8>]) -> Sent) -> Sent {
    let mut total = Sent::default();
    for run in packets.chunk_by(|one, next| place(one) == place(next)) {
        let sent = send(place(&run[0]), run);
        total.refused += sent.refused;
        total.astray += sent.astray;
    }
    total
}

fn place(packet: &[u8]) -> Place {
    match destination(packet) {
        Some(to) if to.is_multicast() => Place::Everybody,
        Some(to) => site_of(to).map_or(Place::Nobody, |site| Place::Terminal(site.index())),
        None => Place::Nobody,
    }
}

/// The destination of an IP packet.
fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => Some(<[u8; 4]>::try_from(packet.get(16..20)?).ok()?.into()),
        6 => Some(<[u8; 16]>::try_from(packet.get(24..40)?).ok()?.into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::Node;

    fn packet4(to: [u8; 4]) -> Vec<u8> {
        [&[0x45; 16][..], &to].concat()
    }

    fn packet6(to: [u8; 16]) -> Vec<u8> {
        [&[0x60; 24][..], &to].concat()
    }

    #[test]
    fn a_packet_is_for_the_terminal_whose_address_it_has() {
        for site in [1, 2, 17, 32] {
            for node in [Node::client(site), Node::terminal(site)] {
                let node = node.unwrap();
                let at = Place::Terminal(usize::from(site) - 1);
                assert_eq!(place(&packet4(node.address4().octets())), at, "{node}");
                assert_eq!(place(&packet6(node.address6().octets())), at, "{node}");
            }
        }
    }

    #[test]
    fn packets_without_a_destination_go_nowhere() {
        assert_eq!(place(&packet4([192, 0, 2, 1])), Place::Nobody);
        assert_eq!(place(&packet4(Node::Server.address4().octets())), Place::Nobody);
        assert_eq!(place(&packet4([224, 0, 0, 1])), Place::Everybody);
        assert_eq!(place(&[0x45; 19]), Place::Nobody);
        assert_eq!(place(&[0x60; 39]), Place::Nobody);
        assert_eq!(place(&[]), Place::Nobody);
    }

    #[test]
    fn runs_keep_the_order_of_each_terminal() {
        let [one, two] =
            [1, 2].map(|site| packet4(Node::client(site).unwrap().address4().octets()));
        let packets = [one.clone(), one, two.clone(), packet4([192, 0, 2, 1]), two];
        let seen = RefCell::new(Vec::new());
        spread(&packets, |place, run| {
            seen.borrow_mut().push((place, run.len()));
            Sent::default()
        });
        let (one, two) = (Place::Terminal(0), Place::Terminal(1));
        assert_eq!(seen.into_inner(), [(one, 2), (two, 1), (Place::Nobody, 1), (two, 1)]);
    }
}
