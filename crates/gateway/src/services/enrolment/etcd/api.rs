//! Requests to etcd: one connection each, to the first member that answers. The one that answered last is asked
//! first, so that members that are silent take time once.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use config::{EtcdConfig, EtcdLogin, EtcdTls, HubAddress};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::PermitTexts;
use super::answer::{Kept, LONGEST, Range, parse};
use crate::config::keys::private_text;
use crate::hop::tls;

/// Time for a member to answer.
const PATIENCE: Duration = Duration::from_secs(4);
/// The longest answer that says why a member refuses, in bytes, and how much of it is told.
const LONGEST_REASON: usize = 4096;
const SHOWN_REASON: usize = 200;

/// A client of etcd. Files with keys and passwords are read for each connection, so that they may be
/// replaced.
#[derive(Debug, Clone)]
pub(crate) struct Etcd {
    members: Vec<HubAddress>,
    prefix: String,
    tls: Option<EtcdTls>,
    login: Option<EtcdLogin>,
    /// What etcd has given for the password last. It expires.
    token: Arc<Mutex<Option<String>>>,
    /// The member that answered last.
    first: Arc<AtomicUsize>,
}

/// A connection to a member.
pub(super) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// Why etcd has not done what was asked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum EtcdError {
    /// No member can be reached, or answers in time.
    #[error("etcd at {member} cannot be reached: {cause}")]
    Unreachable { member: String, cause: io::Error },
    /// A member breaks off.
    #[error("etcd at {member}: {cause}")]
    Http { member: String, cause: hyper::Error },
    /// It refuses.
    #[error("etcd at {member} answers {status}: {reason}")]
    Refused { member: String, status: StatusCode, reason: String },
    /// A file of ours is of no use.
    #[error("etcd cannot be asked: {0}")]
    Unequipped(String),
    /// Its answer is not what its API says.
    #[error("etcd gives an answer that makes no sense: {0}")]
    Malformed(String),
    /// The permit has changed meanwhile, or exists already.
    #[error("the permit has changed meanwhile, or there is one already")]
    Changed,
}

/// All permits at one revision.
pub(super) struct Snapshot {
    pub(super) revision: i64,
    pub(super) permits: BTreeMap<String, Kept>,
}

impl Etcd {
    pub(crate) fn new(config: &EtcdConfig) -> Self {
        let EtcdConfig { members, prefix, tls, login } = config.clone();
        Self { members, prefix, tls, login, token: Arc::default(), first: Arc::default() }
    }

    /// The permits as they are now.
    pub(crate) async fn read(&self) -> Result<PermitTexts, EtcdError> {
        let snapshot = self.snapshot().await?;
        Ok(snapshot.permits.into_iter().map(|(name, kept)| (name, kept.text)).collect())
    }

    pub(super) async fn snapshot(&self) -> Result<Snapshot, EtcdError> {
        let range: Range = self.ask("/v3/kv/range", &self.range()).await?;
        Ok(Snapshot { revision: range.revision()?, permits: range.permits(&self.prefix)? })
    }

    /// One permit.
    pub(crate) async fn get(&self, name: &str) -> Result<Option<Kept>, EtcdError> {
        let range: Range = self.ask("/v3/kv/range", &json!({ "key": self.key(name) })).await?;
        let found: BTreeMap<String, Kept> = range.permits(&self.prefix)?;
        Ok(found.into_values().next())
    }

    /// Writes a permit in place of the one that was read, or a new one.
    pub(crate) async fn put(
        &self,
        name: &str,
        before: Option<&Kept>,
        text: &str,
    ) -> Result<(), EtcdError> {
        #[derive(Deserialize)]
        struct Done {
            #[serde(rename = "header")]
            _header: IgnoredAny,
            #[serde(default)]
            succeeded: bool,
        }
        let key = self.key(name);
        let revision = before.map_or(0, |kept| kept.revision).to_string();
        let compare = match before {
            Some(_) => json!({ "key": key, "target": "MOD", "mod_revision": revision }),
            None => json!({ "key": key, "target": "CREATE", "create_revision": revision }),
        };
        let put = json!({ "request_put": { "key": key, "value": STANDARD.encode(text) } });
        let done: Done =
            self.ask("/v3/kv/txn", &json!({ "compare": [compare], "success": [put] })).await?;
        // A member that fell silent may have done it, before the next one was asked.
        let is_done = done.succeeded || self.get(name).await?.is_some_and(|kept| kept.text == text);
        if is_done { Ok(()) } else { Err(EtcdError::Changed) }
    }

