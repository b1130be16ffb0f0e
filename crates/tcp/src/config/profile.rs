//! Named sets of settings: the endpoints of the literature, and of today.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use thiserror::Error;
use units::ByteCount;

use crate::cc::ControllerSpec;
use crate::config::{AckConfig, AckCounting, AfterSlowStart, Config, LossDetector};
use crate::estimate::rtt::{RtoConfig, RttSampling};

/// A named set of settings. Where a source does not specify something, the standard of its time
/// applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// The Reference TCP of the SLACP paper (§4): no SACK, delayed ACK of
    /// 200 ms, an initial window of one segment, no window scaling. An MTU of
    /// 1450 bytes, the timers of Linux.
    Reference,
    /// The Satellite TCP of the SLACP paper: Reference with SACK (RFC 3517, now
    /// 6675), an initial window of two segments, and window scaling.
    Satellite,
    /// The Enhanced TCP of the SLACP paper (§3, §4): Satellite with an initial
    /// window of four segments (RFC 3390), DAASS, limited transmit and F-RTO.
    Enhanced,
    /// 4.3BSD Tahoe: slow start and congestion avoidance, go-back-N, coarse
    /// timers, 4 KiB of buffer for each direction.
    Tahoe1988,
    /// Windows 98 as used by ENAC and Wadekar: Reno with a window of 8 KB, no options.
    Windows98,
    /// Current Linux: CUBIC with `HyStart++`, SACK, RACK-TLP, PRR-SSRB, F-RTO, an initial window of
    /// ten segments, and a time-out at least 200 ms above the smoothed RTT.
    Linux,
    /// SCPS-TP (CCSDS 714.0-B-2) as used by a gateway of its time on a dedicated link: SNACK,
    /// losses treated as corruption, timestamps and window scaling. There is no slow growth but a
    /// constant rate (`max-rate`, to be set) within a window of 1 MiB.
    Scps,
}

impl Profile {
    /// All profiles, with their names as users write them.
    pub const ALL: [(&'static str, Self); 7] = [
        ("reference", Self::Reference),
        ("satellite", Self::Satellite),
        ("enhanced", Self::Enhanced),
        ("tahoe-1988", Self::Tahoe1988),
        ("windows-98", Self::Windows98),
        ("linux", Self::Linux),
        ("scps", Self::Scps),
    ];

    /// Returns the settings of the profile.
    pub fn config(self) -> Config {
        match self {
            Self::Reference => reference(),
            Self::Satellite => satellite(),
            Self::Enhanced => enhanced(),
            Self::Tahoe1988 => tahoe_1988(),
            Self::Windows98 => windows_98(),
            Self::Linux => linux(),
            Self::Scps => scps(),
        }
    }

    /// Returns the name, as users write it.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, profile)| *profile == self).map_or("", |(name, _)| name)
    }
}

/// Linux's shortest time-out, which also bounds what is added to the smoothed RTT.
const TCP_RTO_MIN: Duration = Duration::from_millis(200);

/// Returns the settings of a TCP without any options, as before RFC 1323 (1992).
fn bare(controller: &str) -> Config {
    Config {
        window_scaling: false,
        timestamps: false,
        sack: false,
        dsack: false,
        ecn: false,
        snack: false,
        receive_buffer: ByteCount::new(65_535),
        counting: AckCounting::Acks,
        detection: LossDetector::DupAcks,
        prr: None,
        limited_transmit: false,
        frto: false,
        eifel: false,
        dsack_undo: false,
        initial_window: 1,
        controller: named(controller),
        rto: RtoConfig {
            initial: Duration::from_secs(3),
            sampling: RttSampling::OncePerRtt,
            ..RtoConfig::default()
        },
        acks: AckConfig { delay: Some(Duration::from_millis(200)), ..AckConfig::default() },
        ..Config::default()
    }
}

