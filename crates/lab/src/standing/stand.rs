//! A persistent lab: answers requests until it is told to end.

use core::time::Duration;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};

use link::Outage;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use os::namespace::Namespaces;
use os::{clock, process};
use scenario::Preset;
use units::Instant;

use super::detach::StartingLab;
use super::protocol::{LabReply, LabRequest, LinkChange, receive, send};
use super::slot::ReservedSlot;
use super::status::{LabStatus, StatusContext};
use crate::{Lab, Node};

/// Interval at which the lab checks on itself, in milliseconds.
const LOOK_MS: u16 = 500;
/// Timeout for receiving a request and for sending a reply.
const PATIENCE: Duration = Duration::from_secs(2);

/// Callbacks into the program that started the lab.
pub trait LabCallbacks {
    /// Applies options to `preset`.
    ///
    /// # Errors
    /// If the options are invalid, or do not result in a valid link.
    fn change(&mut self, preset: &Preset, change: &LinkChange) -> Result<AppliedChange, String>;

    /// Called twice a second while the lab runs, for periodic work.
    fn tick(&mut self);
}

/// The result of a [`LinkChange`].
pub struct AppliedChange {
    /// The preset with the new links.
    pub preset: Preset,
    /// Outages of the hop, relative to now.
    pub outages: Vec<Outage>,
    /// Set if existing outages end first.
    pub end_outages: bool,
}

/// A lab and the rest of its status.
pub struct PersistentLab {
    /// The lab, which ends when this is dropped.
    pub lab: Lab,
    /// The seed that it was started with.
    pub seed: u64,
    /// Set if the gateway pair runs in it.
    pub gateways: bool,
}

impl PersistentLab {
    /// Reports that the lab is ready, and keeps it running until a request or a signal ends it, or
    /// until its directory is gone, because no command could find it any more. The name is free
    /// again when this returns.
    ///
    /// # Errors
    /// If the lab cannot be reached, or the command that started it is gone.
    pub fn keep(&mut self, foothold: StartingLab, keeper: &mut dyn LabCallbacks) -> io::Result<()> {
        let path = foothold.taken().slot().control();
        let listener = match UnixListener::bind(path) {
            Ok(listener) => listener,
            Err(error) => foothold.fail(&format!("cannot create the control socket: {error}")),
        };
        let signals = SignalFd::with_flags(&process::terminating_signals(), SfdFlags::SFD_CLOEXEC)?;
        // The control socket exists by now, so the lab can be reached.
        let taken = foothold.report_ready()?;
        let since = clock::now();
        let mut kept = LabServer { stand: self, taken, since, keeper };
        while !kept.step(&listener, &signals)? {}
        kept.taken.release().map_err(io::Error::other)
    }
}

struct LabServer<'a> {
    stand: &'a mut PersistentLab,
    taken: ReservedSlot,
    since: Instant,
    keeper: &'a mut dyn LabCallbacks,
}

impl LabServer<'_> {
    /// Waits for an event and handles it. Returns true when the lab should end.
    fn step(&mut self, listener: &UnixListener, signals: &SignalFd) -> io::Result<bool> {
        let fds = [listener.as_fd(), signals.as_fd()];
        let mut fds = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let _ = poll(&mut fds, PollTimeout::from(LOOK_MS));
        if fds[1].any() == Some(true) || !self.taken.slot().is_in_place() {
            return Ok(true);
        }
        self.keeper.tick();
        if fds[0].any() != Some(true) {
            return Ok(false);
        }
        // A client that disconnects before the reply has lost interest.
        let (stream, _) = listener.accept()?;
        Ok(self.serve(&stream).unwrap_or(false))
    }

    fn serve(&mut self, stream: &UnixStream) -> io::Result<bool> {
        // A client that stops must not keep others from the lab.
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let request = receive::<LabRequest>(stream).map(|(request, _)| request);
        let (reply, ending) = match request {
            Ok(LabRequest::Down) => (LabReply::Done, true),
            Ok(LabRequest::Status) => (LabReply::Status(Box::new(self.status())), false),
            Ok(LabRequest::Set(change)) => {
                let done = self.change(&change);
                (done.map_or_else(LabReply::Error, |()| LabReply::Done), false)
            }
            Ok(LabRequest::Join { node }) => {
                return self.send_namespaces(stream, &node).map(|()| false);
            }
            Err(error) => (LabReply::Error(format!("invalid request: {error}")), false),
        };
        let sent = send(stream, &reply, &[]);
        // The lab ends even if the client did not wait for the reply.
        if ending { Ok(true) } else { sent.map(|()| false) }
    }

    fn status(&self) -> LabStatus {
        let uptime = clock::now().saturating_since(self.since);
        let name = self.taken.name();
        let PersistentLab { lab, seed, gateways } = &*self.stand;
        let seed = *seed;
        let gateways = *gateways;
        LabStatus::of(lab, &StatusContext { name: name.as_str(), seed, gateways, uptime })
    }

    fn change(&mut self, change: &LinkChange) -> Result<(), String> {
        let lab = &mut self.stand.lab;
        let changed = self.keeper.change(lab.preset(), change)?;
        lab.change(changed.preset).map_err(|error| error.to_string())?;
        // Before the change's own outages are added, which are to remain.
        if changed.end_outages {
            lab.end_outages();
        }
        changed.outages.into_iter().for_each(|outage| lab.add_outage(outage));
        Ok(())
    }

    /// Sends the namespaces of a host to the client.
    fn send_namespaces(&self, stream: &UnixStream, node: &str) -> io::Result<()> {
        let lab = &self.stand.lab;
        let refuse =
            |error: &dyn core::fmt::Display| send(stream, &LabReply::Error(error.to_string()), &[]);
        let found = node.parse::<Node>().and_then(|node| lab.expect(node).map(|()| node));
        let node = match found {
            Ok(node) => node,
            Err(error) => return refuse(&error),
        };
        let namespaces = Namespaces::own(lab.node(node))?;
        let variables = lab.variables().map(|(name, value)| (name.to_owned(), value));
        send(stream, &LabReply::Joined { variables: variables.into() }, &namespaces.descriptors())
    }
}
