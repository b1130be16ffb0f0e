//! Recognition of this machine's own addresses. The kernel is asked about each destination, in the
//! network namespace in which the gateway was started.
//!
//! A list kept by notifications would save the request, but misses addresses that are local by a route
//! alone, and learns of others only after they are in use.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use netlink_packet_route::route::RouteType;
use os::netlink::RouteSocket;

use crate::network::routing::kind_of;
use crate::process::error::RunError;

/// Looks up this machine's addresses.
#[derive(Clone)]
pub(crate) struct OwnAddresses(Arc<Mutex<RouteSocket>>);

impl OwnAddresses {
    /// Opens the look-up in the calling thread's network namespace.
    ///
    /// # Errors
    /// If the kernel cannot be asked. Without it, others could reach this machine's own services.
    pub(crate) fn open() -> Result<Self, RunError> {
        let kernel = RouteSocket::open().map_err(RunError::OwnAddresses)?;
        Ok(Self(Arc::new(Mutex::new(kernel))))
    }

    /// Returns whether packets to `address` would be delivered to this machine, or by broadcast, multicast
    /// or anycast; `None` if the kernel does not answer.
    pub(crate) fn is_own(&self, address: IpAddr) -> Option<bool> {
        match self.kind_of(address) {
            Ok(Some(
                RouteType::Local | RouteType::Broadcast | RouteType::Anycast | RouteType::Multicast,
            )) => Some(true),
            Ok(_) => Some(false),
            Err(error) => {
                tracing::warn!("cannot determine whether {address} is local: {error}");
                None
            }
        }
    }

    fn kind_of(&self, address: IpAddr) -> io::Result<Option<RouteType>> {
        kind_of(&mut self.0.lock().expect("no thread panics while it asks"), address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{give_address, in_namespace};

    #[test]
    fn every_address_of_this_machine_is_its_own_as_soon_as_it_is_there() {
        in_namespace(|| {
            let own = OwnAddresses::open().unwrap();
            let has = |text: &str| own.is_own(text.parse().unwrap());
            assert_eq!(has("192.0.2.7"), Some(false), "there is no route");
            assert_eq!(
                (has("127.0.0.1"), has("127.9.9.9"), has("::1")),
                (Some(true), Some(true), Some(true))
            );
            give_address("lo", [192, 0, 2, 7].into());
            assert_eq!(
                (has("192.0.2.7"), has("192.0.2.8")),
                (Some(true), Some(true)),
                "all of a network on lo"
            );
            assert_eq!(has("192.0.2.255"), Some(true), "its broadcast address");
            assert_eq!(has("2001:db8::1"), Some(false), "there is no route");
        });
    }
}
