//! Deferred answers ([`PendingSyns`]): SYNs that the table withholds ([`SynTap`]) wait until the far end
//! has answered. Each connection that the listener then accepts goes to the task that waits for it.
//!
//! [`SynTap`]: crate::intercept::syn_tap::SynTap

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use pep::relay::{PendingSyns, SynAction};
use pep::traffic::Syn;
use slacp::{ResetReason, StreamOpening};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::intercept::listener::AcceptedConnection;
use crate::intercept::syn_tap::SynInjector;
use crate::network::socket_options;

/// Time limit for a client to complete the TCP handshake after its SYN was reinjected.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// Pending SYNs, and the connections that resulted from them.
#[derive(Clone)]
pub(crate) struct Deferral {
    injector: Arc<SynInjector>,
    flows: Arc<Mutex<PendingFlows>>,
}

#[derive(Default)]
struct PendingFlows {
    pending_syns: PendingSyns,
    /// Senders of accepted connections to the tasks that wait for them.
    waiting: BTreeMap<pep::relay::PendingSyn, oneshot::Sender<TcpStream>>,
}

/// Outcome of [`Deferral::handle_syn`] for a withheld SYN.
pub(crate) enum SynOutcome {
    /// The first SYN of its connection.
    New(DeferredSyn),
    /// A retransmission after the connection was let in: reinjected again.
    Reinjected,
    /// A retransmission of a pending SYN, or too many are pending.
    Dropped,
}

/// A SYN waiting for the far end. Its owner drops it when the connection has ended.
pub(crate) struct DeferredSyn {
    deferral: Deferral,
    pending: pep::relay::PendingSyn,
    syn: Syn,
    socket: oneshot::Receiver<TcpStream>,
}

impl Deferral {
    pub(crate) fn new(injector: Arc<SynInjector>) -> Self {
        Self { injector, flows: Arc::default() }
    }

    /// Handles a withheld SYN, which may be a retransmission.
    pub(crate) fn handle_syn(&self, syn: Syn) -> SynOutcome {
        let StreamOpening { source, destination, .. } = syn.open();
        let mut flows = self.lock();
        let pending = match flows.pending_syns.handle_syn(source, destination) {
            SynAction::New(pending) => pending,
            SynAction::LetIn => {
                drop(flows);
                self.injector.reinject(&syn);
                return SynOutcome::Reinjected;
            }
            SynAction::Drop => return SynOutcome::Dropped,
        };
        let (sender, socket) = oneshot::channel();
        flows.waiting.insert(pending, sender);
        SynOutcome::New(DeferredSyn { deferral: self.clone(), pending, syn, socket })
    }

    /// Passes an accepted connection to the task that waits for it. If its SYN is no longer pending, the
    /// connection is reset.
    pub(crate) fn deliver(&self, accepted: AcceptedConnection) {
        let mut flows = self.lock();
        let StreamOpening { source, destination, .. } = accepted.open;
        let pending = flows.pending_syns.accept(source, destination);
        let sender = pending.and_then(|pending| flows.waiting.remove(&pending));
        drop(flows);
        let unwanted = match sender {
            Some(sender) => sender.send(accepted.socket).err(),
            None => Some(accepted.socket),
        };
        unwanted.into_iter().for_each(socket_options::reset);
    }

    /// Drops all pending SYNs. Their retransmissions may now pass unaccelerated, and a client that connects
    /// that way must not be answered twice.
    pub(crate) fn clear_pending(&self) {
        self.lock().pending_syns.forget();
    }

    fn lock(&self) -> MutexGuard<'_, PendingFlows> {
        self.flows.lock().expect("no thread panics while it holds the flows")
    }
}

impl DeferredSyn {
    /// Addresses and code point of the SYN.
    pub(crate) fn open(&self) -> StreamOpening {
        self.syn.open()
    }

