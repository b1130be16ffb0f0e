//! The settings of a return link with capacity on demand.

use core::time::Duration;

use thiserror::Error;
use units::{BitRate, ByteCount};

use super::category::ClassCapacities;
use super::frames::{Frames, FramesError, SlotFraction};
use super::random_access::{
    AccessLimits, AccessScheme, Backoff, BackoffError, BackoffLimits, BlockError, ContentionBlock,
};
use crate::{Delay, Discipline, LossModel, Outage, QueueLimit, Rate};

/// The return link of a network of terminals.
#[derive(Debug, Clone, PartialEq)]
pub struct DamaConfig {
    /// The frame structure: frames, carriers and slots.
    pub frames: Frames,
    /// The rate of each carrier if it changes with time, which starts with the link. A rate above
    /// that of the slots of `frames` is not used. See [`Dama::set_rate`].
    ///
    /// [`Dama::set_rate`]: super::Dama::set_rate
    pub rate: Option<Rate>,
    /// One-way delay of bursts, from terminal to hub. Requests and contention blocks take its greatest
    /// value.
    pub delay: Delay,
    /// One-way delay of allocations, from the network control centre to terminals.
    pub forward_delay: Duration,
    /// Time from the decision about a superframe to the transmission of its plan.
    pub processing: Duration,
    /// Timing, policy and transport of capacity requests.
    pub requests: RequestSettings,
    /// The rules by which the network control centre allocates.
    pub allocation: Allocation,
    /// Carriers on which terminals send short bursts of packets without a request; `None` if all
    /// packets wait for their assignment.
    pub random_access: Option<RandomAccess>,
    /// The terminals, numbered from 0 in this order.
    pub terminals: Vec<TerminalConfig>,
}

/// Timing, policy and transport of capacity requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestSettings {
    /// The policy by which terminals compute their requests.
    pub policy: CapacityPolicy,
    /// Frames between a terminal's opportunities to send a request. The terminals take turns.
    pub period: u32,
    /// RBDC: superframes for which a requested rate holds.
    pub rate_time_out: u32,
    /// RBDC: minimum scheduling latency, in frames, within which the backlog is to be sent.
    pub scheduling_latency: u32,
    /// VBDC: frames without a grant after which a terminal assumes that its request was lost, and
    /// replaces it.
    pub volume_time_out: u32,
    /// The transport of requests to the network control centre.
    pub transport: RequestTransport,
    /// True if assigned requests survive the error bursts that packets are lost in, because they
    /// are short and coded more strongly. Outages lose them all the same.
    pub robust: bool,
}

/// The transport of capacity requests to the network control centre.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RequestTransport {
    /// In a slot of the terminal's own, every request period. These slots are outside those that
    /// are granted or counted.
    #[default]
    Assigned,
    /// In the header of the next cell that the terminal sends in a granted slot; by contention if
    /// the plan in force has no slot for it or nothing waits.
    Piggyback(RequestSlots),
    /// By contention, whether or not slots are granted.
    Contention(RequestSlots),
}

impl RequestTransport {
    /// Returns the contention slots for requests, if there are any.
    pub const fn slots(&self) -> Option<&RequestSlots> {
        match self {
            Self::Assigned => None,
            Self::Piggyback(slots) | Self::Contention(slots) => Some(slots),
        }
    }
}

/// Contention slots for requests. They are not available for grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestSlots {
    /// Their position in the frames.
    pub place: RequestPlace,
    /// The rules by which terminals share them.
    pub channel: ContentionChannel,
}

/// The position of the contention slots for requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestPlace {
    /// The last slots of each frame on the last carrier that carries grants: at least the replicas
    /// of the scheme, at most those of a carrier.
    Slots(u16),
    /// Whole carriers, the last ones before those for packets. A frame of each is a contention
    /// block, and a terminal draws one of them at random for each attempt. At least one carrier must
    /// remain for grants.
    Carriers(u32),
}

impl RequestPlace {
    /// Returns the slots of each frame and the whole carriers that it takes from grants.
    const fn taken(self) -> (u32, u32) {
        match self {
            Self::Slots(slots) => (slots as u32, 0),
            Self::Carriers(carriers) => (0, carriers),
        }
    }
}

