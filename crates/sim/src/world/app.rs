//! Operations for applications, and delivery of their notifications.

use std::sync::Arc;

use pep::relay;
use scenario::IpVersion;
use units::Instant;

use super::{Due, World};
use crate::app::{Deed, Notice, Tally};
use crate::cache::Cache;
use crate::ids::{AppId, NodeId};
use crate::packet::{Body, Datagram, Packet};
use crate::path::{Leg, Path};
use crate::slab::Key;
use crate::socket::{Hosts, Owner};
use crate::split::LegEnd;
use crate::talk::{Closer, News, Side, Talk};
use crate::turn::Turn;
use crate::world::socket::End;

/// An application; it drives both ends of its communication.
pub trait App: core::fmt::Debug {
    /// Handles a notification; acts through the methods of `world`.
    fn handle(&mut self, world: &mut World, me: AppId, notice: Notice);
}

impl World {
    /// Adds an application, which first receives [`Notice::Start`].
    pub fn add_app(&mut self, app: Box<dyn App>) -> AppId {
        let id = AppId(self.apps.len() as u32);
        self.apps.push(Some(app));
        self.tallies.push(Tally::default());
        self.notices.push_back((id, Notice::Start));
        self.tell_apps();
        self.settle();
        id
    }

    /// Draws a new seed from the world's random numbers.
    pub fn draw_seed(&mut self) -> u64 {
        self.seeds.bits()
    }

    /// Returns the statistics of an application.
    pub fn tally(&self, app: AppId) -> &Tally {
        &self.tallies[app.index()]
    }

    /// Sends [`Notice::Wake`] with the number `wish` to an application at `at`.
    pub fn wake_at(&mut self, app: AppId, at: Instant, wish: u64) {
        self.agenda.enter(at.max(self.now), Due::App(app, wish));
    }

    /// Opens a connection between an application's two ends; its SYN leaves with the first request
    /// ([`World::ask`]). If `watch` is set, its senders are recorded for plots under that name.
    pub fn open(
        &mut self,
        app: AppId,
        path: &Arc<Path>,
        closer: Closer,
        watch: Option<&str>,
    ) -> Key {
        self.tallies[app.index()].connections += 1;
        let cache = path.cache.clone().map(|cache| Cache::new(cache, self.seeds.bits()));
        let talk = Talk::new(app, closer, watch.map(str::to_owned)).with(cache);
        let talk = self.talks.insert(|_| talk);
        let first = self.open_leg(path, 0, Hosts::Talk(talk), Owner::Talk(talk, Side::Client));
        if let Some(talk) = self.talks.get_mut(talk) {
            talk.sockets[0] = first;
        }
        talk
    }

    /// Opens segment `at` of a path and returns its near socket; `None` if it is not TCP.
    pub(super) fn open_leg(
        &mut self,
        path: &Arc<Path>,
        at: usize,
        hosts: Hosts,
        owner: Owner,
    ) -> Option<Key> {
        let Leg::Tcp(near, far) = &path.legs[at] else { return None };
        let far_owner = self.owner_after(path, at, hosts);
        let ends = [
            End { node: path.nodes[at], config: Arc::clone(near), owner },
            End { node: path.nodes[at + 1], config: Arc::clone(far), owner: far_owner },
        ];
        let [near, far] = self.open_sockets(ends, path.ip);
        match far_owner {
            Owner::Talk(talk, _) => {
                if let Some(talk) = self.talks.get_mut(talk) {
                    talk.sockets[1] = Some(far);
                }
            }
            Owner::Script(connection, _) => self.join_script(connection, far),
            Owner::Nobody => {}
            Owner::Split(split) => self.join_split(split, LegEnd::Tcp(far)),
        }
        self.watch_leg(hosts, at, [near, far]);
        Some(near)
    }

    /// Returns the owner of the far end of segment `at`: the server, or a gateway.
    fn owner_after(&mut self, path: &Arc<Path>, at: usize, hosts: Hosts) -> Owner {
        if at + 1 == path.legs.len() {
            return match hosts {
                Hosts::Talk(talk) => Owner::Talk(talk, Side::Server),
                Hosts::Script(connection) => Owner::Script(connection, relay::Side::Server),
            };
        }
        Owner::Split(self.add_split(path, at + 1, hosts))
    }

    /// Reports each arriving request of a connection to its application ([`Notice::Asked`]).
    pub fn tell_requests(&mut self, talk: Key) {
        self.change(talk, |talk| talk.tells_requests = true);
    }

