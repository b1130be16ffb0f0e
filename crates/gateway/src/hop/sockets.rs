//! The UDP sockets of an endpoint: a single one, or one for each link of a terminal.

use std::future::{pending, poll_fn};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use config::LinkConfig;
use nix::net::if_::if_nametoindex;
use os::WatchedDescriptor;
use os::netlink::watch_changes;
use slacp::Ecn;
use socket2::SockRef;
use tokio::net::TcpSocket;

use super::udp::{DatagramBatch, ReceiveMemory, UdpLink, bind_device};
use crate::network::presence;

/// The local end of one of a terminal's links; by default, of its only link.
#[derive(Debug, Clone, Default)]
pub(crate) struct LocalEnd {
    /// Number of the link in the order of `[[link]]`, from 0.
    pub(crate) link: u8,
    /// Name of the link, if the configuration has `[[link]]`.
    pub(crate) name: Option<String>,
    interface: Option<String>,
    source: Option<IpAddr>,
}

impl LocalEnd {
    /// Returns the ends of the configured links; the default end without any.
    pub(crate) fn all(links: &[LinkConfig]) -> Vec<Self> {
        let end = |(number, link): (u8, &LinkConfig)| Self {
            link: number,
            name: Some(link.name.clone()),
            interface: link.interface.clone(),
            source: link.source,
        };
        let ends: Vec<Self> = (0..).zip(links).map(end).collect();
        if ends.is_empty() { vec![Self::default()] } else { ends }
    }

    /// The configured local address; [`None`] if the system chooses it.
    #[cfg(test)]
    pub(crate) fn source(&self) -> Option<IpAddr> {
        self.source
    }

    /// Binds a TCP socket that is not connected yet to the link's interface and address.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn bind(&self, socket: &TcpSocket) -> io::Result<()> {
        if let Some(interface) = &self.interface {
            SockRef::from(socket).bind_device(Some(interface.as_bytes()))?;
        }
        self.source.map_or(Ok(()), |source| socket.bind((source, 0).into()))
    }

    /// Opens a UDP socket on a free port, bound to the link's interface and address.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn udp_socket(&self, v6: bool) -> io::Result<UdpSocket> {
        let usual = if v6 { os::any_address(0) } else { (Ipv4Addr::UNSPECIFIED, 0).into() };
        let local = self.source.map_or(usual, |source| (source, 0).into());
        Ok(bind_device(local, self.interface.as_deref())?.into())
    }
}

/// A link with its socket, which is [`None`] while the interface does not exist.
struct LinkSocket {
    name: String,
    local: SocketAddr,
    interface: Option<String>,
    /// Index of the interface that the socket is bound to. An interface that is created again under the
    /// same name has another index.
    index: u32,
    socket: Option<UdpLink>,
}

impl LinkSocket {
    fn new(link: &LinkConfig, usual: SocketAddr) -> Self {
        Self {
            name: link.name.clone(),
            local: local(link, usual),
            interface: link.interface.clone(),
            index: 0,
            socket: None,
        }
    }

    /// Returns whether the interface has been removed, has appeared, or was created again.
    fn is_outdated(&self) -> bool {
        let index = self.interface.as_ref().map(|name| index_of(name));
        index.is_some_and(|index| index != self.index || index != 0 && self.socket.is_none())
    }

    /// Binds the socket, unless the interface does not exist.
    ///
    /// # Errors
    /// The system's; then there is no socket.
    fn bind(&mut self) -> io::Result<()> {
        self.socket = None;
        self.index = self.interface.as_ref().map_or(0, |name| index_of(name));
        if self.index == 0 && self.interface.is_some() {
            return Ok(());
        }
        match UdpLink::bind_to(self.local, self.interface.as_deref()) {
            // The interface was removed after the look-up: its return is notified as a change.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
            bound => bound.map(|socket| self.socket = Some(socket)),
        }
    }

    /// Binds the socket again if the interface has changed.
    ///
    /// # Errors
    /// As [`Self::bind`].
    fn rebind_if_changed(&mut self) -> io::Result<()> {
        if !self.is_outdated() {
            return Ok(());
        }
        self.bind()?;
        match &self.socket {
            Some(_) => tracing::info!("link {:?} uses its new interface", self.name),
            None => tracing::warn!("link {:?}: its interface is gone", self.name),
        }
        Ok(())
    }
}