    /// Removes a permit. Returns whether there was one.
    pub(crate) async fn remove(&self, name: &str) -> Result<bool, EtcdError> {
        #[derive(Deserialize)]
        struct Done {
            #[serde(rename = "header")]
            _header: IgnoredAny,
            #[serde(default)]
            deleted: String,
        }
        let done: Done = self.ask("/v3/kv/deleterange", &json!({ "key": self.key(name) })).await?;
        Ok(!done.deleted.is_empty() && done.deleted != "0")
    }

    /// Changes of permits from a revision on.
    pub(super) async fn watch(&self, from: i64) -> Result<(String, Incoming), EtcdError> {
        let mut request = self.range();
        request["start_revision"] = json!(from.to_string());
        let request = json!({ "create_request": request });
        let watched = self.first_answer(|member| self.post(member, "/v3/watch", &request));
        let (member, answer) = watched.await?;
        Ok((member.as_str().to_owned(), answer))
    }

    fn key(&self, name: &str) -> String {
        STANDARD.encode(format!("{}{name}", self.prefix))
    }

    /// All keys that begin with the prefix.
    fn range(&self) -> Value {
        let mut end = self.prefix.clone().into_bytes();
        // The last byte is ASCII, and not the highest one.
        end.last_mut().into_iter().for_each(|last| *last += 1);
        json!({ "key": STANDARD.encode(&self.prefix), "range_end": STANDARD.encode(end) })
    }

