//! Connections between scripted hosts.

use std::sync::Arc;

use pep::relay::Side;

use super::{Due, World};
use crate::agenda::Ticket;
use crate::path::Path;
use crate::script::{Answer, Answering, Ending, Script, Scripted};
use crate::slab::Key;
use crate::socket::{Hosts, Owner};

impl World {
    /// Opens a connection whose two ends follow scripts.
    pub fn open_scripted(&mut self, path: &Arc<Path>, client: Script, server: Answer) -> Key {
        let key = self.scripted.insert(|_| Scripted::new(client, server));
        let owner = Owner::Script(key, Side::Client);
        let first = self.open_leg(path, 0, Hosts::Script(key), owner);
        if let Some(connection) = self.scripted.get_mut(key) {
            connection.host(Side::Client).socket = first;
        }
        if let Some(first) = first {
            self.service(first);
        }
        key
    }

    /// Returns the states that the client's and the server's end of a scripted connection have reached.
    pub fn endings(&self, connection: Key) -> Option<[Ending; 2]> {
        Some(self.scripted.get(connection)?.hosts.each_ref().map(|host| host.ending))
    }

    /// Returns the number of TCP sockets in the world, of hosts and of gateways.
    pub fn sockets(&self) -> usize {
        self.sockets.iter().count()
    }

    /// Sets the server's socket of a scripted connection; removes or silences it if the server does not
    /// accept.
    pub(super) fn join_script(&mut self, key: Key, socket: Key) {
        let Some(connection) = self.scripted.get_mut(key) else { return };
        connection.host(Side::Server).socket = Some(socket);
        match connection.answer {
            Answering::Accepts => {}
            Answering::Refuses => drop(self.sockets.remove(socket)),
            Answering::Ignores => {
                if let Some(socket) = self.sockets.get_mut(socket) {
                    socket.owner = Owner::Nobody;
                }
            }
        }
    }

    pub(super) fn serve_script(&mut self, socket: Key, key: Key, side: Side) {
        let now = self.now;
        let (Some(end), Some(connection)) =
            (self.sockets.get_mut(socket), self.scripted.get_mut(key))
        else {
            return;
        };
        let host = connection.host(side);
        let next = host.serve(now, &mut end.tcp);
        host.alarm.set(&mut self.agenda, next, Due::Script(key, side));
        self.flush(socket);
    }

    pub(super) fn wake_script(&mut self, key: Key, side: Side, ticket: Ticket) {
        let Some(connection) = self.scripted.get_mut(key) else { return };
        let host = connection.host(side);
        if host.alarm.ring(ticket)
            && let Some(socket) = host.socket
        {
            self.serve_script(socket, key, side);
        }
    }
}
