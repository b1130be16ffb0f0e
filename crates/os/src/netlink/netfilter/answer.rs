//! Decodes the kernel's netfilter messages.

use std::io;

use super::ALIGNMENT;

/// Size of `struct nlmsghdr` in bytes.
const HEADER: usize = 16;
/// Size of `struct nfgenmsg` in bytes.
const GENERIC: usize = 4;

/// An nftables chain on a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseChain {
    /// Name of the family in `nft`.
    pub family: &'static str,
    /// Name of the table that it belongs to.
    pub table: String,
    /// Name of the chain within its table.
    pub name: String,
    /// The number of its hook, such as NF_INET_LOCAL_IN.
    pub hook: libc::c_int,
    /// True if its policy is to drop.
    pub drops: bool,
}

/// The families whose chains see IP packets: their numbers, and their names in `nft`.
const FAMILIES: [(libc::c_int, &str); 3] =
    [(libc::NFPROTO_INET, "inet"), (libc::NFPROTO_IPV4, "ip"), (libc::NFPROTO_IPV6, "ip6")];

impl BaseChain {
    /// Returns the number of its family.
    pub(super) fn family_number(&self) -> libc::c_int {
        let family = FAMILIES.iter().find(|(_, name)| *name == self.family);
        family.map_or(libc::NFPROTO_UNSPEC, |(number, _)| *number)
    }
}

/// Returns true if the kernel's answer contains a rule.
pub(super) fn has_rules(answer: &[u8]) -> bool {
    const RULE: u16 = (libc::NFNL_SUBSYS_NFTABLES as u16) << 8 | libc::NFT_MSG_NEWRULE as u16;
    messages(answer).any(|(kind, _)| kind == RULE)
}

/// Parses the chains on hooks from the kernel's answer.
pub(super) fn base_chains(answer: &[u8]) -> impl Iterator<Item = BaseChain> {
    families(answer).zip(messages(answer)).filter_map(|(family, (_, attributes))| {
        let (_, family) = *FAMILIES.iter().find(|(number, _)| *number == i32::from(family))?;
        // NFTA_CHAIN_TABLE, _NAME, _HOOK with NFTA_HOOK_HOOKNUM, _POLICY.
        let [table, name] = [1, 3].map(|kind| attribute(attributes, kind).map(text));
        let hook = number(attribute(attribute(attributes, 4)?, 1)?)?;
        let drops = number(attribute(attributes, 5)?)? == libc::NF_DROP as u32;
        Some(BaseChain { family, table: table?, name: name?, hook: hook as libc::c_int, drops })
    })
}

fn number(value: &[u8]) -> Option<u32> {
    value.first_chunk::<4>().map(|value| u32::from_be_bytes(*value))
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value.strip_suffix(&[0]).unwrap_or(value)).into_owned()
}

/// A named nftables object with its attributes.
pub struct NftablesObject {
    /// Name of the object in its table.
    pub name: String,
    data: Vec<u8>,
}

/// Parses the named objects from the kernel's answer.
pub(super) fn objects(answer: &[u8]) -> impl Iterator<Item = NftablesObject> {
    messages(answer).filter_map(|(_, object)| NftablesObject::parse(object))
}

impl NftablesObject {
    /// Parses an object from its attributes NFTA_OBJ_NAME and NFTA_OBJ_DATA.
    fn parse(attributes: &[u8]) -> Option<Self> {
        let name = attribute(attributes, 2)?;
        let name = name.strip_suffix(&[0]).unwrap_or(name);
        let data = attribute(attributes, 4)?.to_vec();
        Some(Self { name: String::from_utf8_lossy(name).into_owned(), data })
    }

    /// Returns the number of packets of a counter (NFTA_COUNTER_PACKETS); 0 for other objects.
    pub fn packets(&self) -> u64 {
        let packets = attribute(&self.data, 2).and_then(|value| value.first_chunk::<8>());
        packets.map_or(0, |packets| u64::from_be_bytes(*packets))
    }
}

