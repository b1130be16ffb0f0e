//! How an endpoint behaves: every option of the sources.

use core::time::Duration;

use units::{BitRate, ByteCount};

use crate::cc::{ControllerSpec, FastRecovery};
use crate::prr::PrrBound;
use crate::rtt::RtoConfig;
use crate::segment::Cookie;
use crate::tcb::ControlBlock;

/// The settings of a connection. [`Config::default`] is a plain, current TCP:
/// RFC 9293 with SACK, timestamps, window scaling, RACK-TLP, PRR and CUBIC.
/// The named sets of the literature are [`crate::Profile`]s.
#[derive(Debug, Clone)]
pub struct Config {
    /// The largest segment to receive, in bytes of payload with options; and to
    /// send, unless the peer wants less. 1460 is Ethernet with IPv4.
    pub mss: u16,
    /// The initial window in segments (RFC 6928: 10; RFC 3390: 3 at this size;
    /// RFC 2581: 2; before: 1). At least 1.
    pub initial_window: u32,
    /// The initial slow-start threshold; `None` is "arbitrarily high"
    /// (RFC 5681). The way to share that of an earlier connection (RFC 9040).
    pub initial_ssthresh: Option<ByteCount>,
    /// Room for data received and not read. With what the windows can say
    /// (65,535 bytes without scaling, 1 GiB with it), it limits the peer's
    /// flight: the BDP should fit.
    pub receive_buffer: ByteCount,
    /// Room for data written and not acknowledged.
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
    /// Offer and accept negative acknowledgements of holes (SCPS-TP's SNACK,
    /// CCSDS 714.0-B-2, short form). They can be used without SACK, and
    /// beside it.
    pub snack: bool,
    /// Losses are taken for corruption (SCPS-TP, CCSDS 714.0-B-2): they
    /// are repaired and the window stays; time-outs reduce it all the same.
    pub assume_corruption: bool,
    /// Data with the SYN.
    pub syn_data: SynData,
    /// When data is acknowledged.
    pub acks: AckConfig,
    /// Gather small writes while data is outstanding (Nagle; RFC 9293 §3.7.4).
    pub nagle: bool,
    /// What of an acknowledgement counts for the growth of the window.
    pub counting: Counting,
    /// How losses are found.
    pub detection: Detection,
    /// What duplicate acknowledgements lead to; `None` leaves it to the
    /// controller.
    pub recovery: Option<FastRecovery>,
    /// Proportional rate reduction (RFC 6937); without it the window is at its
    /// new value at once.
    pub prr: Option<PrrBound>,
    /// Send new data for the first two duplicate acknowledgements (RFC 3042).
    pub limited_transmit: bool,
    /// Find spurious time-outs by what is acknowledged after them (F-RTO,
    /// RFC 5682).
    pub frto: bool,
    /// Find needless retransmissions by timestamps (Eifel, RFC 3522), and undo
    /// what they did.
    pub eifel: bool,
    /// Find needless retransmissions by duplicate SACKs (RFC 3708), and undo
    /// what they did.
    pub dsack_undo: bool,
    /// The retransmission time-out.
    pub rto: RtoConfig,
    /// The congestion controller.
    pub controller: ControllerSpec,
    /// Space segments in time, at the controller's rate or else at 2 (slow
    /// start) or 1.2 windows per RTT.
    pub pacing: bool,
    /// Send no faster than this; for instance the rate of the satellite link.
    pub max_rate: Option<BitRate>,
    /// How much may leave at once after a pause where a rate bounds the sender:
    /// the depth of a token bucket (TBF; ITU-R S.1711-1). `None` is what takes
    /// 1 ms.
    pub bucket: Option<ByteCount>,
    /// What earlier connections, or others at the same time, know of the path
    /// (TCB interdependence, RFC 9040).
    pub shared: Option<ControlBlock>,
    /// Set the threshold of the first slow start to the rate at which the first
    /// acknowledgements come times the RTT (Hoe, SIGCOMM 1996; the sender's
    /// estimation of Allman and Paxson, SIGCOMM 1999).
    pub estimate_ssthresh: bool,
    /// After an idle time-out, begin again with at most the initial window
    /// (RFC 5681 §4.1).
    pub restart_after_idle: bool,
    /// Probe idle connections (RFC 9293 §3.8.4).
    pub keepalive: Option<Keepalive>,
    /// Give up when data stays unacknowledged for so long (RFC 9293 §3.8.3:
    /// R2, at least 100 s; RFC 5482). `None` never gives up.
    pub user_timeout: Option<Duration>,
    /// How long TIME-WAIT lasts: 2·MSL, which is 4 minutes in RFC 9293 and 60 s
    /// in practice.
    pub time_wait: Duration,
    /// For controllers that need random numbers.
    pub seed: u64,
}

