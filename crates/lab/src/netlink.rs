//! Links, addresses and routes of a network namespace, through rtnetlink.

use std::io;
use std::net::IpAddr;

use futures_util::StreamExt;
use nix::net::if_::if_nametoindex;
use rtnetlink::packet_route::address::AddressHeaderFlags;
use rtnetlink::packet_route::link::{InfoData, InfoKind, InfoVeth};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute};
use rtnetlink::{
    Error, Handle, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder, new_connection,
};
use std::os::fd::{AsFd, AsRawFd};
use tokio::runtime::{Builder, Runtime};

use crate::NetNs;

/// A hardware address.
pub(crate) type Station = [u8; 6];

/// One end of a veth pair to create.
pub(crate) struct End<'a> {
    pub(crate) netns: &'a NetNs,
    pub(crate) name: &'a str,
    /// Its hardware address, if it must be a certain one.
    pub(crate) station: Option<Station>,
}

/// A connection to the kernel for one namespace.
pub(crate) struct Netlink {
    runtime: Runtime,
    handle: Handle,
}

impl Netlink {
    /// Connects for the calling thread's network namespace.
    pub(crate) fn open() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let _context = runtime.enter();
        let (connection, handle, _) = new_connection()?;
        runtime.spawn(connection);
        drop(_context);
        Ok(Self { runtime, handle })
    }

    /// Creates a veth pair.
    pub(crate) fn add_veth(&self, ends: [&End<'_>; 2]) -> Result<(), Error> {
        let [one, other] = ends;
        let peer = describe(LinkMessageBuilder::<LinkUnspec>::default(), other).build();
        let kind = LinkMessageBuilder::<LinkVeth>::new_with_info_kind(InfoKind::Veth);
        let pair = describe(kind, one).set_info_data(InfoData::Veth(InfoVeth::Peer(peer)));
        self.runtime.block_on(self.handle.link().add(pair.build()).execute())
    }

    /// Brings `device` up with this MTU. Without `neighbours`, no kernel-generated packets leave
    /// it: no ARP, no neighbour discovery, no multicast.
    pub(crate) fn bring_up(&self, device: &str, mtu: u16, neighbours: bool) -> Result<(), Error> {
        let mut change = LinkUnspec::new_with_index(index(device)?).mtu(mtu.into()).up();
        if !neighbours {
            change = change.arp(false).multicast(false);
        }
        self.runtime.block_on(self.handle.link().set(change.build()).execute())
    }

    /// Adds an address to `device` that is usable at once (IPv6 without duplicate address
    /// detection, which would take seconds).
    pub(crate) fn add_address(
        &self,
        device: &str,
        (address, prefix): (IpAddr, u8),
    ) -> Result<(), Error> {
        let mut request = self.handle.address().add(index(device)?, address, prefix);
        if address.is_ipv6() {
            request.message_mut().header.flags |= AddressHeaderFlags::Nodad;
        }
        self.runtime.block_on(request.execute())
    }

    /// Adds a route to a subnet through a neighbour.
    pub(crate) fn add_route(&self, to: (IpAddr, u8), via: IpAddr) -> Result<(), Error> {
        let route = RouteMessageBuilder::<IpAddr>::new();
        let route = route.destination_prefix(to.0, to.1).and_then(|route| route.gateway(via));
        let route = route.map_err(|error| Error::InvalidNla(error.to_string()))?;
        self.runtime.block_on(self.handle.route().add(route.build()).execute())
    }

    /// The next hop for packets to `to`; `to` itself if it is a neighbour.
    pub(crate) fn next_hop(&self, to: IpAddr) -> Result<IpAddr, Error> {
        let prefix = if to.is_ipv4() { 32 } else { 128 };
        let route = RouteMessageBuilder::<IpAddr>::new().destination_prefix(to, prefix);
        let route = route.map_err(|error| Error::InvalidNla(error.to_string()))?;
        let routes = self.handle.route().get(route.build()).execute();
        let first = self.runtime.block_on(async { core::pin::pin!(routes).next().await });
        let route = first.transpose()?;
        let attributes = route.into_iter().flat_map(|route| route.attributes);
        let gateway = attributes.filter_map(|attribute| match attribute {
            RouteAttribute::Gateway(RouteAddress::Inet(gateway)) => Some(gateway.into()),
            RouteAttribute::Gateway(RouteAddress::Inet6(gateway)) => Some(gateway.into()),
            _ => None,
        });
        Ok({ gateway }.next().unwrap_or(to))
    }
}

fn describe<T>(link: LinkMessageBuilder<T>, end: &End<'_>) -> LinkMessageBuilder<T> {
    let link = link.name(end.name).setns_by_fd(end.netns.as_fd().as_raw_fd());
    match end.station {
        Some(station) => link.address(station.to_vec()),
        None => link,
    }
}

fn index(device: &str) -> Result<u32, Error> {
    if_nametoindex(device).map_err(|errno| Error::InvalidNla(format!("{device}: {errno}")))
}
