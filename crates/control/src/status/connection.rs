//! Status of live connections, with their bottlenecks.

use serde::{Deserialize, Serialize};

/// A live connection, and what holds it up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ConnectionStatus {
    /// Sequence number within this gateway.
    pub id: u64,
    /// Peer of the session; empty for a direct connection.
    pub peer: String,
    /// Address and port of the client.
    pub client: String,
    /// The client's address is claimed by the peer and not in its `networks`.
    #[serde(default)]
    pub client_claimed: bool,
    /// Address or name of the destination.
    pub destination: String,
    /// Time since it was opened.
    pub age_s: f64,
    /// From the TCP connection here to the hop; without a hop, from the client to the server.
    pub to_hop_bytes: u64,
    /// From the hop to the TCP connection here; without a hop, from the server to the client.
    pub from_hop_bytes: u64,
    /// Current bottleneck of the direction to the hop.
    pub to_hop_limit: ConnectionBottleneck,
    /// Current bottleneck of the direction from the hop.
    pub from_hop_limit: ConnectionBottleneck,
    /// Round-trip time of the TCP connection here, measured by the kernel.
    pub lan_rtt_ms: Option<f64>,
    /// Round-trip time of the connection to the server, measured by the kernel; only without a hop.
    pub wan_rtt_ms: Option<f64>,
    /// The kernel's congestion window of the TCP connection here, in segments.
    pub lan_window_segments: Option<u32>,
    /// The kernel's congestion window of the connection to the server, in segments; only without a
    /// hop.
    pub wan_window_segments: Option<u32>,
    /// Round-trip time of the hop.
    pub hop_rtt_ms: f64,
    /// Stream data not yet acknowledged by the peer.
    pub held_to_send_bytes: u64,
    /// Stream data received but not yet read, including data after a gap.
    pub held_to_read_bytes: u64,
    /// Bytes that this side retransmitted (ARQ).
    pub resent_bytes: u64,
    /// Bytes lost on the way here and restored by FEC.
    pub recovered_bytes: u64,
}

/// Bottleneck of one direction of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ConnectionBottleneck {
    /// No data moves or waits.
    #[default]
    Idle,
    /// The client, which sends or reads no faster.
    Client,
    /// The hop, including the gateways.
    Hop,
    /// The server, which sends or reads no faster.
    Server,
    /// The hop, or the client behind it. The other gateway's status shows which.
    HopOrClient,
    /// The hop, or the server behind it. The other gateway's status shows which.
    HopOrServer,
}

impl ConnectionBottleneck {
    /// Returns the text for a table of connections.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Client => "client",
            Self::Hop => "hop",
            Self::Server => "server",
            Self::HopOrClient => "hop or client",
            Self::HopOrServer => "hop or server",
        }
    }
}
