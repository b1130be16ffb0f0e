//! A netlink socket to the kernel.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
    socket,
};

use crate::socket::option;

/// A socket for one netlink protocol.
#[derive(Debug)]
pub(super) struct NetlinkSocket(OwnedFd);

impl From<NetlinkSocket> for OwnedFd {
    fn from(socket: NetlinkSocket) -> Self {
        socket.0
    }
}

impl NetlinkSocket {
    /// Opens a socket in the calling thread's network namespace.
    pub(super) fn open(protocol: SockProtocol, flags: SockFlag) -> io::Result<Self> {
        let flags = flags | SockFlag::SOCK_CLOEXEC;
        Ok(Self(socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?))
    }

    /// Receives the messages of these multicast groups, given as a bit mask.
    pub(super) fn join(&self, groups: u32) -> io::Result<()> {
        Ok(bind(self.0.as_raw_fd(), &NetlinkAddr::new(0, groups))?)
    }

    /// Makes the kernel filter lists by the attributes of the request, instead of ignoring them.
    pub(super) fn check_requests(&self) -> io::Result<()> {
        /// NETLINK_GET_STRICT_CHK, which libc defines for Android only.
        const STRICT: libc::c_int = 12;
        let on: libc::c_int = 1;
        option::set(&self.0, libc::SOL_NETLINK, STRICT, on)
    }

    /// Sends messages to the kernel.
    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        Ok(send(self.0.as_raw_fd(), bytes, MsgFlags::empty()).map(drop)?)
    }

    /// Receives one packet of messages, whatever its length.
    pub(super) fn receive(&self) -> io::Result<Vec<u8>> {
        // The length first: a buffer of a fixed size could truncate a list.
        let peek = MsgFlags::MSG_PEEK | MsgFlags::MSG_TRUNC;
        let length = recv(self.0.as_raw_fd(), &mut [], peek)?;
        let mut bytes = vec![0; length];
        let length = recv(self.0.as_raw_fd(), &mut bytes, MsgFlags::empty())?;
        bytes.truncate(length);
        Ok(bytes)
    }
}
