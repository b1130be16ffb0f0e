//! Requests of clients: the 80 bytes at the start of every connection.
//!
//! ```text
//!  0  4  magic "SKYM"
//!  4  1  version, 3
//!  5  1  kind: 1 download, 2 upload, 3 request/reply, 4 UDP, 5 listen for an upload
//!  6  1  amount (download, upload): 0 bytes, 1 time; UDP: 1 down, 2 up, 3 both; else zero
//!  7  1  zero
//!  8  8  key of the payload
//! 16  8  bytes to send, or nanoseconds to send for (download, upload, UDP), else zero
//! 24  8  bytes of a request (request/reply), of a datagram (UDP) or of a window (listen), else
//!        zero
//! 32  8  bytes of a reply (request/reply), else zero
//! 40  4  number of requests (request/reply), else zero
//! 44 16  congestion control of the server's socket, padded with zeros; all zero: its default
//! 60  4  zero
//! 64  8  bits per second to send: the cap (download; zero: none) or the rate (UDP), else zero
//! 72  4  send buffer of the server's socket, bytes; zero: its default
//! 76  4  receive buffer of the server's socket, bytes; zero: its default
//! ```
//!
//! Integers are big-endian. The fields that must be zero are checked, so that a later version can
//! give them a meaning without being misunderstood by this one.

use std::time::Duration;

use thiserror::Error;
use units::{BitRate, ByteCount};

use super::amount::FlowAmount;
use super::direction::Directions;
use super::udp_plan::{DATAGRAMS_MAX, HEAD_LEN, UdpPlan};
use crate::sockets::SocketOptions;
use crate::sockets::congestion::{CongestionControl, NAME_MAX};
use crate::sockets::window::{ReceiveWindow, WindowError};

/// Size of an encoded request in bytes.
pub const REQUEST_LEN: usize = 80;
/// First bytes of every request and answer.
pub(crate) const MAGIC: [u8; 4] = *b"SKYM";
/// Version of the protocol, the same for requests and answers.
pub(crate) const VERSION: u8 = 3;

/// A request to the server to do some work on this connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeterRequest {
    /// Payload key, for both directions.
    pub key: u64,
    /// Options of the server's socket. Buffers of 2^32 bytes or more cannot be requested; no kernel
    /// has them.
    pub sockets: SocketOptions,
    /// The work that is requested.
    pub work: RequestedWork,
}

/// The work to do on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestedWork {
    /// The server sends, the client verifies.
    Download {
        /// Payload to send; a time is at most 2^64 nanoseconds.
        amount: FlowAmount,
        /// Maximum sending rate of the server; a cap of zero means none.
        cap: Option<BitRate>,
    },
    /// The client sends, the server verifies.
    Upload {
        /// Payload that the client will send.
        amount: FlowAmount,
    },
    /// `count` times, the client sends a request and the server a reply.
    RequestReply {
        /// Payload bytes of each request.
        request: u64,
        /// Payload bytes of each reply.
        reply: u64,
        /// Number of requests on this connection.
        count: u32,
    },
    /// Datagrams, at a constant rate.
    Udp(UdpPlan),
    /// The server listens on a separate port for an upload, and holds this receive window there.
    /// The connection stays open until that is done.
    Listen(ReceiveWindow),
}

/// An error in decoding a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RequestError {
    /// Wrong magic: the client is another program.
    #[error("not a meter request: starts with {found:02x?}, not with \"SKYM\"")]
    Magic {
        /// The first four bytes of the request.
        found: [u8; 4],
    },
    /// Another version of the protocol.
    #[error("meter protocol version {found}, this is version {VERSION}")]
    Version {
        /// The version in the request.
        found: u8,
    },
    /// A kind of work unknown to this version.
    #[error("unknown kind of work {found}")]
    Kind {
        /// The kind in the request.
        found: u8,
    },
    /// A kind of amount unknown to this version.
    #[error("unknown kind of amount {found}")]
    Amount {
        /// The kind in the request.
        found: u8,
    },
    /// A byte that must be zero is not.
    #[error("byte {offset} of the request must be zero")]
    NotZero {
        /// Offset of the first byte that is not zero.
        offset: usize,
    },
    /// The name of the congestion control is invalid.
    #[error("the congestion control's name is not visible ASCII padded with zeros")]
    CongestionName,
    /// Invalid parameters of a UDP measurement: the datagrams' size or number, or the direction.
    #[error(
        "invalid UDP measurement: {length} bytes per datagram, {rate} bit/s, direction \
             {direction}"
    )]
    Udp {
        /// Size of a datagram in bytes.
        length: u64,
        /// Requested rate in bits per second.
        rate: u64,
        /// The direction byte in the request.
        direction: u8,
    },
    /// A window that cannot be held.
    #[error(transparent)]
    Window(#[from] WindowError),
    /// The requests, or the replies, exceed 2^64 bytes in total.
    #[error("{count} times {size} bytes is more than 2^64")]
    TooMuch {
        /// Number of requests, and of replies.
        count: u32,
        /// Size in bytes of the larger of request and reply.
        size: u64,
    },
}

