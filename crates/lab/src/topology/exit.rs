//! The exit of a link's packets.

use std::net::IpAddr;

use os::packet::PacketPort;

use crate::topology::node::site_of;

/// The exit of a link's packets, as indices of the driver's ports.
pub(crate) enum LinkExit {
    /// All packets go to one port.
    To(usize),
    /// Each packet goes to the terminal with its address, multicast to all of them. The n-th port
    /// belongs to the n-th terminal.
    Terminals(Vec<usize>),
}

/// Numbers of packets that could not be sent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SendFailures {
    /// Packets that the kernel refused.
    pub(crate) refused: u64,
    /// Packets whose address belongs to no terminal.
    pub(crate) astray: u64,
}

impl LinkExit {
    /// Sends IP packets, in order; returns the failures.
    pub(crate) fn send(&self, packets: &[Vec<u8>], ports: &[PacketPort]) -> SendFailures {
        match self {
            Self::To(port) => SendFailures { refused: ports[*port].send(packets), astray: 0 },
            Self::Terminals(terminals) => spread(packets, |place, packets| match place {
                PacketRecipient::Terminal(terminal) => match terminals.get(terminal) {
                    Some(port) => SendFailures { refused: ports[*port].send(packets), astray: 0 },
                    None => SendFailures { refused: 0, astray: packets.len() as u64 },
                },
                PacketRecipient::AllTerminals => {
                    let send = |port: &usize| ports[*port].send(packets);
                    SendFailures { refused: terminals.iter().map(send).sum(), astray: 0 }
                }
                PacketRecipient::NoTerminal => {
                    SendFailures { refused: 0, astray: packets.len() as u64 }
                }
            }),
        }
    }
}

/// The recipient of a packet on the forward link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PacketRecipient {
    /// The terminal with this index, from 0.
    Terminal(usize),
    AllTerminals,
    NoTerminal,
}

/// Passes runs of packets with the same recipient to `send`.
fn spread(
    packets: &[Vec<u8>],
    send: impl Fn(PacketRecipient, &[Vec<u8>]) -> SendFailures,
) -> SendFailures {
    let mut total = SendFailures::default();
    // A run at a time, because a port sends a batch with one system call.
    for run in packets.chunk_by(|one, next| place(one) == place(next)) {
        let sent = send(place(&run[0]), run);
        total.refused += sent.refused;
        total.astray += sent.astray;
    }
    total
}

fn place(packet: &[u8]) -> PacketRecipient {
    match destination(packet) {
        Some(to) if to.is_multicast() => PacketRecipient::AllTerminals,
        Some(to) => site_of(to)
            .map_or(PacketRecipient::NoTerminal, |site| PacketRecipient::Terminal(site.index())),
        None => PacketRecipient::NoTerminal,
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
                let at = PacketRecipient::Terminal(usize::from(site) - 1);
                assert_eq!(place(&packet4(node.address4().octets())), at, "{node}");
                assert_eq!(place(&packet6(node.address6().octets())), at, "{node}");
            }
        }
    }

    #[test]
    fn packets_without_a_destination_go_nowhere() {
        assert_eq!(place(&packet4([192, 0, 2, 1])), PacketRecipient::NoTerminal);
        assert_eq!(place(&packet4(Node::Server.address4().octets())), PacketRecipient::NoTerminal);
        assert_eq!(place(&packet4([224, 0, 0, 1])), PacketRecipient::AllTerminals);
        assert_eq!(place(&[0x45; 19]), PacketRecipient::NoTerminal);
        assert_eq!(place(&[0x60; 39]), PacketRecipient::NoTerminal);
        assert_eq!(place(&[]), PacketRecipient::NoTerminal);
    }

    #[test]
    fn runs_keep_the_order_of_each_terminal() {
        let [one, two] =
            [1, 2].map(|site| packet4(Node::client(site).unwrap().address4().octets()));
        let packets = [one.clone(), one, two.clone(), packet4([192, 0, 2, 1]), two];
        let seen = RefCell::new(Vec::new());
        spread(&packets, |place, run| {
            seen.borrow_mut().push((place, run.len()));
            SendFailures::default()
        });
        let one = PacketRecipient::Terminal(0);
        let two = PacketRecipient::Terminal(1);
        assert_eq!(
            seen.into_inner(),
            [(one, 2), (two, 1), (PacketRecipient::NoTerminal, 1), (two, 1)]
        );
    }
}
