//! Counts of everything in a capture that is not analysed, or not as it stands there.

use std::collections::BTreeMap;

use super::capture::layers::Protocol;
use super::clock::Clocks;

/// Maximum number of protocols, link types and block types that are named.
const NAMED_MAX: usize = 64;

/// Counts of packets that are not analysed.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    /// Fragments of IP packets with TCP or a tunnel.
    pub(super) fragments: u64,
    /// Packets that are truncated, or whose headers are damaged.
    pub(super) unreadable: u64,
    /// Packets of connections beyond the limit.
    pub(super) connections: u64,
    /// TCP packets that were captured before.
    pub(super) copies: u64,
    /// Packets without a time stamp.
    pub(super) untimed: u64,
    protocols: BTreeMap<Protocol, u64>,
    links: BTreeMap<u32, u64>,
    blocks: BTreeMap<u32, u64>,
    /// Packets and blocks of further types, which are not named.
    unnamed: u64,
    /// Packets that the capturing machine dropped, by interface.
    lost: BTreeMap<u32, u64>,
}

impl LeftOut {
    pub(super) fn protocol(&mut self, protocol: Protocol) {
        count(&mut self.protocols, protocol, &mut self.unnamed);
    }

    pub(super) fn link(&mut self, number: u32) {
        count(&mut self.links, number, &mut self.unnamed);
    }

    pub(super) fn block(&mut self, kind: u32) {
        count(&mut self.blocks, kind, &mut self.unnamed);
    }

    /// Records the drops of an interface, which count from the start of the capture.
    pub(super) fn lost(&mut self, interface: u32, packets: u64) {
        if self.lost.len() < NAMED_MAX || self.lost.contains_key(&interface) {
            self.lost.insert(interface, packets);
        }
    }

    /// Returns the number of packets of other protocols, by name.
    pub(super) fn other_packets(&self) -> BTreeMap<String, u64> {
        let mut named = BTreeMap::new();
        for (protocol, count) in &self.protocols {
            *named.entry(protocol.to_string()).or_default() += count;
        }
        named
    }

    /// Returns a line for each kind of packet that is left out.
    pub(super) fn warnings(&self, clocks: &Clocks) -> Vec<String> {
        let lost = self.lost.values().copied().fold(0, u64::saturating_add);
        let counted = [
            (self.fragments, "fragments of IP packets with TCP or a tunnel are not analysed"),
            (self.unreadable, "packets are truncated in the capture, or have damaged headers"),
            (self.connections, "packets belong to connections beyond the limit"),
            (self.unnamed, "packets and blocks are of yet other protocols and types"),
            (
                self.copies,
                "TCP packets were captured before, at another place or by a mirror, and count once",
            ),
            (
                self.untimed,
                "packets have no time stamp: their connections have no times, rates and round trips",
            ),
            (lost, "packets were dropped by the capturing machine: what they held counts as lost"),
        ];
        let counted = counted.into_iter().filter(|(count, _)| *count > 0);
        let mut warnings: Vec<_> = counted.map(|(count, what)| format!("{count} {what}")).collect();
        warnings.extend(self.links.iter().map(|(number, count)| {
            format!("{count} packets have a link-layer header of the unknown type {number}")
        }));
        warnings.extend(self.blocks.iter().map(|(kind, count)| {
            format!("{count} blocks of the unknown type {kind:#010x} are skipped")
        }));
        warnings.extend(clock_warning(clocks));
        warnings
    }
}

fn count<K: Ord>(counts: &mut BTreeMap<K, u64>, key: K, unnamed: &mut u64) {
    if counts.len() < NAMED_MAX || counts.contains_key(&key) {
        *counts.entry(key).or_default() += 1;
    } else {
        *unnamed += 1;
    }
}

fn clock_warning(clocks: &Clocks) -> Option<String> {
    let backward = clocks.backward;
    let most = clocks.step_max.as_secs_f64();
    let effect = match clocks.set_back {
        0 => "the packets are out of order in the file".to_owned(),
        steps => format!(
            "the clock was set back {steps} times: round trips across that are left out, and its \
             pause counts as none"
        ),
    };
    (backward > 0).then(|| {
        format!("{backward} time stamps lie up to {most:.6} s before the one before them; {effect}")
    })
}
