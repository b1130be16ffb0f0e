//! Follows changes of the permits in etcd.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::watch::Sender;
use tokio::time::{Instant, sleep, timeout_at};

use super::PermitTexts;
use super::answer::{LineSplitter, PermitChanges};
use super::api::{EtcdClient, EtcdError};

/// Interval of reading all permits, besides following changes: a member may vanish silently, or
/// send noise for ever.
const READ_INTERVAL: Duration = Duration::from_secs(10);
/// Pause after a failure, before etcd is asked again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Publishes the permits whenever they change, until dropped. While etcd is unreachable the last
/// ones stay.
pub(crate) async fn follow(etcd: EtcdClient, to: Sender<Option<PermitTexts>>) {
    follow_with_interval(etcd, to, READ_INTERVAL).await;
}

/// As `follow`, with the interval `every` between complete reads.
pub(super) async fn follow_with_interval(
    etcd: EtcdClient,
    to: Sender<Option<PermitTexts>>,
    every: Duration,
) {
    let mut away = false;
    loop {
        // Logged once, until etcd answers again.
        if let Err(error) = follow_once(&etcd, &to, every, &mut away).await
            && !std::mem::replace(&mut away, true)
        {
            tracing::warn!("{error}: the terminals stay as they are");
        }
        sleep(RETRY_PAUSE).await;
    }
}

/// Reads all permits, then follows changes until that fails or the watch ends.
async fn follow_once(
    etcd: &EtcdClient,
    to: &Sender<Option<PermitTexts>>,
    every: Duration,
    away: &mut bool,
) -> Result<(), EtcdError> {
    let mut revision = read(etcd, to).await?;
    // The watch also reports changes that a later complete read has covered.
    let mut since = revision;
    if std::mem::take(away) {
        tracing::info!("etcd answers again");
    }
    let (member, body) = etcd.watch(revision + 1).await?;
    let mut watch = WatchBody { member, body, lines: LineSplitter::default() };
    let mut next_read = Instant::now() + every;
    loop {
        match timeout_at(next_read, watch.next()).await {
            Ok(line) => match line? {
                Some(line) => revision = apply(etcd, to, &line, since)?.unwrap_or(revision),
                None => return Ok(()),
            },
            Err(_) => {
                let now = read(etcd, to).await?;
                // Revisions only grow: this is another store, or an older state of it.
                if now < revision {
                    return Err(EtcdError::Malformed("its revision went back".to_owned()));
                }
                since = now;
                next_read = Instant::now() + every;
            }
        }
    }
}

/// Reads and publishes all permits. Returns their revision.
async fn read(etcd: &EtcdClient, to: &Sender<Option<PermitTexts>>) -> Result<i64, EtcdError> {
    let snapshot = etcd.snapshot().await?;
    let texts: PermitTexts =
        snapshot.permits.into_iter().map(|(name, stored)| (name, stored.text)).collect();
    to.send_if_modified(|known| {
        let changed = known.as_ref() != Some(&texts);
        *known = Some(texts);
        changed
    });
    Ok(snapshot.revision)
}

/// Publishes the changes of a line after the revision `since`. Returns their revision.
fn apply(
    etcd: &EtcdClient,
    to: &Sender<Option<PermitTexts>>,
    line: &[u8],
    since: i64,
) -> Result<Option<i64>, EtcdError> {
    let PermitChanges { permits, revision } = PermitChanges::read(line, etcd.prefix(), since)?;
    to.send_if_modified(|known| {
        let known = known.get_or_insert_default();
        let is_changed = !permits.is_empty();
        for (name, text) in permits {
            match text {
                Some(text) => drop(known.insert(name, text)),
                None => drop(known.remove(&name)),
            }
        }
        is_changed
    });
    Ok(revision)
}

/// The body of a watch.
struct WatchBody {
    member: String,
    body: Incoming,
    lines: LineSplitter,
}

impl WatchBody {
    /// Returns the next line; [`None`] at the end. Cancel-safe.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, EtcdError> {
        loop {
            if let Some(line) = self.lines.next() {
                return Ok(Some(line));
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let member = || self.member.clone();
            let frame = frame.map_err(|cause| EtcdError::Http { member: member(), cause })?;
            self.lines.push(frame.data_ref().map_or(&[], |data| data))?;
        }
    }
}
