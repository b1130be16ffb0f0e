//! The dashboard: one self-contained document. A nonce restricts it to its own style and script
//! (content security policy).

use axum::http::StatusCode;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::config::keys::random_bytes;

const HTML: &str = include_str!("page/page.html");
const LOGIN: &str = include_str!("page/login.html");
const STYLE: &str = include_str!("page/page.css");
/// In order of use: helpers, graphs, the page.
const SCRIPT: [&str; 3] =
    [include_str!("page/text.js"), include_str!("page/chart.js"), include_str!("page/page.js")];

pub(super) fn dashboard() -> Response {
    document(StatusCode::OK, HTML)
}

/// The page that asks for the token; `again` after a wrong one.
pub(super) fn login(again: bool) -> Response {
    let message = if again { "This is not the token." } else { "" };
    document(StatusCode::UNAUTHORIZED, &LOGIN.replace("{message}", message))
}

fn document(status: StatusCode, html: &str) -> Response {
    let Ok(random) = random_bytes() else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    // A new one for each document, so that nothing can know it in advance: 144 bits in 24 characters.
    let nonce = URL_SAFE_NO_PAD.encode(&random[..18]);
    let policy = format!(
        "default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; \
         connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; \
         frame-ancestors 'none'"
    );
    let text = html
        .replace("{nonce}", &nonce)
        .replace("{style}", STYLE)
        .replace("{script}", &SCRIPT.concat());
    let kind = (CONTENT_TYPE, "text/html; charset=utf-8".to_owned());
    (status, [kind, (CONTENT_SECURITY_POLICY, policy)], text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        for part in [HTML, LOGIN, STYLE].into_iter().chain(SCRIPT) {
            // The name of SVG's namespace is no address that is fetched.
            let part = part.replace("http://www.w3.org/2000/svg", "");
            assert!(!part.contains("http:") && !part.contains("https:") && !part.contains("url("));
        }
    }

    /// Names come from peers: they are put in as text only. The policy forbids inline handlers.
    #[test]
    fn the_script_writes_no_html() {
        for part in SCRIPT {
            for way in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
                assert!(!part.contains(way), "{way}");
            }
        }
        for part in [HTML, LOGIN] {
            assert!(!part.contains(" onclick") && !part.contains("style=\""));
        }
    }

    #[test]
    fn each_document_has_a_nonce_of_its_own() {
        let policy = || {
            let response = dashboard();
            let text = response.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned();
            assert!(!text.contains("unsafe") && text.contains("default-src 'none'"), "{text}");
            text
        };
        assert_ne!(policy(), policy());
    }
}
