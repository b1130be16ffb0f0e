//! Settings of the hop: `mtu`, `burst`, `memory`, `stream_window`; and `connect_timeout`.

use core::ops::RangeInclusive;
use core::time::Duration;

use units::{ByteCount, format_duration};

use crate::bounds::number;
use crate::file::FileError;
use crate::file::place::{KeyContext, quoted};
use crate::file::text::{Text, Time};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const LONGEST_CONNECT_TIMEOUT: Duration = Duration::from_secs(600);
/// The minimum that every IPv4 host accepts (RFC 1122 §3.3.2), up to a jumbo frame.
const MTU: RangeInclusive<i64> = 576..=9216;
const LEAST_SIZE: ByteCount = ByteCount::new(64_000);

/// The keys of the hop as written.
pub(crate) struct HopKeys {
    pub(crate) mtu: Option<i64>,
    pub(crate) burst: Option<Text<ByteCount>>,
    pub(crate) memory: Option<Text<ByteCount>>,
    pub(crate) stream_window: Option<Text<ByteCount>>,
}

impl HopKeys {
    pub(crate) fn read(
        self,
        place: &KeyContext<'_>,
        rate: slacp::Rate,
    ) -> Result<slacp::Config, FileError> {
        let mut link = slacp::Config::new(rate);
        if let Some(mtu) = number(place, "mtu", self.mtu, MTU, " bytes")? {
            link.mtu = mtu as u16;
        }
        link.burst = burst(place, self.burst, link.mtu)?;
        link.memory = size(place, "memory", self.memory)?.unwrap_or(link.memory);
        link.decompressors = compression::decompressors(link.memory);
        let window = size(place, "stream_window", self.stream_window)?;
        // A small `memory` alone is no error: it lowers the default window.
        link.stream_window = window.unwrap_or_else(|| link.stream_window.min(link.memory));
        let expected = format!("at most the memory, {}", link.memory);
        let good = link.stream_window <= link.memory;
        place.check(good, "stream_window", quoted(link.stream_window), expected)?;
        Ok(link)
    }
}

/// Checks `burst`: it must hold a full packet, or that could never be sent.
fn burst(
    place: &KeyContext<'_>,
    burst: Option<Text<ByteCount>>,
    mtu: u16,
) -> Result<Option<ByteCount>, FileError> {
    let Some(Text(burst)) = burst else { return Ok(None) };
    let expected = format!("at least the mtu, {mtu} bytes");
    place.check(burst.get() >= u64::from(mtu), "burst", quoted(burst), expected)?;
    Ok(Some(burst))
}

/// Checks an optional amount of memory.
pub(crate) fn size(
    place: &KeyContext<'_>,
    key: &str,
    size: Option<Text<ByteCount>>,
) -> Result<Option<ByteCount>, FileError> {
    let Some(Text(size)) = size else { return Ok(None) };
    let expected = format!("at least {LEAST_SIZE}");
    place.check(size >= LEAST_SIZE, key, quoted(size), expected).map(|()| Some(size))
}

pub(crate) fn connect_timeout(
    place: &KeyContext<'_>,
    time: Option<Text<Time>>,
) -> Result<Duration, FileError> {
    let time = time.map_or(CONNECT_TIMEOUT, |time| time.0.0);
    let good = !time.is_zero() && time <= LONGEST_CONNECT_TIMEOUT;
    let value = quoted(format_duration(time));
    place.check(good, "connect_timeout", value, "more than 0 s, at most 10 min").map(|()| time)
}