/// Returns the first error (`struct nlmsgerr`) in the kernel's answer.
pub(super) fn first_error(mut answer: &[u8]) -> io::Result<()> {
    while let Some((header, rest)) = answer.split_first_chunk::<HEADER>() {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        if i32::from(kind) == libc::NLMSG_ERROR
            && let Some(code) = rest.first_chunk::<4>()
            && i32::from_ne_bytes(*code) != 0
        {
            return Err(io::Error::from_raw_os_error(-i32::from_ne_bytes(*code)));
        }
        // At least a header, so that a length of 0 does not loop for ever.
        answer = answer.get(length.next_multiple_of(ALIGNMENT).max(HEADER)..).unwrap_or_default();
    }
    Ok(())
}

/// Returns the logged packets in a message of the log, from the IP header on.
pub fn logged_packets(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    const PACKET: u16 = (libc::NFNL_SUBSYS_ULOG as u16) << 8 | libc::NFULNL_MSG_PACKET as u16;
    messages(bytes)
        .filter(|(kind, _)| *kind == PACKET)
        .filter_map(|(_, message)| attribute(message, libc::NFULA_PAYLOAD as u16))
}

/// Returns the address family (`struct nfgenmsg`) of each of [`messages`].
fn families(bytes: &[u8]) -> impl Iterator<Item = u8> {
    split(bytes).map(|(_, message)| message[0])
}

/// Returns the types of the messages, and their attributes.
fn messages(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    split(bytes).map(|(kind, message)| (kind, &message[GENERIC..]))
}

/// Returns the types of the messages, and the bytes after their headers: at least `struct
/// nfgenmsg`.
fn split(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let header = bytes.first_chunk::<HEADER>()?;
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let message = bytes.get(HEADER..length).filter(|message| message.len() >= GENERIC)?;
        bytes = bytes.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        Some((kind, message))
    })
}

/// Returns the value of an attribute (`struct nlattr`), which may be nested.
fn attribute(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let header = attributes.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let value = attributes.get(4..length)?;
        // The upper bits say that a value is nested or in network byte order.
        if u16::from_ne_bytes([header[2], header[3]]) & libc::NLA_TYPE_MASK as u16 == kind {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(ALIGNMENT)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::super::MessageBatch;
    use super::*;

    #[test]
    fn the_first_error_is_found_behind_an_acknowledgement() {
        let answer = |code: i32| {
            let mut bytes = vec![36, 0, 0, 0, 2, 0];
            bytes.resize(HEADER, 0);
            bytes.extend_from_slice(&code.to_ne_bytes());
            bytes.resize(36, 0);
            bytes
        };
        let both = [answer(0), answer(-libc::EPERM)].concat();
        assert_eq!(first_error(&both).unwrap_err().raw_os_error(), Some(libc::EPERM));
        assert!(first_error(&answer(0)).is_ok());
        assert!(first_error(&[0; 40]).is_ok(), "a length of zero ends");
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn packets_are_found_in_what_was_logged() {
        let message = |kind: u16, attributes: &[(u16, &[u8])]| {
            MessageBatch::single(kind, 2, 5900, 0, |message| {
                attributes.iter().for_each(|(kind, value)| message.bytes(*kind, value));
            })
        };
        let first = message(0x400, &[(1, &[0; 4]), (9, b"packet")]);
        let other = message(2, &[(9, b"no packet")]);
        let second = message(0x400, &[(10, b"x"), (9, b"another")]);
        let all = [first, other, message(0x400, &[]), second].concat();
        let found: Vec<&[u8]> = logged_packets(&all).collect();
        assert_eq!(found, [&b"packet"[..], b"another"]);
        for cut in 0..all.len() {
            assert!(logged_packets(&all[..cut]).count() <= 2);
        }
    }
}
