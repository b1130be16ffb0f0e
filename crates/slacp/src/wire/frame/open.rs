//! The frames OPEN and MARKED OPEN (`docs/slacp.md`, Frames).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{take, write_numbers};
use crate::wire::open::{Destination, Host, HostName, StreamOpening};
use crate::wire::varint;

pub(super) const OPEN: u8 = 0x04;
pub(super) const MARKED_OPEN: u8 = 0x21;

/// First byte of a destination that is a name. The first byte selects the form of a destination.
const NAME: u8 = 0;
const RESOLVER: u8 = 1;
/// First byte of the destination of an exchange. The address or name of the host follows.
const EXCHANGE: u8 = 2;
const BUNDLES: u8 = 3;
const IPV4: u8 = 4;
const IPV6: u8 = 6;
/// An unknown code point, as is every larger value.
const UNKNOWN: u8 = 64;
/// Bit of the code point's byte that says that the stream's data is sent in segments.
const COMPRESSED: u8 = 0x80;

/// Appends the frame, as OPEN if that can express it, which every peer understands, otherwise as
/// MARKED OPEN. The numbers are stream, window and credit.
pub(super) fn write(
    out: &mut Vec<u8>,
    numbers: [u64; 3],
    compressed: bool,
    open: &StreamOpening<Destination>,
) {
    match (&open.destination, open.dscp) {
        (Destination::Address(destination), None) if !compressed => {
            write_numbers(out, OPEN, &numbers);
            write_address(out, *destination);
        }
        (destination, dscp) => {
            write_numbers(out, MARKED_OPEN, &numbers);
            out.push(dscp.unwrap_or(UNKNOWN) | if compressed { COMPRESSED } else { 0 });
            write_destination(out, destination);
        }
    }
    write_address(out, open.source);
}

/// Reads the fields after the stream number: window and credit, `true` if data is sent in segments,
/// and the purpose of the stream. `None` if they are malformed.
pub(super) fn read(
    kind: u8,
    input: &mut &[u8],
) -> Option<([u64; 2], bool, StreamOpening<Destination>)> {
    let numbers = [varint::read(input)?, varint::read(input)?];
    let (destination, first) = if kind == OPEN {
        (Destination::Address(read_address(input)?), UNKNOWN)
    } else {
        let [first] = take::<1>(input)?;
        (read_destination(input)?, first)
    };
    let compressed = first & COMPRESSED != 0;
    let dscp = Some(first & !COMPRESSED).filter(|dscp| *dscp < UNKNOWN);
    Some((numbers, compressed, StreamOpening { destination, source: read_address(input)?, dscp }))
}

fn write_destination(out: &mut Vec<u8>, destination: &Destination) {
    match destination {
        Destination::Address(address) => write_address(out, *address),
        Destination::Name(name, port) => write_name(out, name, *port),
        Destination::Resolver => out.push(RESOLVER),
        Destination::Exchange(host) => {
            out.push(EXCHANGE);
            match host {
                Host::Address(address) => write_address(out, *address),
                Host::Name(name, port) => write_name(out, name, *port),
            }
        }
        Destination::Bundles => out.push(BUNDLES),
    }
}

fn write_name(out: &mut Vec<u8>, name: &HostName, port: u16) {
    out.extend([NAME, name.as_str().len() as u8]);
    out.extend_from_slice(name.as_str().as_bytes());
    out.extend_from_slice(&port.to_be_bytes());
}

fn read_destination(input: &mut &[u8]) -> Option<Destination> {
    match *input.first()? {
        RESOLVER => take::<1>(input).map(|_| Destination::Resolver),
        EXCHANGE => {
            take::<1>(input)?;
            read_host(input).map(Destination::Exchange)
        }
        BUNDLES => take::<1>(input).map(|_| Destination::Bundles),
        _ => read_host(input).map(Destination::from),
    }
}

fn read_host(input: &mut &[u8]) -> Option<Host> {
    if *input.first()? != NAME {
        return read_address(input).map(Host::Address);
    }
    let [_, length] = take::<2>(input)?;
    let (name, rest) = input.split_at_checked(length.into())?;
    *input = rest;
    let name = HostName::new(core::str::from_utf8(name).ok()?)?;
    Some(Host::Name(name, u16::from_be_bytes(take::<2>(input)?)))
}

/// Writes family (4 or 6), address and port.
fn write_address(out: &mut Vec<u8>, address: SocketAddr) {
    match address.ip() {
        IpAddr::V4(ip) => {
            out.push(IPV4);
            out.extend_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(IPV6);
            out.extend_from_slice(&ip.octets());
        }
    }
    out.extend_from_slice(&address.port().to_be_bytes());
}

fn read_address(input: &mut &[u8]) -> Option<SocketAddr> {
    let ip = match take::<1>(input)? {
        [IPV4] => IpAddr::V4(Ipv4Addr::from(take::<4>(input)?)),
        [IPV6] => IpAddr::V6(Ipv6Addr::from(take::<16>(input)?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_be_bytes(take::<2>(input)?)))
}
