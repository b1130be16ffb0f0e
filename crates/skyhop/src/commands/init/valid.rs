//! Validation of the settings of `skyhop init`, for options and answers.

use gateway::config::HubAddress;
use gateway::keys::{PublicKey, parse_public_key};
use units::BitRate;

/// Longest name of an interface, in bytes: IFNAMSIZ without the terminating zero.
const LONGEST_INTERFACE: usize = 15;

/// Parses host and UDP port of a hub.
pub(crate) fn hub(text: &str) -> Result<String, String> {
    let address: HubAddress = text.parse().map_err(|_| format!("expected {}", HubAddress::FORM))?;
    Ok(address.as_str().to_owned())
}

/// Returns the port of a valid address.
pub(crate) fn port(hub: &str) -> u16 {
    let port = hub.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    port.unwrap_or(gateway::PORT)
}

/// Parses a public key.
pub(crate) fn key(text: &str) -> Result<PublicKey, String> {
    parse_public_key(text).map_err(|error| error.to_string())
}

/// Checks a rate: one above zero, `auto` or `modem`.
pub(crate) fn rate(text: &str) -> Result<String, String> {
    const EXPECTED: &str = "expected a rate above zero such as 50Mbit/s, auto or modem";
    let is_rate = || text.parse().is_ok_and(|rate: BitRate| rate.bits_per_second() > 0);
    let good = ["auto", "modem"].contains(&text) || is_rate();
    if good { Ok(text.to_owned()) } else { Err(EXPECTED.to_owned()) }
}

/// Checks the name of an interface.
pub(crate) fn interface(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_graphic() && c != '/';
    let good = (1..=LONGEST_INTERFACE).contains(&text.len()) && text.chars().all(plain);
    if good { Ok(text.to_owned()) } else { Err("expected the name of an interface".to_owned()) }
}

/// Checks the terminal's name, which also becomes the name of a file. "hub" is the hub's file.
pub(crate) fn name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if text.is_empty() || text == "hub" || text.starts_with('.') || !text.chars().all(plain) {
        return Err("expected letters, digits, '-', '_' or '.', and not \"hub\"".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hub_has_a_port_and_the_terminal_a_file_name() {
        assert_eq!(port(&hub("hub.example.net:5901").unwrap()), 5901);
        for wrong in ["hub", ":7", "hub:0", "a:b:7"] {
            assert!(hub(wrong).unwrap_err().contains("UDP port"), "{wrong}");
        }
        assert!(name("ship-1").is_ok());
        for wrong in ["", "hub", "../x", ".x"] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_keys_and_interfaces_are_those_of_a_gateway() {
        assert!(["auto", "modem", "50Mbit/s", "50 Mbit/s"].iter().all(|text| rate(text).is_ok()));
        for wrong in ["fast", "0Mbit/s", "", "50Mbps"] {
            assert!(rate(wrong).unwrap_err().contains("50Mbit/s"), "{wrong}");
        }
        assert!(interface("lan0").is_ok());
        assert!(["", "a-name-far-too-long", "a b"].iter().all(|text| interface(text).is_err()));
        assert!(key("AAAA").is_err());
    }
}
