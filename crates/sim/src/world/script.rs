//! Opens and drives connections between scripted hosts.

use std::sync::Arc;

use pep::relay::LegSide;

use super::{DueEvent, World};
use crate::agenda::EventNumber;
use crate::connection::path::ConnectionPath;
use crate::connection::script::{
    EndpointState, HostScript, KernelReaction, ScriptedConnection, ServerBehaviour,
};
use crate::connection::socket::{ConnectionHosts, SocketOwner};
use crate::slab::SlabKey;

impl World {
    /// Opens a connection whose two ends follow scripts.
    pub fn open_scripted(
        &mut self,
        path: &Arc<ConnectionPath>,
        client: HostScript,
        server: ServerBehaviour,
    ) -> SlabKey {
        let key = self.scripted.insert(|_| ScriptedConnection::new(client, server));
        let owner = SocketOwner::Script(key, LegSide::Client);
        let first = self.open_leg(path, 0, ConnectionHosts::Script(key), owner);
        if let Some(connection) = self.scripted.get_mut(key) {
            connection.host(LegSide::Client).socket = first;
        }
        if let Some(first) = first {
            self.service(first);
        }
        key
    }

    /// Returns the states that the client's and the server's end of a scripted connection have reached.
    pub fn endings(&self, connection: SlabKey) -> Option<[EndpointState; 2]> {
        Some(self.scripted.get(connection)?.hosts.each_ref().map(|host| host.ending))
    }

    /// Returns the number of TCP sockets in the world, of hosts and of gateways.
    pub fn sockets(&self) -> usize {
        self.sockets.iter().count()
    }

    /// Sets the server's socket of a scripted connection; removes or silences it if the server does not
    /// accept.
    pub(super) fn join_script(&mut self, key: SlabKey, socket: SlabKey) {
        let Some(connection) = self.scripted.get_mut(key) else { return };
        connection.host(LegSide::Server).socket = Some(socket);
        match connection.answer {
            KernelReaction::Accepts => {}
            // Segments for which there is no socket are answered with a RST.
            KernelReaction::Refuses => drop(self.sockets.remove(socket)),
            KernelReaction::Ignores => {
                if let Some(socket) = self.sockets.get_mut(socket) {
                    socket.owner = SocketOwner::Unattended;
                }
            }
        }
    }

    pub(super) fn serve_script(&mut self, socket: SlabKey, key: SlabKey, side: LegSide) {
        let now = self.now;
        let Some(end) = self.sockets.get_mut(socket) else { return };
        let Some(connection) = self.scripted.get_mut(key) else { return };
        let host = connection.host(side);
        let next = host.serve(now, &mut end.tcp);
        host.alarm.set(&mut self.agenda, next, DueEvent::Script(key, side));
        self.flush(socket);
    }

    pub(super) fn wake_script(&mut self, key: SlabKey, side: LegSide, ticket: EventNumber) {
        let Some(connection) = self.scripted.get_mut(key) else { return };
        let host = connection.host(side);
        if host.alarm.ring(ticket)
            && let Some(socket) = host.socket
        {
            self.serve_script(socket, key, side);
        }
    }
}
