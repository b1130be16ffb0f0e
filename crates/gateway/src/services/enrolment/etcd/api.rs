//! Requests to etcd: one connection each, to the first member that answers.

use std::collections::BTreeMap;
use std::io;
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
use serde_json::{Value, json};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::PermitTexts;
use crate::config::keys::private_text;
use crate::hop::tls;

/// Time for a member to answer.
const PATIENCE: Duration = Duration::from_secs(4);
/// The longest answer, in bytes, and the longest line of changes.
pub(super) const LONGEST: usize = 64 << 20;
/// The longest permit, in bytes.
const LONGEST_PERMIT: usize = 64 << 10;

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

/// A permit as etcd keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) text: String,
    /// At which revision it was written.
    revision: i64,
}

/// All permits at one revision.
pub(super) struct Snapshot {
    pub(super) revision: i64,
    pub(super) permits: BTreeMap<String, Kept>,
}

#[derive(Deserialize)]
pub(super) struct Header {
    #[serde(default)]
    pub(super) revision: String,
}

#[derive(Deserialize)]
pub(super) struct KeyValue {
    #[serde(default)]
    key: String,
    #[serde(default)]
    value: String,
    #[serde(default)]
    mod_revision: String,
}

impl KeyValue {
    /// At which revision it was written or removed.
    pub(super) fn revision(&self) -> Result<i64, EtcdError> {
        number(&self.mod_revision)
    }
}

#[derive(Deserialize)]
struct Range {
    header: Header,
    #[serde(default)]
    kvs: Vec<KeyValue>,
}

impl Etcd {
    pub(crate) fn new(config: &EtcdConfig) -> Self {
        let EtcdConfig { members, prefix, tls, login } = config.clone();
        Self { members, prefix, tls, login, token: Arc::default() }
    }

    /// The permits as they are now.
    pub(crate) async fn read(&self) -> Result<PermitTexts, EtcdError> {
        let snapshot = self.snapshot().await?;
        Ok(snapshot.permits.into_iter().map(|(name, kept)| (name, kept.text)).collect())
    }

    pub(super) async fn snapshot(&self) -> Result<Snapshot, EtcdError> {
        let range: Range = self.ask("/v3/kv/range", &self.range()).await?;
        let revision = number(&range.header.revision)?;
        let permits = range.kvs.iter().filter_map(|it| self.permit(it).transpose());
        Ok(Snapshot { revision, permits: permits.collect::<Result<_, _>>()? })
    }

    /// One permit.
    pub(crate) async fn get(&self, name: &str) -> Result<Option<Kept>, EtcdError> {
        let range: Range = self.ask("/v3/kv/range", &json!({ "key": self.key(name) })).await?;
        let found = range.kvs.first().map(|it| self.permit(it)).transpose()?;
        Ok(found.flatten().map(|(_, kept)| kept))
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
        if done.succeeded { Ok(()) } else { Err(EtcdError::Changed) }
    }

    /// Removes a permit. Returns whether there was one.
    pub(crate) async fn remove(&self, name: &str) -> Result<bool, EtcdError> {
        #[derive(Deserialize)]
        struct Done {
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
        self.post("/v3/watch", &json!({ "create_request": request })).await
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

    /// The name and the text of a permit; [`None`] for what cannot be one.
    pub(super) fn permit(&self, it: &KeyValue) -> Result<Option<(String, Kept)>, EtcdError> {
        let Some(name) = self.name(it)? else { return Ok(None) };
        let text = String::from_utf8(decode(&it.value)?).unwrap_or_default();
        if text.len() > LONGEST_PERMIT {
            tracing::warn!("{}{name}: it is longer than {LONGEST_PERMIT} bytes", self.prefix);
            return Ok(None);
        }
        let revision = it.revision()?;
        Ok(Some((name, Kept { text, revision })))
    }

    /// The name of a permit, from its key.
    pub(super) fn name(&self, it: &KeyValue) -> Result<Option<String>, EtcdError> {
        let key = String::from_utf8(decode(&it.key)?).unwrap_or_default();
        let name = key.strip_prefix(&self.prefix).filter(|name| !name.is_empty());
        Ok(name.map(str::to_owned))
    }

    pub(super) async fn ask<T: for<'d> Deserialize<'d>>(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<T, EtcdError> {
        let (member, answer) = self.post(path, body).await?;
        let text = timeout(PATIENCE, whole(answer)).await.unwrap_or(Err(too_late()));
        let text = text.map_err(|cause| EtcdError::Unreachable { member, cause })?;
        serde_json::from_slice(&text).map_err(|error| EtcdError::Malformed(error.to_string()))
    }

    /// The answer of the first member that gives one, and which that was.
    async fn post(&self, path: &str, body: &Value) -> Result<(String, Incoming), EtcdError> {
        let mut failure = None;
        for member in &self.members {
            let asked = timeout(PATIENCE, self.post_to(member, path, body)).await;
            let cause =
                || EtcdError::Unreachable { member: member.as_str().to_owned(), cause: too_late() };
            match asked.unwrap_or_else(|_| Err(cause())) {
                Ok(answer) => return Ok((member.as_str().to_owned(), answer)),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| EtcdError::Malformed("it has no members".to_owned())))
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
        let unreachable =
            |cause| EtcdError::Unreachable { member: member.as_str().to_owned(), cause };
        let text = whole(answer).await.map_err(unreachable)?;
        let done = serde_json::from_slice::<Done>(&text);
        done.map(|it| it.token).map_err(|error| EtcdError::Malformed(error.to_string()))
    }

    fn token(&self) -> MutexGuard<'_, Option<String>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect(&self, member: &HubAddress) -> Result<Box<dyn Wire>, EtcdError> {
        let unreachable =
            |cause| EtcdError::Unreachable { member: member.as_str().to_owned(), cause };
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
    let reason = whole(answer.into_body()).await.unwrap_or_default();
    let reason = String::from_utf8_lossy(&reason[..reason.len().min(200)]).trim().to_owned();
    Err(EtcdError::Refused { member: name(), status, reason })
}

async fn whole(body: Incoming) -> io::Result<Bytes> {
    let collected = Limited::new(body, LONGEST).collect().await.map_err(io::Error::other)?;
    Ok(collected.to_bytes())
}

/// Numbers are strings in its JSON; 0 is left out.
pub(super) fn number(text: &str) -> Result<i64, EtcdError> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| EtcdError::Malformed(format!("{text:?} is no number")))
}

fn decode(text: &str) -> Result<Vec<u8>, EtcdError> {
    STANDARD.decode(text).map_err(|error| EtcdError::Malformed(error.to_string()))
}
