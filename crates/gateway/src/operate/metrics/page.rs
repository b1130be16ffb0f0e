//! Sends the documents of the dashboard.

use axum::http::StatusCode;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use control::dashboard::{PageDocument, dashboard_page, login_page};

use crate::config::keys::random_bytes;

pub(super) fn dashboard() -> Response {
    respond(StatusCode::OK, dashboard_page)
}

/// The page that asks for the token; `again` after a wrong one.
pub(super) fn login(again: bool) -> Response {
    respond(StatusCode::UNAUTHORIZED, |nonce| login_page(nonce, again))
}

fn respond(status: StatusCode, document: impl FnOnce([u8; 18]) -> PageDocument) -> Response {
    let Some(nonce) = random_bytes().ok().and_then(|bytes| bytes.first_chunk().copied()) else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let PageDocument { html, policy } = document(nonce);
    let kind = (CONTENT_TYPE, "text/html; charset=utf-8".to_owned());
    (status, [kind, (CONTENT_SECURITY_POLICY, policy)], html).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_document_has_a_nonce_of_its_own() {
        let policy = || dashboard().headers()[CONTENT_SECURITY_POLICY].to_owned();
        assert_ne!(policy(), policy());
    }
}
