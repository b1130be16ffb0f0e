//! Follows the permits in etcd.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use pep::inbox::Inbox;
use serde::Deserialize;
use tokio::sync::watch::Sender;
use tokio::time::{sleep, timeout};

use super::PermitTexts;
use super::api::{Etcd, EtcdError, Header, KeyValue, LONGEST, number};

/// How often all permits are read, besides the changes that etcd tells: a member may vanish without a
/// word.
const LOOK: Duration = Duration::from_secs(10);
/// How long it waits after a failure.
const AGAIN: Duration = Duration::from_secs(1);

/// A line of the answer to a watch.
#[derive(Deserialize)]
struct Line {
    result: Option<Told>,
    error: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Told {
    header: Option<Header>,
    #[serde(default)]
    canceled: bool,
    #[serde(default)]
    events: Vec<Change>,
}

#[derive(Deserialize)]
struct Change {
    #[serde(default, rename = "type")]
    kind: Kind,
    kv: KeyValue,
}

#[derive(Deserialize, Default, PartialEq, Eq)]
#[serde(rename_all = "UPPERCASE")]
enum Kind {
    #[default]
    Put,
    Delete,
}

/// Says what the permits are, whenever they change, until dropped. While etcd is away nothing changes.
pub(crate) async fn follow(etcd: Etcd, to: Sender<Option<PermitTexts>>) {
    let mut away = false;
    loop {
        let failed = |error: EtcdError, away: &mut bool| {
            if !std::mem::replace(away, true) {
                tracing::warn!("{error}: the terminals stay as they are");
            }
        };
        match follow_once(&etcd, &to, &mut away).await {
            Ok(()) => {}
            Err(error) => failed(error, &mut away),
        }
        sleep(AGAIN).await;
    }
}

/// Reads all permits, then follows their changes until that fails or etcd ends it.
async fn follow_once(
    etcd: &Etcd,
    to: &Sender<Option<PermitTexts>>,
    away: &mut bool,
) -> Result<(), EtcdError> {
    let mut revision = read(etcd, to).await?;
    // Changes up to here are in what was read.
    let mut since = revision;
    if std::mem::take(away) {
        tracing::info!("etcd answers again");
    }
    let (member, changes) = etcd.watch(revision + 1).await?;
    let mut lines = Lines { member, body: changes, rest: Inbox::default(), searched: 0 };
    loop {
        match timeout(LOOK, lines.next()).await {
            Ok(line) => match line? {
                Some(line) => revision = apply(etcd, to, &line, since)?.unwrap_or(revision),
                None => return Ok(()),
            },
            // Nothing was told for a while: is that because nothing has changed?
            Err(_) => {
                let now = read(etcd, to).await?;
                if now < revision {
                    return Err(EtcdError::Malformed("its revision went back".to_owned()));
                }
                since = now;
            }
        }
    }
}

/// Reads all permits. Returns their revision.
async fn read(etcd: &Etcd, to: &Sender<Option<PermitTexts>>) -> Result<i64, EtcdError> {
    let snapshot = etcd.snapshot().await?;
    let texts: PermitTexts =
        snapshot.permits.into_iter().map(|(name, it)| (name, it.text)).collect();
    to.send_if_modified(|known| {
        let changed = known.as_ref() != Some(&texts);
        *known = Some(texts);
        changed
    });
    Ok(snapshot.revision)
}

/// Applies the changes of a line that were made after the revision `since`. Returns their revision.
fn apply(
    etcd: &Etcd,
    to: &Sender<Option<PermitTexts>>,
    line: &[u8],
    since: i64,
) -> Result<Option<i64>, EtcdError> {
    let malformed = |what: &dyn ToString| EtcdError::Malformed(what.to_string());
    let line: Line = serde_json::from_slice(line).map_err(|error| malformed(&error))?;
    let told = match (line.result, line.error) {
        (Some(told), None) => told,
        (_, error) => return Err(malformed(&format!("{error:?}"))),
    };
    if told.canceled {
        // What it is to begin with has been compacted away.
        return Err(malformed(&"it ends the watch"));
    }
    let mut changes = Vec::new();
    for change in &told.events {
        if change.kv.revision()? <= since {
            continue;
        }
        let permit = match change.kind {
            Kind::Put => etcd.permit(&change.kv)?.map(|(name, kept)| (name, Some(kept.text))),
            Kind::Delete => etcd.name(&change.kv)?.map(|name| (name, None)),
        };
        changes.extend(permit);
    }
    to.send_if_modified(|known| {
        let known = known.get_or_insert_default();
        for (name, text) in &changes {
            match text {
                Some(text) => drop(known.insert(name.clone(), text.clone())),
                None => drop(known.remove(name)),
            }
        }
        !changes.is_empty()
    });
    told.header.map(|header| number(&header.revision)).transpose()
}

/// The lines of an answer that goes on.
struct Lines {
    member: String,
    body: Incoming,
    rest: Inbox,
    /// How much of `rest` holds no end of a line.
    searched: usize,
}

impl Lines {
    /// The next line; [`None`] at the end. Cancel-safe.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, EtcdError> {
        loop {
            let mut unsearched = self.rest.unused()[self.searched..].iter();
            if let Some(at) = unsearched.position(|byte| *byte == b'\n') {
                let end = std::mem::take(&mut self.searched) + at;
                let line = self.rest.unused()[..end].to_vec();
                self.rest.consume(end + 1);
                return Ok(Some(line));
            }
            self.searched = self.rest.len();
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let member = || self.member.clone();
            let frame = frame.map_err(|cause| EtcdError::Http { member: member(), cause })?;
            self.rest.push(frame.data_ref().map_or(&[], |data| data));
            if self.rest.len() > LONGEST {
                return Err(EtcdError::Malformed("a line is far too long".to_owned()));
            }
        }
    }
}
