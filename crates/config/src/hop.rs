//! Settings of the hop: `mtu`, `burst`, `memory`, `stream_window`; and `connect_timeout`. [`links`] are its links.

pub(crate) mod links;

use units::ByteCount;

use crate::file::FileError;
use crate::file::place::{KeyContext, quoted};
use crate::file::text::Text;
use crate::values::bounded::{Interval, MINUTE, Memory, Number, SECOND, Size};

/// Time limit for opening a connection to a destination.
pub(crate) type ConnectTimeout = Interval<1, { 10 * MINUTE }, { 30 * SECOND }>;

/// The keys of the hop as written.
pub(crate) struct HopKeys {
    pub(crate) mtu: Number<576, 9216, 1500>,
    pub(crate) burst: Option<Text<ByteCount>>,
    pub(crate) memory: Memory<256_000_000>,
    pub(crate) stream_window: Option<Memory>,
}

impl HopKeys {
    pub(crate) fn read(
        self,
        place: &KeyContext<'_>,
        rate: slacp::Rate,
    ) -> Result<slacp::Config, FileError> {
        let mut link = slacp::Config::new(rate);
        link.mtu = self.mtu.get() as u16;
        link.burst = burst(place, self.burst, link.mtu)?;
        link.memory = self.memory.get();
        link.decompressors = compression::decompressors(link.memory);
        // A small `memory` alone is no error: it lowers the default window.
        link.stream_window =
            self.stream_window.map_or_else(|| link.stream_window.min(link.memory), Size::get);
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
