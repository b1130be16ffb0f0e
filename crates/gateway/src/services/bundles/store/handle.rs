//! The thread of a store: a slow disk delays bundles, and nothing else.

use std::io;
use std::sync::mpsc::{self, Sender};
use std::thread;

use tokio::sync::oneshot;

use super::disk::Store;

type Work = Box<dyn FnOnce(&mut Store) + Send>;

/// Hands work to a store's thread, which does one after the other, and ends when the last handle is
/// dropped.
#[derive(Debug, Clone)]
pub(crate) struct StoreHandle(Sender<Work>);

impl StoreHandle {
    /// Starts the thread of a store.
    pub(crate) fn start(mut store: Store) -> io::Result<Self> {
        let (sender, work) = mpsc::channel::<Work>();
        let run = move || work.into_iter().for_each(|work| work(&mut store));
        thread::Builder::new().name("bundles".to_owned()).spawn(run)?;
        Ok(Self(sender))
    }

    /// Does something with the store, some time.
    pub(crate) fn tell(&self, work: impl FnOnce(&mut Store) -> io::Result<()> + Send + 'static) {
        let work = move |store: &mut Store| {
            if let Err(error) = work(store) {
                tracing::debug!("bundles: {error}");
            }
        };
        // Without its thread, the store does nothing any more.
        let _ = self.0.send(Box::new(work));
    }

    /// Does something with the store. It is done even if nobody waits for the result any more.
    pub(crate) async fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Store) -> io::Result<R> + Send + 'static,
    ) -> io::Result<R> {
        let (sender, result) = oneshot::channel();
        let work = move |store: &mut Store| {
            // Whoever waited may have gone.
            let _ = sender.send(work(store));
        };
        let gone = || io::Error::other("the thread of the store has ended");
        self.0.send(Box::new(work)).map_err(|_| gone())?;
        result.await.map_err(|_| gone())?
    }
}
