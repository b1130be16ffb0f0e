//! Operations for applications, and delivery of their notifications.

use std::sync::Arc;

use pep::relay;
use scenario::IpVersion;
use units::Instant;

use super::{DueEvent, World};
use crate::app::{AppNotice, AppStats, WorkUnit};
use crate::connection::cache::ServerReplyCache;
use crate::connection::path::{ConnectionPath, PathLeg};
use crate::connection::socket::{ConnectionHosts, SocketOwner};
use crate::connection::split::LegEnd;
use crate::connection::talk::{AppConversation, ConversationEvent, ConversationSide, FirstCloser};
use crate::connection::turn::ExchangeSizes;
use crate::ids::{AppId, NodeId};
use crate::network::packet::{AppDatagram, PacketBody, SimulatedPacket};
use crate::slab::SlabKey;
use crate::world::socket::SocketSpec;

/// An application; it drives both ends of its communication.
pub trait App: core::fmt::Debug {
    /// Handles a notification; acts through the methods of `world`.
    fn handle(&mut self, world: &mut World, me: AppId, notice: AppNotice);
}

impl World {
    /// Adds an application, which first receives [`AppNotice::Start`].
    pub fn add_app(&mut self, app: Box<dyn App>) -> AppId {
        let id = AppId(self.apps.len() as u32);
        self.apps.push(Some(app));
        self.tallies.push(AppStats::default());
        self.notices.push_back((id, AppNotice::Start));
        self.deliver_notices();
        self.settle();
        id
    }

    /// Draws a new seed from the world's random numbers.
    pub fn draw_seed(&mut self) -> u64 {
        self.seeds.bits()
    }

    /// Returns the statistics of an application.
    pub fn app_stats(&self, app: AppId) -> &AppStats {
        &self.tallies[app.index()]
    }

    /// Sends [`AppNotice::Wake`] with the number `wish` to an application at `at`.
    pub fn wake_at(&mut self, app: AppId, at: Instant, wish: u64) {
        self.agenda.schedule(at.max(self.now), DueEvent::App(app, wish));
    }

    /// Opens a connection between an application's two ends; its SYN leaves with the first request
    /// ([`World::send_request`]). If `watch` is set, its senders are recorded for plots under that name.
    pub fn open(
        &mut self,
        app: AppId,
        path: &Arc<ConnectionPath>,
        closer: FirstCloser,
        watch: Option<&str>,
    ) -> SlabKey {
        self.tallies[app.index()].connections += 1;
        let cache = path.cache.clone();
        let cache =
            cache.map(|(spec, origin)| ServerReplyCache::new(spec, origin, self.seeds.bits()));
        let talk = AppConversation::new(app, closer, watch.map(str::to_owned)).with_cache(cache);
        let talk = self.talks.insert(|_| talk);
        let first = self.open_leg(
            path,
            0,
            ConnectionHosts::Talk(talk),
            SocketOwner::Talk(talk, ConversationSide::Client),
        );
        if let Some(talk) = self.talks.get_mut(talk) {
            talk.sockets[0] = first;
        }
        talk
    }

    /// Opens segment `at` of a path and returns its near socket; `None` if it is not TCP.
    pub(super) fn open_leg(
        &mut self,
        path: &Arc<ConnectionPath>,
        at: usize,
        hosts: ConnectionHosts,
        owner: SocketOwner,
    ) -> Option<SlabKey> {
        let PathLeg::Tcp(near, far) = &path.legs[at] else { return None };
        let far_owner = self.owner_after(path, at, hosts);
        let ends = [
            SocketSpec { node: path.nodes[at], config: Arc::clone(near), owner },
            SocketSpec { node: path.nodes[at + 1], config: Arc::clone(far), owner: far_owner },
        ];
        let [near, far] = self.open_sockets(ends, path.ip);
        match far_owner {
            SocketOwner::Talk(talk, _) => {
                if let Some(talk) = self.talks.get_mut(talk) {
                    talk.sockets[1] = Some(far);
                }
            }
            SocketOwner::Script(connection, _) => self.join_script(connection, far),
            SocketOwner::Unattended => {}
            SocketOwner::Split(split) => self.join_split(split, LegEnd::Tcp(far)),
        }
        self.watch_leg(hosts, at, [near, far]);
        Some(near)
    }

    /// Returns the owner of the far end of segment `at`: the server, or a gateway.
    fn owner_after(
        &mut self,
        path: &Arc<ConnectionPath>,
        at: usize,
        hosts: ConnectionHosts,
    ) -> SocketOwner {
        if at + 1 == path.legs.len() {
            return match hosts {
                ConnectionHosts::Talk(talk) => SocketOwner::Talk(talk, ConversationSide::Server),
                ConnectionHosts::Script(connection) => {
                    SocketOwner::Script(connection, relay::LegSide::Server)
                }
            };
        }
        SocketOwner::Split(self.add_split(path, at + 1, hosts))
    }

    /// Reports each arriving request of a connection to its application ([`AppNotice::RequestArrived`]).
    pub fn report_requests(&mut self, talk: SlabKey) {
        self.change(talk, |talk| talk.reports_requests = true);
    }

