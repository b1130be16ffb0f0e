//! Assigns packets and connections to classes, and classes to packet channels.
//!
//! A gateway's classes are those of its `slacp` configuration. Each has a packet channel, which it keeps
//! across reloads as long as its name stays: packets are ordered per channel, so a change of channel would
//! reorder flows. A gateway classifies only what it sends; it receives on all channels, however many
//! classes the peer has.

use core::time::Duration;

use slacp::{
    ChannelConfig, ChannelId, ClassConfig, ClassId, ConfigError, ErrorControl, QueueDiscipline,
};
use units::ByteCount;

use super::packet::Packet;
use super::ports::{PortRange, TCP, UDP};

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// Maximum number of classes besides the default one: one per packet channel.
pub const MOST_CLASSES: usize = 31;
/// The default class and its channel. A peer that accepts it accepts all channels.
pub const DEFAULT_CHANNEL: ChannelId = match ChannelId::new(0) {
    Some(channel) => channel,
    None => unreachable!(),
};

/// Selector of traffic, which matches anything that is in one of the lists.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrafficSelector {
    /// Code points, 0 to 63.
    pub dscp: Vec<u8>,
    /// Ports, of the source or the destination.
    pub ports: Vec<PortRange>,
    /// IANA protocol numbers, after IPv6 extension headers.
    pub protocols: Vec<u8>,
}

impl TrafficSelector {
    fn has(&self, dscp: Option<u8>, protocol: u8, ports: &[u16]) -> bool {
        let listed = |port: &u16| self.ports.iter().any(|range| range.has(protocol, *port));
        dscp.is_some_and(|dscp| self.dscp.contains(&dscp))
            || self.protocols.contains(&protocol)
            || ports.iter().any(listed)
    }
}

impl PacketQueue {
    /// The default on a link with capacity on demand. There a packet waits for its request, the grant and a
    /// superframe, 1.3 s on a geostationary link whatever the load, which is no reason to drop it.
    pub fn on_demand() -> Self {
        let time = Duration::from_secs(3);
        Self { time, discipline: QueueDiscipline::DropTail, ..Self::default() }
    }
}

/// A configured class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassDefinition {
    /// Unique name, which identifies the class across reloads.
    pub name: String,
    /// Traffic that belongs to the class.
    pub traffic: TrafficSelector,
    /// Weight, guaranteed and maximum rate.
    pub share: ClassConfig,
    /// Protection of its packets; streams are always reliable.
    pub error_control: ErrorControl,
    /// Queue of its packets; its streams wait at their clients.
    pub queue: PacketQueue,
    /// Compresses the headers of its packets, if the peer supports it.
    pub compress_headers: bool,
    /// Compresses its streams where it pays, if the peer supports it.
    pub compress_streams: bool,
}

/// The queue of a class's packets. Streams wait at their clients instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketQueue {
    /// Most bytes that wait, over all flows.
    pub bytes: ByteCount,
    /// Longest wait of a packet.
    pub time: Duration,
    /// Queue discipline: which packets are dropped, and when.
    pub discipline: QueueDiscipline,
    /// Time that a packet may wait for others, to share a packet of the hop with them.
    pub gather: Duration,
}

impl Default for PacketQueue {
    /// The queue of any channel of SLACP.
    fn default() -> Self {
        let ChannelConfig { queue, queue_time, discipline, gather, .. } =
            ChannelConfig::new(ErrorControl::FecArq);
        Self { bytes: queue, time: queue_time, discipline, gather }
    }
}

/// Name of the class for traffic that matches no other.
pub const DEFAULT_CLASS: &str = "default";

impl ClassDefinition {
    /// A class that matches nothing, without guarantees or limits.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            traffic: TrafficSelector::default(),
            share: ClassConfig::default(),
            error_control: ErrorControl::FecArq,
            queue: PacketQueue::default(),
            compress_headers: true,
            compress_streams: false,
        }
    }

    /// Configuration of the class's packet channel; it is in the default class.
    fn channel(&self) -> ChannelConfig {
        let PacketQueue { bytes, time, discipline, gather } = self.queue;
        let usual = ChannelConfig::new(self.error_control);
        let compress = self.compress_headers;
        ChannelConfig { queue: bytes, queue_time: time, discipline, gather, compress, ..usual }
    }

    /// The classes without a configuration: bulk, interactive and the default one.
    pub fn usual() -> Vec<Self> {
        vec![usual_bulk(), usual_interactive(), with_weight(Self::new(DEFAULT_CLASS), 4)]
    }
}

