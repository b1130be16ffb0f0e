//! A device in service: read in turns, written by many, and created again after it was removed.

use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, RwLock};

use config::TunnelConfig;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteAttribute, RouteType};
use nix::net::if_::if_nametoindex;
use os::netlink::RouteSocket;
use pep::traffic::{IpFamily, Prefix};
use tokio::sync::Notify;

use crate::network::routing::{Routing, route_of_kind};
use crate::network::tun::device::Device;
use crate::network::tun::slot::DeviceSlot;
use crate::network::tun::table::{DeviceRules, DeviceTable};
use crate::process::error::RunError;
use crate::process::refusal::{KernelOperation, KernelRefusal};

/// A use of a device, for log and errors.
#[derive(Debug, Clone, Copy)]
pub(crate) enum DeviceUse {
    Tunnel,
    Stack,
}

impl fmt::Display for DeviceUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tunnel => "tunnel",
            Self::Stack => "stack",
        })
    }
}

/// The current device, shared by its reader and all who write to it.
pub(crate) struct DevicePort {
    device: RwLock<Arc<Device>>,
    /// Tells the reader that the device was replaced.
    replaced: Notify,
}

impl DevicePort {
    /// Returns the current device.
    pub(crate) fn device(&self) -> Arc<Device> {
        self.device.read().expect("no thread panics while it holds the device").clone()
    }

    fn replace(&self, device: Device) {
        let mut current = self.device.write().expect("no thread panics while it holds the device");
        *current = Arc::new(device);
        drop(current);
        self.replaced.notify_one();
    }

    /// Waits for packets, and takes some of them as [`Device::take_turn`] does. Does not read a device that
    /// has failed: waits until another replaces it. For one reader. Cancel-safe.
    ///
    /// # Errors
    /// If the device is down or gone.
    pub(crate) async fn take_turn(
        &self,
        buffer: &mut [u8],
        most: usize,
        mut handle: impl FnMut(&[u8]),
    ) -> io::Result<bool> {
        loop {
            let device = self.device();
            tokio::select! {
                // First, so that no error of a former device counts as one of the current device.
                biased;
                () = self.replaced.notified() => {}
                ready = device.readable(), if !device.has_failed() => {
                    let mut ready = ready?;
                    let turn = device.take_turn(buffer, most, &mut handle);
                    // Without clearing, a device that was emptied would count as readable for ever.
                    if !matches!(turn, Ok(true)) {
                        ready.clear_ready();
                    }
                    return turn;
                }
            }
        }
    }
}

/// A device with the rules and routes that lead packets into it. Rules and routes are removed when it is dropped,
/// the device with the last handle to its port.
pub(crate) struct RoutedDevice {
    used_as: DeviceUse,
    config: TunnelConfig,
    port: Arc<DevicePort>,
    routing: Routing<DeviceSlot>,
    /// The address to which packets into the device are translated.
    address: Option<Ipv4Addr>,
    /// Addresses that only the device leads to.
    subnet: Option<Prefix>,
}

/// An installed device, with its table, and the reason why it carries no IPv6, if there is one.
pub(crate) type InstalledDevice<R> = (RoutedDevice, DeviceTable<R>, Option<KernelRefusal>);

impl RoutedDevice {
    /// Installs the device, unless another process has given us `shared`, its table, rules and routes. The table
    /// takes no traffic yet.
    ///
    /// # Errors
    /// If privileges or kernel features are missing, or a device of that name exists.
    pub(crate) fn install<R: DeviceRules>(
        used_as: DeviceUse,
        config: &TunnelConfig,
        rules: R,
        shared: Option<OwnedFd>,
    ) -> Result<InstalledDevice<R>, RunError> {
        let name = &config.name;
        let adopted = shared.map(|fd| Device::adopt(fd, config)).transpose();
        let device = adopted
            .and_then(|adopted| adopted.flatten().map_or_else(|| Device::open(config), Ok))
            .map_err(|refusal| RunError::device(name, refusal))?;
        let refused = |refusal| match used_as {
            DeviceUse::Tunnel => RunError::Tunnel { name: name.clone(), refusal },
            DeviceUse::Stack => RunError::Stack { name: name.clone(), refusal },
        };
        let table = DeviceTable::claim(rules, name)
            .map_err(KernelRefusal::wrap(KernelOperation::Nftables))
            .map_err(refused)?;
        let index =
            if_nametoindex(name.as_str()).map_err(|errno| RunError::System(errno.into()))?;
        // Several gateways may have devices on one machine: the table's slot also tells their routes apart.
        let (routing, without_v6) =
            Routing::install(table.slot(), index, &IpFamily::BOTH).map_err(refused)?;
        let port = DevicePort { device: RwLock::new(Arc::new(device)), replaced: Notify::new() };
        let installed = Self {
            used_as,
            config: config.clone(),
            port: Arc::new(port),
            routing,
            address: None,
            subnet: None,
        };
        Ok((installed, table, without_v6))
    }

    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    /// Index of the device.
    pub(crate) fn index(&self) -> u32 {
        self.routing.device()
    }

