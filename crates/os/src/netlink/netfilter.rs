//! Netfilter messages (`linux/netfilter/nfnetlink.h`), limited to what tables of our own need.

mod answer;
mod batch;

use std::io;
use std::os::fd::OwnedFd;

use nix::sys::socket::{SockFlag, SockProtocol};
use units::ByteCount;

use super::socket::NetlinkSocket as Netlink;
use crate::socket::{BufferKind, set_buffer};
use answer::{base_chains, compared_texts, first_error, has_rules, objects, tables};
use batch::about_nftables;

pub use answer::{BaseChain, NftablesObject, NftablesTable, logged_packets};
pub use batch::MessageBatch;

/// Alignment of messages and attributes (NLMSG_ALIGNTO, NLA_ALIGNTO).
const ALIGNMENT: usize = 4;

/// A netfilter socket. The kernel removes what it owns when it is closed.
#[derive(Debug)]
pub struct NetfilterSocket(Netlink);

impl NetfilterSocket {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// EPROTONOSUPPORT if the kernel has no netfilter.
    pub fn open() -> io::Result<Self> {
        Netlink::open(SockProtocol::NetlinkNetFilter, SockFlag::SOCK_NONBLOCK).map(Self)
    }

    /// Executes `batch` as one transaction.
    ///
    /// # Errors
    /// The kernel's first refusal; then nothing of the batch takes effect.
    pub fn execute(&self, batch: MessageBatch) -> io::Result<()> {
        self.send(&batch.finish())
    }

    /// Receives all packets that nftables rules log to `group`, in full and without delay: returns
    /// a non-blocking descriptor to read messages from, which [`logged_packets`] decodes.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_ADMIN; an error if the group is taken.
    pub fn listen_to_log(self, group: u16) -> io::Result<OwnedFd> {
        self.listen(group, 0xffff, |message| message.number(libc::NFULA_CFG_QTHRESH as u16, 1))
    }

    /// As [`Self::listen_to_log`], but receives only the first 256 bytes of each packet, and keeps a burst of
    /// a few hundred.
    ///
    /// # Errors
    /// As [`Self::listen_to_log`].
    pub fn listen_to_starts(self, group: u16) -> io::Result<OwnedFd> {
        const START: u32 = 256;
        // The kernel charges each message with the memory that it takes, below 2 kB.
        const BURST: ByteCount = ByteCount::new(1_000_000);
        let group =
            self.listen(group, START, |message| message.number(libc::NFULA_CFG_QTHRESH as u16, 1))?;
        set_buffer(&group, BufferKind::Receive, BURST)?;
        Ok(group)
    }

    /// As [`Self::listen_to_log`], but receives the headers only, and several at a time: after at most
    /// 100 ms.
    ///
    /// # Errors
    /// As [`Self::listen_to_log`].
    pub fn listen_to_headers(self, group: u16) -> io::Result<OwnedFd> {
        /// Enough for an IPv6 header with options, and the ports behind it.
        const HEADERS: u32 = 128;
        const AT_ONCE: u32 = 64;
        /// In units of 10 ms.
        const WITHIN: u32 = 10;
        self.listen(group, HEADERS, |message| {
            message.number(libc::NFULA_CFG_QTHRESH as u16, AT_ONCE);
            message.number(libc::NFULA_CFG_TIMEOUT as u16, WITHIN);
        })
    }

    /// Binds to `group` and receives `bytes` of each packet.
    fn listen(
        self,
        group: u16,
        bytes: u32,
        configure: impl FnOnce(&mut MessageBatch),
    ) -> io::Result<OwnedFd> {
        /// NFULNL_COPY_PACKET: copies the packet, not only its metadata.
        const PACKETS: u8 = 2;
        let [a, b, c, d] = bytes.to_be_bytes();
        let kind = (libc::NFNL_SUBSYS_ULOG as u16) << 8 | libc::NFULNL_MSG_CONFIG as u16;
        self.send(&MessageBatch::single(kind, 0, group, libc::NLM_F_ACK, |message| {
            message.bytes(libc::NFULA_CFG_CMD as u16, &[libc::NFULNL_CFG_CMD_BIND as u8]);
            // `struct nfulnl_msg_config_mode`: range, mode, padding.
            message.bytes(libc::NFULA_CFG_MODE as u16, &[a, b, c, d, PACKETS, 0]);
            configure(message);
        }))?;
        Ok(self.0.into())
    }