/// Random access for packets: carriers on which nothing is granted. The slots of a frame on one of
/// them are a contention block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RandomAccess {
    /// Carriers, the last ones. At least one must remain for grants.
    pub carriers: u32,
    /// The rules by which terminals share them.
    pub channel: ContentionChannel,
    /// Limits of what a terminal sends this way.
    pub limits: AccessLimits,
}

/// The rules by which terminals share contention slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentionChannel {
    /// The access scheme, with the replicas of each burst.
    pub scheme: AccessScheme,
    /// Pauses and attempts after a collision.
    pub backoff: BackoffLimits,
    /// The hub announces the probability with which terminals may send. Without it a channel can
    /// stay overloaded.
    pub load_control: bool,
}

impl Default for ContentionChannel {
    /// Slotted ALOHA with the usual back-off and load control.
    fn default() -> Self {
        Self {
            scheme: AccessScheme::SlottedAloha,
            backoff: BackoffLimits::default(),
            load_control: true,
        }
    }
}

/// A policy for requests and their allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CapacityPolicy {
    /// That of DVB-RCS (EN 301 790) as built by emulators: the rate that came in, and the backlog.
    #[default]
    Classic,
    /// Requests 10 % more than came in, and accounts for its requests of the last round trip.
    RttAware,
}

/// The rules by which the network control centre allocates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Allocation {
    /// The rule by which terminals share insufficient capacity.
    pub sharing: SharingRule,
    /// The use of capacity that no terminal has requested.
    pub free: FreeCapacity,
}

/// The rule by which terminals share insufficient capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SharingRule {
    /// Rates in proportion to the requests; volumes in turn, each terminal with all that it
    /// requested.
    #[default]
    Proportional,
    /// Rates and volumes so that the least is as large as possible, by the terminals' weights
    /// (weighted max-min fairness).
    Fair,
}

/// FCA: the use of slots that no terminal has requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FreeCapacity {
    /// They stay empty.
    #[default]
    None,
    /// All terminals in turn, this number of slots each (SLACP paper §4).
    All {
        /// Number of slots at a time.
        chunk: u32,
    },
    /// In turn, but only terminals with a request that still holds (EN 301 790).
    Asking {
        /// Number of slots at a time.
        chunk: u32,
    },
}

/// The settings of one terminal.
#[derive(Debug, Clone, PartialEq)]
pub struct TerminalConfig {
    /// CRA: a rate that it has without requests. Counts cells with their headers, like all rates
    /// here.
    pub cra: BitRate,
    /// RBDC: the ceiling of its rate requests, beyond CRA; 0 for no rate requests.
    pub rbdc: BitRate,
    /// VBDC: maximum number of cells in one request; 0 for no volume requests.
    pub vbdc: u32,
    /// VBDC: cells that it gets before any terminal gets more than its own first cells.
    pub vbdc_first: u32,
    /// The kind of these that each class of traffic uses.
    pub categories: ClassCapacities,
    /// Maximum rate of all kinds together; `None` for that of its transmitter.
    pub ceiling: Option<BitRate>,
    /// Its weight with [`SharingRule::Fair`]; 1 or more.
    pub weight: u32,
    /// The MAC buffer of each class of traffic.
    pub mac: MacLimit,
    /// Packets wait in the IP queue until they fit into the MAC buffer. Without it they go straight
    /// to the MAC buffer, which drops what does not fit, and the IP queue stays empty.
    pub flow_control: bool,
    /// The IP queue of each class.
    pub queue: QueueLimit,
    /// Drops in the IP queue before it is full.
    pub discipline: Discipline,
    /// The model by which its bursts are lost.
    pub loss: LossModel,
    /// Times without reception of its bursts, counted from the start.
    pub outages: Vec<Outage>,
}

/// The size of a MAC buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MacLimit {
    /// Cells; each frees its room as it leaves.
    Cells(u32),
    /// Bytes of packets, which free their room when they have left.
    Bytes(ByteCount),
}