    pub(crate) fn port(&self) -> Arc<DevicePort> {
        self.port.clone()
    }

    /// The address to which packets into the device are translated.
    pub(crate) fn address(&self) -> Option<Ipv4Addr> {
        self.address
    }

    /// Gives the device this address in place of the one before. The kernel forgets flows that were translated to
    /// that one.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn set_address(&mut self, address: Option<Ipv4Addr>) -> Result<(), KernelRefusal> {
        if address == self.address {
            return Ok(());
        }
        let refused = KernelRefusal::wrap(KernelOperation::Device);
        let mut kernel = RouteSocket::open().map_err(&refused)?;
        if let Some(former) = self.address.take() {
            kernel.remove_address(self.name(), former.into(), 32).map_err(&refused)?;
        }
        if let Some(address) = address {
            kernel.add_address(self.name(), address.into(), 32).map_err(&refused)?;
            self.address = Some(address);
        }
        Ok(())
    }

    /// Leads the main routing table's packets for `subnet` into the device, from the next [`Self::restore_routes`] on.
    /// The reverse path filter (`rp_filter`) drops packets from addresses without a route, even if it is loose.
    pub(crate) fn lead_subnet(&mut self, subnet: Prefix) {
        self.subnet = Some(subnet);
    }

    /// Creates the device again if it was removed, and leads the routes to it. Returns whether it was replaced.
    pub(crate) fn renew(&mut self) -> bool {
        let name = self.config.name.clone();
        let name = name.as_str();
        // Its reader learns that the device was removed, but not that it was renamed.
        if if_nametoindex(name).is_ok() {
            return false;
        }
        let made = Device::open(&self.config).map_err(|refusal| refusal.to_string());
        let index = if_nametoindex(name).map_err(|errno| errno.to_string());
        match made.and_then(|device| Ok((device, index?))) {
            Ok((device, index)) => {
                tracing::info!("{} {name}: its device was made anew", self.used_as);
                self.routing.lead_to(index);
                self.port.replace(device);
                let address = self.address.take();
                if let Err(refusal) = self.set_address(address) {
                    tracing::warn!("{refusal}");
                }
                true
            }
            Err(error) => {
                tracing::debug!("the {}'s device is not there: {error}", self.used_as);
                false
            }
        }
    }

    /// Adds missing rules and routes, and the address. Also returns a refusal for IPv6.
    ///
    /// # Errors
    /// The kernel's refusal for IPv4, for instance without the device.
    pub(crate) fn restore_routes(&self) -> Result<Option<KernelRefusal>, KernelRefusal> {
        if let Some(address) = self.address {
            let added = RouteSocket::open()
                .and_then(|mut kernel| kernel.add_address(self.name(), address.into(), 32));
            match added {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(KernelRefusal::wrap(KernelOperation::Device)(error));
                }
                _ => {}
            }
        }
        if let Some(subnet) = self.subnet {
            let route = route_into(self.index(), subnet);
            let added = RouteSocket::open().and_then(|mut kernel| kernel.ensure(route));
            added.map_err(KernelRefusal::wrap(KernelOperation::Route(IpFamily::V4)))?;
        }
        self.routing.restore(&IpFamily::BOTH)
    }
}

/// A route of the main table, which the kernel removes with the device.
fn route_into(device: u32, subnet: Prefix) -> RouteNetlinkMessage {
    let mut route = route_of_kind(RouteType::Unicast, IpFamily::V4);
    route.header.table = libc::RT_TABLE_MAIN;
    route.header.destination_prefix_length = subnet.length();
    route.attributes =
        vec![RouteAttribute::Destination(subnet.address().into()), RouteAttribute::Oif(device)];
    RouteNetlinkMessage::NewRoute(route)
}
