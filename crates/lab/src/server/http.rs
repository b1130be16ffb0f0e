//! The HTTP server with test objects.
//!
//! | request | reply |
//! |---|---|
//! | `GET /10MB` | that many bytes, any size |
//! | `GET /10MB.sha256` | the SHA-256 of those bytes |
//! | `PUT` or `POST /upload` | the number of bytes received and their SHA-256 |
//! | `GET /` | an index |

use core::convert::Infallible;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{get, put};
use futures_util::{StreamExt, stream};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;

use super::object::{TestObject, hex};

const INDEX: &str = "\
The server of the skyhop lab.

GET  /SIZE         an object of that size: /10MB /20MB /64kB /1500B, any up to 100GB
GET  /SIZE.sha256  its SHA-256
PUT  /upload       answers with the number of bytes and their SHA-256; POST too
Port 7 echoes.
";

/// Serves requests until the task is dropped.
pub(super) async fn serve(listener: TcpListener) {
    if let Err(error) = axum::serve(listener, router()).await {
        tracing::error!("HTTP server: {error}");
    }
}

fn router() -> Router {
    Router::new()
        .route("/", get(INDEX))
        .route("/upload", put(upload).post(upload))
        .route("/{name}", get(object))
}

async fn object(Path(name): Path<String>) -> axum::response::Response {
    let (name, digest) = match name.strip_suffix(".sha256") {
        Some(name) => (name, true),
        None => (name.as_str(), false),
    };
    let Some(object) = TestObject::named(name) else {
        return (StatusCode::NOT_FOUND, format!("no object {name:?}\n\n{INDEX}")).into_response();
    };
    if digest { sha256(object).await } else { bytes(object).into_response() }
}

fn bytes(object: TestObject) -> Response<Body> {
    let chunks = object.chunks().map(Ok::<_, Infallible>);
    let mut response = Response::new(Body::from_stream(stream::iter(chunks)));
    let headers = response.headers_mut();
    // A stream has no known length: without this field it would be chunked (RFC 9112 §7.1).
    headers.insert(CONTENT_LENGTH, object.size().get().into());
    headers.insert(CONTENT_TYPE, axum::http::HeaderValue::from_static("application/octet-stream"));
    response
}

async fn sha256(object: TestObject) -> axum::response::Response {
    // On another thread than the server's only one: it takes seconds per gigabyte.
    match tokio::task::spawn_blocking(move || object.sha256()).await {
        Ok(digest) => (digest + "\n").into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn upload(body: Body) -> Result<String, (StatusCode, String)> {
    let mut body = body.into_data_stream();
    let mut digest = Sha256::new();
    let mut length = 0u64;
    while let Some(part) = body.next().await {
        let part = part.map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))?;
        digest.update(&part);
        length += part.len() as u64;
    }
    Ok(format!("{length} {}\n", hex(digest)))
}

#[cfg(test)]
mod tests;