/// Index of an interface; 0 if it does not exist.
fn index_of(name: &str) -> u32 {
    if_nametoindex(name).unwrap_or(0)
}

/// The sockets of an endpoint, by the number of their link.
pub(crate) struct HopSockets {
    links: Vec<LinkSocket>,
    /// The link to receive from first, in rotation, so that a busy link does not starve another.
    turn: usize,
    /// Notifications of interfaces added or removed; [`None`] if no link names an interface.
    changes: Option<WatchedDescriptor>,
    has_changed: AtomicBool,
}

impl From<UdpLink> for HopSockets {
    fn from(link: UdpLink) -> Self {
        let local = (Ipv6Addr::UNSPECIFIED, 0).into();
        let only = LinkSocket {
            name: String::new(),
            local,
            interface: None,
            index: 0,
            socket: Some(link),
        };
        Self { links: vec![only], turn: 0, changes: None, has_changed: AtomicBool::new(false) }
    }
}

impl HopSockets {
    /// Binds a socket for each of a terminal's links: to the link's own address, else to the wildcard
    /// address of `usual`'s family, with `usual`'s port. A link whose interface does not exist is bound
    /// when the interface appears.
    ///
    /// # Errors
    /// The system's, with the name of the link.
    pub(crate) fn bind(
        links: &[LinkConfig],
        usual: SocketAddr,
    ) -> Result<Self, (String, io::Error)> {
        let named = links.iter().find(|link| link.interface.is_some());
        // Watch before binding, so that no change is missed.
        let changes = named.map(|link| {
            watch_changes()
                .and_then(WatchedDescriptor::new)
                .map_err(|cause| (link.name.clone(), cause))
        });
        let changes = changes.transpose()?;
        let mut links: Vec<LinkSocket> =
            links.iter().map(|link| LinkSocket::new(link, usual)).collect();
        for link in &mut links {
            presence::warn_of_address(link.local);
            link.bind().map_err(|cause| (link.name.clone(), cause))?;
            if link.socket.is_none() {
                let interface = link.interface.as_deref().unwrap_or_default();
                let name = &link.name;
                tracing::warn!("link {name:?} waits for its interface {interface:?}");
            }
        }
        Ok(Self { links, turn: 0, changes, has_changed: AtomicBool::new(false) })
    }

    /// Waits until a socket may be readable, or an interface has come or gone; then call
    /// [`Self::receive`].
    pub(crate) async fn readable(&self) -> io::Result<()> {
        let any = poll_fn(|context| {
            // Polls all sockets, even after a ready one, so that each of them wakes this task.
            self.bound().fold(Poll::Pending, |found, link| {
                let ready = link.poll_readable(context);
                if found.is_ready() { found } else { ready }
            })
        });
        let changed = async {
            match &self.changes {
                Some(changes) => changes.discard().await?,
                None => pending().await,
            }
            self.has_changed.store(true, Ordering::Relaxed);
            Ok(())
        };
        tokio::select! {
            ready = any => ready,
            changed = changed => changed,
        }
    }

    /// Waits until a single socket may be writable. Not for several links, whose batches are dropped
    /// instead ([`Self::send`]).
    pub(crate) async fn writable(&self) -> io::Result<()> {
        match &self.links[0].socket {
            Some(socket) => socket.writable().await,
            None => pending().await,
        }
    }

    fn bound(&self) -> impl Iterator<Item = &UdpLink> {
        self.links.iter().filter_map(|link| link.socket.as_ref())
    }

    /// Binds the sockets of links whose interfaces have changed.
    fn rebind_changed(&mut self) {
        for link in &mut self.links {
            if let Err(error) = link.rebind_if_changed() {
                tracing::warn!("cannot use link {:?}: {error}", link.name);
            }
        }
    }

    /// Maximum datagrams per [`DatagramBatch`] that all sockets support.
    pub(crate) fn max_segments(&self) -> usize {
        self.bound().map(UdpLink::max_segments).min().unwrap_or(1)
    }