    /// Resets a connection from the client's end. Its application gets no further notifications about it.
    pub fn abort(&mut self, talk: Key) {
        let now = self.now;
        let socket = self.talks.remove(talk).and_then(|talk| talk.sockets[0]);
        if let Some(key) = socket
            && let Some(socket) = self.sockets.get_mut(key)
        {
            socket.tcp.abort(now);
            self.service(key);
        }
    }

    /// Sends a request. Replies keep the order of the requests.
    pub fn ask(&mut self, talk: Key, turn: Turn) {
        self.change(talk, |talk| talk.ask(turn));
    }

    /// Sends the SYN now, before the first request.
    pub fn connect_now(&mut self, talk: Key) {
        self.change(talk, |_| {});
    }

    /// Declares that there are no further requests. The connection may end when all are answered.
    pub fn finish(&mut self, talk: Key) {
        self.change(talk, Talk::finish);
    }

    /// Stops writing on a connection: bytes that have not been written are dropped.
    pub fn stop(&mut self, talk: Key) {
        self.change(talk, Talk::stop);
    }

    fn change(&mut self, talk: Key, change: impl FnOnce(&mut Talk)) {
        let Some(found) = self.talks.get_mut(talk) else { return };
        change(found);
        for socket in found.sockets.into_iter().flatten() {
            self.service(socket);
        }
    }

    /// Returns the bytes of a conversation received by the server and by the client.
    pub fn received(&self, talk: Key) -> Option<[u64; 2]> {
        Some(self.talks.get(talk)?.received())
    }

    /// Sends a datagram from one node to another.
    pub fn send_datagram(&mut self, [from, to]: [NodeId; 2], ip: IpVersion, datagram: Datagram) {
        self.tallies[datagram.app as usize].datagrams[0] += 1;
        self.send_unaccounted([from, to], ip, datagram);
    }

    /// Sends a datagram that the statistics do not count. One for its own node arrives at once.
    pub(crate) fn send_unaccounted(
        &mut self,
        [from, to]: [NodeId; 2],
        ip: IpVersion,
        datagram: Datagram,
    ) {
        if from == to {
            return self.deliver_datagram(datagram);
        }
        self.send(Box::new(Packet { from, to, ip, body: Body::Cbr(datagram) }));
    }

    pub(super) fn deliver_datagram(&mut self, datagram: Datagram) {
        self.notices.push_back((AppId(datagram.app), Notice::Datagram(datagram)));
    }

    /// Records that an application begins now.
    pub fn begin(&mut self, app: AppId) {
        self.tallies[app.index()].began = self.now;
    }

    /// Marks an application as finished.
    pub fn set_done(&mut self, app: AppId) {
        let tally = &mut self.tallies[app.index()];
        if !tally.done {
            tally.done = true;
            self.done_at = self.now;
        }
    }

    /// Records a finished unit of work of an application.
    pub fn note_deed(&mut self, app: AppId, deed: Deed) {
        self.tallies[app.index()].deeds.push(deed);
    }

    /// Records that a connection of an application failed.
    pub fn note_broken(&mut self, app: AppId) {
        self.tallies[app.index()].broken += 1;
    }

    /// Records that a datagram of an application has arrived.
    pub fn note_datagram(&mut self, app: AppId, datagram: Datagram) {
        let (now, tally) = (self.now, &mut self.tallies[app.index()]);
        tally.delivered(now, u64::from(datagram.len));
        tally.datagrams[1] += 1;
        tally.delays.push(now.saturating_since(datagram.sent_at));
    }

    /// Passes the events of a conversation to its application; removes the conversation when it is over.
    pub(super) fn tell_news(&mut self, key: Key) {
        while let Some(talk) = self.talks.get_mut(key) {
            let Some(news) = talk.news.pop_front() else { return };
            if let Some(client) = talk.feeds {
                self.hear_origin(key, client, news);
                continue;
            }
            let app = talk.app;
            let notice = match news {
                News::Connected => Notice::Connected(key),
                News::Fetch(turn) => {
                    self.fetch(key, turn);
                    continue;
                }
                News::Looks(time) => {
                    self.agenda.enter(self.now + time, Due::Cache(key));
                    continue;
                }
                News::Asked => Notice::Asked(key),
                News::Turn => Notice::Turn(key),
                News::Over { whole } => Notice::Over { talk: key, whole },
            };
            self.notices.push_back((app, notice));
            if matches!(news, News::Over { .. }) {
                self.talks.remove(key);
            }
        }
    }

    /// Delivers all pending notifications to applications.
    pub(super) fn tell_apps(&mut self) {
        while let Some((id, notice)) = self.notices.pop_front() {
            // Taken out while it acts, because it gets the whole world as `&mut`.
            let Some(mut app) = self.apps[id.index()].take() else { continue };
            app.handle(self, id, notice);
            self.apps[id.index()] = Some(app);
        }
    }
}
