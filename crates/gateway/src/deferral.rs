//! Answering a SYN only when the far end has answered (*deferred*).
//!
//! The table withholds new connections' SYNs ([`SynTap`]). Each becomes a
//! [`Question`]: the far side is asked, and then the SYN is let in, so that the
//! listener accepts it, or the client is told why not. A SYN that comes again
//! meanwhile belongs to the same question.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use slacp::{Open, ResetReason};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::listener::Accepted;
use crate::syn::Syn;
use crate::syn_tap::Usher;
use crate::tcp;

/// As many connections as a session has streams for.
const MOST: usize = 65_536;

/// The questions that are open and the connections that came of them.
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
    /// The next question's number.
    next: u64,
}

struct Flow {
    question: u64,
    /// The far end has answered: the kernel knows what to do with a SYN.
    is_answered: bool,
    /// For the connection, when the listener has it.
    socket: Option<oneshot::Sender<TcpStream>>,
}

/// A SYN that waits for the far end. Dropped when its connection is over.
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

    /// Takes a SYN: the first of its connection is a question.
    pub(crate) fn ask(&self, syn: Syn) -> Option<Question> {
        let mut flows = self.lock();
        match flows.by_ends.get(&key(syn.open())) {
            // Lost on the way in, or its answer was; or it is an old one, or
            // the client has forgotten a connection that is still ours.
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

    /// Gives a connection to whoever has asked for it. One of which nobody knows,
    /// since it took too long, is reset.
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

    /// Forgets the questions that are open: from here on SYNs pass by, and a
    /// client that was let in by another way must not be answered twice.
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

    /// Lets the connection in; false if the question was forgotten.
    pub(crate) fn let_in(&self) -> bool {
        let mut flows = self.deferral.lock();
        let Some(flow) = self.flow(&mut flows) else { return false };
        flow.is_answered = true;
        drop(flows);
        self.deferral.usher.let_in(&self.syn);
        true
    }

    /// Tells the client why there is no connection.
    pub(crate) fn turn_away(self, reason: ResetReason) {
        if self.flow(&mut self.deferral.lock()).is_some() {
            self.deferral.usher.turn_away(&self.syn, reason);
        }
    }

    /// The connection, once it is accepted. For ever if it never is.
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
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::rule::{Mark, Version};
    use crate::syn::tests::packet;
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
            // The end of the old question is not that of the new one.
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