    /// The beginning of all keys of permits.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The answer of the first member that gives one. Types of answers demand a `header`, which etcd never leaves
    /// out: without it what is left out would count as "no".
    pub(super) async fn ask<T: for<'d> Deserialize<'d>>(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<T, EtcdError> {
        let asked = self.first_answer(|member| self.ask_member(member, path, body));
        Ok(asked.await?.1)
    }

    /// The answer of the first member that gives one, and which that is. The failure of the last one if none
    /// does.
    async fn first_answer<'a, T, F>(
        &'a self,
        ask: impl Fn(&'a HubAddress) -> F,
    ) -> Result<(&'a HubAddress, T), EtcdError>
    where
        F: Future<Output = Result<T, EtcdError>>,
    {
        let (first, count) = (self.first.load(Ordering::Relaxed), self.members.len());
        let mut failure = None;
        for number in (first..count).chain(0..first) {
            let member = &self.members[number];
            match ask(member).await {
                Ok(answer) => {
                    self.first.store(number, Ordering::Relaxed);
                    return Ok((member, answer));
                }
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| EtcdError::Malformed("it has no members".to_owned())))
    }

    /// A member's whole answer.
    async fn ask_member<T: for<'d> Deserialize<'d>>(
        &self,
        member: &HubAddress,
        path: &str,
        body: &Value,
    ) -> Result<T, EtcdError> {
        let answer = self.post(member, path, body).await?;
        let text = timeout(PATIENCE, whole(answer, LONGEST)).await.unwrap_or(Err(too_late()));
        parse(&text.map_err(|cause| unreachable(member, cause))?)
    }

    /// The beginning of a member's answer.
    async fn post(
        &self,
        member: &HubAddress,
        path: &str,
        body: &Value,
    ) -> Result<Incoming, EtcdError> {
        let asked = timeout(PATIENCE, self.post_to(member, path, body)).await;
        asked.unwrap_or_else(|_| Err(unreachable(member, too_late())))
    }
}

/// Logging in.
impl Etcd {
    /// Asks a member as the user, if there is one.
    async fn post_to(
        &self,
        member: &HubAddress,
        path: &str,
        body: &Value,
    ) -> Result<Incoming, EtcdError> {
        let Some(login) = &self.login else { return self.send(member, path, body, None).await };
        let known = self.token().clone();
        if let Some(token) = known {
            match self.send(member, path, body, Some(&token)).await {
                // It has expired, or users have changed since.
                Err(EtcdError::Refused { status, .. }) if status.is_client_error() => {
                    *self.token() = None;
                }
                answer => return answer,
            }
        }
        let token = self.log_in(member, login).await?;
        let answer = self.send(member, path, body, Some(&token)).await;
        *self.token() = Some(token);
        answer
    }

    /// A token for the user's password.
    async fn log_in(&self, member: &HubAddress, login: &EtcdLogin) -> Result<String, EtcdError> {
        #[derive(Deserialize)]
        struct Done {
            token: String,
        }
        let file = &login.password_file;
        let unfit = |why| EtcdError::Unequipped(format!("{}: {why}", file.display()));
        let password = private_text(file).map_err(unfit)?;
        let body = json!({ "name": login.user, "password": password.trim() });
        let answer = self.send(member, "/v3/auth/authenticate", &body, None).await?;
        let text = whole(answer, LONGEST_REASON).await.map_err(|e| unreachable(member, e))?;
        parse::<Done>(&text).map(|done| done.token)
    }

    fn token(&self) -> MutexGuard<'_, Option<String>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect(&self, member: &HubAddress) -> Result<Box<dyn Wire>, EtcdError> {
        let unreachable = |cause| unreachable(member, cause);
        let stream = TcpStream::connect(member.as_str()).await.map_err(unreachable)?;
        let Some(EtcdTls { authorities, identity }) = &self.tls else {
            return Ok(Box::new(stream));
        };
        let connector = tls::verifying(authorities.as_deref(), identity.as_ref(), &[]);
        let connector = connector.map_err(EtcdError::Unequipped)?;
        let name = tls::server_name(member.host()).map_err(unreachable)?;
        Ok(Box::new(connector.connect(name, stream).await.map_err(unreachable)?))
    }

    async fn send(
        &self,
        member: &HubAddress,
        path: &str,
        body: &Value,
        token: Option<&str>,
    ) -> Result<Incoming, EtcdError> {
        let wire = self.connect(member).await?;
        post(wire, member.as_str(), path, body.to_string(), token).await
    }
}

fn too_late() -> io::Error {
    io::ErrorKind::TimedOut.into()
}

fn unreachable(member: &HubAddress, cause: io::Error) -> EtcdError {
    EtcdError::Unreachable { member: member.as_str().to_owned(), cause }
}

async fn post(
    wire: Box<dyn Wire>,
    member: &str,
    path: &str,
    body: String,
    token: Option<&str>,
) -> Result<Incoming, EtcdError> {
    let name = || member.to_owned();
    let http = |cause| EtcdError::Http { member: name(), cause };
    let (mut sender, connection) = http1::handshake(TokioIo::new(wire)).await.map_err(http)?;
    // Ends with the answer's body, or when that is dropped.
    tokio::spawn(connection);
    let mut request =
        Request::post(path).header("Host", member).header("Content-Type", "application/json");
    if let Some(token) = token {
        request = request.header("Authorization", token);
    }
    let request = request
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| EtcdError::Malformed(error.to_string()))?;
    let answer = sender.send_request(request).await.map_err(http)?;
    let status = answer.status();
    if status.is_success() {
        return Ok(answer.into_body());
    }
    let reason = whole(answer.into_body(), LONGEST_REASON).await.unwrap_or_default();
    let reason = &reason[..reason.len().min(SHOWN_REASON)];
    let reason = String::from_utf8_lossy(reason).trim().to_owned();
    Err(EtcdError::Refused { member: name(), status, reason })
}

/// An answer of at most so many bytes.
async fn whole(body: Incoming, longest: usize) -> io::Result<Bytes> {
    let collected = Limited::new(body, longest).collect().await.map_err(io::Error::other)?;
    Ok(collected.to_bytes())
}
