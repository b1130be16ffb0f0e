//! Netfilter netlink messages (`linux/netfilter/nfnetlink.h`), limited to what our own tables need.
//! Attributes are numbers in network byte order unless stated otherwise.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const NFNETLINK_VERSION: u8 = 0;
/// Alignment of messages and attributes (NLMSG_ALIGNTO, NLA_ALIGNTO).
const ALIGNMENT: usize = 4;
const HEADER: usize = 16;
/// Size of `struct nfgenmsg`.
const GENERIC: usize = 4;

/// Messages that the kernel executes all together or not at all.
pub(crate) struct Batch {
    bytes: Vec<u8>,
    message: usize,
    sequence: u32,
}

impl Batch {
    /// An empty batch for nftables.
    pub(crate) fn new() -> Self {
        let mut batch = Self { bytes: Vec::new(), message: 0, sequence: 0 };
        batch.begin(libc::NFNL_MSG_BATCH_BEGIN as u16, 0, 0, libc::NFNL_SUBSYS_NFTABLES as u16);
        batch
    }

    /// Appends an nftables message, whose attributes `attributes` adds.
    pub(crate) fn message(
        &mut self,
        kind: libc::c_int,
        family: libc::c_int,
        flags: libc::c_int,
        attributes: impl FnOnce(&mut Self),
    ) {
        let kind = (libc::NFNL_SUBSYS_NFTABLES as u16) << 8 | kind as u16;
        self.begin(kind, flags as u16, family as u8, 0);
        attributes(self);
        self.close(self.message);
    }

    /// Appends an attribute of raw bytes.
    pub(crate) fn bytes(&mut self, kind: u16, value: &[u8]) {
        let start = self.open(kind);
        self.bytes.extend_from_slice(value);
        self.close_attribute(start);
    }

    /// Appends a text attribute.
    pub(crate) fn text(&mut self, kind: u16, value: &str) {
        let start = self.open(kind);
        self.bytes.extend_from_slice(value.as_bytes());
        self.bytes.push(0);
        self.close_attribute(start);
    }

    /// Appends a number in network byte order.
    pub(crate) fn number(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_be_bytes());
    }

    /// Appends a nested attribute.
    pub(crate) fn nest(&mut self, kind: u16, attributes: impl FnOnce(&mut Self)) {
        let start = self.open(kind | libc::NLA_F_NESTED as u16);
        attributes(self);
        self.close_attribute(start);
    }

    /// The encoded batch.
    fn finish(mut self) -> Vec<u8> {
        self.begin(libc::NFNL_MSG_BATCH_END as u16, 0, 0, libc::NFNL_SUBSYS_NFTABLES as u16);
        self.bytes
    }

    /// Appends `struct nlmsghdr` and `struct nfgenmsg`.
    fn begin(&mut self, kind: u16, flags: u16, family: u8, resource: u16) {
        self.message = self.bytes.len();
        self.bytes.extend_from_slice(&0u32.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&(flags | libc::NLM_F_REQUEST as u16).to_ne_bytes());
        self.bytes.extend_from_slice(&self.sequence.to_ne_bytes());
        self.bytes.extend_from_slice(&0u32.to_ne_bytes());
        self.bytes.extend_from_slice(&[family, NFNETLINK_VERSION]);
        self.bytes.extend_from_slice(&resource.to_be_bytes());
        self.sequence += 1;
        self.close(self.message);
    }

    /// Sets the length of the message that starts at `start`.
    fn close(&mut self, start: usize) {
        let length = (self.bytes.len() - start) as u32;
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
    }

    fn open(&mut self, kind: u16) -> usize {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&0u16.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        start
    }

    /// Sets the length of the attribute that starts at `start`, and pads it.
    fn close_attribute(&mut self, start: usize) {
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
    }
}

/// A netfilter socket. The kernel removes what it owns when it is closed.
pub(crate) struct Socket(OwnedFd);