/// Returns a controller of the registry with its default options.
fn named(controller: &str) -> ControllerSpec {
    controller.parse().unwrap_or_default()
}

fn reference() -> Config {
    // The paper's hosts run Linux, which times every acknowledgement of new data and keeps the
    // time-out 200 ms above the smoothed RTT. The first time-out is the paper's: 3 s (§4.3).
    let bare = bare("newreno");
    let rto = RtoConfig {
        min: TCP_RTO_MIN,
        granularity: TCP_RTO_MIN,
        sampling: RttSampling::EveryAck,
        ..bare.rto
    };
    Config { mss: 1410, rto, ..bare }
}

fn satellite() -> Config {
    Config {
        initial_window: 2,
        sack: true,
        detection: LossDetector::Sack,
        window_scaling: true,
        receive_buffer: ByteCount::new(1 << 20),
        ..reference()
    }
}

fn enhanced() -> Config {
    let satellite = satellite();
    Config {
        // RFC 3390: min(4·MSS, max(2·MSS, 4380 bytes)) are 3 segments of 1410
        // bytes; the paper says 4.
        initial_window: 4,
        limited_transmit: true,
        frto: true,
        acks: AckConfig { after_slow_start: AfterSlowStart::Assumed, ..satellite.acks },
        ..satellite
    }
}

fn tahoe_1988() -> Config {
    Config {
        mss: 512,
        receive_buffer: ByteCount::new(4096),
        send_buffer: ByteCount::new(4096),
        rto: RtoConfig {
            granularity: Duration::from_millis(500),
            max: Duration::from_secs(64),
            ..bare("tahoe").rto
        },
        restart_after_idle: false,
        ..bare("tahoe")
    }
}

fn windows_98() -> Config {
    Config {
        receive_buffer: ByteCount::new(8192),
        send_buffer: ByteCount::new(8192),
        initial_window: 2,
        ..bare("reno")
    }
}

fn linux() -> Config {
    Config {
        ecn: false,
        eifel: true,
        minshall: true,
        // TCP_MAX_QUICKACKS.
        acks: AckConfig { quick: 16, ..AckConfig::default() },
        counting: AckCounting::Bytes { limit: None },
        rto: RtoConfig {
            min: TCP_RTO_MIN,
            granularity: TCP_RTO_MIN,
            // TCP_RTO_MAX.
            max: Duration::from_secs(120),
            ..RtoConfig::default()
        },
        controller: named("cubic"),
        ..Config::default()
    }
}

fn scps() -> Config {
    let buffer = ByteCount::new(1 << 20);
    Config {
        snack: true,
        assume_corruption: true,
        window_scaling: true,
        timestamps: true,
        receive_buffer: buffer,
        send_buffer: buffer,
        initial_window: 2,
        ..bare("newreno")
    }
}

/// The error for a name that no profile has.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no TCP profile \"{name}\": expected one of {}", Profile::ALL.map(|(name, _)| name).join(", "))]
pub struct UnknownProfile {
    /// The unknown name, as given.
    name: String,
}

impl FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(text: &str) -> Result<Self, UnknownProfile> {
        let known = Self::ALL.into_iter().find(|(name, _)| *name == text);
        known.map(|(_, profile)| profile).ok_or_else(|| UnknownProfile { name: text.to_owned() })
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_profiles_and_back() {
        for (name, profile) in Profile::ALL {
            assert_eq!(name.parse(), Ok(profile));
            assert_eq!(profile.to_string(), name);
        }
        let error = "satelite".parse::<Profile>().unwrap_err().to_string();
        assert!(error.starts_with("no TCP profile \"satelite\": expected one of reference, "));
    }

    #[test]
    fn every_profile_has_the_controller_it_names() {
        let controllers = Profile::ALL.map(|(_, profile)| profile.config().controller.to_string());
        let expected = ["newreno", "newreno", "newreno", "tahoe", "reno", "cubic", "newreno"];
        assert_eq!(controllers, expected);
    }
}