impl MeterRequest {
    /// Encodes the request for the wire.
    pub fn encode(&self) -> [u8; REQUEST_LEN] {
        let mut wire = [0; REQUEST_LEN];
        wire[0..4].copy_from_slice(&MAGIC);
        wire[4] = VERSION;
        wire[8..16].copy_from_slice(&self.key.to_be_bytes());
        self.encode_work(&mut wire);
        if let Some(name) = &self.sockets.congestion_control {
            let name = name.as_str().as_bytes();
            wire[44..44 + name.len()].copy_from_slice(name);
        }
        wire[72..76].copy_from_slice(&buffer(self.sockets.send_buffer));
        wire[76..80].copy_from_slice(&buffer(self.sockets.receive_buffer));
        wire
    }

    fn encode_work(&self, wire: &mut [u8; REQUEST_LEN]) {
        match self.work {
            RequestedWork::Download { amount, cap } => {
                wire[5] = 1;
                encode_amount(amount, wire);
                let cap = cap.map_or(0, BitRate::bits_per_second);
                wire[64..72].copy_from_slice(&cap.to_be_bytes());
            }
            RequestedWork::Upload { amount } => {
                wire[5] = 2;
                encode_amount(amount, wire);
            }
            RequestedWork::Udp(plan) => encode_udp(&plan, wire),
            RequestedWork::Listen(window) => {
                wire[5] = 5;
                wire[24..32].copy_from_slice(&u64::from(window).to_be_bytes());
            }
            RequestedWork::RequestReply { request, reply, count } => {
                wire[5] = 3;
                wire[24..32].copy_from_slice(&request.to_be_bytes());
                wire[32..40].copy_from_slice(&reply.to_be_bytes());
                wire[40..44].copy_from_slice(&count.to_be_bytes());
            }
        }
    }

    /// Decodes a request.
    ///
    /// # Errors
    /// If the bytes are not exactly what [`MeterRequest::encode`] produces.
    pub fn decode(wire: &[u8; REQUEST_LEN]) -> Result<Self, RequestError> {
        let found = [wire[0], wire[1], wire[2], wire[3]];
        if found != MAGIC {
            return Err(RequestError::Magic { found });
        }
        if wire[4] != VERSION {
            return Err(RequestError::Version { found: wire[4] });
        }
        let work = decode_work(wire)?;
        // A later version may give these bytes a meaning.
        expect_zero(wire, 7, 8)?;
        expect_zero(wire, 60, 64)?;
        let sockets = SocketOptions {
            congestion_control: decode_name(wire)?,
            send_buffer: decode_buffer(wire, 72),
            receive_buffer: decode_buffer(wire, 76),
        };
        Ok(Self { key: read_u64(wire, 8), sockets, work })
    }
}

