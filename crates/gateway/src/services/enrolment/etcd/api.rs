//! Requests to etcd, each on a connection of its own, to the first member that answers. The member
//! that answered last is asked first, so that silent ones cost time only once.

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
use super::answer::{MAX_ANSWER, RangeAnswer, StoredPermit, parse};
use crate::config::keys::private_text;
use crate::network::tls;

/// Time limit for a member's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);
/// Size limit of an error answer, in bytes.
const MAX_ERROR_ANSWER: usize = 4096;
/// Bytes of it that our error quotes.
const MAX_QUOTED_REASON: usize = 200;

/// A client of etcd. Keys and passwords are read from their files for each connection, so that they
/// may be replaced.
#[derive(Debug, Clone)]
pub(crate) struct EtcdClient {
    members: Vec<HubAddress>,
    prefix: String,
    tls: Option<EtcdTls>,
    login: Option<EtcdLogin>,
    /// The token that etcd gave for the password last. It expires.
    token: Arc<Mutex<Option<String>>>,
    /// Index of the member that answered last.
    preferred_member: Arc<AtomicUsize>,
}

/// A connection to a member, with or without TLS.
pub(super) trait MemberConnection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> MemberConnection for T {}

#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum EtcdError {
    /// No member can be reached, or answers in time.
    #[error("etcd at {member} cannot be reached: {cause}")]
    Unreachable { member: String, cause: io::Error },
    /// A member broke off its answer.
    #[error("etcd at {member}: {cause}")]
    Http { member: String, cause: hyper::Error },
    /// A member refused the request.
    #[error("etcd at {member} answers {status}: {reason}")]
    Refused { member: String, status: StatusCode, reason: String },
    /// One of our files cannot be used.
    #[error("cannot query etcd: {0}")]
    BadFile(String),
    /// The answer does not follow the API.
    #[error("etcd gives an answer that makes no sense: {0}")]
    Malformed(String),
    /// The permit was changed by another client, or exists already.
    #[error("the permit was changed by another client, or exists already")]
    Conflict,
}

/// All permits at one revision.
pub(super) struct PermitSnapshot {
    pub(super) revision: i64,
    pub(super) permits: BTreeMap<String, StoredPermit>,
}

impl EtcdClient {
    pub(crate) fn new(config: &EtcdConfig) -> Self {
        let EtcdConfig { members, prefix, tls, login } = config.clone();
        Self {
            members,
            prefix,
            tls,
            login,
            token: Arc::default(),
            preferred_member: Arc::default(),
        }
    }

    pub(crate) async fn read(&self) -> Result<PermitTexts, EtcdError> {
        let snapshot = self.snapshot().await?;
        Ok(snapshot.permits.into_iter().map(|(name, kept)| (name, kept.text)).collect())
    }

    pub(super) async fn snapshot(&self) -> Result<PermitSnapshot, EtcdError> {
        let range: RangeAnswer = self.ask("/v3/kv/range", &self.range()).await?;
        Ok(PermitSnapshot { revision: range.revision()?, permits: range.permits(&self.prefix)? })
    }

    pub(crate) async fn get(&self, name: &str) -> Result<Option<StoredPermit>, EtcdError> {
        let range: RangeAnswer =
            self.ask("/v3/kv/range", &json!({ "key": self.key(name) })).await?;
        let found: BTreeMap<String, StoredPermit> = range.permits(&self.prefix)?;
        Ok(found.into_values().next())
    }

