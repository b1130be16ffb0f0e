//! Addresses of a hub over UDP and TCP.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use thiserror::Error;

/// Address of the hub as `host:port`, not resolved yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubAddress(String);

/// The text is not a host and a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("expected {}", HubAddress::FORM)]
pub struct HubAddressError;

impl FromStr for HubAddress {
    type Err = HubAddressError;

    fn from_str(text: &str) -> Result<Self, HubAddressError> {
        let is_address = text.parse::<SocketAddr>().is_ok_and(|address| address.port() != 0);
        let is_name = text.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty() && !host.contains(':') && port.parse::<u16>().is_ok_and(|p| p != 0)
        });
        (is_address || is_name).then(|| Self(text.to_owned())).ok_or(HubAddressError)
    }
}

impl HubAddress {
    /// The host without the port, and without the brackets of an IPv6 address.
    pub fn host(&self) -> &str {
        let host = self.0.rsplit_once(':').map_or("", |(host, _)| host);
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    /// Expected form, for error messages.
    pub const FORM: &str = "an address and a UDP port, like \"hub.example.net:5900\"";

    /// `host:port`, in the form that a resolver accepts.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A hub's address for packets over TCP: `host:port`, or `tls://host:port` over TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpAddress {
    /// Host and TCP port of the listener.
    pub address: HubAddress,
    /// `true` if the connection looks like TLS to the network.
    pub tls: bool,
}

impl TcpAddress {
    /// Expected form, for error messages.
    pub const FORM: &str = "an address and a TCP port, like \"hub.example.net:443\" or, within TLS, \
                            \"tls://hub.example.net:443\"";
    const TLS: &str = "tls://";
}

/// The text is not a host and a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("expected {}", TcpAddress::FORM)]
pub struct TcpAddressError;

impl FromStr for TcpAddress {
    type Err = TcpAddressError;

    fn from_str(text: &str) -> Result<Self, TcpAddressError> {
        let within = text.strip_prefix(Self::TLS);
        let address = within.unwrap_or(text).parse().map_err(|_| TcpAddressError)?;
        Ok(Self { address, tls: within.is_some() })
    }
}

impl fmt::Display for TcpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.tls { Self::TLS } else { "" }, self.address.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hub_has_a_host_and_a_port() {
        for text in ["hub.example.net:5900", "192.0.2.1:1", "[2001:db8::1]:5900"] {
            assert_eq!(text.parse::<HubAddress>().unwrap().as_str(), text);
        }
        for text in
            ["", "hub", ":5900", "hub:", "hub:0", "192.0.2.1:0", "2001:db8::1:5900", "h:65536"]
        {
            assert_eq!(text.parse::<HubAddress>(), Err(HubAddressError), "{text}");
        }
        for (text, host) in
            [("hub:1", "hub"), ("[2001:db8::1]:1", "2001:db8::1"), ("192.0.2.1:1", "192.0.2.1")]
        {
            assert_eq!(text.parse::<HubAddress>().unwrap().host(), host);
        }
    }

    #[test]
    fn tcp_may_be_within_tls() {
        for (text, tls) in [("hub:443", false), ("tls://[2001:db8::1]:443", true)] {
            let address: TcpAddress = text.parse().unwrap();
            assert_eq!((address.to_string(), address.tls), (text.to_owned(), tls));
        }
        for text in ["tls://", "tls://hub", "https://hub:443", "tls:hub:443"] {
            assert_eq!(text.parse::<TcpAddress>(), Err(TcpAddressError), "{text}");
        }
    }
}
