//! Deferred answers: a SYN is answered only after the far end has answered.
//!
//! The table withholds the SYNs of new connections ([`SynTap`]). Each becomes a [`Question`] to the
//! far side. Depending on the answer, the SYN is let in and the listener accepts it, or the client
//! learns why not. A retransmitted SYN belongs to the same question.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use pep::traffic::Syn;
use slacp::{Open, ResetReason};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::listener::Accepted;
use crate::syn_tap::Usher;
use crate::tcp;

/// Up to the number of streams in a session.
const MOST: usize = 65_536;

/// Open questions, and the connections that resulted from them.
#[derive(Clone)]
pub(crate) struct Deferral {
    usher: Arc<Usher>,
    flows: Arc<Mutex<Flows>>,
}

/// Source and destination.
type Key = (SocketAddr, SocketAddr);

#[derive(Default)]
struct Flows {
    by_ends: BTreeMap<Key, Flow>,
    /// Number of the next question.
    next: u64,
}

struct Flow {
    question: u64,
    /// The far end has answered, so the kernel can handle further SYNs.
    is_answered: bool,
    /// Receives the connection once the listener has accepted it.
    socket: Option<oneshot::Sender<TcpStream>>,
}

/// A SYN waiting for the far end. Dropped when its connection is over.
pub(crate) struct Question {
    deferral: Deferral,
    number: u64,
    syn: Syn,
    socket: oneshot::Receiver<TcpStream>,
}

impl Deferral {
    pub(crate) fn new(usher: Usher) -> Self {
        Self { usher: Arc::new(usher), flows: Arc::default() }
    }

    /// Takes a SYN. Returns a question if it is the first of its connection.
    pub(crate) fn ask(&self, syn: Syn) -> Option<Question> {
        let mut flows = self.lock();
        match flows.by_ends.get(&key(syn.open())) {
            // Either the SYN or its answer was lost on the way; or it is an old SYN; or the client
            // has forgotten a connection that we still hold.
            Some(flow) if flow.is_answered => {
                drop(flows);
                self.usher.let_in(&syn);
                return None;
            }
            Some(_) => return None,
            None if flows.by_ends.len() >= MOST => return None,
            None => {}
        }
        let (sender, socket) = oneshot::channel();
        let number = flows.next;
        flows.next += 1;
        let flow = Flow { question: number, is_answered: false, socket: Some(sender) };
        flows.by_ends.insert(key(syn.open()), flow);
        Some(Question { deferral: self.clone(), number, syn, socket })
    }

    /// Passes an accepted connection to its question. A connection whose question has timed out is
    /// reset.
    pub(crate) fn deliver(&self, accepted: Accepted) {
        let mut flows = self.lock();
        let flow = flows.by_ends.get_mut(&key(accepted.open));
        let Some(sender) = flow.and_then(|flow| flow.socket.take()) else {
            return tcp::reset(accepted.socket);
        };
        drop(flows);
        if let Err(socket) = sender.send(accepted.socket) {
            tcp::reset(socket);
        }
    }

    /// Drops the open questions. From here on SYNs pass unaccelerated, and a client that connects
    /// that way must not be answered twice.
    pub(crate) fn forget(&self) {
        self.lock().by_ends.retain(|_, flow| flow.is_answered);
    }

    fn lock(&self) -> MutexGuard<'_, Flows> {
        self.flows.lock().expect("nobody panics while holding the flows")
    }
}

impl Question {
    pub(crate) fn open(&self) -> Open {
        self.syn.open()
    }

    /// Lets the SYN in. Returns false if the question was dropped.
    pub(crate) fn let_in(&self) -> bool {
        let mut flows = self.deferral.lock();
        let Some(flow) = self.flow(&mut flows) else { return false };
        flow.is_answered = true;
        drop(flows);
        self.deferral.usher.let_in(&self.syn);
        true
    }

    /// Tells the client why the connection failed.
    pub(crate) fn turn_away(self, reason: ResetReason) {
        if self.flow(&mut self.deferral.lock()).is_some() {
            self.deferral.usher.turn_away(&self.syn, reason);
        }
    }

    /// Waits for the accepted connection, for ever if it never arrives.
    pub(crate) async fn socket(&mut self) -> TcpStream {
        match (&mut self.socket).await {
            Ok(socket) => socket,
            Err(_) => std::future::pending().await,
        }
    }

    fn flow<'f>(&self, flows: &'f mut Flows) -> Option<&'f mut Flow> {
        let flow = flows.by_ends.get_mut(&key(self.syn.open()));
        flow.filter(|flow| flow.question == self.number)
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        let mut flows = self.deferral.lock();
        if self.flow(&mut flows).is_some() {
            flows.by_ends.remove(&key(self.syn.open()));
        }
    }
}

fn key(open: Open) -> Key {
    (open.source, open.destination)
}

#[cfg(test)]
mod tests {
    use pep::traffic::{Version, syn_packet as packet};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::rule::Mark;
    use crate::testkit::in_namespace;

    fn deferral() -> Deferral {
        let mark = Mark { value: 1, mask: 1 };
        Deferral::new(Usher::new(&[Version::V4, Version::V6], mark).unwrap())
    }

    fn syn() -> Syn {
        Syn::parse(&packet(false, false, b"")).unwrap()
    }

    #[test]
    fn a_repeated_syn_asks_nobody_twice_until_its_connection_is_over() {
        in_namespace(|| {
            let deferral = deferral();
            let question = deferral.ask(syn()).unwrap();
            assert!(deferral.ask(syn()).is_none(), "while it waits");
            assert!(question.let_in());
            assert!(deferral.ask(syn()).is_none(), "while it is there");
            drop(question);
            assert!(deferral.ask(syn()).is_some());
        });
    }

    #[test]
    fn what_was_forgotten_is_not_let_in_and_may_be_asked_again() {
        in_namespace(|| {
            let deferral = deferral();
            let (answered, open) = (deferral.ask(syn()).unwrap(), packet(true, false, b""));
            assert!(answered.let_in());
            let question = deferral.ask(Syn::parse(&open).unwrap()).unwrap();
            deferral.forget();
            assert!(!question.let_in());
            let again = deferral.ask(Syn::parse(&open).unwrap()).unwrap();
            // Dropping the old question must not end the new one.
            drop(question);
            assert!(again.let_in() && deferral.ask(syn()).is_none());
        });
    }

    #[test]
    fn a_connection_goes_to_who_asked_for_it_and_is_reset_if_nobody_did() {
        in_namespace(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let deferral = deferral();
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let mut question = deferral.ask(syn()).unwrap();
                for wanted in [true, false] {
                    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
                    let (socket, _) = listener.accept().await.unwrap();
                    deferral.deliver(Accepted { socket, open: syn().open() });
                    if wanted {
                        let given = question.socket().await;
                        assert_eq!(given.peer_addr().unwrap(), client.local_addr().unwrap());
                    } else {
                        let end = client.readable().await.and_then(|()| client.try_read(&mut [0]));
                        assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
                    }
                }
            });
        });
    }
}