    /// Forgets the tracked connections whose mark is `value` within `mask`, with their translations. The next
    /// packet of each begins a new one.
    ///
    /// # Errors
    /// The kernel's refusal; `InvalidInput` if it does not let programs change connection tracking.
    pub fn forget_connections(&self, value: u32, mask: u32) -> io::Result<()> {
        /// `linux/netfilter/nfnetlink_conntrack.h`: IPCTNL_MSG_CT_DELETE, CTA_MARK and CTA_MARK_MASK.
        const DELETE: u16 = 2;
        const MARK: u16 = 8;
        const MARK_MASK: u16 = 21;
        let kind = (libc::NFNL_SUBSYS_CTNETLINK as u16) << 8 | DELETE;
        let family = libc::AF_INET as u8;
        self.send(&MessageBatch::single(kind, family, 0, libc::NLM_F_ACK, |message| {
            message.number(MARK, value);
            message.number(MARK_MASK, mask);
        }))
    }

    /// Succeeds if the queried nftables object exists.
    ///
    /// # Errors
    /// The kernel's refusal, ENOENT if it does not exist.
    pub fn query(
        &self,
        kind: libc::c_int,
        family: libc::c_int,
        attributes: impl FnOnce(&mut MessageBatch),
    ) -> io::Result<()> {
        self.send(&MessageBatch::single(about_nftables(kind), family as u8, 0, 0, attributes))
    }

    /// Lists nftables objects.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn objects(
        &self,
        kind: libc::c_int,
        family: libc::c_int,
        attributes: impl FnOnce(&mut MessageBatch),
    ) -> io::Result<Vec<NftablesObject>> {
        let mut found = Vec::new();
        self.list(kind, family, attributes, |answer| found.extend(objects(answer)))?;
        Ok(found)
    }

    /// Lists all nftables chains on hooks, of all families.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn base_chains(&self) -> io::Result<Vec<BaseChain>> {
        let mut found = Vec::new();
        self.list(libc::NFT_MSG_GETCHAIN, 0, |_| {}, |answer| found.extend(base_chains(answer)))?;
        Ok(found)
    }

    /// Lists the nftables tables of a family.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn tables(&self, family: libc::c_int) -> io::Result<Vec<NftablesTable>> {
        let mut found = Vec::new();
        self.list(libc::NFT_MSG_GETTABLE, family, |_| {}, |answer| found.extend(tables(answer)))?;
        Ok(found)
    }

    /// Returns true if a chain contains rules.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn has_rules(&self, chain: &BaseChain) -> io::Result<bool> {
        let mut found = false;
        let family = chain.family_number();
        self.list_rules(family, &chain.table, &chain.name, |answer| found |= has_rules(answer))?;
        Ok(found)
    }

    /// Lists the texts that the rules of a chain compare packets with, such as names of interfaces. Empty
    /// without the chain.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn compared_texts(
        &self,
        family: libc::c_int,
        table: &str,
        chain: &str,
    ) -> io::Result<Vec<String>> {
        let mut found = Vec::new();
        self.list_rules(family, table, chain, |answer| found.extend(compared_texts(answer)))?;
        Ok(found)
    }

    fn list_rules(
        &self,
        family: libc::c_int,
        table: &str,
        chain: &str,
        take: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        let of_chain = |message: &mut MessageBatch| {
            message.text(1, table);
            message.text(2, chain);
        };
        self.list(libc::NFT_MSG_GETRULE, family, of_chain, take)
    }

    fn list(
        &self,
        kind: libc::c_int,
        family: libc::c_int,
        attributes: impl FnOnce(&mut MessageBatch),
        take: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        let kind = about_nftables(kind);
        let request = MessageBatch::single(kind, family as u8, 0, libc::NLM_F_DUMP, attributes);
        self.exchange(&request, take)
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.exchange(bytes, |_| {})
    }

    /// Sends messages and passes the kernel's whole answer to `take`.
    fn exchange(&self, bytes: &[u8], mut take: impl FnMut(&[u8])) -> io::Result<()> {
        self.0.send(bytes)?;
        // The kernel answers before `send` returns, so refusals are already queued.
        let mut refusal = Ok(());
        loop {
            match self.0.receive() {
                Ok(answer) => {
                    refusal = refusal.and_then(|_| first_error(&answer));
                    take(&answer);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return refusal,
                Err(error) => return refusal.and(Err(error)),
            }
        }
    }
}
