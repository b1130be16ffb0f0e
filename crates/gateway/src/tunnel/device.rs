//! The tunnel's network device, through which packets pass between the kernel and us.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::unix::AsyncFd;

use super::veth::Near;
use super::{link, tun, veth};
use crate::config::{TunnelConfig, TunnelDevice};
use crate::refusal::{Operation, Refusal};

/// The device. Removed when dropped.
#[derive(Debug)]
pub(crate) struct Device {
    fd: AsyncFd<OwnedFd>,
    /// Where to send packets on a veth device; `None` for TUN.
    near: Option<Near>,
}

impl Device {
    /// Creates the device and brings it up.
    ///
    /// # Errors
    /// What the system refuses; see [`tun::open`] and [`veth::open`].
    pub(crate) fn open(config: &TunnelConfig) -> Result<Self, Refusal> {
        let tun = || tun::open(&config.name).map(|fd| (fd, None));
        let veth = || {
            let made = veth::open(&config.name).map(|(fd, near)| (fd, Some(near)));
            made.map_err(Refusal::of(Operation::Veth))
        };
        let (fd, near) = match config.device {
            TunnelDevice::Tun => tun().map_err(Refusal::of(Operation::Tun))?,
            TunnelDevice::Veth => veth()?,
            TunnelDevice::Auto => match tun() {
                Err(error) if is_closed(&error) => veth()?,
                tun => tun.map_err(Refusal::of(Operation::Tun))?,
            },
        };
        Self::set_up(fd, near, config).map_err(Refusal::of(Operation::Device))
    }

    fn set_up(fd: OwnedFd, near: Option<Near>, config: &TunnelConfig) -> io::Result<Self> {
        link::bring_up(&config.name, config.mtu)?;
        link::accept_from_anywhere(&config.name)?;
        // SAFETY: an `OwnedFd` refers to the same open descriptor as long as it lives.
        let fd = unsafe { AsyncFd::register(fd) }?;
        Ok(Self { fd, near })
    }

    /// Type of the device, for the log.
    pub(crate) fn kind(&self) -> &'static str {
        if self.near.is_some() { "veth" } else { "TUN" }
    }

    /// Receives the next packet routed to us, truncated to `buffer`.
    ///
    /// # Errors
    /// If the device is down or gone.
    pub(crate) async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.fd.readable().await?;
            if let Ok(taken) = ready.try_io(|fd| Ok(nix::unistd::read(fd.get_ref(), buffer)?)) {
                return taken;
            }
        }
    }

    /// Passes a packet to the kernel for routing.
    ///
    /// # Errors
    /// If the device is down, or its queue is full.
    pub(crate) fn send(&self, packet: &[u8]) -> io::Result<()> {
        let sent = match &self.near {
            None => nix::unistd::write(self.fd.get_ref(), packet)?,
            Some(near) => near.send(self.fd.get_ref(), packet)?,
        };
        debug_assert_eq!(sent, packet.len(), "a packet goes as a whole");
        Ok(())
    }
}

/// Whether the error means that we cannot use TUN.
fn is_closed(error: &io::Error) -> bool {
    let missing = matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO));
    missing || matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}