fn encode_amount(amount: FlowAmount, wire: &mut [u8; REQUEST_LEN]) {
    let (kind, number) = match amount {
        FlowAmount::Bytes(bytes) => (0, bytes.get()),
        FlowAmount::Time(time) => (1, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
    };
    wire[6] = kind;
    wire[16..24].copy_from_slice(&number.to_be_bytes());
}

fn decode_amount(wire: &[u8; REQUEST_LEN]) -> Result<FlowAmount, RequestError> {
    let number = read_u64(wire, 16);
    match wire[6] {
        0 => Ok(FlowAmount::Bytes(ByteCount::new(number))),
        1 => Ok(FlowAmount::Time(Duration::from_nanos(number))),
        found => Err(RequestError::Amount { found }),
    }
}

fn buffer(size: Option<ByteCount>) -> [u8; 4] {
    let size = size.map_or(0, ByteCount::get);
    u32::try_from(size).unwrap_or(u32::MAX).to_be_bytes()
}

fn decode_buffer(wire: &[u8; REQUEST_LEN], at: usize) -> Option<ByteCount> {
    let size = read_u32(wire, at);
    (size > 0).then(|| ByteCount::new(size.into()))
}

fn decode_work(wire: &[u8; REQUEST_LEN]) -> Result<RequestedWork, RequestError> {
    match wire[5] {
        1 => {
            expect_zero(wire, 24, 44)?;
            let cap = Some(read_u64(wire, 64)).filter(|&cap| cap > 0);
            let cap = cap.map(BitRate::from_bits_per_second);
            Ok(RequestedWork::Download { amount: decode_amount(wire)?, cap })
        }
        2 => {
            expect_zero(wire, 24, 44)?;
            expect_zero(wire, 64, 72)?;
            Ok(RequestedWork::Upload { amount: decode_amount(wire)? })
        }
        3 => {
            expect_zero(wire, 6, 8)?;
            expect_zero(wire, 16, 24)?;
            expect_zero(wire, 64, 72)?;
            decode_request_reply(wire)
        }
        4 => {
            expect_zero(wire, 32, 44)?;
            decode_udp(wire)
        }
        5 => {
            expect_zero(wire, 6, 8)?;
            expect_zero(wire, 16, 24)?;
            expect_zero(wire, 32, 44)?;
            expect_zero(wire, 64, 72)?;
            Ok(RequestedWork::Listen(ReceiveWindow::try_from(read_u64(wire, 24))?))
        }
        found => Err(RequestError::Kind { found }),
    }
}

fn encode_udp(plan: &UdpPlan, wire: &mut [u8; REQUEST_LEN]) {
    encode_amount(FlowAmount::Time(plan.time), wire);
    wire[5] = 4;
    // Replaces the kind of the amount, because a UDP stream is limited only by its time.
    wire[6] = match plan.directions {
        Directions::Download => 1,
        Directions::Upload => 2,
        Directions::Both => 3,
    };
    wire[24..32].copy_from_slice(&u64::from(plan.length).to_be_bytes());
    wire[64..72].copy_from_slice(&plan.rate.bits_per_second().to_be_bytes());
}

fn decode_udp(wire: &[u8; REQUEST_LEN]) -> Result<RequestedWork, RequestError> {
    let length = read_u64(wire, 24);
    let rate = read_u64(wire, 64);
    let direction = wire[6];
    let foreign = || RequestError::Udp { length, rate, direction };
    let directions = match direction {
        1 => Directions::Download,
        2 => Directions::Upload,
        3 => Directions::Both,
        _ => return Err(foreign()),
    };
    let plan = UdpPlan {
        rate: BitRate::from_bits_per_second(rate),
        length: u16::try_from(length).map_err(|_| foreign())?,
        time: Duration::from_nanos(read_u64(wire, 16)),
        directions,
    };
    // The receiver keeps a bit for each planned datagram, so their number must be bounded.
    let fits = usize::from(plan.length) >= HEAD_LEN && plan.datagrams() <= DATAGRAMS_MAX;
    if fits { Ok(RequestedWork::Udp(plan)) } else { Err(foreign()) }
}

fn decode_request_reply(wire: &[u8; REQUEST_LEN]) -> Result<RequestedWork, RequestError> {
    let request = read_u64(wire, 24);
    let reply = read_u64(wire, 32);
    let count = read_u32(wire, 40);
    let size = request.max(reply);
    // Both ends compute stream offsets up to size × count.
    if size.checked_mul(u64::from(count)).is_none() {
        return Err(RequestError::TooMuch { count, size });
    }
    Ok(RequestedWork::RequestReply { request, reply, count })
}

fn decode_name(wire: &[u8; REQUEST_LEN]) -> Result<Option<CongestionControl>, RequestError> {
    // One byte more than the longest name, so that a zero ends each.
    let field = &wire[44..=44 + NAME_MAX];
    let length = field.iter().position(|&byte| byte == 0).ok_or(RequestError::CongestionName)?;
    if field[length..].iter().any(|&byte| byte != 0) {
        return Err(RequestError::CongestionName);
    }
    if length == 0 {
        return Ok(None);
    }
    let name = str::from_utf8(&field[..length]).map_err(|_| RequestError::CongestionName)?;
    name.parse().map(Some).map_err(|_| RequestError::CongestionName)
}

fn expect_zero(wire: &[u8; REQUEST_LEN], from: usize, to: usize) -> Result<(), RequestError> {
    match wire[from..to].iter().position(|&byte| byte != 0) {
        Some(at) => Err(RequestError::NotZero { offset: from + at }),
        None => Ok(()),
    }
}

fn read_u64(wire: &[u8; REQUEST_LEN], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&wire[at..at + 8]);
    u64::from_be_bytes(bytes)
}