/// The reason why a network cannot be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DamaError {
    /// The frame structure is invalid.
    #[error(transparent)]
    Frames(#[from] FramesError),
    /// There is no terminal, or more than can be numbered.
    #[error("{count} terminals: expected 1 to {most}")]
    Terminals {
        /// Number of terminals in the configuration.
        count: usize,
        /// The largest accepted number.
        most: u32,
    },
    /// The sum of all CRA exceeds the capacity.
    #[error("CRA of {guaranteed} is guaranteed, but the carriers have {capacity}")]
    Overbooked {
        /// The sum of all CRA.
        guaranteed: BitRate,
        /// Rate of the slots that can be granted.
        capacity: BitRate,
    },
    /// A terminal is guaranteed more than its transmitter can send.
    #[error("CRA of {guaranteed} for one terminal, but a carrier has {capacity}")]
    OneOverbooked {
        /// The CRA of the terminal.
        guaranteed: BitRate,
        /// Rate of one carrier, the most that one transmitter can use.
        capacity: BitRate,
    },
    /// The contention slots for requests are invalid.
    #[error("contention slots for requests: {0}")]
    RequestSlots(ContentionError),
    /// The carriers for random access are invalid.
    #[error("random access: {0}")]
    RandomAccess(ContentionError),
    /// A setting is 0 that must be at least 1.
    #[error("{what} must be 1 or more")]
    Zero {
        /// The name of the setting.
        what: &'static str,
    },
}

/// The reason why contention slots are invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ContentionError {
    /// The slots and the scheme do not fit.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// The limits of the back-off are invalid.
    #[error(transparent)]
    Backoff(#[from] BackoffError),
    /// There are more slots than a carrier has, or than a block can have.
    #[error("{slots} slots: expected 1 to {most}")]
    Slots {
        /// Configured slots of a block.
        slots: u32,
        /// The largest accepted number.
        most: u32,
    },
    /// No carrier remains for grants.
    #[error("{carriers} carriers of {all}: expected 1 to {}", all.saturating_sub(1))]
    Carriers {
        /// Carriers configured for contention.
        carriers: u32,
        /// Number of carriers in all.
        all: u32,
    },
    /// The request slots leave no slot for grants.
    #[error("{slots} slots of each frame leave nothing to grant")]
    NothingLeft {
        /// Contention slots of each frame.
        slots: u32,
    },
}

impl ContentionChannel {
    /// Returns the contention block of a frame, with the slots and the scheme checked.
    pub(super) fn block(&self, slots: u32, most: u32) -> Result<ContentionBlock, ContentionError> {
        let number = u16::try_from(slots).ok().filter(|_| slots <= most);
        let most = most.min(u16::MAX.into());
        let number = number.ok_or(ContentionError::Slots { slots, most })?;
        Backoff::new(self.backoff)?;
        Ok(ContentionBlock::new(self.scheme, number)?)
    }
}

/// The slots that contention leaves for grants.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grantable {
    /// Number of carriers with grants.
    carriers: u32,
    /// Contention slots for requests in each frame, the last ones of the last of these carriers.
    requests: u32,
}

impl Grantable {
    /// Returns the slots of a superframe that can be granted while the first `slots` of each
    /// carrier and frame are in use.
    pub(super) fn in_superframe(self, frames: &Frames, slots: u32) -> u32 {
        let Some(others) = self.carriers.checked_sub(1) else { return 0 };
        let last = slots.min(frames.slots.saturating_sub(self.requests));
        (others * slots + last) * frames.per_superframe
    }
}

impl DamaConfig {
    /// Returns the slots of each frame on one carrier that requests take, and the whole carriers
    /// that contention takes.
    fn contended(&self) -> (u32, u32) {
        let requests = self.requests.transport.slots().map(|request| request.place.taken());
        let (slots, carriers) = requests.unwrap_or_default();
        (slots, carriers.saturating_add(self.random_access.map_or(0, |access| access.carriers)))
    }

    /// Returns the slots of each frame that contention takes.
    fn contention_slots(&self) -> u32 {
        let (slots, carriers) = self.contended();
        carriers.saturating_mul(self.frames.slots).saturating_add(slots)
    }

    /// Returns the slots of a superframe that can be granted: all but those for contention.
    pub fn capacity(&self) -> u32 {
        self.grantable().in_superframe(&self.frames, self.frames.slots)
    }

    /// Returns the slots that contention leaves for grants.
    pub(super) fn grantable(&self) -> Grantable {
        let (requests, contended) = self.contended();
        Grantable { carriers: self.frames.carriers.saturating_sub(contended), requests }
    }

