//! The tunnel's network device: packets that the kernel routes to us, and ours
//! that it routes on.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::unix::AsyncFd;

use super::veth::Near;
use super::{link, tun, veth};
use crate::config::{TunnelConfig, TunnelDevice};
use crate::refusal::{Operation, Refusal};

/// The device. Gone when dropped.
#[derive(Debug)]
pub(crate) struct Device {
    fd: AsyncFd<OwnedFd>,
    /// Where packets are sent to, if it is no TUN device.
    near: Option<Near>,
}

impl Device {
    /// Makes the device and brings it up.
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
        // SAFETY: an `OwnedFd` is the same open descriptor for as long as it lives.
        let fd = unsafe { AsyncFd::register(fd) }?;
        Ok(Self { fd, near })
    }

    /// What it is, for the log.
    pub(crate) fn kind(&self) -> &'static str {
        if self.near.is_some() { "veth" } else { "TUN" }
    }

    /// The next packet that was routed to us, as far as it fits in `buffer`.
    ///
    /// # Errors
    /// When the device is down or gone.
    pub(crate) async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.fd.readable().await?;
            if let Ok(taken) = ready.try_io(|fd| Ok(nix::unistd::read(fd.get_ref(), buffer)?)) {
                return taken;
            }
        }
    }

    /// Has the kernel route a packet on.
    ///
    /// # Errors
    /// When it takes none: the device is down, or its queue is full.
    pub(crate) fn send(&self, packet: &[u8]) -> io::Result<()> {
        let sent = match &self.near {
            None => nix::unistd::write(self.fd.get_ref(), packet)?,
            Some(near) => near.send(self.fd.get_ref(), packet)?,
        };
        debug_assert_eq!(sent, packet.len(), "a packet goes as a whole");
        Ok(())
    }
}

/// Whether there is no TUN device for the likes of us.
fn is_closed(error: &io::Error) -> bool {
    let missing = matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO));
    missing || matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}
