//! The page: one self-contained document. A nonce restricts it to its own style and script (content
//! security policy).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

const HTML: &str = include_str!("page/page.html");
const LOGIN: &str = include_str!("page/login.html");
const STYLE: &str = include_str!("page/page.css");
/// In order of use: helpers, graphs, the page.
const SCRIPT: [&str; 3] =
    [include_str!("page/text.js"), include_str!("page/chart.js"), include_str!("page/page.js")];

/// A document in HTML, and the policy that it is sent with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageDocument {
    /// The text.
    pub html: String,
    /// The value of the header `Content-Security-Policy`.
    pub policy: String,
}

/// The dashboard. `nonce` is new and random for each document, so that nothing can know it in advance.
pub fn dashboard_page(nonce: [u8; 18]) -> PageDocument {
    document(nonce, HTML)
}

/// The page that asks for the token; `again` after a wrong one. `nonce` as for [`dashboard_page`].
pub fn login_page(nonce: [u8; 18], again: bool) -> PageDocument {
    let message = if again { "This is not the token." } else { "" };
    document(nonce, &LOGIN.replace("{message}", message))
}

fn document(nonce: [u8; 18], html: &str) -> PageDocument {
    let nonce = URL_SAFE_NO_PAD.encode(nonce);
    let policy = format!(
        "default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; \
         connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; \
         frame-ancestors 'none'"
    );
    let html = html
        .replace("{nonce}", &nonce)
        .replace("{style}", STYLE)
        .replace("{script}", &SCRIPT.concat());
    PageDocument { html, policy }
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
    fn the_policy_permits_what_has_the_nonce_of_the_document() {
        let PageDocument { html, policy } = dashboard_page([0xff; 18]);
        let nonce = "_".repeat(24);
        assert!(policy.contains(&format!("script-src 'nonce-{nonce}'")), "{policy}");
        assert!(!policy.contains("unsafe") && policy.contains("default-src 'none'"), "{policy}");
        assert!(html.contains(&format!("<script nonce=\"{nonce}\">")));
    }
}