    fn check_contention(&self) -> Result<(), DamaError> {
        let Frames { slots, carriers: all, .. } = self.frames;
        if let Some(RandomAccess { carriers, channel, .. }) = self.random_access {
            let error = DamaError::RandomAccess;
            // At least one carrier stays for assigned slots.
            if carriers == 0 || carriers >= all {
                return Err(error(ContentionError::Carriers { carriers, all }));
            }
            channel.block(slots, slots).map_err(error)?;
        }
        if let Some(request) = self.requests.transport.slots() {
            let error = DamaError::RequestSlots;
            let slots = self.request_block(request.place).map_err(error)?;
            request.channel.block(slots, self.frames.slots).map_err(error)?;
            // The block for requests may take all that random access has left.
            if self.capacity() == 0 {
                let slots = self.contention_slots();
                return Err(error(ContentionError::NothingLeft { slots }));
            }
        }
        Ok(())
    }

    /// Returns the number of slots in a contention block for requests.
    pub(super) fn request_block(&self, place: RequestPlace) -> Result<u32, ContentionError> {
        let access = self.random_access.map_or(0, |access| access.carriers);
        // The carriers for random access are not there for requests.
        let all = self.frames.carriers.saturating_sub(access);
        match place {
            RequestPlace::Slots(slots) => Ok(slots.into()),
            RequestPlace::Carriers(carriers) if (1..all).contains(&carriers) => {
                Ok(self.frames.slots)
            }
            RequestPlace::Carriers(carriers) => Err(ContentionError::Carriers { carriers, all }),
        }
    }

    /// Returns the rate of the slots that can be granted.
    fn granted_rate(&self) -> BitRate {
        let all = u128::from(self.frames.rate().bits_per_second());
        let part = all * u128::from(self.capacity()) / u128::from(self.frames.capacity().max(1));
        BitRate::from_bits_per_second(part as u64)
    }

    /// Maximum number of terminals in a network.
    pub const MOST_TERMINALS: u32 = 1 << 20;

    /// Checks that the network can be built.
    ///
    /// # Errors
    /// [`DamaError`].
    pub fn check(&self) -> Result<(), DamaError> {
        self.frames.check()?;
        let count = self.terminals.len();
        let most = Self::MOST_TERMINALS;
        if count == 0 || count > most as usize {
            return Err(DamaError::Terminals { count, most });
        }
        let RequestSettings { period, rate_time_out, scheduling_latency, volume_time_out, .. } =
            self.requests;
        let weight = self.terminals.iter().map(|terminal| terminal.weight).min();
        for (what, value) in [
            ("the request period", period),
            ("the time-out of a rate", rate_time_out),
            ("the scheduling latency", scheduling_latency),
            ("the time-out of a volume", volume_time_out),
            ("a weight", weight.unwrap_or(1)),
        ] {
            if value == 0 {
                return Err(DamaError::Zero { what });
            }
        }
        self.check_contention()?;
        self.check_guarantees()
    }

    fn check_guarantees(&self) -> Result<(), DamaError> {
        // In fixed point, as the centre counts, so that rounding cannot let more be guaranteed than
        // fits.
        let share = |rate| SlotFraction::of(rate, &self.frames).0;
        let one = SlotFraction::from_slots(self.frames.slots_per_terminal()).0;
        let carrier = BitRate::from_bits_per_second(
            self.frames.rate().bits_per_second() / u64::from(self.frames.carriers),
        );
        if let Some(terminal) = self.terminals.iter().find(|each| share(each.cra) > one) {
            let guaranteed = terminal.cra;
            return Err(DamaError::OneOverbooked { guaranteed, capacity: carrier });
        }
        let all: u128 = self.terminals.iter().map(|each| u128::from(share(each.cra))).sum();
        if all > u128::from(SlotFraction::from_slots(self.capacity()).0) {
            let sum =
                |sum: u64, each: &TerminalConfig| sum.saturating_add(each.cra.bits_per_second());
            let guaranteed = BitRate::from_bits_per_second(self.terminals.iter().fold(0, sum));
            return Err(DamaError::Overbooked { guaranteed, capacity: self.granted_rate() });
        }
        Ok(())
    }
}