impl Socket {
    /// Opens a socket in the current network namespace.
    pub(crate) fn open() -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers are passed.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_NETFILTER) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and owned by nothing else.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Executes `batch`.
    ///
    /// # Errors
    /// The kernel's first refusal; then nothing of the batch takes effect.
    pub(crate) fn execute(&self, batch: Batch) -> io::Result<()> {
        self.send(&batch.finish())
    }

    /// Receives everything that nftables rules log to `group`, in full and without delay.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_ADMIN; an error if the group is taken.
    pub(crate) fn listen_to_log(&self, group: u16) -> io::Result<()> {
        /// Copy range (four bytes), copy mode, padding.
        const WHOLE: [u8; 6] = [0, 0, 0xff, 0xff, 2, 0];
        let kind = (libc::NFNL_SUBSYS_ULOG as u16) << 8 | libc::NFULNL_MSG_CONFIG as u16;
        let mut message = Batch { bytes: Vec::new(), message: 0, sequence: 0 };
        message.begin(kind, libc::NLM_F_ACK as u16, 0, group);
        message.bytes(libc::NFULA_CFG_CMD as u16, &[libc::NFULNL_CFG_CMD_BIND as u8]);
        message.bytes(libc::NFULA_CFG_MODE as u16, &WHOLE);
        message.number(libc::NFULA_CFG_QTHRESH as u16, 1);
        message.close(message.message);
        self.send(&message.bytes)
    }

    pub(crate) fn into_descriptor(self) -> OwnedFd {
        self.0
    }

    /// Whether the queried object exists.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn query(
        &self,
        kind: libc::c_int,
        family: libc::c_int,
        attributes: impl FnOnce(&mut Batch),
    ) -> io::Result<()> {
        let mut message = Batch { bytes: Vec::new(), message: 0, sequence: 0 };
        message.message(kind, family, 0, attributes);
        self.send(&message.bytes)
    }

    /// Lists nftables objects.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn objects(
        &self,
        kind: libc::c_int,
        family: libc::c_int,
        attributes: impl FnOnce(&mut Batch),
    ) -> io::Result<Vec<Object>> {
        let mut message = Batch { bytes: Vec::new(), message: 0, sequence: 0 };
        message.message(kind, family, libc::NLM_F_DUMP, attributes);
        let mut found = Vec::new();
        self.exchange(&message.bytes, |answer| {
            found.extend(messages(answer).filter_map(|(_, object)| Object::parse(object)));
        })?;
        Ok(found)
    }

    /// All nftables chains on hooks, of all families.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn base_chains(&self) -> io::Result<Vec<BaseChain>> {
        let mut message = Batch { bytes: Vec::new(), message: 0, sequence: 0 };
        message.message(libc::NFT_MSG_GETCHAIN, 0, libc::NLM_F_DUMP, |_| {});
        let mut found = Vec::new();
        self.exchange(&message.bytes, |answer| found.extend(base_chains(answer)))?;
        Ok(found)
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.exchange(bytes, |_| {})
    }

    /// Sends messages and passes the kernel's whole answer to `take`.
    fn exchange(&self, bytes: &[u8], mut take: impl FnMut(&[u8])) -> io::Result<()> {
        let (data, length) = (bytes.as_ptr().cast(), bytes.len());
        // SAFETY: `data` points to `length` bytes that outlive the call.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), data, length, 0) };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        // The kernel answers before `send` returns, so refusals are already queued.
        let mut refusal = Ok(());
        let mut buffer = vec![0u8; 32 << 10];
        loop {
            let (data, room) = (buffer.as_mut_ptr().cast(), buffer.len());
            // SAFETY: `data` points to `room` bytes that nothing else references.
            let length = unsafe { libc::recv(self.0.as_raw_fd(), data, room, 0) };
            let Ok(length) = usize::try_from(length) else {
                let error = io::Error::last_os_error();
                let drained = error.kind() == io::ErrorKind::WouldBlock;
                return if drained { refusal } else { refusal.and(Err(error)) };
            };
            refusal = refusal.and(first_error(&buffer[..length]));
            take(&buffer[..length]);
        }
    }
}

/// An nftables chain on a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BaseChain {
    /// Name of the family in `nft`.
    pub(crate) family: &'static str,
    pub(crate) table: String,
    pub(crate) name: String,
    /// Such as NF_INET_LOCAL_IN.
    pub(crate) hook: libc::c_int,
    /// Whether its policy is to drop.
    pub(crate) drops: bool,
}

