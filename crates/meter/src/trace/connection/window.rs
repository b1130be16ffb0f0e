//! The windows advertised by one side.

use crate::trace::report::WindowReport;

/// Collects unscaled windows: the scale is only certain when both SYNs were seen (RFC 7323 §2.2).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AdvertisedWindows {
    fields: Option<WindowReport>,
}

impl AdvertisedWindows {
    /// Adds the window of a packet without SYN and RST.
    pub(super) fn advertised(&mut self, field: u16) {
        let field = u64::from(field);
        let fresh = WindowReport { first: field, min: field, max: field, zero: 0 };
        let fields = self.fields.get_or_insert(fresh);
        fields.min = fields.min.min(field);
        fields.max = fields.max.max(field);
        fields.zero += u64::from(field == 0);
    }

    /// Returns the windows in bytes, for this scale.
    pub(super) fn report(&self, scale: u8) -> Option<WindowReport> {
        // RFC 7323 §2.3: larger shifts count as 14.
        let bytes = |field: u64| field << scale.min(14);
        self.fields.map(|fields| WindowReport {
            first: bytes(fields.first),
            min: bytes(fields.min),
            max: bytes(fields.max),
            zero: fields.zero,
        })
    }
}
