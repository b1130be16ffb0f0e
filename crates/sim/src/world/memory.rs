//! State about peers that hosts keep from one connection to the next.

use std::collections::BTreeMap;
use std::sync::Arc;

use tcp::{Config, ControlBlock, SynData, TaoCache, TcbSharing, TcpState, TransactionSettings};

use crate::connection::socket::SimulatedSocket;
use crate::ids::NodeId;

/// The memories of all hosts.
#[derive(Debug, Default)]
pub(super) struct HostMemory {
    /// State by host and peer.
    peers: BTreeMap<[NodeId; 2], PeerMemory>,
    /// The last connection count of each host (T/TCP's CCgen).
    counts: BTreeMap<NodeId, u32>,
}

#[derive(Debug, Default)]
struct PeerMemory {
    /// Path estimates that later connections begin with: TCB interdependence (RFC 9040).
    block: ControlBlock,
    /// Connection counts that let T/TCP skip the handshake (RFC 1644).
    tao: TaoCache,
}

impl HostMemory {
    /// Adds the remembered state to the settings of a connection from `hosts[0]` to `hosts[1]`.
    pub(super) fn recall(&mut self, config: Arc<Config>, hosts: [NodeId; 2]) -> Arc<Config> {
        let mut config = config;
        let shares = config.sharing != TcbSharing::None && config.shared.is_none();
        if let Some(peer) = self.peers.get(&hosts).filter(|_| shares) {
            // The settings are shared with other connections: only this one's copy changes.
            Arc::make_mut(&mut config).shared = Some(peer.block);
        }
        if matches!(config.syn_data, SynData::Transactions(_)) {
            let settings =
                TransactionSettings { count: self.next_count(hosts[0]), cache: self.tao(hosts) };
            Arc::make_mut(&mut config).syn_data = SynData::Transactions(settings);
        }
        config
    }

    fn next_count(&mut self, host: NodeId) -> u32 {
        let count = self.counts.entry(host).or_default();
        // 0 means "undefined" (RFC 1644 §3.1).
        *count = count.checked_add(1).unwrap_or(1);
        *count
    }

    /// Gives a socket the host's current T/TCP cache for its peer, because other connections may have
    /// changed it since this one was opened. Returns true if the socket may change it.
    pub(super) fn lend_tao_cache(&self, socket: &mut SimulatedSocket) -> bool {
        let lends = has_tao_cache(socket) && is_opening(socket);
        if lends {
            socket.tcp.set_tao_cache(self.tao([socket.node, socket.peer_node]));
        }
        lends
    }

    /// Stores a socket's T/TCP cache as the host's.
    pub(super) fn keep_tao_cache(&mut self, socket: &SimulatedSocket) {
        let peer = self.peers.entry([socket.node, socket.peer_node]).or_default();
        peer.tao = socket.tcp.tao_cache();
    }

    /// Stores a socket's estimates of its path, if its settings share them.
    pub(super) fn keep_control_block(&mut self, socket: &SimulatedSocket) {
        let sharing = socket.tcp.config().sharing;
        if sharing != TcbSharing::None {
            let peer = self.peers.entry([socket.node, socket.peer_node]).or_default();
            peer.block = sharing.keep(socket.tcp.control_block(), peer.block);
        }
    }

    fn tao(&self, hosts: [NodeId; 2]) -> TaoCache {
        self.peers.get(&hosts).map_or_else(TaoCache::default, |peer| peer.tao)
    }
}

pub(super) fn has_tao_cache(socket: &SimulatedSocket) -> bool {
    matches!(socket.tcp.config().syn_data, SynData::Transactions(_))
}

fn is_opening(socket: &SimulatedSocket) -> bool {
    matches!(socket.tcp.state(), TcpState::Listen | TcpState::SynSent | TcpState::SynReceived)
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use link::{LinkConfig, LossModel, QueueLimit};
    use units::{BitRate, ByteCount};

    use super::*;
    use crate::testkit::{at, bytes, geo, row, tcp};
    use crate::{BulkTransfer, ConnectionPath, Direction, FetchMethod, PageLoads, World};

    /// The first connection loses packets and sets its threshold. The next one to the same server starts
    /// with it, if its host keeps thresholds.
    #[test]
    fn a_host_that_keeps_thresholds_starts_the_next_connection_with_the_last_one() {
        for (sharing, kept) in [(TcbSharing::Threshold, true), (TcbSharing::None, false)] {
            let mut world = World::new(1);
            world.sample_every(Duration::from_millis(100));
            let short = LinkConfig {
                queue: QueueLimit::Packets(20),
                ..LinkConfig::new(
                    BitRate::from_mbit(1),
                    Duration::from_millis(100),
                    LossModel::None,
                    QueueLimit::Packets(20),
                )
            };
            let (nodes, _) = row(&mut world, &[short]);
            let config = Arc::new(Config { sharing, ..tcp::Profile::Satellite.config() });
            let ends = [Arc::clone(&config), config];
            let path = Arc::new(ConnectionPath::direct(nodes[0], nodes[1], ends));
            for start in [at(1), at(100)] {
                let mut bulk =
                    BulkTransfer::new(Arc::clone(&path), Direction::Up, bytes(300_000), start);
                bulk.watch = Some(format!("{start:?}"));
                world.add_app(Box::new(bulk));
            }
            world.run_until(at(99));
            let before = world.memory.peers.values().find_map(|peer| peer.block.ssthresh);
            assert_eq!(before.is_some(), kept);
            world.run_until(at(101));
            let second = world.probe().senders.iter().rfind(|sender| sender.has_sent()).unwrap();
            let threshold = second.states.first().unwrap().ssthresh;
            assert_eq!(before.map(ByteCount::get) == Some(threshold), kept, "{threshold:?}");
        }
    }

    /// Times in milliseconds of three pages of one object each, each over a connection of its own, from
    /// a client and a server with these kinds of data on the SYN.
    fn pages(kinds: [SynData; 2]) -> Vec<u128> {
        let mut world = World::new(1);
        let (client, server, _) = geo(&mut world);
        let ends = kinds.map(|syn_data| Arc::new(Config { syn_data, ..(*tcp()[0]).clone() }));
        let path = Arc::new(ConnectionPath::direct(client, server, ends));
        let page = PageLoads::new(
            path,
            FetchMethod::Http10(1),
            300,
            [1000].into(),
            at(1),
            3,
            Duration::from_secs(1),
        );
        let app = world.add_app(Box::new(page));
        assert!(world.run_until_done(at(60)));
        world.app_stats(app).work_units.iter().map(|deed| deed.time().as_millis()).collect()
    }

    /// RFC 1644 §2.1: the first connection takes two round trips of 500 ms, later ones one.
    #[test]
    fn transactions_are_accelerated_once_the_hosts_know_each_other() {
        let with = || SynData::Transactions(TransactionSettings::default());
        assert_eq!(pages([with(), with()]), [1001, 501, 501]);
        assert_eq!(pages([with(), SynData::Off]), [1001; 3]);
        assert_eq!(pages([SynData::Off, with()]), [1001; 3]);
    }

    #[test]
    fn a_count_is_never_zero() {
        let mut memory = HostMemory::default();
        let host = NodeId(0);
        assert_eq!([0; 3].map(|_| memory.next_count(host)), [1, 2, 3]);
        memory.counts.insert(host, u32::MAX);
        assert_eq!(memory.next_count(host), 1);
    }
}
