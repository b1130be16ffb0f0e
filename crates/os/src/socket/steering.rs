//! Distribution of UDP datagrams among sockets that share a port.

use std::io;
use std::os::fd::AsFd;

use super::option;

// Instructions of the classic BPF machine (linux/bpf_common.h).
const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
const LOAD_WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
const MODULO: u32 = libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K;
const ADD: u32 = libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K;
const IF_AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
const IF_ABOVE: u32 = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K;
const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
const RETURN_RESULT: u32 = libc::BPF_RET | libc::BPF_A;

/// The distribution of datagrams among sockets, by the first bytes of their payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steering {
    /// The bits of the first byte that are the kind of the datagram. Other kinds than `kind` go to
    /// the first socket.
    pub mask: u8,
    /// The value of the bits of `mask` in the kind that is distributed.
    pub kind: u8,
    /// Position of a big-endian number of 4 bytes in a datagram of that kind. It goes to the socket
    /// whose place, in the order of binding, is this number modulo `sockets`.
    pub number_at: u8,
    /// Number of sockets; at least 1.
    pub sockets: u8,
    /// The sockets of another process that were bound before these.
    pub before: Option<EarlierSockets>,
}

/// Sockets of another process, and the datagrams that go to them instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EarlierSockets {
    /// Number of these sockets; at least 1.
    pub sockets: u8,
    /// The least and the greatest first byte of the numbers that go to these sockets.
    pub first_bytes: (u8, u8),
}

/// Distributes datagrams among all sockets that are bound to the same address with `SO_REUSEPORT`,
/// as this one is (`SO_ATTACH_REUSEPORT_CBPF`, socket(7)). A datagram that is too short for the
/// number goes to the first one.
///
/// # Errors
/// Those of setsockopt(2).
pub fn steer(socket: impl AsFd, steering: Steering) -> io::Result<()> {
    let Steering { mask, kind, number_at, sockets, before } = steering;
    let step = |code: u32, k: u32| instruction(code, k, [0, 0]);
    let place = |first: u8, sockets: u8| {
        [
            step(LOAD_WORD, number_at.into()),
            step(MODULO, sockets.max(1).into()),
            step(ADD, first.into()),
            step(RETURN_RESULT, 0),
        ]
    };
    let first = before.map_or(0, |before| before.sockets);
    let mut program = vec![
        step(LOAD_BYTE, 0),
        step(AND, mask.into()),
        instruction(IF_EQUAL, kind.into(), [1, 0]),
        // Other kinds go to the first socket of this process.
        step(RETURN, first.into()),
    ];
    if let Some(EarlierSockets { sockets, first_bytes: (least, largest) }) = before {
        // Numbers out of that range skip the four instructions that follow.
        program.extend([
            step(LOAD_BYTE, number_at.into()),
            instruction(IF_AT_LEAST, least.into(), [0, 5]),
            instruction(IF_ABOVE, largest.into(), [4, 0]),
        ]);
        program.extend(place(0, sockets));
    }
    program.extend(place(first, sockets));
    let length = program.len() as u16;
    let program = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
    option::set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, program)
}

/// Encodes an instruction. A comparison skips this many further ones if it is true, and if it is
/// false.
fn instruction(code: u32, k: u32, skipped: [u8; 2]) -> libc::sock_filter {
    // The codes have 16 bits.
    libc::sock_filter { code: code as u16, jt: skipped[0], jf: skipped[1], k }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};
    use std::time::Duration;

    use std::os::fd::AsRawFd;

    use nix::sys::socket::{
        AddressFamily, SockFlag, SockType, SockaddrIn, bind, setsockopt, socket, sockopt,
    };

    use super::*;

    const SOCKETS: u8 = 3;

    /// Sockets on one port of the loopback interface, with their places.
    fn group() -> (Vec<UdpSocket>, u16) {
        let (mut sockets, mut port): (Vec<UdpSocket>, u16) = (Vec::new(), 0);
        for _ in 0..SOCKETS {
            let inet = AddressFamily::Inet;
            let datagram = SockType::Datagram;
            let socket = socket(inet, datagram, SockFlag::SOCK_CLOEXEC, None).unwrap();
            setsockopt(&socket, sockopt::ReusePort, &true).unwrap();
            bind(socket.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, port)).unwrap();
            let socket = UdpSocket::from(socket);
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            port = socket.local_addr().unwrap().port();
            sockets.push(socket);
        }
        (sockets, port)
    }

    #[test]
    fn datagrams_go_where_their_numbers_say() {
        let (sockets, port) = group();
        let mask = 0xcc;
        let kind = 0x40;
        let number_at = 1;
        let steering = Steering { mask, kind, number_at, sockets: SOCKETS, before: None };
        steer(&sockets[0], steering).unwrap();
        // From many ports, so that the kernel's own choice would differ.
        for number in 0..30u32 {
            let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let [a, b, c, d] = (number * 0x0101_0101).to_be_bytes();
            for (datagram, place) in [
                (vec![0x43, a, b, c, d, 9], (number * 0x0101_0101) % u32::from(SOCKETS)),
                (vec![0x01, a, b, c, d, 9], 0),
                (vec![0x41, a, b], 0),
            ] {
                sender.send_to(&datagram, (Ipv4Addr::LOCALHOST, port)).unwrap();
                let mut buffer = [0; 16];
                let length = sockets[place as usize].recv(&mut buffer).unwrap();
                assert_eq!(buffer[..length], datagram[..], "{number}");
            }
        }
    }
    #[test]
    fn a_process_that_was_there_before_keeps_its_numbers() {
        let (sockets, port) = group();
        let mask = 0xcc;
        let kind = 0x40;
        let number_at = 1;
        let before = Some(EarlierSockets { sockets: 1, first_bytes: (0x40, 0x7f) });
        let steering = Steering { mask, kind, number_at, sockets: SOCKETS - 1, before };
        steer(&sockets[2], steering).unwrap();
        let arrives_at = |datagram: &[u8], place: usize| {
            let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            sender.send_to(datagram, (Ipv4Addr::LOCALHOST, port)).unwrap();
            let mut buffer = [0; 16];
            let length = sockets[place].recv(&mut buffer).unwrap();
            assert_eq!(buffer[..length], *datagram, "place {place}");
        };
        for low in 0..10 {
            let own = 1 + usize::from(low % 2);
            arrives_at(&[0x41, 0x40, 0, 0, low, 9], 0);
            arrives_at(&[0x41, 0x7f, 0, 0, low, 9], 0);
            arrives_at(&[0x41, 0x3f, 0, 0, low, 9], own);
            arrives_at(&[0x41, 0x80, 0, 0, low, 9], own);
            arrives_at(&[0x01, 0x40, 0, 0, low, 9], 1);
        }
        arrives_at(&[0x41, 0x40], 0);
    }
}