/// Traffic marked as able to wait (RFC 8622, RFC 3662). It comes before interactive traffic, because ssh
/// marks its file transfers this way and uses its usual port.
fn usual_bulk() -> ClassDefinition {
    const LE: u8 = 1;
    const CS1: u8 = 8;
    let traffic = TrafficSelector { dscp: vec![LE, CS1], ..TrafficSelector::default() };
    ClassDefinition { traffic, error_control: ErrorControl::Arq, ..ClassDefinition::new("bulk") }
}

/// Interactive traffic: voice and signalling (RFC 4594 §2.3: EF, CS5 and above, AF4x for video
/// calls), ssh, DNS, NTP and ICMP. A retransmission would be too late for voice, so FEC protects
/// the packets.
fn usual_interactive() -> ClassDefinition {
    const DSCP: [u8; 8] = [46, 44, 40, 48, 56, 34, 36, 38];
    let port = |protocol, port| PortRange { protocol: Some(protocol), first: port, last: port };
    let traffic = TrafficSelector {
        dscp: DSCP.to_vec(),
        ports: vec![port(TCP, 22), port(UDP, 53), port(TCP, 53), port(TCP, 853), port(UDP, 123)],
        protocols: vec![ICMP, ICMPV6],
    };
    let class = ClassDefinition { traffic, ..ClassDefinition::new("interactive") };
    with_weight(ClassDefinition { error_control: ErrorControl::Fec, ..class }, 8)
}

fn with_weight(class: ClassDefinition, weight: u16) -> ClassDefinition {
    ClassDefinition { share: ClassConfig { weight, ..class.share }, ..class }
}

/// The classes of a gateway.
#[derive(Debug, Clone)]
pub struct TrafficClasses {
    classes: Vec<InstalledClass>,
    /// The class that takes all traffic that no other class selects.
    default: ClassDefinition,
    /// Each class has a packet channel.
    has_channels: bool,
}

#[derive(Debug, Clone)]
struct InstalledClass {
    definition: ClassDefinition,
    id: ClassId,
    channel: ChannelId,
}

impl Default for TrafficClasses {
    fn default() -> Self {
        let default = ClassDefinition::new(DEFAULT_CLASS);
        Self { classes: Vec::new(), default, has_channels: false }
    }
}

impl TrafficClasses {
    /// Installs the classes in `link`; the one called [`DEFAULT_CLASS`] takes all other traffic. With
    /// `packets`, each gets a channel.
    ///
    /// # Errors
    /// The error of `slacp`, with the name of the class that it rejects.
    pub fn install(
        definitions: Vec<ClassDefinition>,
        packets: bool,
        link: &mut slacp::Config,
    ) -> Result<Self, (String, ConfigError)> {
        Self { has_channels: packets, ..Self::default() }.succeeded_by(definitions, link)
    }

    /// Installs new classes in place of these. Classes that keep their name keep their channel, and so the
    /// order of their packets.
    ///
    /// # Errors
    /// The error of `slacp`, with the name of the class that it rejects.
    pub fn succeeded_by(
        &self,
        definitions: Vec<ClassDefinition>,
        link: &mut slacp::Config,
    ) -> Result<Self, (String, ConfigError)> {
        let mut next = Self { has_channels: self.has_channels, ..Self::default() };
        let kept: Vec<ChannelId> =
            definitions.iter().filter_map(|class| Some(self.named(&class.name)?.channel)).collect();
        // Channel 0 is that of the default class.
        let mut free = (1..).map_while(ChannelId::new).filter(|channel| !kept.contains(channel));
        for definition in definitions {
            let failed = |error| (definition.name.clone(), error);
            if definition.name == DEFAULT_CLASS {
                link.set_default_class(definition.share).map_err(failed)?;
                next.default = definition;
                continue;
            }
            let id = link.add_class(definition.share).map_err(failed)?;
            // Packets are ordered per channel, so another one would reorder flows.
            let channel = self.named(&definition.name).map(|class| class.channel);
            let channel = channel.or_else(|| free.next());
            let channel = channel.ok_or(ConfigError::TooManyClasses { most: MOST_CLASSES });
            let channel = channel.map_err(failed)?;
            next.classes.push(InstalledClass { definition, id, channel });
        }
        if self.has_channels {
            let failed = |error| (DEFAULT_CLASS.to_owned(), error);
            next.add_channels(link).map_err(failed)?;
        }
        Ok(next)
    }

