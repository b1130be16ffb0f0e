//! Encodes netfilter messages. Attributes are numbers in network byte order unless stated otherwise.

use super::ALIGNMENT;

const NFNETLINK_VERSION: u8 = 0;
/// Type of a comment in user data (NFTNL_UDATA_TABLE_COMMENT, and the same for rules and chains).
pub(super) const COMMENT: u8 = 0;

/// Messages that the kernel executes all together or not at all.
pub struct MessageBatch {
    bytes: Vec<u8>,
    /// Where the last message starts.
    message: usize,
    sequence: u32,
}

impl Default for MessageBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl MessageBatch {
    /// An empty batch for nftables.
    pub fn new() -> Self {
        let mut batch = Self::bare();
        batch.begin(libc::NFNL_MSG_BATCH_BEGIN as u16, 0, 0, libc::NFNL_SUBSYS_NFTABLES as u16);
        batch
    }

    /// Creates a batch without the frame that makes several messages one transaction.
    fn bare() -> Self {
        Self { bytes: Vec::new(), message: 0, sequence: 0 }
    }

    /// Encodes a single message of a netfilter subsystem, whose attributes `attributes` adds.
    pub(super) fn single(
        kind: u16,
        family: u8,
        resource: u16,
        flags: libc::c_int,
        attributes: impl FnOnce(&mut Self),
    ) -> Vec<u8> {
        let mut message = Self::bare();
        message.begin(kind, flags as u16, family, resource);
        attributes(&mut message);
        message.close(0);
        message.bytes
    }

    /// Appends an nftables message, whose attributes `attributes` adds.
    pub fn message(
        &mut self,
        kind: libc::c_int,
        family: libc::c_int,
        flags: libc::c_int,
        attributes: impl FnOnce(&mut Self),
    ) {
        self.begin(about_nftables(kind), flags as u16, family as u8, 0);
        attributes(self);
        self.close(self.message);
    }

    /// Appends an attribute of raw bytes.
    pub fn bytes(&mut self, kind: u16, value: &[u8]) {
        let start = self.open(kind);
        self.bytes.extend_from_slice(value);
        self.close_attribute(start);
    }

    /// Appends an attribute of text, which ends with a zero byte.
    pub fn text(&mut self, kind: u16, value: &str) {
        let start = self.open(kind);
        self.bytes.extend_from_slice(value.as_bytes());
        self.bytes.push(0);
        self.close_attribute(start);
    }

    /// Appends a comment in the form in which `nft` shows it (libnftnl's user data): its type, its length, and a
    /// text that ends with a zero byte.
    ///
    /// # Panics
    /// If the text has more than 254 bytes.
    pub fn comment(&mut self, kind: u16, text: &str) {
        let length = u8::try_from(text.len() + 1).expect("the comment is short");
        self.bytes(kind, &[&[COMMENT, length], text.as_bytes(), &[0]].concat());
    }

    /// Appends a number in network byte order.
    pub fn number(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_be_bytes());
    }

    /// Appends an attribute that contains those added by `attributes`.
    pub fn nest(&mut self, kind: u16, attributes: impl FnOnce(&mut Self)) {
        let start = self.open(kind | libc::NLA_F_NESTED as u16);
        attributes(self);
        self.close_attribute(start);
    }

    /// Ends the transaction and returns the encoded batch.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.begin(libc::NFNL_MSG_BATCH_END as u16, 0, 0, libc::NFNL_SUBSYS_NFTABLES as u16);
        self.bytes
    }

    /// Appends `struct nlmsghdr` and `struct nfgenmsg`.
    fn begin(&mut self, kind: u16, flags: u16, family: u8, resource: u16) {
        self.message = self.bytes.len();
        self.bytes.extend_from_slice(&0u32.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&(flags | libc::NLM_F_REQUEST as u16).to_ne_bytes());
        self.bytes.extend_from_slice(&self.sequence.to_ne_bytes());
        self.bytes.extend_from_slice(&0u32.to_ne_bytes());
        self.bytes.extend_from_slice(&[family, NFNETLINK_VERSION]);
        self.bytes.extend_from_slice(&resource.to_be_bytes());
        self.sequence += 1;
        self.close(self.message);
    }

    /// Sets the length of the message that starts at `start`.
    fn close(&mut self, start: usize) {
        let length = (self.bytes.len() - start) as u32;
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
    }

    fn open(&mut self, kind: u16) -> usize {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&0u16.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        start
    }

    /// Sets the length of the attribute that starts at `start`, and pads it.
    fn close_attribute(&mut self, start: usize) {
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
    }
}

/// Returns the type of an nftables message.
pub(super) fn about_nftables(kind: libc::c_int) -> u16 {
    (libc::NFNL_SUBSYS_NFTABLES as u16) << 8 | kind as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn lengths_cover_headers_and_padding_does_not_count() {
        let mut batch = MessageBatch::new();
        batch.message(libc::NFT_MSG_NEWTABLE, libc::NFPROTO_INET, libc::NLM_F_CREATE, |m| {
            m.text(1, "ab");
            m.nest(2, |n| n.number(3, 7));
        });
        let bytes = batch.finish();
        let (begin, rest) = bytes.split_at(20);
        assert_eq!(begin[..6], [20, 0, 0, 0, 0x10, 0], "batch begin");
        assert_eq!(begin[16..], [0, 0, 0, 10], "for nftables");
        let (table, end) = rest.split_at(40);
        assert_eq!(table[..8], [40, 0, 0, 0, 0, 10, 1, 4], "new table, create");
        assert_eq!(table[16..20], [1, 0, 0, 0], "family inet");
        assert_eq!(table[20..28], [7, 0, 1, 0, b'a', b'b', 0, 0], "text, padded");
        assert_eq!(table[28..40], [12, 0, 2, 0x80, 8, 0, 3, 0, 0, 0, 0, 7], "nested number");
        assert_eq!(end[..6], [20, 0, 0, 0, 0x11, 0], "batch end");
    }
}
