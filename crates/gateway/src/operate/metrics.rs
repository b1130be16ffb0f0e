//! Serves Prometheus metrics, the status as JSON, and the dashboard over HTTP. Read only.
//!
//! [`server`] holds the connections, and [`access`] controls the access. The page follows `/events`
//! (server-sent events): [`live`] gets one status a second for all viewers, and sends each the changes. The
//! texts are those of the crate `control`.

mod access;
mod live;
mod page;
mod server;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, FromRequest, Query, Request as HttpRequest, State};
use axum::http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderName, LOCATION, REFERRER_POLICY, SET_COOKIE,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use config::MetricsConfig;
use control::dashboard::{ConnectionInterest, ShownConnections, ViewerQuery, hide_destinations};
use control::metrics::{OPENMETRICS, PROMETHEUS, openmetrics, prometheus};
use control::protocol::{ControlAnswer, ControlRequest};
use control::status::GatewayStatus;
use futures_util::stream;
use nix::sys::socket::{setsockopt, sockopt};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::access::MetricsAccess;
use self::live::{LiveStatus, MAX_SHOWN};
use self::server::{FollowFlag, REQUEST_TIMEOUT};
use crate::network::presence;
use crate::operate::control_socket::ControlCall;
use crate::process::clock;
use crate::process::error::RunError;

/// A reader that accepts no data for this long loses its connection.
const STALL_TIMEOUT: Duration = Duration::from_secs(15);
/// Kernel buffer for data that a reader has yet to accept, in bytes.
const SEND_BUFFER: usize = 128 << 10;
/// Size limit of a form with a token, in bytes.
const MAX_FORM: usize = 1024;

/// The metrics server; stops when dropped.
#[derive(Debug)]
pub(crate) struct MetricsServer {
    _tasks: JoinSet<()>,
}

/// Checks that a gateway could serve with these settings now, on an address that is not in use.
///
/// # Errors
/// As [`MetricsServer::start`].
pub(crate) fn check(config: &MetricsConfig) -> Result<(), RunError> {
    MetricsAccess::new(config)?;
    let address = config.listen;
    presence::try_listen(address).map(drop).map_err(|cause| RunError::Metrics { address, cause })
}

/// State shared by the handlers.
#[derive(Clone)]
struct MetricsShared {
    calls: mpsc::Sender<ControlCall>,
    live: Arc<LiveStatus>,
    access: Arc<MetricsAccess>,
}

impl MetricsServer {
    /// Serves as configured; requests the status through `calls`.
    ///
    /// # Errors
    /// The address cannot be bound, or the token cannot be used.
    pub(crate) fn start(
        config: &MetricsConfig,
        calls: mpsc::Sender<ControlCall>,
    ) -> Result<Self, RunError> {
        let access = Arc::new(MetricsAccess::new(config)?);
        let address = config.listen;
        let listener =
            listen(address, STALL_TIMEOUT).map_err(|cause| RunError::Metrics { address, cause })?;
        let at = listener.local_addr().map_err(|cause| RunError::Metrics { address, cause })?;
        tracing::info!("metrics: http://{at}/metrics, a dashboard at http://{at}/");
        let live = LiveStatus::new(clock::now(), config.hide_destinations);
        let mut tasks = JoinSet::new();
        tasks.spawn(live.clone().follow(calls.clone()));
        let router = router(MetricsShared { calls, live, access: access.clone() });
        tasks.spawn(server::serve(listener, router, access));
        Ok(Self { _tasks: tasks })
    }
}

/// Opens a listener whose connections end if the reader accepts nothing for `slowest`.
fn listen(address: SocketAddr, slowest: Duration) -> std::io::Result<TcpListener> {
    let listener = presence::listen(address)?;
    // Accepted sockets inherit both options. So the kernel ends slow readers, and no task has to watch them.
    setsockopt(&listener, sockopt::TcpUserTimeout, &(slowest.as_millis() as u32))?;
    setsockopt(&listener, sockopt::SndBuf, &SEND_BUFFER)?;
    Ok(listener)
}

fn router(shared: MetricsShared) -> Router {
    let protected = Router::new()
        .route("/metrics", get(metrics))
        .route("/status.json", get(json))
        .route("/events", get(events))
        .route("/", get(page))
        .layer(from_fn_with_state(shared.clone(), authenticate));
    Router::new()
        // Not behind the authentication: it is the way to it.
        .route("/login", post(login))
        .layer(DefaultBodyLimit::max(MAX_FORM))
        .merge(protected)
        // Layers added later run earlier: a foreign name is refused before anything is read.
        .layer(from_fn_with_state(shared.clone(), check_name))
        .layer(map_response(forbid_reuse))
        .with_state(shared)
}

async fn check_name(
    State(shared): State<MetricsShared>,
    request: HttpRequest,
    next: Next,
) -> Response {
    match shared.access.check_name(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    }
}