    /// Writes a permit: in place of `before`, if that is unchanged, or as a new one.
    pub(crate) async fn put(
        &self,
        name: &str,
        before: Option<&StoredPermit>,
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
            // A key that does not exist has the creation revision 0.
            None => json!({ "key": key, "target": "CREATE", "create_revision": revision }),
        };
        let put = json!({ "request_put": { "key": key, "value": STANDARD.encode(text) } });
        let done: Done =
            self.ask("/v3/kv/txn", &json!({ "compare": [compare], "success": [put] })).await?;
        // A member may have written it and then fallen silent, before the next one was asked.
        let is_done = done.succeeded || self.get(name).await?.is_some_and(|kept| kept.text == text);
        if is_done { Ok(()) } else { Err(EtcdError::Conflict) }
    }

    /// Removes a permit. Returns `false` if there was none.
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

    /// Watches the permits from a revision on. Returns the member's name and the body of its
    /// answer.
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

    /// The range of all keys that begin with the prefix.
    fn range(&self) -> Value {
        let mut end = self.prefix.clone().into_bytes();
        // The end of a range is exclusive. The prefix is ASCII, so its last byte can be
        // incremented.
        end.last_mut().into_iter().for_each(|last| *last += 1);
        json!({ "key": STANDARD.encode(&self.prefix), "range_end": STANDARD.encode(end) })
    }

    /// The prefix of all keys of permits.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the first answer of a member. Answer types require a `header`, which etcd always
    /// sends: otherwise an empty object would count as "no".
    pub(super) async fn ask<T: for<'d> Deserialize<'d>>(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<T, EtcdError> {
        let asked = self.first_answer(|member| self.ask_member(member, path, body));
        Ok(asked.await?.1)
    }

    /// Asks the members in turn. Returns the first answer with its member, or the last failure.
    async fn first_answer<'a, T, F>(
        &'a self,
        ask: impl Fn(&'a HubAddress) -> F,
    ) -> Result<(&'a HubAddress, T), EtcdError>
    where
        F: Future<Output = Result<T, EtcdError>>,
    {
        // A silent member before the one that answers would cost each request its whole time limit.
        let first = self.preferred_member.load(Ordering::Relaxed);
        let count = self.members.len();
        let mut failure = None;
        for number in (first..count).chain(0..first) {
            let member = &self.members[number];
            match ask(member).await {
                Ok(answer) => {
                    self.preferred_member.store(number, Ordering::Relaxed);
                    return Ok((member, answer));
                }
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| EtcdError::Malformed("it has no members".to_owned())))
    }

    /// Asks one member for a complete answer.
    async fn ask_member<T: for<'d> Deserialize<'d>>(
        &self,
        member: &HubAddress,
        path: &str,
        body: &Value,
    ) -> Result<T, EtcdError> {
        let answer = self.post(member, path, body).await?;
        let text = timeout(ANSWER_TIMEOUT, collect_body(answer, MAX_ANSWER))
            .await
            .unwrap_or(Err(timed_out()));
        parse(&text.map_err(|cause| unreachable(member, cause))?)
    }

    /// Sends a request to a member and waits for the head of its answer.
    async fn post(
        &self,
        member: &HubAddress,
        path: &str,
        body: &Value,
    ) -> Result<Incoming, EtcdError> {
        let asked = timeout(ANSWER_TIMEOUT, self.post_to(member, path, body)).await;
        asked.unwrap_or_else(|_| Err(unreachable(member, timed_out())))
    }
}

/// Authentication by a token, which etcd gives for the password.
impl EtcdClient {
    /// Sends a request as the configured user, if there is one.
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
                // The token has expired, or users were changed.
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

    /// Exchanges the password for a token.
    async fn log_in(&self, member: &HubAddress, login: &EtcdLogin) -> Result<String, EtcdError> {
        #[derive(Deserialize)]
        struct Done {
            token: String,
        }
        let file = &login.password_file;
        let unfit = |why| EtcdError::BadFile(format!("{}: {why}", file.display()));
        let password = private_text(file).map_err(unfit)?;
        let body = json!({ "name": login.user, "password": password.trim() });
        let answer = self.send(member, "/v3/auth/authenticate", &body, None).await?;
        let text =
            collect_body(answer, MAX_ERROR_ANSWER).await.map_err(|e| unreachable(member, e))?;
        parse::<Done>(&text).map(|done| done.token)
    }

    fn token(&self) -> MutexGuard<'_, Option<String>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect(&self, member: &HubAddress) -> Result<Box<dyn MemberConnection>, EtcdError> {
        let unreachable = |cause| unreachable(member, cause);
        let stream = TcpStream::connect(member.as_str()).await.map_err(unreachable)?;
        let Some(EtcdTls { authorities, identity }) = &self.tls else {
            return Ok(Box::new(stream));
        };
        // The files are read for each connection, since they may have been replaced.
        let connector = tls::verifying_connector(authorities.as_deref(), identity.as_ref(), &[]);
        let connector = connector.map_err(EtcdError::BadFile)?;
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

fn timed_out() -> io::Error {
    io::ErrorKind::TimedOut.into()
}

fn unreachable(member: &HubAddress, cause: io::Error) -> EtcdError {
    EtcdError::Unreachable { member: member.as_str().to_owned(), cause }
}

async fn post(
    wire: Box<dyn MemberConnection>,
    member: &str,
    path: &str,
    body: String,
    token: Option<&str>,
) -> Result<Incoming, EtcdError> {
    let name = || member.to_owned();
    let http = |cause| EtcdError::Http { member: name(), cause };
    let (mut sender, connection) = http1::handshake(TokioIo::new(wire)).await.map_err(http)?;
    // Ends with the body of the answer, also when that is dropped.
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
    let reason = collect_body(answer.into_body(), MAX_ERROR_ANSWER).await.unwrap_or_default();
    let reason = &reason[..reason.len().min(MAX_QUOTED_REASON)];
    let reason = String::from_utf8_lossy(reason).trim().to_owned();
    Err(EtcdError::Refused { member: name(), status, reason })
}

/// Collects an answer of at most `longest` bytes.
async fn collect_body(body: Incoming, longest: usize) -> io::Result<Bytes> {
    let collected = Limited::new(body, longest).collect().await.map_err(io::Error::other)?;
    Ok(collected.to_bytes())
}
