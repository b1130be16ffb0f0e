//! Netfilter messages (`linux/netfilter/nfnetlink.h`), limited to what tables of our own need.

mod answer;
mod batch;

use std::io;
use std::os::fd::OwnedFd;

use nix::sys::socket::{SockFlag, SockProtocol};

use super::socket::Socket as Netlink;
use answer::{base_chains, first_error, objects};
use batch::about_nftables;

pub use answer::{BaseChain, Object, logged_packets};
pub use batch::Batch;

/// Alignment of messages and attributes (NLMSG_ALIGNTO, NLA_ALIGNTO).
const ALIGNMENT: usize = 4;

/// A netfilter socket. The kernel removes what it owns when it is closed.
#[derive(Debug)]
pub struct Socket(Netlink);

impl Socket {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// EPROTONOSUPPORT if the kernel has no netfilter.
    pub fn open() -> io::Result<Self> {
        Netlink::open(SockProtocol::NetlinkNetFilter, SockFlag::SOCK_NONBLOCK).map(Self)
    }

    /// Executes `batch`.
    ///
    /// # Errors
    /// The kernel's first refusal; then nothing of the batch takes effect.
    pub fn execute(&self, batch: Batch) -> io::Result<()> {
        self.send(&batch.finish())
    }

    /// Receives everything that nftables rules log to `group`, in full and without delay: returns a
    /// non-blocking descriptor to read messages from, which [`logged_packets`] decodes.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_ADMIN; an error if the group is taken.
    pub fn listen_to_log(self, group: u16) -> io::Result<OwnedFd> {
        /// Copy range (four bytes), copy mode, padding.
        const WHOLE: [u8; 6] = [0, 0, 0xff, 0xff, 2, 0];
        let kind = (libc::NFNL_SUBSYS_ULOG as u16) << 8 | libc::NFULNL_MSG_CONFIG as u16;
        self.send(&Batch::single(kind, (0, group), libc::NLM_F_ACK, |message| {
            message.bytes(libc::NFULA_CFG_CMD as u16, &[libc::NFULNL_CFG_CMD_BIND as u8]);
            message.bytes(libc::NFULA_CFG_MODE as u16, &WHOLE);
            message.number(libc::NFULA_CFG_QTHRESH as u16, 1);
        }))?;
        Ok(self.0.into())
    }

    /// Whether the queried nftables object exists.
    ///
    /// # Errors
    /// The kernel's refusal, ENOENT if it does not exist.
    pub fn query(
        &self,
        kind: libc::c_int,
        family: libc::c_int,
        attributes: impl FnOnce(&mut Batch),
    ) -> io::Result<()> {
        self.send(&Batch::single(about_nftables(kind), (family as u8, 0), 0, attributes))
    }

    /// Lists nftables objects.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn objects(
        &self,
        kind: libc::c_int,
        family: libc::c_int,
        attributes: impl FnOnce(&mut Batch),
    ) -> io::Result<Vec<Object>> {
        let mut found = Vec::new();
        self.list(kind, family, attributes, |answer| found.extend(objects(answer)))?;
        Ok(found)
    }

    /// All nftables chains on hooks, of all families.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn base_chains(&self) -> io::Result<Vec<BaseChain>> {
        let mut found = Vec::new();
        self.list(libc::NFT_MSG_GETCHAIN, 0, |_| {}, |answer| found.extend(base_chains(answer)))?;
        Ok(found)
    }

    fn list(
        &self,
        kind: libc::c_int,
        family: libc::c_int,
        attributes: impl FnOnce(&mut Batch),
        take: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        let (kind, family) = (about_nftables(kind), (family as u8, 0));
        self.exchange(&Batch::single(kind, family, libc::NLM_F_DUMP, attributes), take)
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
                    refusal = refusal.and(first_error(&answer));
                    take(&answer);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return refusal,
                Err(error) => return refusal.and(Err(error)),
            }
        }
    }
}