fn read_u32(wire: &[u8; REQUEST_LEN], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&wire[at..at + 4]);
    u32::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn amount() -> impl Strategy<Value = FlowAmount> {
        prop_oneof![
            any::<u64>().prop_map(|bytes| FlowAmount::Bytes(ByteCount::new(bytes))),
            any::<u64>().prop_map(|nanos| FlowAmount::Time(Duration::from_nanos(nanos))),
        ]
    }

    fn work() -> impl Strategy<Value = RequestedWork> {
        let cap = prop::option::of((1..u64::MAX).prop_map(BitRate::from_bits_per_second));
        prop_oneof![
            (amount(), cap).prop_map(|(amount, cap)| RequestedWork::Download { amount, cap }),
            amount().prop_map(|amount| RequestedWork::Upload { amount }),
            (1u64..100_000_000, 100u16.., 0u64..10_000_000_000, 0usize..3).prop_map(
                |(rate, length, nanos, way)| RequestedWork::Udp(UdpPlan {
                    rate: BitRate::from_bits_per_second(rate),
                    length,
                    time: Duration::from_nanos(nanos),
                    directions: [Directions::Download, Directions::Upload, Directions::Both][way],
                })
            ),
            (any::<u32>(), any::<u32>(), any::<u32>()).prop_map(|(request, reply, count)| {
                RequestedWork::RequestReply { request: request.into(), reply: reply.into(), count }
            }),
            (2048u64..65_536).prop_map(|window| RequestedWork::Listen(window.try_into().unwrap())),
        ]
    }

    fn sockets() -> impl Strategy<Value = SocketOptions> {
        let name = prop::option::of("[!-~]{1,15}".prop_map(|name| name.parse().unwrap()));
        let size = || prop::option::of((1..u32::MAX).prop_map(|size| ByteCount::new(size.into())));
        (name, size(), size()).prop_map(|(congestion_control, send_buffer, receive_buffer)| {
            SocketOptions { congestion_control, send_buffer, receive_buffer }
        })
    }

    fn request() -> impl Strategy<Value = MeterRequest> {
        (any::<u64>(), sockets(), work()).prop_map(|(key, sockets, work)| MeterRequest {
            key,
            sockets,
            work,
        })
    }

    #[test]
    fn the_wire_format_is_fixed() {
        let request = MeterRequest {
            key: 0x0102_0304_0506_0708,
            sockets: SocketOptions {
                congestion_control: Some("bbr".parse().unwrap()),
                send_buffer: None,
                receive_buffer: Some(ByteCount::new(8192)),
            },
            work: RequestedWork::RequestReply { request: 1000, reply: 10_000, count: 5 },
        };
        let mut wire = [0; REQUEST_LEN];
        wire[..16].copy_from_slice(b"SKYM\x03\x03\0\0\x01\x02\x03\x04\x05\x06\x07\x08");
        wire[30..32].copy_from_slice(&[0x03, 0xe8]);
        wire[38..40].copy_from_slice(&[0x27, 0x10]);
        wire[43] = 5;
        wire[44..47].copy_from_slice(b"bbr");
        wire[78] = 0x20;
        assert_eq!(request.encode(), wire);
    }

    #[test]
    fn every_foreign_field_has_its_own_error() {
        let work = RequestedWork::Upload { amount: FlowAmount::Bytes(ByteCount::new(9)) };
        let good = MeterRequest { key: 1, sockets: SocketOptions::default(), work };
        let with = |at: usize, byte: u8| {
            let mut wire = good.encode();
            wire[at] = byte;
            MeterRequest::decode(&wire).unwrap_err()
        };
        assert_eq!(with(0, b'G'), RequestError::Magic { found: *b"GKYM" });
        assert_eq!(with(4, 1), RequestError::Version { found: 1 });
        assert_eq!(with(5, 9), RequestError::Kind { found: 9 });
        assert_eq!(with(6, 2), RequestError::Amount { found: 2 });
        assert_eq!(with(7, 1), RequestError::NotZero { offset: 7 });
        assert_eq!(with(43, 1), RequestError::NotZero { offset: 43 });
        assert_eq!(with(45, b'x'), RequestError::CongestionName);
        assert_eq!(with(63, 1), RequestError::NotZero { offset: 63 });
        assert_eq!(with(71, 1), RequestError::NotZero { offset: 71 });
    }

    #[test]
    fn a_sum_beyond_64_bits_is_refused() {
        let work = RequestedWork::RequestReply { request: 1, reply: u64::MAX, count: 2 };
        let wire = MeterRequest { key: 1, sockets: SocketOptions::default(), work }.encode();
        let error = RequestError::TooMuch { count: 2, size: u64::MAX };
        assert_eq!(MeterRequest::decode(&wire), Err(error));
    }

    proptest! {
        #[test]
        fn what_was_encoded_decodes(request in request()) {
            prop_assert_eq!(MeterRequest::decode(&request.encode()), Ok(request));
        }

        #[test]
        fn foreign_bytes_are_read_back_or_refused(
            request in request(), at in 0..REQUEST_LEN, byte: u8, noise: [u8; 32],
        ) {
            let mut wire = request.encode();
            wire[at] = byte;
            if let Ok(read) = MeterRequest::decode(&wire) {
                prop_assert_eq!(read.encode(), wire);
            }
            wire[48..].copy_from_slice(&noise);
            let _ = MeterRequest::decode(&wire);
        }
    }
}
