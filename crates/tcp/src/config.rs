//! The settings of an endpoint: every option of the sources, also as text and in named sets.

pub(crate) mod options;
pub(crate) mod profile;

use core::time::Duration;

use units::{BitRate, ByteCount};

use crate::cc::{ControllerSpec, FastRecovery};
use crate::estimate::rtt::RtoConfig;
use crate::recovery::prr::PrrBound;
use crate::segment::Cookie;
use crate::sharing::tao::TransactionSettings;
use crate::sharing::tcb::{ControlBlock, TcbSharing};

/// The settings of a connection. [`Config::default`] is a plain, modern TCP: RFC 9293 with SACK,
/// timestamps, window scaling, RACK-TLP, PRR and CUBIC. [`crate::Profile`] has the named sets of
/// the literature.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Maximum segment size to receive, in bytes of payload with options, and to send unless the
    /// peer wants less. 1460 is Ethernet with IPv4.
    pub mss: u16,
    /// The initial window in segments (RFC 6928: 10; RFC 3390: 3 at this size;
    /// RFC 2581: 2; before: 1). At least 1.
    pub initial_window: u32,
    /// The initial slow-start threshold; `None` is "arbitrarily high" (RFC 5681). Can be set to
    /// that of an earlier connection (RFC 9040).
    pub initial_ssthresh: Option<ByteCount>,
    /// Buffer for data received and not read, in bytes. It limits the peer's flight, together with
    /// the largest window that can be expressed (65,535 bytes without scaling, 1 GiB with it), so
    /// it should exceed the BDP.
    pub receive_buffer: ByteCount,
    /// Buffer for data written and not acknowledged, in bytes.
    pub send_buffer: ByteCount,
    /// Offer and accept window scaling (RFC 7323 §2).
    pub window_scaling: bool,
    /// Offer and accept timestamps, and with them PAWS (RFC 7323 §3, §5).
    pub timestamps: bool,
    /// Offer and accept selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// Report duplicates in SACK blocks (RFC 2883).
    pub dsack: bool,
    /// Offer and accept explicit congestion notification (RFC 3168).
    pub ecn: bool,
    /// Offer and accept negative acknowledgements of holes (SCPS-TP's SNACK, CCSDS 714.0-B-2, short
    /// form). They work with or without SACK.
    pub snack: bool,
    /// Treat losses as corruption (SCPS-TP, CCSDS 714.0-B-2): they are repaired without reducing
    /// the window. Time-outs still reduce it.
    pub assume_corruption: bool,
    /// Data on the SYN: TCP Fast Open, T/TCP or neither.
    pub syn_data: SynData,
    /// The delay and number of acknowledgements.
    pub acks: AckConfig,
    /// Coalesce small writes while data is outstanding (Nagle; RFC 9293 §3.7.4).
    pub nagle: bool,
    /// With [`Self::nagle`], hold a small segment back only while another small one is outstanding, so
    /// that the end of a large write never waits, like Linux (Minshall et al., "Application performance
    /// pitfalls and TCP's Nagle algorithm", 2000).
    pub minshall: bool,
    /// The amount by which acknowledgements count for window growth.
    pub counting: AckCounting,
    /// The rule by which losses are detected.
    pub detection: LossDetector,
    /// The reaction to duplicate acknowledgements; `None` leaves it to the controller.
    pub recovery: Option<FastRecovery>,
    /// Proportional rate reduction (RFC 6937); without it the window is reduced at once.
    pub prr: Option<PrrBound>,
    /// Send new data on the first two duplicate acknowledgements (RFC 3042).
    pub limited_transmit: bool,
    /// Detect spurious time-outs from the acknowledgements after them (F-RTO, RFC 5682).
    pub frto: bool,
    /// Detect spurious retransmissions by timestamps (Eifel, RFC 3522), and undo their effects.
    pub eifel: bool,
    /// Detect spurious retransmissions by duplicate SACKs (RFC 3708), and undo their effects.
    pub dsack_undo: bool,
    /// Bounds and sampling of the retransmission time-out.
    pub rto: RtoConfig,
    /// The congestion controller with its options.
    pub controller: ControllerSpec,
    /// Pace segments, at the controller's rate or else at 2 (slow start) or 1.2 windows per RTT.
    pub pacing: bool,
    /// Maximum sending rate, for instance that of the satellite link.
    pub max_rate: Option<BitRate>,
    /// Maximum burst after a pause when a rate limits the sender: the depth of a token bucket (TBF;
    /// ITU-R S.1711-1). `None` is 1 ms of the rate.
    pub bucket: Option<ByteCount>,
    /// Knowledge of earlier or concurrent connections about the path (TCB interdependence, RFC
    /// 9040).
    pub shared: Option<ControlBlock>,
    /// The part of this connection's knowledge that its owner keeps for [`Self::shared`] of the
    /// next connection with the same peer.
    pub sharing: TcbSharing,
    /// Set the threshold of the first slow start to the rate of the first acknowledgements times
    /// the RTT (Hoe, SIGCOMM 1996; the sender's estimation of Allman and Paxson, SIGCOMM 1999).
    pub estimate_ssthresh: bool,
    /// After an idle retransmission time-out, restart with at most the initial window (RFC 5681
    /// §4.1).
    pub restart_after_idle: bool,
    /// Probe idle connections (RFC 9293 §3.8.4).
    pub keepalive: Option<KeepaliveConfig>,
    /// Give up when data stays unacknowledged for this long (RFC 9293 §3.8.3: R2, at least 100 s;
    /// RFC 5482). `None` never gives up.
    pub user_timeout: Option<Duration>,
    /// Duration of TIME-WAIT: 2·MSL, which is 4 minutes in RFC 9293 and 60 s in practice.
    pub time_wait: Duration,
    /// Seed for controllers that use random numbers.
    pub seed: u64,
}

