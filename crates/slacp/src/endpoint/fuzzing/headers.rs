//! A compressor and a decompressor of headers, joined by a hop that a fuzzer controls.

use core::time::Duration;

use units::Instant;

use crate::ChannelId;
use crate::channels::{Compressor, Decompressor, PacketForm};
use crate::wire::frame::{self, CompressedPacket, Frame};

/// Both sides of a hop that keeps the order.
pub(super) struct HeaderHop {
    now: Instant,
    /// The SLACP packet sent last, and the packet of the lane.
    number: u64,
    compressor: Compressor,
    decompressor: Decompressor,
    /// A decompressor that also gets the fuzzer's frames.
    confused: Decompressor,
}

impl Default for HeaderHop {
    fn default() -> Self {
        let compressor = Compressor::new(8);
        let (decompressor, confused) = (Decompressor::default(), Decompressor::default());
        Self { now: Instant::ZERO, number: 0, compressor, decompressor, confused }
    }
}

impl HeaderHop {
    /// Sends a packet, which must arrive unchanged unless it is `lost`.
    pub(super) fn carry(&mut self, packet: &[u8], lost: bool, again: bool) {
        self.now += Duration::from_millis(200);
        self.number += 1;
        let place = (ChannelId(1), 0, self.number);
        match self.compressor.form(self.now, place, packet, again) {
            PacketForm::Plain => {}
            PacketForm::Context { slot, serial, .. } if lost => {
                self.compressor.failed(slot, serial);
            }
            PacketForm::Context { slot, serial, profile } => {
                for side in [&mut self.decompressor, &mut self.confused] {
                    side.store(self.number, slot, profile, place, packet);
                }
                self.compressor.established(slot, serial);
            }
            PacketForm::Compressed(found) => {
                let data = [&found.changes[..], &packet[found.header..]].concat();
                let has_changed = !found.changes.is_empty();
                let (slot, distance) = (found.slot, found.distance);
                let compressed = CompressedPacket { slot, distance, has_changed, data: &data };
                let rebuilt = self.decompressor.rebuild(self.number, &compressed);
                let rebuilt = rebuilt.expect("its context is there");
                assert_eq!((rebuilt.channel, rebuilt.lane, rebuilt.sequence), place);
                assert_eq!(rebuilt.packet, packet);
            }
        }
    }

    /// Hands the fuzzer's frames to the second decompressor.
    pub(super) fn receive_frames(&mut self, mut frames: &[u8]) {
        while let Ok(Some(frame)) = frame::read(&mut frames) {
            self.number += 1;
            match frame {
                Frame::Context(found) => {
                    let place = (found.channel, found.lane, found.sequence);
                    self.confused.store(self.number, found.slot, found.profile, place, found.data);
                }
                Frame::Compressed(found) => {
                    let rebuilt = self.confused.rebuild(self.number, &found);
                    assert!(rebuilt.is_none_or(|rebuilt| rebuilt.packet.len() <= 65_535));
                }
                _ => {}
            }
        }
        assert!(self.confused.held() < 256 << 10);
    }
}