/// Parses the chains on hooks from the kernel's answer.
fn base_chains(answer: &[u8]) -> impl Iterator<Item = BaseChain> {
    families(answer).zip(messages(answer)).filter_map(|(family, (_, attributes))| {
        let family = match i32::from(family) {
            libc::NFPROTO_INET => "inet",
            libc::NFPROTO_IPV4 => "ip",
            libc::NFPROTO_IPV6 => "ip6",
            _ => return None,
        };
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
pub(crate) struct Object {
    pub(crate) name: String,
    data: Vec<u8>,
}

impl Object {
    /// `struct nlattr` NFTA_OBJ_NAME, NFTA_OBJ_DATA.
    fn parse(attributes: &[u8]) -> Option<Self> {
        let name = attribute(attributes, 2)?;
        let name = name.strip_suffix(&[0]).unwrap_or(name);
        let data = attribute(attributes, 4)?.to_vec();
        Some(Self { name: String::from_utf8_lossy(name).into_owned(), data })
    }

    /// The counter's packets (NFTA_COUNTER_PACKETS).
    pub(crate) fn packets(&self) -> u64 {
        let packets = attribute(&self.data, 2).and_then(|value| value.first_chunk::<8>());
        packets.map_or(0, |packets| u64::from_be_bytes(*packets))
    }
}

/// The first error (`struct nlmsgerr`) in the kernel's answer.
fn first_error(mut answer: &[u8]) -> io::Result<()> {
    while let Some((header, rest)) = answer.split_first_chunk::<HEADER>() {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        if i32::from(kind) == libc::NLMSG_ERROR
            && let Some(code) = rest.first_chunk::<4>()
            && i32::from_ne_bytes(*code) != 0
        {
            return Err(io::Error::from_raw_os_error(-i32::from_ne_bytes(*code)));
        }
        answer = answer.get(length.next_multiple_of(ALIGNMENT).max(HEADER)..).unwrap_or_default();
    }
    Ok(())
}

/// Logged packets, from the IP header on.
pub(crate) fn logged_packets(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    const PACKET: u16 = (libc::NFNL_SUBSYS_ULOG as u16) << 8 | libc::NFULNL_MSG_PACKET as u16;
    messages(bytes)
        .filter(|(kind, _)| *kind == PACKET)
        .filter_map(|(_, message)| attribute(message, libc::NFULA_PAYLOAD as u16))
}

/// Address family (`struct nfgenmsg`) of each of [`messages`].
fn families(bytes: &[u8]) -> impl Iterator<Item = u8> {
    split(bytes).map(|(_, message)| message[0])
}

/// Types of messages, and their attributes.
fn messages(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    split(bytes).map(|(kind, message)| (kind, &message[GENERIC..]))
}

/// Types of messages, and what follows their headers: at least `struct nfgenmsg`.
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

/// The value of an attribute (`struct nlattr`), which may be nested.
fn attribute(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let header = attributes.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let value = attributes.get(4..length)?;
        if u16::from_ne_bytes([header[2], header[3]]) & libc::NLA_TYPE_MASK as u16 == kind {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(ALIGNMENT)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn lengths_cover_headers_and_padding_does_not_count() {
        let mut batch = Batch::new();
        batch.message(libc::NFT_MSG_NEWTABLE, libc::NFPROTO_INET, libc::NLM_F_CREATE, |m| {
            m.text(1, "ab");
            m.nest(2, |n| n.number(3, 7));
        });
        let bytes = batch.finish();
        let (begin, rest) = bytes.split_at(20);
        assert_eq!(begin[..6], [20, 0, 0, 0, 0x10, 0], "batch begin");
        assert_eq!(begin[16..], [0, 0, 0, 10], "for nftables");
        let (table, end) = rest.split_at(40);
        assert_eq!(table[..8], [40, 0, 0, 0, 0, 10, 1, 4], "new table, create");
        assert_eq!(table[16..20], [1, 0, 0, 0], "family inet");
        assert_eq!(table[20..28], [7, 0, 1, 0, b'a', b'b', 0, 0], "text, padded");
        assert_eq!(table[28..40], [12, 0, 2, 0x80, 8, 0, 3, 0, 0, 0, 0, 7], "nested number");
        assert_eq!(end[..6], [20, 0, 0, 0, 0x11, 0], "batch end");
    }

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
            let mut message = Batch { bytes: Vec::new(), message: 0, sequence: 0 };
            message.begin(kind, 0, 2, 5900);
            attributes.iter().for_each(|(kind, value)| message.bytes(*kind, value));
            message.close(0);
            message.bytes
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