/// A token in the page's address.
#[derive(Deserialize)]
struct TokenQuery {
    token: Option<String>,
}

async fn authenticate(
    State(shared): State<MetricsShared>,
    Query(shown): Query<TokenQuery>,
    request: HttpRequest,
    next: Next,
) -> Response {
    let is_page = request.uri().path() == "/";
    if let (true, Some(token)) = (is_page, &shown.token) {
        return set_cookie(&shared, token);
    }
    if shared.access.is_authentic(request.headers()) {
        return next.run(request).await;
    }
    if is_page { page::login(false) } else { refuse() }
}

fn refuse() -> Response {
    let challenge = [(HeaderName::from_static("www-authenticate"), "Bearer")];
    (StatusCode::UNAUTHORIZED, challenge, "this needs the token of [metrics] token_file\n")
        .into_response()
}

/// Sets a browser's cookie for the token, and redirects it to the page without the token in its
/// address.
fn set_cookie(shared: &MetricsShared, token: &str) -> Response {
    match shared.access.cookie(token).and_then(|cookie| HeaderValue::try_from(cookie).ok()) {
        Some(cookie) => {
            let page = (LOCATION, HeaderValue::from_static("/"));
            (StatusCode::SEE_OTHER, [page, (SET_COOKIE, cookie)]).into_response()
        }
        None => page::login(true),
    }
}

async fn login(State(shared): State<MetricsShared>, request: HttpRequest) -> Response {
    match timeout(REQUEST_TIMEOUT, String::from_request(request, &shared)).await {
        // Tokens have no characters that a form escapes.
        Ok(Ok(form)) => set_cookie(&shared, form.strip_prefix("token=").unwrap_or_default().trim()),
        Ok(Err(refused)) => refused.into_response(),
        Err(_) => StatusCode::REQUEST_TIMEOUT.into_response(),
    }
}

/// Forbids caching, framing and use by other sites.
async fn forbid_reuse(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn answer(
    calls: &mpsc::Sender<ControlCall>,
    request: ControlRequest,
) -> Result<ControlAnswer, StatusCode> {
    let (call, answer) = ControlCall::new(request);
    calls.send(call).await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    answer.await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)
}

async fn ask(
    calls: &mpsc::Sender<ControlCall>,
    connections: bool,
) -> Result<GatewayStatus, StatusCode> {
    match answer(calls, ControlRequest::Status { connections }).await? {
        ControlAnswer::Status(status) => Ok(*status),
        _ => Err(StatusCode::SERVICE_UNAVAILABLE),
    }
}

async fn ask_connections(
    calls: &mpsc::Sender<ControlCall>,
    peer: ConnectionInterest,
) -> Result<ShownConnections, StatusCode> {
    match answer(calls, ControlRequest::Connections { peer, most: MAX_SHOWN }).await? {
        ControlAnswer::Connections { most_moved, total } => {
            Ok(ShownConnections { most_moved, total })
        }
        _ => Err(StatusCode::SERVICE_UNAVAILABLE),
    }
}

async fn metrics(
    State(shared): State<MetricsShared>,
    headers: HeaderMap,
) -> Result<Response, StatusCode> {
    let status = ask(&shared.calls, false).await?;
    let accounts = match answer(&shared.calls, ControlRequest::Accounts).await? {
        ControlAnswer::Accounts(accounts) => accounts,
        // Only a hub has accounts.
        _ => Vec::new(),
    };
    let text = openmetrics(status, accounts).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    let accepts = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    Ok(if accepts.contains("application/openmetrics-text") {
        ([(CONTENT_TYPE, OPENMETRICS)], text).into_response()
    } else {
        ([(CONTENT_TYPE, PROMETHEUS)], prometheus(&text)).into_response()
    })
}

async fn json(State(shared): State<MetricsShared>) -> Result<Response, StatusCode> {
    let mut status = ask(&shared.calls, true).await?;
    if shared.live.hide_destinations {
        status.connections.iter_mut().for_each(|all| hide_destinations(all));
    }
    let text = serde_json::to_string(&status).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(CONTENT_TYPE, "application/json")], text).into_response())
}

async fn events(
    State(shared): State<MetricsShared>,
    Extension(follows): Extension<FollowFlag>,
    Query(query): Query<ViewerQuery>,
) -> Response {
    let Some(viewer) = shared.live.admit(query) else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many viewers\n").into_response();
    };
    // A connection that follows events does not give way to newer ones.
    let start = (viewer, follows.hold());
    let messages = stream::unfold(start, async |(mut viewer, following)| {
        let message = viewer.next().await?;
        Some((Ok::<_, Infallible>(Event::default().data(message)), (viewer, following)))
    });
    Sse::new(messages).into_response()
}

async fn page() -> Response {
    page::dashboard()
}

#[cfg(test)]
mod tests;