/// Rules for acknowledging received data. In any case, data that is out of order or fills a hole is
/// acknowledged at once (RFC 5681 §4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckConfig {
    /// Maximum delay of an acknowledgement; `None` for no delay. At most 500 ms (RFC 9293
    /// §3.8.6.3).
    pub delay: Option<Duration>,
    /// Acknowledge at once after this many segments; 2 in RFC 5681.
    pub every: u32,
    /// Acknowledge this many initial segments one by one, like Linux ("quick ACK").
    pub quick: u32,
    /// Acknowledge every segment while the sender is in slow start.
    pub after_slow_start: AfterSlowStart,
    /// Acknowledge a SYN-ACK and a FIN before the application can act, as kernels do: a request then
    /// does not travel with the end of the handshake, nor the answer to a FIN with the own FIN. It costs
    /// two packets a connection, and no time.
    pub control_alone: bool,
}

/// Delayed acknowledgements after slow start (DAASS: Allman, "On the generation and use of TCP
/// acknowledgments", CCR 28(5), 1998; RFC 2760 §3.2.3): acknowledgements are delayed only while the
/// sender is not in slow start. Both sources leave open how the receiver knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AfterSlowStart {
    /// Acknowledgements are always delayed.
    #[default]
    Off,
    /// The receiver assumes that slow start lasts from the beginning to the first hole or mark. It
    /// misses those that follow time-outs and idle times, and an end without a loss.
    Assumed,
    /// The sender marks what it sends in slow start with a reserved bit of the header, and the receiver
    /// delays acknowledgements of all else. Both ends need this setting.
    Signalled,
}

/// Data on the SYN: the conditions on which a client sends it and a server accepts it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SynData {
    /// A client sends no data on its SYN. A server ignores such data, so it is resent.
    #[default]
    Off,
    /// TCP Fast Open (RFC 7413).
    FastOpen {
        /// As a server, the cookie that it issues and accepts for this client (§4.1.2). The owner
        /// computes it from the client's address and a secret; if it is empty, the server does
        /// without Fast Open. As a client, the cookie of an earlier connection
        /// ([`crate::Connection::cookie`]), or an empty one to request it.
        cookie: Cookie,
    },
    /// T/TCP (RFC 1644): connection counts distinguish new SYNs from old ones, so data on a new one
    /// is accepted at once. Historic (RFC 6247), because anybody can guess a count.
    Transactions(TransactionSettings),
    /// Data is sent and accepted without proof. This gains a round trip like T/TCP, but a duplicate
    /// SYN opens a second connection.
    Always,
}

/// The amount by which acknowledgements count for window growth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckCounting {
    /// Every acknowledgement counts for one segment, as before RFC 3465.
    Acks,
    /// Bytes count (appropriate byte counting, RFC 3465). In slow start at most `limit` segments
    /// count per acknowledgement: its limit L.
    Bytes {
        /// L in segments; `None` is unlimited.
        limit: Option<u32>,
    },
}

/// The rule by which losses are detected. All but the first need SACK, and fall back to the first
/// without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossDetector {
    /// Three duplicate acknowledgements (RFC 5681).
    DupAcks,
    /// Three runs, or more than two segments, selectively acknowledged above (RFC 6675).
    Sack,
    /// More than three segments between the hole and the highest selective
    /// acknowledgement (FACK: Mathis and Mahdavi, SIGCOMM 1996).
    Fack,
    /// Sent earlier than delivered data by more than an RTT and a reordering window (RFC 8985).
    Rack {
        /// Send tail loss probes (RFC 8985 §7).
        tlp: bool,
    },
}

/// Probes of an idle connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepaliveConfig {
    /// Idle time before the first probe; at least 2 hours by default (RFC 9293 §3.8.4).
    pub idle: Duration,
    /// Interval between probes.
    pub interval: Duration,
    /// Number of unanswered probes that ends the connection.
    pub probes: u32,
}

impl Default for AckConfig {
    /// RFC 5681 with a delay of 40 ms, like Linux and following RFC 9293's advice against long
    /// delays.
    fn default() -> Self {
        Self {
            delay: Some(Duration::from_millis(40)),
            every: 2,
            quick: 0,
            after_slow_start: AfterSlowStart::Off,
            control_alone: false,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mss: 1460,
            initial_window: 10,
            initial_ssthresh: None,
            receive_buffer: ByteCount::new(16 << 20),
            send_buffer: ByteCount::new(16 << 20),
            window_scaling: true,
            timestamps: true,
            sack: true,
            dsack: true,
            ecn: false,
            snack: false,
            assume_corruption: false,
            syn_data: SynData::Off,
            acks: AckConfig::default(),
            nagle: true,
            minshall: false,
            counting: AckCounting::Bytes { limit: Some(2) },
            detection: LossDetector::Rack { tlp: true },
            recovery: None,
            prr: Some(PrrBound::SlowStart),
            limited_transmit: true,
            frto: true,
            eifel: true,
            dsack_undo: true,
            rto: RtoConfig::default(),
            controller: ControllerSpec::default(),
            pacing: false,
            max_rate: None,
            bucket: None,
            shared: None,
            sharing: TcbSharing::None,
            estimate_ssthresh: false,
            restart_after_idle: true,
            keepalive: None,
            user_timeout: Some(Duration::from_secs(300)),
            time_wait: Duration::from_secs(60),
            seed: 0,
        }
    }
}
