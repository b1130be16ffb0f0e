//! Deferred answers ([`pep::relay::Questions`]): the SYNs that the table withholds ([`SynTap`]) wait for
//! the far end, and the connections that the listener then accepts go to whoever asked for them.
//!
//! [`SynTap`]: crate::intercept::syn_tap::SynTap

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use pep::relay::{Asked, Questions};
use pep::traffic::Syn;
use slacp::{Open, ResetReason};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::intercept::listener::Accepted;
use crate::intercept::syn_tap::Usher;
use crate::relay::tcp;

/// Open questions, and the connections that resulted from them.
#[derive(Clone)]
pub(crate) struct Deferral {
    usher: Arc<Usher>,
    flows: Arc<Mutex<Flows>>,
}

#[derive(Default)]
struct Flows {
    questions: Questions,
    /// Receive the connections once the listener has accepted them.
    waiting: BTreeMap<pep::relay::Question, oneshot::Sender<TcpStream>>,
}

/// A SYN waiting for the far end. Dropped when its connection is over.
pub(crate) struct Question {
    deferral: Deferral,
    question: pep::relay::Question,
    syn: Syn,
    socket: oneshot::Receiver<TcpStream>,
}

impl Deferral {
    pub(crate) fn new(usher: Usher) -> Self {
        Self { usher: Arc::new(usher), flows: Arc::default() }
    }

    /// Takes a SYN. Returns a question if it is the first of its connection.
    pub(crate) fn ask(&self, syn: Syn) -> Option<Question> {
        let Open { source, destination, .. } = syn.open();
        let mut flows = self.lock();
        let question = match flows.questions.ask(source, destination) {
            Asked::New(question) => question,
            Asked::LetIn => {
                drop(flows);
                self.usher.let_in(&syn);
                return None;
            }
            Asked::Drop => return None,
        };
        let (sender, socket) = oneshot::channel();
        flows.waiting.insert(question, sender);
        Some(Question { deferral: self.clone(), question, syn, socket })
    }

    /// Passes an accepted connection to its question. A connection whose question has timed out is
    /// reset.
    pub(crate) fn deliver(&self, accepted: Accepted) {
        let mut flows = self.lock();
        let Open { source, destination, .. } = accepted.open;
        let question = flows.questions.accept(source, destination);
        let sender = question.and_then(|question| flows.waiting.remove(&question));
        drop(flows);
        let unwanted = match sender {
            Some(sender) => sender.send(accepted.socket).err(),
            None => Some(accepted.socket),
        };
        unwanted.into_iter().for_each(tcp::reset);
    }

    /// Drops the open questions. From here on SYNs pass unaccelerated, and a client that connects
    /// that way must not be answered twice.
    pub(crate) fn forget(&self) {
        self.lock().questions.forget();
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
        let is_open = self.deferral.lock().questions.answer(self.question);
        if is_open {
            self.deferral.usher.let_in(&self.syn);
        }
        is_open
    }

    /// Tells the client why the connection failed.
    pub(crate) fn turn_away(self, reason: ResetReason) {
        let is_open = self.deferral.lock().questions.contains(self.question);
        if is_open {
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
}

impl Drop for Question {
    fn drop(&mut self) {
        let mut flows = self.deferral.lock();
        flows.questions.end(self.question);
        flows.waiting.remove(&self.question);
    }
}

#[cfg(test)]
mod tests {
    use pep::traffic::{Version, syn_packet as packet};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::intercept::rule::Mark;
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
