//! Decodes the kernel's netfilter messages.

use std::io;

use super::ALIGNMENT;
use super::batch::COMMENT;

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

/// An nftables table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NftablesTable {
    /// Name of the table in its family.
    pub name: String,
    /// Its comment, if it has one.
    pub comment: Option<String>,
}

/// Parses the tables from the kernel's answer.
pub(super) fn tables(answer: &[u8]) -> impl Iterator<Item = NftablesTable> {
    messages(answer).filter_map(|(_, table)| {
        // NFTA_TABLE_NAME, NFTA_TABLE_USERDATA.
        let name = text(attribute(table, 1)?);
        Some(NftablesTable { name, comment: attribute(table, 6).and_then(comment) })
    })
}

/// Parses the comment in user data.
fn comment(data: &[u8]) -> Option<String> {
    let (&[kind, length], rest) = data.split_first_chunk()?;
    let value = rest.get(..usize::from(length)).filter(|_| kind == COMMENT);
    value.map(text)
}

/// Message type NFT_MSG_NEWRULE.
const RULE: u16 = (libc::NFNL_SUBSYS_NFTABLES as u16) << 8 | libc::NFT_MSG_NEWRULE as u16;

/// Returns true if the kernel's answer contains a rule.
pub(super) fn has_rules(answer: &[u8]) -> bool {
    messages(answer).any(|(kind, _)| kind == RULE)
}

/// Parses the texts that rules compare packets with.
pub(super) fn compared_texts(answer: &[u8]) -> impl Iterator<Item = String> {
    let rules = messages(answer).filter(|(kind, _)| *kind == RULE);
    // NFTA_RULE_EXPRESSIONS.
    let expressions = rules.filter_map(|(_, rule)| attribute(rule, 4)).flat_map(attributes);
    expressions.filter_map(|(_, expression)| {
        // NFTA_EXPR_NAME, and NFTA_CMP_DATA in NFTA_EXPR_DATA.
        attribute(expression, 1).filter(|name| text(name) == "cmp")?;
        let value = attribute(attribute(expression, 2)?, 3)?;
        // NFTA_DATA_VALUE.
        attribute(value, 1).map(text)
    })
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

/// Decodes a text up to its first zero byte: names of interfaces are padded.
fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
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
        let name = text(attribute(attributes, 2)?);
        Some(Self { name, data: attribute(attributes, 4)?.to_vec() })
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

/// Returns the value of the first attribute of this type, which may be nested.
fn attribute(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

/// Returns the types and values of attributes (`struct nlattr`).
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let header = bytes.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let value = bytes.get(4..length)?;
        // The upper bits say that a value is nested or in network byte order.
        let kind = u16::from_ne_bytes([header[2], header[3]]) & libc::NLA_TYPE_MASK as u16;
        bytes = bytes.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        Some((kind, value))
    })
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
    fn comments_and_compared_texts_are_found_in_what_was_sent() {
        let message = |kind: u16, encode: &dyn Fn(&mut MessageBatch)| {
            MessageBatch::single(kind, 1, 0, 0, |message| encode(message))
        };
        let table = message(0xa00, &|table| {
            table.text(1, "skyhop-0");
            table.comment(6, "process 7");
        });
        let bare = message(0xa00, &|table| table.text(1, "other"));
        let all = [table, bare].concat();
        let found: Vec<_> = tables(&all).map(|table| (table.name, table.comment)).collect();
        let with_comment = ("skyhop-0".to_owned(), Some("process 7".to_owned()));
        assert_eq!(found, [with_comment, ("other".to_owned(), None)]);
        let expression = |list: &mut MessageBatch, name: &str, value: &[u8]| {
            list.nest(1, |expression| {
                expression.text(1, name);
                expression.nest(2, |data| data.nest(3, |data| data.bytes(1, value)));
            });
        };
        let rule = message(RULE, &|rule| {
            rule.nest(4, |list| {
                expression(list, "meta", b"no");
                expression(list, "cmp", b"lan0\0\0\0\0");
            });
        });
        assert_eq!(compared_texts(&rule).collect::<Vec<_>>(), ["lan0"]);
        for cut in 0..rule.len() {
            assert_eq!(compared_texts(&rule[..cut]).count(), 0);
        }
        assert_eq!(comment(&[COMMENT, 9, b'x']), None, "longer than what there is");
        assert_eq!(comment(&[COMMENT]), None);
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
