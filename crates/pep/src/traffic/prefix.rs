//! Address prefixes such as `10.0.0.0/8`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use thiserror::Error;

/// IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl IpFamily {
    /// Both versions, IPv4 first.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// Version of `address` as written; a mapped IPv4 address is IPv6.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// Name for people, in log and errors.
    pub fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }
}

/// A range of addresses with the same leading bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

/// Why a text is not a prefix.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PrefixError {
    /// The address or the prefix length is invalid.
    #[error("expected a prefix, like \"10.0.0.0/8\" or \"2001:db8::/32\"")]
    Malformed,
    /// Bits are set after the prefix, most likely by mistake.
    #[error("expected {meant}, or a longer prefix: there are bits beyond this one")]
    HostBits {
        /// The prefix that contains the address.
        meant: Prefix,
    },
}

impl Prefix {
    /// Every IPv4 address.
    pub const ALL_V4: Self = Self { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), length: 0 };
    /// Every IPv6 address.
    pub const ALL_V6: Self = Self { address: IpAddr::V6(Ipv6Addr::UNSPECIFIED), length: 0 };

    /// An IPv4 prefix; the bits after it must be zero.
    pub const fn v4(address: [u8; 4], length: u8) -> Self {
        Self { address: IpAddr::V4(Ipv4Addr::from_octets(address)), length }
    }

    /// An IPv6 prefix; the bits after it must be zero.
    pub const fn v6(address: [u16; 8], length: u8) -> Self {
        Self { address: IpAddr::V6(Ipv6Addr::from_segments(address)), length }
    }

    /// The prefix of this length that contains `address`; `None` if the length exceeds the address.
    pub fn around(address: IpAddr, length: u8) -> Option<Self> {
        let most = if address.is_ipv4() { 32 } else { 128 };
        (length <= most).then(|| Self { address: first_address(address, length), length })
    }

    /// The addresses of a client as [`slacp::client_network`] defines it: a single address, or an IPv6 /64.
    pub fn of_client(client: IpAddr) -> Self {
        let whole = Self::host(client);
        Self { length: whole.length.min(if client.is_ipv4() { 32 } else { 64 }), ..whole }
    }

    /// The prefix that contains only this address.
    pub fn host(address: IpAddr) -> Self {
        Self { address, length: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// First address of the prefix.
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// Returns `true` if it is a single address.
    pub fn is_host(self) -> bool {
        self == Self::host(self.address)
    }

    /// Returns `true` if it contains all of `other`.
    pub fn covers(self, other: Self) -> bool {
        self.length <= other.length && self.contains(other.address)
    }

    /// Prefix length in bits, up to 32 or 128.
    pub fn length(self) -> u8 {
        self.length
    }

    /// Returns `true` if it contains `address`.
    pub fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && first_address(address, self.length) == self.address
    }

    /// Returns `true` if the two prefixes have an address in common.
    pub fn overlaps(self, other: Self) -> bool {
        self.contains(other.address) || other.contains(self.address)
    }

    /// The netmask in network byte order: 4 or 16 bytes.
    pub fn mask(self) -> Vec<u8> {
        match self.address {
            IpAddr::V4(_) => mask4(self.length).to_be_bytes().to_vec(),
            IpAddr::V6(_) => mask6(self.length).to_be_bytes().to_vec(),
        }
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (address, length) = text.split_once('/').unwrap_or((text, ""));
        let address: IpAddr = address.parse().map_err(|_| PrefixError::Malformed)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = match text.contains('/') {
            true => length.parse().map_err(|_| PrefixError::Malformed)?,
            false => most,
        };
        if length > most {
            return Err(PrefixError::Malformed);
        }
        // `10.0.0.1/8` is more likely a mistake than meant as `10.0.0.0/8`.
        let first = first_address(address, length);
        let prefix = Self { address: first, length };
        if first != address {
            return Err(PrefixError::HostBits { meant: prefix });
        }
        Ok(prefix)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

fn first_address(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() & mask4(length)).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & mask6(length)).into(),
    }
}

fn mask4(length: u8) -> u32 {
    // A prefix of length 0 would shift by the full width, which overflows.
    u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)
}

fn mask6(length: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_both_families_and_single_addresses() {
        for (text, printed) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("192.0.2.1", "192.0.2.1/32"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("::/0", "::/0"),
            ("::1", "::1/128"),
        ] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), printed);
        }
    }

    #[test]
    fn refuses_text_that_is_no_prefix() {
        for text in ["", "10.0.0.0/33", "10.0.0.0/", "10.0.0/8", "::/129", "lan", "1.2.3.4/-1"] {
            assert_eq!(text.parse::<Prefix>(), Err(PrefixError::Malformed), "{text}");
        }
        let error = "10.1.2.3/8".parse::<Prefix>().unwrap_err().to_string();
        assert!(error.contains("10.0.0.0/8"), "{error}");
    }

    #[test]
    fn contains_its_own_version_only_and_overlaps_what_lies_inside() {
        let prefix = |text: &str| text.parse::<Prefix>().unwrap();
        let (wide, narrow) = (prefix("10.0.0.0/8"), prefix("10.1.2.0/24"));
        assert!(narrow.contains("10.1.2.255".parse().unwrap()));
        assert!(!narrow.contains("10.1.3.0".parse().unwrap()));
        assert!(!prefix("0.0.0.0/0").contains("::1".parse().unwrap()));
        assert!(!prefix("::/0").contains("10.1.2.3".parse().unwrap()));
        assert!(wide.overlaps(narrow) && narrow.overlaps(wide) && wide.overlaps(wide));
        assert!(!narrow.overlaps(prefix("10.1.3.0/24")) && !wide.overlaps(prefix("::/0")));
    }

    proptest! {
        #[test]
        fn printed_prefixes_read_back(bits: u128, length in 0u8..=128) {
            let address = first_address(Ipv6Addr::from_bits(bits).into(), length);
            let prefix = Prefix { address, length };
            prop_assert_eq!(prefix.to_string().parse(), Ok(prefix));
        }
    }
}