    /// Reinjects the SYN, which the listener then answers. Returns false if it is no longer pending.
    pub(crate) fn reinject(&self) -> bool {
        let is_open = self.deferral.lock().pending_syns.answer(self.pending);
        if is_open {
            self.deferral.injector.reinject(&self.syn);
        }
        is_open
    }

    /// Answers the client with the reason of the failure, unless the SYN is no longer pending.
    pub(crate) fn refuse(self, reason: ResetReason) {
        let is_open = self.deferral.lock().pending_syns.contains(self.pending);
        // A SYN that was forgotten may have passed unaccelerated, and must not be refused as well.
        if is_open {
            self.deferral.injector.refuse(&self.syn, reason);
        }
    }

    /// Waits for the accepted connection; `None` after 30 s.
    pub(crate) async fn socket(&mut self) -> Option<TcpStream> {
        let arrival = async {
            match (&mut self.socket).await {
                Ok(socket) => socket,
                Err(_) => std::future::pending().await,
            }
        };
        timeout(HANDSHAKE_TIMEOUT, arrival).await.ok()
    }
}

impl Drop for DeferredSyn {
    fn drop(&mut self) {
        let mut flows = self.deferral.lock();
        flows.pending_syns.end(self.pending);
        flows.waiting.remove(&self.pending);
    }
}

#[cfg(test)]
mod tests {
    use pep::traffic::{IpFamily, syn_packet as packet};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::network::nft::rule::FirewallMark;
    use crate::testkit::in_namespace;

    fn deferral() -> Deferral {
        let mark = FirewallMark { value: 1, mask: 1 };
        Deferral::new(Arc::new(SynInjector::new(&IpFamily::BOTH, mark).unwrap()))
    }

    /// Takes the first SYN of a connection.
    fn taken(deferral: &Deferral) -> DeferredSyn {
        match deferral.handle_syn(syn()) {
            SynOutcome::New(deferred) => deferred,
            _ => panic!("it is not the first"),
        }
    }

    fn syn() -> Syn {
        Syn::parse(&packet(false, false, b"")).unwrap()
    }

    #[test]
    fn a_repeated_syn_asks_once_until_its_connection_is_over() {
        in_namespace(|| {
            let deferral = deferral();
            let pending = taken(&deferral);
            assert!(matches!(deferral.handle_syn(syn()), SynOutcome::Dropped), "while it waits");
            assert!(pending.reinject());
            assert!(
                matches!(deferral.handle_syn(syn()), SynOutcome::Reinjected),
                "while it is there"
            );
            drop(pending);
            taken(&deferral);
        });
    }

    #[test]
    fn a_client_that_does_not_complete_its_handshake_is_given_up() {
        in_namespace(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .start_paused(true)
                .build()
                .unwrap();
            runtime.block_on(async {
                let deferral = deferral();
                let mut pending = taken(&deferral);
                assert!(pending.reinject());
                let began = tokio::time::Instant::now();
                assert!(pending.socket().await.is_none());
                let waited = began.elapsed();
                assert!(waited >= HANDSHAKE_TIMEOUT && waited < 2 * HANDSHAKE_TIMEOUT);
                drop(pending);
                assert!(deferral.lock().waiting.is_empty());
            });
        });
    }

    #[test]
    fn once_they_are_forgotten_syns_are_neither_let_in_nor_delivered_to() {
        in_namespace(|| {
            let deferral = deferral();
            let pending = taken(&deferral);
            deferral.clear_pending();
            assert!(!pending.reinject());
            pending.refuse(ResetReason::Refused);
            taken(&deferral);
        });
    }

    #[test]
    fn a_connection_goes_to_its_question_and_is_reset_without_one() {
        in_namespace(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let deferral = deferral();
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let mut pending = taken(&deferral);
                for wanted in [true, false] {
                    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
                    let (socket, _) = listener.accept().await.unwrap();
                    deferral.deliver(AcceptedConnection { socket, open: syn().open() });
                    if wanted {
                        let given = pending.socket().await.unwrap();
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
