//! A network device of our own, through which packets pass between the kernel and us.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use config::{TunnelConfig, TunnelDevice};
use netlink_packet_route::address::{AddressAttribute, AddressMessage, AddressScope};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use os::WatchedDescriptor;
use os::device::veth::NearEnd;
use os::device::{tun, veth};
use os::netlink::RouteSocket;
use tokio::io::unix::AsyncFdReadyGuard;

use crate::process::refusal::{KernelOperation, KernelRefusal};

/// The IPv4 dummy address (RFC 7600 §4.8), for interfaces without an address of their own.
const DUMMY: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

/// The device. Removed when dropped.
#[derive(Debug)]
pub(crate) struct Device {
    fd: WatchedDescriptor,
    /// Where to send packets on a veth device; `None` for TUN.
    near: Option<NearEnd>,
    has_failed: AtomicBool,
}

impl Device {
    /// Creates the device and brings it up.
    ///
    /// # Errors
    /// What the system refuses; see [`tun::open`] and [`veth::open`].
    pub(crate) fn open(config: &TunnelConfig) -> Result<Self, KernelRefusal> {
        let tun = || tun::open(&config.name).map(|fd| (fd, None));
        let veth = || {
            let made = veth::open(&config.name).map(|(fd, near)| (fd, Some(near)));
            made.map_err(KernelRefusal::wrap(KernelOperation::Veth))
        };
        let (fd, near) = match config.device {
            TunnelDevice::Tun => tun().map_err(KernelRefusal::wrap(KernelOperation::Tun))?,
            TunnelDevice::Veth => veth()?,
            TunnelDevice::Auto => match tun() {
                Err(error) if is_closed(&error) => veth()?,
                tun => tun.map_err(KernelRefusal::wrap(KernelOperation::Tun))?,
            },
        };
        Self::set_up(fd, near, config).map_err(KernelRefusal::wrap(KernelOperation::Device))
    }

    fn set_up(fd: OwnedFd, near: Option<NearEnd>, config: &TunnelConfig) -> io::Result<Self> {
        // Without ARP, neighbour discovery and multicast it sends only what is routed into it.
        RouteSocket::open()?.bring_up(&config.name, Some(config.mtu), false)?;
        accept_from_anywhere(&config.name)?;
        Self::watch(fd, near)
    }

    fn watch(fd: OwnedFd, near: Option<NearEnd>) -> io::Result<Self> {
        Ok(Self { fd: WatchedDescriptor::new(fd)?, near, has_failed: AtomicBool::new(false) })
    }

    /// Takes over the device of another process, as which it has given us `fd`. [`None`] if it is not that
    /// of this configuration.
    ///
    /// # Errors
    /// What the system refuses.
    pub(crate) fn adopt(fd: OwnedFd, config: &TunnelConfig) -> Result<Option<Self>, KernelRefusal> {
        // Only a packet socket of a veth device has a near end.
        let near = veth::near_of(&fd).ok();
        if near.is_none() && !tun::name_of(&fd).is_ok_and(|name| name == config.name) {
            return Ok(None);
        }
        let adopted = || {
            RouteSocket::open()?.bring_up(&config.name, Some(config.mtu), false)?;
            Self::watch(fd, near).map(Some)
        };
        adopted().map_err(KernelRefusal::wrap(KernelOperation::Device))
    }

    /// The device for another process. Whoever reads from it takes packets from the other.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub(crate) fn share(&self) -> io::Result<OwnedFd> {
        self.fd.as_fd().try_clone_to_owned()
    }

    /// Type of the device, for the log.
    pub(crate) fn kind(&self) -> &'static str {
        if self.near.is_some() { "veth" } else { "TUN" }
    }

    /// Marks the device as failed: it is not read any more. Returns `false` if it was marked already.
    pub(crate) fn fail(&self) -> bool {
        !self.has_failed.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Waits until [`Self::take_turn`] may find packets. Once it finds none, clear the readiness: this
    /// would not wait otherwise. Cancel-safe.
    ///
    /// # Errors
    /// If the device is down or gone.
    pub(super) async fn readable(&self) -> io::Result<AsyncFdReadyGuard<'_, OwnedFd>> {
        self.fd.readable().await
    }

    /// Passes packets routed to us to `handle`, each truncated to `buffer`, but no more than `most`, so that other
    /// tasks get their turn. Returns whether there may be more.
    ///
    /// # Errors
    /// If the device is down or gone.
    pub(crate) fn take_turn(
        &self,
        buffer: &mut [u8],
        most: usize,
        mut handle: impl FnMut(&[u8]),
    ) -> io::Result<bool> {
        for _ in 0..most {
            match nix::unistd::read(self.fd.as_fd(), buffer) {
                Ok(length) => handle(&buffer[..length]),
                Err(Errno::EAGAIN) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Passes a packet to the kernel for routing.
    ///
    /// # Errors
    /// If the device is down, or its queue is full.
    pub(crate) fn send(&self, packet: &[u8]) -> io::Result<()> {
        let sent = match &self.near {
            None => nix::unistd::write(self.fd.as_fd(), packet)?,
            Some(near) => near.send(&self.fd, packet)?,
        };
        debug_assert_eq!(sent, packet.len(), "a packet goes as a whole");
        Ok(())
    }
}

/// Makes the kernel accept packets from the device although it would route replies elsewhere:
/// reverse path filtering ignores marks. The larger of the interface's `rp_filter` and that of
/// `all` applies; loose mode accepts packets only on a device that has an IPv4 address.
fn accept_from_anywhere(name: &str) -> io::Result<()> {
    const LOOSE: &str = "2";
    let path = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
    if let Err(error) = fs::write(&path, LOOSE) {
        tracing::warn!("{path}: {error}: a strict filter would drop packets from the hop");
    }
    let mut address = AddressMessage::default();
    address.header.family = AddressFamily::Inet;
    address.header.prefix_len = 32;
    // Never chosen as a source address.
    address.header.scope = AddressScope::Host;
    address.header.index = if_nametoindex(name)?;
    address.attributes = vec![AddressAttribute::Local(DUMMY.into())];
    RouteSocket::open()?.create(RouteNetlinkMessage::NewAddress(address))
}

/// Returns whether the error means that TUN is unavailable here, so that a veth pair is tried.
fn is_closed(error: &io::Error) -> bool {
    let missing = matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO));
    missing || matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}