    fn add_channels(&self, link: &mut slacp::Config) -> Result<(), ConfigError> {
        // Channels without a class here still receive the peer's packets.
        for channel in (0..).map_while(ChannelId::new) {
            link.add_channel(channel, self.default.channel())?;
        }
        for InstalledClass { definition, id, channel } in &self.classes {
            link.add_channel(*channel, ChannelConfig { class: *id, ..definition.channel() })?;
        }
        Ok(())
    }

    fn named(&self, name: &str) -> Option<&InstalledClass> {
        self.classes.iter().find(|class| class.definition.name == name)
    }

    /// The definitions as configured.
    pub fn definitions(&self) -> Vec<ClassDefinition> {
        self.all().map(|(definition, _)| definition.clone()).collect()
    }

    /// All classes, the default one last.
    pub fn all(&self) -> impl Iterator<Item = (&ClassDefinition, ClassId)> {
        let listed = self.classes.iter().map(|class| (&class.definition, class.id));
        listed.chain([(&self.default, ClassId::DEFAULT)])
    }

    /// The class that continues class `id` of `before`: the one with the same name.
    pub fn successor(&self, before: &Self, id: ClassId) -> Option<ClassId> {
        // Numbers change when classes are added or removed; names stay.
        let (old, _) = before.all().find(|(_, old)| *old == id)?;
        self.all().find(|(class, _)| class.name == old.name).map(|(_, id)| id)
    }

    /// Name of the class that sends on a channel.
    pub fn on_channel(&self, channel: ChannelId) -> Option<&str> {
        let class = self.classes.iter().find(|class| class.channel == channel);
        let default = (channel == DEFAULT_CHANNEL).then_some(&self.default);
        class.map(|class| &class.definition).or(default).map(|definition| definition.name.as_str())
    }

    /// The class of this name, [`DEFAULT_CLASS`] included.
    pub fn id_of(&self, name: &str) -> Option<ClassId> {
        self.all().find(|(class, _)| class.name == name).map(|(_, id)| id)
    }

    /// The class whose packets use a channel; the default class if there is no such class.
    pub fn class_of(&self, channel: ChannelId) -> ClassId {
        let class = self.classes.iter().find(|class| class.channel == channel);
        class.map_or(ClassId::DEFAULT, |class| class.id)
    }

    /// The channel of a class's packets; that of the default class if there is no such class.
    pub fn channel_of(&self, id: ClassId) -> ChannelId {
        let class = self.classes.iter().find(|class| class.id == id);
        class.map_or(DEFAULT_CHANNEL, |class| class.channel)
    }

    /// The channel for a packet, by the first class that selects it.
    pub fn of_packet(&self, packet: &Packet) -> ChannelId {
        let ports = packet.ports.as_ref().map_or(&[][..], |ports| ports);
        let class = self.find(Some(packet.dscp), packet.protocol, ports);
        class.map_or(DEFAULT_CHANNEL, |class| class.channel)
    }

    /// The class of a split connection to this port; `dscp` is that of its SYN, if known.
    pub fn of_connection(&self, port: u16, dscp: Option<u8>) -> ClassId {
        let class = self.find(dscp, TCP, &[port]);
        class.map_or(ClassId::DEFAULT, |class| class.id)
    }

    /// Returns `true` if a split connection to this port is compressed; `dscp` is that of its SYN, if
    /// known.
    pub fn compresses(&self, port: u16, dscp: Option<u8>) -> bool {
        let class = self.find(dscp, TCP, &[port]).map(|class| &class.definition);
        class.unwrap_or(&self.default).compress_streams
    }

