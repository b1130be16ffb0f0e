//! One transfer over one link in each direction.

use core::time::Duration;
use std::sync::Arc;

use link::{LinkConfig, LossModel, QueueLimit};
use sim::{
    BulkAmount, BulkTransfer, ConnectionPath, Direction, LinkSample, RouteHop, SenderSample, World,
};
use tcp::Config;
use units::{BitRate, ByteCount, Instant, Probability};

/// Payload of a segment with timestamps, in bytes.
pub(crate) const MSS: f64 = 1448.0;

/// A path, and how long it is used.
#[derive(Debug, Clone)]
pub(crate) struct Trial {
    pub(crate) rate: BitRate,
    /// Propagation delay only.
    pub(crate) rtt: Duration,
    /// Loss towards the client.
    pub(crate) loss: LossModel,
    pub(crate) queue: QueueLimit,
    pub(crate) tcp: Config,
    /// Goodput is measured from this time on.
    pub(crate) warm_up: Duration,
    /// The end of the run.
    pub(crate) time: Duration,
    /// Sampling interval; zero for no sampling.
    pub(crate) sample: Duration,
    pub(crate) seed: u64,
}

/// The result.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Payload bits per second after the warm-up.
    pub(crate) goodput: f64,
    /// The server's sender.
    pub(crate) states: Vec<SenderSample>,
    /// The link to the client.
    pub(crate) loads: Vec<LinkSample>,
}

impl Trial {
    /// A path without queueing and without buffer limits.
    pub(crate) fn new(rtt: Duration, controller: &str) -> Self {
        let tcp = Config {
            controller: controller.parse().expect("a controller"),
            receive_buffer: ByteCount::new(1 << 30),
            send_buffer: ByteCount::new(1 << 30),
            ..Config::default()
        };
        Self {
            rate: BitRate::from_mbit(10_000),
            rtt,
            loss: LossModel::None,
            queue: QueueLimit::Packets(1 << 30),
            tcp,
            warm_up: Duration::ZERO,
            time: Duration::from_secs(100),
            sample: Duration::ZERO,
            seed: 1,
        }
    }

    pub(crate) fn run(&self) -> Outcome {
        let mut world = World::new(self.seed);
        let [client, server] = [world.add_node(), world.add_node()];
        let link = |loss| LinkConfig::new(self.rate, self.rtt / 2, loss, self.queue);
        let up = world.connect(server, link(LossModel::None));
        let down = world.connect(client, link(self.loss.clone()));
        world.set_default_route(client, RouteHop::Link(up));
        world.set_default_route(server, RouteHop::Link(down));
        let tcp = Arc::new(self.tcp.clone());
        let path = ConnectionPath::direct(client, server, [Arc::clone(&tcp), tcp]);
        let end = Instant::ZERO + self.time;
        let amount = BulkAmount::Until(end);
        let mut bulk = BulkTransfer::new(Arc::new(path), Direction::Down, amount, Instant::ZERO);
        if !self.sample.is_zero() {
            world.sample_every(self.sample);
            world.watch_lane("down".to_owned(), down);
            bulk.watch = Some("bulk".to_owned());
        }
        let app = world.add_app(Box::new(bulk));
        world.run_until(Instant::ZERO + self.warm_up);
        let before = world.app_stats(app).bytes;
        world.run_until(end);
        let bytes = world.app_stats(app).bytes - before;
        let probe = world.probe();
        let sender = probe.senders.iter().find(|sender| sender.has_sent());
        Outcome {
            goodput: bytes as f64 * 8.0 / (self.time - self.warm_up).as_secs_f64(),
            states: sender.map_or(Vec::new(), |sender| sender.states.clone()),
            loads: probe.links.first().map_or(Vec::new(), |line| line.loads.clone()),
        }
    }

    /// The mean window in segments that corresponds to a goodput.
    pub(crate) fn window(&self, outcome: &Outcome) -> f64 {
        outcome.goodput * self.rtt.as_secs_f64() / (8.0 * MSS)
    }
}

/// Independent losses with this probability.
pub(crate) fn random(per: f64) -> LossModel {
    Probability::new(per).map_or(LossModel::None, LossModel::Per)
}

pub(crate) fn seconds(at: Instant) -> f64 {
    at.saturating_since(Instant::ZERO).as_secs_f64()
}