    /// Sends a batch over its link. Returns false if the link's interface does not exist.
    ///
    /// # Errors
    /// The system's. `WouldBlock` if the kernel has no room, but only with a single link: with several,
    /// the batch is dropped with another error, since a link whose modem is off must not hold up the
    /// others.
    pub(crate) fn send(&mut self, batch: &DatagramBatch, from: Option<IpAddr>) -> io::Result<bool> {
        // A hub reaches its terminals over all links from one socket.
        let is_only = self.links.len() == 1;
        let number = if is_only { 0 } else { usize::from(batch.link()) };
        let Some(link) = self.links.get_mut(number) else { return Ok(false) };
        if link.socket.is_none() {
            // Binding may have failed when the interface appeared.
            link.rebind_if_changed()?;
        }
        let Some(socket) = &link.socket else { return Ok(false) };
        let sent = match is_only {
            true => socket.send(batch, from),
            false => socket.send_at_once(batch, from),
        };
        match sent {
            Err(error) if !is_only && error.kind() == io::ErrorKind::WouldBlock => {
                Err(io::Error::other("the send buffer of a link is full"))
            }
            sent => sent.map(|()| true),
        }
    }

    /// Receives datagrams from the next socket that has any. Returns whether more may be waiting.
    ///
    /// # Errors
    /// The system's; `WouldBlock` if no socket has datagrams.
    pub(crate) fn receive(
        &mut self,
        buffers: &mut ReceiveMemory,
        mut datagram: impl FnMut(SocketAddr, Option<IpAddr>, Ecn, &mut [u8]),
    ) -> io::Result<bool> {
        if self.has_changed.swap(false, Ordering::Relaxed) {
            self.rebind_changed();
        }
        let count = self.links.len();
        for step in 0..count {
            let number = (self.turn + step) % count;
            let Some(socket) = &self.links[number].socket else { continue };
            match socket.receive(buffers, &mut datagram) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => {
                    self.turn = (number + 1) % count;
                    // With several sockets, the next one may have datagrams too.
                    return result.map(|more| more || count > 1);
                }
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }
}

/// Returns the local address of a link: its own, or the wildcard of the family of `usual`.
fn local(link: &LinkConfig, usual: SocketAddr) -> SocketAddr {
    match (link.source, usual) {
        (Some(source), _) => (source, usual.port()).into(),
        (None, SocketAddr::V4(_)) => (Ipv4Addr::UNSPECIFIED, usual.port()).into(),
        (None, SocketAddr::V6(_)) => (Ipv6Addr::UNSPECIFIED, usual.port()).into(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::os::fd::AsFd;

    use netlink_packet_route::RouteNetlinkMessage;
    use netlink_packet_route::link::{LinkAttribute, LinkMessage};
    use os::netlink::{RouteSocket, VethEnd};

    use super::*;
    use crate::hop::udp::{DatagramLabel, TrafficClass};
    use crate::testkit::in_namespace;

    fn link(name: &str, last: u8) -> LinkConfig {
        let source = Some(Ipv4Addr::new(127, 0, 0, last).into());
        let rate = slacp::Rate::auto();
        LinkConfig { name: name.to_owned(), rate, interface: None, source }
    }

    fn label(to: SocketAddr, link: u8) -> DatagramLabel {
        DatagramLabel { to, traffic_class: TrafficClass::default(), link, session: None }
    }

    #[tokio::test]
    async fn each_link_sends_from_its_address_and_all_receive() {
        let hub = UdpLink::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let to = hub.local_addr().unwrap();
        let mut hub = HopSockets::from(hub);
        let links = [link("geo", 2), link("leo", 3)];
        let mut sockets = HopSockets::bind(&links, "0.0.0.0:0".parse().unwrap()).unwrap();
        let (mut reception, mut batch) = (ReceiveMemory::new(), DatagramBatch::default());
        for (number, last) in [(1, 3), (0, 2), (1, 3)] {
            batch.clear();
            batch.join(label(to, number), &[number; 9], 1);
            sockets.writable().await.unwrap();
            sockets.send(&batch, None).unwrap();
            let mut came = None;
            while came.is_none() {
                hub.readable().await.unwrap();
                let _ = hub.receive(&mut reception, |from, _, _, _| came = Some(from));
            }
            let from = came.unwrap();
            assert_eq!(from.ip(), Ipv4Addr::new(127, 0, 0, last));
            batch.clear();
            batch.join(label(from, number), &[number; 7], 1);
            hub.send(&batch, None).unwrap();
            let mut answer = None;
            while answer.is_none() {
                sockets.readable().await.unwrap();
                let _ = sockets.receive(&mut reception, |_, _, _, bytes| answer = Some(bytes[0]));
            }
            assert_eq!(answer, Some(number));
        }
    }

    /// Nothing waits for these sockets, so what the runtime has not seen yet must not matter: the first
    /// handshake message of each link would be lost.
    #[tokio::test]
    async fn the_first_packet_of_each_link_leaves_at_once() {
        let hub = UdpLink::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let to = hub.local_addr().unwrap();
        let mut sockets =
            HopSockets::bind(&[link("geo", 2), link("leo", 3)], "0.0.0.0:0".parse().unwrap())
                .unwrap();
        for number in [0, 1] {
            let mut batch = DatagramBatch::default();
            batch.join(label(to, number), &[number; 9], 1);
            sockets.send(&batch, None).unwrap();
        }
    }

    #[tokio::test]
    async fn a_link_whose_port_is_taken_is_named() {
        let taken = UdpSocket::bind("127.0.0.3:0").unwrap();
        let usual = taken.local_addr().unwrap();
        let error = HopSockets::bind(&[link("geo", 2), link("leo", 3)], usual).err().unwrap();
        assert_eq!((error.0.as_str(), error.1.kind()), ("leo", io::ErrorKind::AddrInUse));
    }

    /// A pair of devices, `name` and `peer0`.
    fn add_devices(name: &str) {
        let netns = std::fs::File::open("/proc/thread-self/ns/net").unwrap();
        let end = |name| VethEnd { netns: netns.as_fd(), name, station: None };
        RouteSocket::open().unwrap().add_veth([&end(name), &end("peer0")]).unwrap();
    }

    /// Changes a device: gives it another name, or removes it.
    fn change(name: &str, to: Option<&str>) {
        let mut link = LinkMessage::default();
        link.header.index = if_nametoindex(name).unwrap();
        link.attributes.extend(to.map(|to| LinkAttribute::IfName(to.to_owned())));
        let mut kernel = RouteSocket::open().unwrap();
        match to {
            Some(_) => kernel.request(RouteNetlinkMessage::SetLink(link), 0).unwrap(),
            None => assert!(kernel.remove(RouteNetlinkMessage::DelLink(link)).unwrap()),
        }
    }

    #[test]
    fn a_link_follows_its_interface_by_name() {
        in_namespace(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let interface = Some("wan0".to_owned());
                let links =
                    [LinkConfig { interface, source: None, ..link("geo", 2) }, link("leo", 3)];
                let mut sockets = HopSockets::bind(&links, "0.0.0.0:0".parse().unwrap()).unwrap();
                let mut reception = ReceiveMemory::new();
                let to = "127.0.0.9:9".parse().unwrap();
                let mut batch = DatagramBatch::default();
                batch.join(label(to, 0), b"lost", 1);
                assert!(!sockets.send(&batch, None).unwrap(), "there is no interface");
                let steps: [(fn(), bool); 6] = [
                    (|| add_devices("wan0"), true),
                    (|| change("wan0", None), false),
                    (|| add_devices("wan0"), true),
                    (|| change("wan0", Some("old0")), false),
                    (|| change("peer0", Some("wan0")), true),
                    (|| change("wan0", None), false),
                ];
                for (number, (step, is_bound)) in steps.into_iter().enumerate() {
                    step();
                    sockets.readable().await.unwrap();
                    let _ = sockets.receive(&mut reception, |_, _, _, _| {});
                    let geo = &sockets.links[0];
                    assert_eq!(geo.socket.is_some(), is_bound, "step {number}");
                    assert_eq!(geo.index, index_of("wan0"), "step {number}");
                    assert!(sockets.links[1].socket.is_some());
                }
            });
        });
    }
}