    fn find(&self, dscp: Option<u8>, protocol: u8, ports: &[u16]) -> Option<&InstalledClass> {
        self.classes.iter().find(|class| class.definition.traffic.has(dscp, protocol, ports))
    }
}

#[cfg(test)]
mod tests {
    use units::BitRate;

    use super::*;
    use crate::traffic::packet::tests::udp;

    fn usual() -> TrafficClasses {
        let mut link = slacp::Config::new(BitRate::from_mbit(10));
        TrafficClasses::install(ClassDefinition::usual(), true, &mut link).unwrap()
    }

    fn name<'a>(classes: &'a TrafficClasses, packet: &[u8]) -> &'a str {
        let channel = classes.of_packet(&Packet::parse(packet).unwrap());
        let class = classes.classes.iter().find(|class| class.channel == channel);
        class.map_or(DEFAULT_CLASS, |class| &class.definition.name)
    }

    #[test]
    fn the_usual_classes_go_by_code_point_port_and_protocol() {
        let classes = usual();
        let packet = |dscp, ports| udp("10.1.0.2", "192.0.2.7", dscp, ports);
        for (dscp, ports, expected) in [
            (0, [4000, 443], "default"),
            (46, [4000, 4001], "interactive"),
            (0, [53, 4000], "interactive"),
            (0, [4000, 22], "default"),
            (8, [4000, 53], "bulk"),
            (1, [4000, 443], "bulk"),
        ] {
            assert_eq!(name(&classes, &packet(dscp, ports)), expected, "{dscp} {ports:?}");
        }
        let mut ping = packet(0, [0, 0]);
        ping[9] = ICMP;
        assert_eq!(name(&classes, &ping), "interactive");
        let mut esp = packet(0, [0, 0]);
        esp[9] = 50;
        assert_eq!(name(&classes, &esp), "default");
    }

    #[test]
    fn connections_go_by_destination_port_and_the_code_point_of_the_syn() {
        let classes = usual();
        let (web, ssh) = (443, 22);
        assert_eq!(classes.of_connection(web, None), ClassId::DEFAULT);
        let [bulk, interactive] = [0, 1].map(|class: usize| classes.classes[class].id);
        assert_eq!(classes.of_connection(ssh, None), interactive);
        assert_eq!(classes.of_connection(ssh, Some(8)), bulk);
        assert_eq!(classes.of_connection(web, Some(46)), interactive);
    }

    #[test]
    fn classes_of_the_same_name_keep_their_channels_and_contents() {
        let before = usual();
        let mut link = slacp::Config::new(BitRate::from_mbit(10));
        let named = ["voice", "interactive", DEFAULT_CLASS].map(ClassDefinition::new).to_vec();
        let after = before.succeeded_by(named, &mut link).unwrap();
        let channel = |classes: &TrafficClasses, name| classes.named(name).unwrap().channel;
        assert_eq!(channel(&after, "interactive"), channel(&before, "interactive"));
        // The channel of the class that was removed.
        assert_eq!(channel(&after, "voice"), channel(&before, "bulk"));
        assert_eq!(after.on_channel(DEFAULT_CHANNEL), Some(DEFAULT_CLASS));
        let id = |classes: &TrafficClasses, name| classes.named(name).map(|class| class.id);
        let [bulk, interactive] = ["bulk", "interactive"].map(|name| id(&before, name).unwrap());
        assert_eq!(after.successor(&before, bulk), None);
        assert_eq!(after.successor(&before, interactive), id(&after, "interactive"));
        assert_eq!(after.successor(&before, ClassId::DEFAULT), Some(ClassId::DEFAULT));
    }

    #[test]
    fn more_classes_than_channels_are_refused() {
        let mut link = slacp::Config::new(BitRate::from_mbit(10));
        let mut classes: Vec<ClassDefinition> =
            (0..MOST_CLASSES).map(|class| ClassDefinition::new(&class.to_string())).collect();
        assert!(TrafficClasses::install(classes.clone(), true, &mut link).is_ok());
        classes.push(ClassDefinition::new("one too many"));
        let mut link = slacp::Config::new(BitRate::from_mbit(10));
        let (name, error) = TrafficClasses::install(classes, true, &mut link).unwrap_err();
        assert_eq!(name, "one too many");
        assert!(error.to_string().contains("31"), "{error}");
    }
}
