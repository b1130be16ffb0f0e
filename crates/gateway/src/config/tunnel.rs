//! Section `[tunnel]`.

use pep::config::{PermittedTerminal, TunnelConfig, TunnelDevice};

use super::parse::quoted;
use super::{ConfigError, Source, raw};

const NAME: &str = "skyhop0";
/// IFNAMSIZ without the terminating zero.
const LONGEST_NAME: usize = 15;
/// From the IPv6 minimum link MTU to a jumbo frame.
const MTU: std::ops::RangeInclusive<i64> = 1280..=9216;
/// Ethernet's MTU. A packet channel also takes packets longer than the hop's MTU.
const USUAL_MTU: u16 = 1500;
const DEVICES: [(&str, TunnelDevice); 3] =
    [("auto", TunnelDevice::Auto), ("tun", TunnelDevice::Tun), ("veth", TunnelDevice::Veth)];

impl Source {
    pub(super) fn tunnel(
        &self,
        raw: Option<raw::Tunnel>,
        link: &slacp::Config,
    ) -> Result<Option<TunnelConfig>, ConfigError> {
        let Some(raw) = raw else { return Ok(None) };
        let name = raw.name.unwrap_or_else(|| NAME.to_owned());
        let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !(1..=LONGEST_NAME).contains(&name.len()) || !name.bytes().all(known) {
            let problem = "expected a device name of 1 to 15 letters, digits, or any of \"-_.\"";
            return Err(self.value("tunnel.name", quoted(&name), problem));
        }
        let device = raw.device.unwrap_or_else(|| "auto".to_owned());
        let found = DEVICES.iter().find(|(known, _)| *known == device);
        let problem = "expected \"auto\", \"tun\" or \"veth\"";
        let (_, kind) =
            found.ok_or_else(|| self.value("tunnel.device", quoted(&device), problem))?;
        let mtu = raw.mtu.map_or(Ok(link.mtu.max(USUAL_MTU)), |mtu| self.tunnel_mtu(mtu))?;
        Ok(Some(TunnelConfig { name, device: *kind, mtu }))
    }

    fn tunnel_mtu(&self, mtu: i64) -> Result<u16, ConfigError> {
        let problem = format!("expected {} to {} bytes", MTU.start(), MTU.end());
        let fitting = MTU.contains(&mtu).then_some(mtu as u16);
        fitting.ok_or_else(|| self.value("tunnel.mtu", mtu, problem))
    }

    /// Requires `networks` for every terminal: the tunnel drops packets of a terminal without
    /// networks.
    pub(super) fn require_networks(
        &self,
        terminals: &[PermittedTerminal],
    ) -> Result<(), ConfigError> {
        let Some(bare) = terminals.iter().find(|terminal| terminal.networks.is_empty()) else {
            return Ok(());
        };
        let problem = format!(
            "the tunnel needs the addresses behind terminal {}, like \
             [\"10.1.0.0/16\"]",
            bare.name
        );
        Err(self.value("terminal.networks", "[]", problem))
    }
}