/// When received data is acknowledged. Whatever these say, data out of order
/// and data that fills a hole is acknowledged at once (RFC 5681 §4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckConfig {
    /// An acknowledgement waits no longer; `None` delays none. At most 500 ms
    /// (RFC 9293 §3.8.6.3).
    pub delay: Option<Duration>,
    /// So many segments are acknowledged at once; 2 in RFC 5681.
    pub every: u32,
    /// The first so many segments are acknowledged one by one, as Linux does
    /// ("quick ACK").
    pub quick: u32,
    /// Delayed acknowledgements after slow start (RFC 2760 §3.2.3): every
    /// segment is acknowledged while the sender is in slow start. The receiver
    /// takes slow start to last until the first hole or mark.
    pub after_slow_start: bool,
}

/// Data with the SYN: what a client sends, and what a server takes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SynData {
    /// None. A server leaves data of a SYN to be sent again.
    #[default]
    Off,
    /// TCP Fast Open (RFC 7413).
    FastOpen {
        /// The server's cookie for this client: as a server, what it gives and
        /// accepts (§4.1.2: made of the client's address with a secret, by the
        /// owner, who knows addresses); as a client, that of an earlier
        /// connection ([`crate::Connection::cookie`]), or an empty one, which
        /// asks for it. A server with an empty one does without Fast Open.
        cookie: Cookie,
    },
    /// From everybody, without any proof: what T/TCP (RFC 1644) gains, a round
    /// trip, without its counters of connections, which tell old SYNs from new
    /// ones. Historic (RFC 6247); a SYN that arrives twice opens twice.
    Always,
}

/// What of an acknowledgement counts for the growth of the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// Every acknowledgement counts for one segment, as before RFC 3465.
    Acks,
    /// Bytes count (appropriate byte counting, RFC 3465), in slow start up to
    /// so many segments per acknowledgement: its limit L. `None` is unlimited.
    Bytes {
        /// L.
        limit: Option<u32>,
    },
}

/// How losses are found. All but the first need SACK, and fall back to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detection {
    /// Three duplicate acknowledgements (RFC 5681).
    DupAcks,
    /// Three runs or more than two segments selectively acknowledged above
    /// (RFC 6675).
    Sack,
    /// More than three segments between the hole and the highest selective
    /// acknowledgement (FACK: Mathis and Mahdavi, SIGCOMM 1996).
    Fack,
    /// Sent longer than an RTT and a reordering window before something that
    /// was delivered (RFC 8985).
    Rack {
        /// With tail loss probes.
        tlp: bool,
    },
}

/// Probes of an idle connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keepalive {
    /// Idle for so long; at least 2 hours by default (RFC 9293 §3.8.4).
    pub idle: Duration,
    /// Between probes.
    pub interval: Duration,
    /// So many probes without answer end the connection.
    pub probes: u32,
}

impl Default for AckConfig {
    /// RFC 5681 with a delay of 40 ms, as Linux and RFC 9293's advice against
    /// long delays have it.
    fn default() -> Self {
        Self { delay: Some(Duration::from_millis(40)), every: 2, quick: 0, after_slow_start: false }
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
            counting: Counting::Bytes { limit: Some(2) },
            detection: Detection::Rack { tlp: true },
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
            estimate_ssthresh: false,
            restart_after_idle: true,
            keepalive: None,
            user_timeout: Some(Duration::from_secs(300)),
            time_wait: Duration::from_secs(60),
            seed: 0,
        }
    }
}
