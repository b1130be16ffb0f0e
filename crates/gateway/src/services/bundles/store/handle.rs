//! The thread of a store: a slow disk delays bundles only.

use std::io;
use std::sync::mpsc::{self, Sender};
use std::thread;

use tokio::sync::oneshot;

use super::disk::BundleStore;

type StoreJob = Box<dyn FnOnce(&mut BundleStore) + Send>;

/// Submits jobs to a store's thread, which runs them in order, and ends when the last handle is
/// dropped.
#[derive(Debug, Clone)]
pub(crate) struct StoreHandle(Sender<StoreJob>);

impl StoreHandle {
    /// Starts the thread of a store.
    pub(crate) fn start(mut store: BundleStore) -> io::Result<Self> {
        let (sender, work) = mpsc::channel::<StoreJob>();
        let run = move || work.into_iter().for_each(|work| work(&mut store));
        thread::Builder::new().name("bundles".to_owned()).spawn(run)?;
        Ok(Self(sender))
    }

    /// Submits a job without waiting for it. A failure is only logged.
    pub(crate) fn submit(
        &self,
        work: impl FnOnce(&mut BundleStore) -> io::Result<()> + Send + 'static,
    ) {
        let work = move |store: &mut BundleStore| {
            if let Err(error) = work(store) {
                tracing::debug!("bundles: {error}");
            }
        };
        // Fails only if the thread has panicked.
        let _ = self.0.send(Box::new(work));
    }

    /// Runs a job and returns its result. It runs to its end even if the future is dropped.
    pub(crate) async fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut BundleStore) -> io::Result<R> + Send + 'static,
    ) -> io::Result<R> {
        let (sender, result) = oneshot::channel();
        let work = move |store: &mut BundleStore| {
            // Fails if the future was dropped.
            let _ = sender.send(work(store));
        };
        // After a panic of the thread, which nothing replaces.
        let gone = || io::Error::other("the bundle store's thread has ended");
        self.0.send(Box::new(work)).map_err(|_| gone())?;
        result.await.map_err(|_| gone())?
    }
}