    /// Resets a connection from the client's end. Its application gets no further notifications about it.
    pub fn abort(&mut self, talk: SlabKey) {
        let now = self.now;
        // Removed before the reset, so that its events are not delivered.
        let socket = self.talks.remove(talk).and_then(|talk| talk.sockets[0]);
        if let Some(key) = socket
            && let Some(socket) = self.sockets.get_mut(key)
        {
            socket.tcp.abort(now);
            self.service(key);
        }
    }

    /// Sends a request. Replies keep the order of the requests.
    pub fn send_request(&mut self, talk: SlabKey, turn: ExchangeSizes) {
        self.change(talk, |talk| talk.ask(turn));
    }

    /// Sends the SYN now, before the first request.
    pub fn connect_now(&mut self, talk: SlabKey) {
        // Any change services the sockets, which sends the SYN.
        self.change(talk, |_| {});
    }

    /// Declares that there are no further requests. The connection may end when all are answered.
    pub fn finish(&mut self, talk: SlabKey) {
        self.change(talk, AppConversation::finish);
    }

    /// Stops writing on a connection: bytes that have not been written are dropped.
    pub fn stop(&mut self, talk: SlabKey) {
        self.change(talk, AppConversation::stop);
    }

    fn change(&mut self, talk: SlabKey, change: impl FnOnce(&mut AppConversation)) {
        let Some(found) = self.talks.get_mut(talk) else { return };
        change(found);
        for socket in found.sockets.into_iter().flatten() {
            self.service(socket);
        }
    }

    /// Returns the bytes of a conversation received by the server and by the client.
    pub fn received(&self, talk: SlabKey) -> Option<[u64; 2]> {
        Some(self.talks.get(talk)?.received())
    }

    /// Sends a datagram from one node to another.
    pub fn send_datagram(&mut self, [from, to]: [NodeId; 2], ip: IpVersion, datagram: AppDatagram) {
        self.tallies[datagram.app as usize].datagrams[0] += 1;
        self.send_unaccounted([from, to], ip, datagram);
    }

    /// Sends a datagram that the statistics do not count. One for its own node arrives at once.
    pub(crate) fn send_unaccounted(
        &mut self,
        [from, to]: [NodeId; 2],
        ip: IpVersion,
        datagram: AppDatagram,
    ) {
        if from == to {
            return self.deliver_datagram(datagram);
        }
        self.send(Box::new(SimulatedPacket { from, to, ip, body: PacketBody::Cbr(datagram) }));
    }

    pub(super) fn deliver_datagram(&mut self, datagram: AppDatagram) {
        self.notices.push_back((AppId(datagram.app), AppNotice::Datagram(datagram)));
    }

    /// Records that an application begins now.
    pub fn begin(&mut self, app: AppId) {
        self.tallies[app.index()].began = self.now;
    }

    /// Marks an application as finished.
    pub fn set_done(&mut self, app: AppId) {
        let tally = &mut self.tallies[app.index()];
        // Only the first call counts: it may end the time over which links are measured.
        if !tally.done {
            tally.done = true;
            self.done_at = self.now;
        }
    }

    /// Records a finished unit of work of an application.
    pub fn record_work_unit(&mut self, app: AppId, deed: WorkUnit) {
        self.tallies[app.index()].work_units.push(deed);
    }

    /// Records that a connection of an application failed.
    pub fn record_failure(&mut self, app: AppId) {
        self.tallies[app.index()].failures += 1;
    }

    /// Records that a datagram of an application has arrived.
    pub fn record_datagram(&mut self, app: AppId, datagram: AppDatagram) {
        let now = self.now;
        let tally = &mut self.tallies[app.index()];
        tally.delivered(now, u64::from(datagram.len));
        tally.datagrams[1] += 1;
        tally.delays.push(now.saturating_since(datagram.sent_at));
    }

    /// Passes the events of a conversation to its application; removes the conversation when it is over.
    pub(super) fn deliver_events(&mut self, key: SlabKey) {
        while let Some(talk) = self.talks.get_mut(key) {
            let Some(news) = talk.news.pop_front() else { return };
            // A fetch has no application of its own: its events concern the cache that it serves.
            if let Some(client) = talk.fetches_for {
                self.handle_origin_event(key, client, news);
                continue;
            }
            let app = talk.app;
            let notice = match news {
                ConversationEvent::Connected => AppNotice::Connected(key),
                ConversationEvent::Fetch(turn) => {
                    self.fetch(key, turn);
                    continue;
                }
                ConversationEvent::Search(time) => {
                    self.agenda.schedule(self.now + time, DueEvent::Cache(key));
                    continue;
                }
                ConversationEvent::RequestArrived => AppNotice::RequestArrived(key),
                ConversationEvent::ExchangeDone => AppNotice::ExchangeDone(key),
                ConversationEvent::Ended { whole } => AppNotice::Ended { talk: key, whole },
            };
            self.notices.push_back((app, notice));
            if matches!(news, ConversationEvent::Ended { .. }) {
                self.talks.remove(key);
            }
        }
    }

    /// Delivers all pending notifications to applications.
    pub(super) fn deliver_notices(&mut self) {
        while let Some((id, notice)) = self.notices.pop_front() {
            // Taken out while it acts, because it gets the whole world as `&mut`.
            let Some(mut app) = self.apps[id.index()].take() else { continue };
            app.handle(self, id, notice);
            self.apps[id.index()] = Some(app);
        }
    }
}
