//! Access control: by client address, by token, and by the host name in the request.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use axum::http::header::{AUTHORIZATION, COOKIE, HOST};
use axum::http::{HeaderMap, StatusCode};
use config::MetricsConfig;
use pep::traffic::Prefix;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::config::keys::private_text;
use crate::process::error::RunError;

/// Length of a token. Its characters need no quoting in a URL, a form or a cookie.
const TOKEN_BYTES: std::ops::RangeInclusive<usize> = 16..=128;

/// Decides on the admission of requests.
#[derive(Debug)]
pub(super) struct MetricsAccess {
    token: Option<AccessToken>,
    allow: Vec<Prefix>,
    hosts: Vec<String>,
    /// Name of the cookie: with the port, since cookies do not tell ports apart, and a machine may
    /// run several gateways.
    cookie: String,
}

/// A secret that every request must carry. Never printed by `{:?}`.
struct AccessToken(Zeroizing<String>);

impl std::fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

impl MetricsAccess {
    /// # Errors
    /// The token file cannot be read, is open to others, or holds no token.
    pub(super) fn new(config: &MetricsConfig) -> Result<Self, RunError> {
        let read = |path: &Path| {
            let failed = |why| RunError::MetricsToken { path: path.to_owned(), why };
            AccessToken::read(path).map_err(failed)
        };
        Ok(Self {
            token: config.token_file.as_deref().map(read).transpose()?,
            allow: config.allow.clone(),
            hosts: config.hosts.clone(),
            cookie: format!("skyhop-{}", config.listen.port()),
        })
    }

    /// Returns `true` if this client may connect.
    pub(super) fn admits(&self, client: SocketAddr) -> bool {
        let client = client.ip().to_canonical();
        let listed = self.allow.is_empty() || self.allow.iter().any(|net| net.contains(client));
        // `allow` is about other machines.
        listed || client.is_loopback()
    }

    /// Checks the host name in a request, against DNS rebinding.
    ///
    /// # Errors
    /// Status and text of the refusal.
    pub(super) fn check_name(&self, headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
        // With a token, a page of another name has no cookie of ours, which protects by itself.
        if self.token.is_none() && !self.is_ours(host(headers)) {
            let why = "this name is not in [metrics] hosts; use the address, or add the name\n";
            return Err((StatusCode::MISDIRECTED_REQUEST, why));
        }
        Ok(())
    }

    /// Returns `true` if the request carries the token, or none is needed.
    pub(super) fn is_authentic(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else { return true };
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let bearer = text(AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
        // A browser sends the cookies of all services of this machine.
        let mut cookies = text(COOKIE).into_iter().flat_map(|all| all.split(';'));
        let cookie =
            cookies.find_map(|each| each.trim().strip_prefix(&*self.cookie)?.strip_prefix('='));
        [bearer, cookie].into_iter().flatten().any(|shown| token.is(shown))
    }

    /// The cookie for a browser that presents this token; `None` if it is wrong.
    pub(super) fn cookie(&self, shown: &str) -> Option<String> {
        let is_token = self.token.as_ref().is_some_and(|token| token.is(shown));
        let Self { cookie, .. } = self;
        // For 30 days; neither scripts nor requests from other sites have it.
        is_token.then(|| {
            format!("{cookie}={shown}; Path=/; HttpOnly; SameSite=Strict; Max-Age=2592000")
        })
    }

    /// Returns `true` if the host in a request can only mean this machine. An address does; a name
    /// may belong to an attacker who lets it point here (DNS rebinding).
    fn is_ours(&self, host: Option<&str>) -> bool {
        // No browser omits it, and the danger comes through browsers only.
        let Some(host) = host else { return true };
        let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((address, _)) => address,
            None => host.split(':').next().unwrap_or_default(),
        };
        let name = name.to_ascii_lowercase();
        name.parse::<IpAddr>().is_ok() || name == "localhost" || self.hosts.contains(&name)
    }
}

/// The requested host; `None` if the request does not say.
fn host(headers: &HeaderMap) -> Option<&str> {
    headers.get(HOST).map(|value| value.to_str().unwrap_or_default())
}

impl AccessToken {
    fn read(path: &Path) -> Result<Self, String> {
        let text = private_text(path).map_err(|why| why.to_string())?;
        let token = text.trim();
        let plain = token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        if !plain || !TOKEN_BYTES.contains(&token.len()) {
            let expected = "it holds no token: expected 16 to 128 letters, digits, - or _, such as \
                            `openssl rand -hex 16` writes";
            return Err(expected.to_owned());
        }
        Ok(Self(Zeroizing::new(token.to_owned())))
    }

    fn is(&self, shown: &str) -> bool {
        // In constant time, so that the duration reveals nothing about the token.
        self.0.as_bytes().ct_eq(shown.as_bytes()).into()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const TOKEN: &str = "0123456789abcdef_-";

    fn config() -> MetricsConfig {
        MetricsConfig {
            listen: "127.0.0.1:9590".parse().unwrap(),
            token_file: None,
            allow: Vec::new(),
            hosts: Vec::new(),
            hide_destinations: false,
        }
    }

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            (name.parse::<axum::http::HeaderName>().unwrap(), value.parse().unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    fn with_token(text: &str) -> Result<MetricsAccess, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let token_file = Some(file.path().to_owned());
        MetricsAccess::new(&MetricsConfig { token_file, ..config() })
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_page_of_a_foreign_name_cannot_read_through_a_browser() {
        let access =
            MetricsAccess::new(&MetricsConfig { hosts: vec!["hub.lan".to_owned()], ..config() });
        let access = access.unwrap();
        for (host, served) in [
            ("localhost:9590", true),
            ("LocalHost", true),
            ("127.0.0.1:9590", true),
            ("[::1]:9590", true),
            ("192.0.2.7", true),
            ("hub.lan:9590", true),
            ("HUB.lan", true),
            ("evil.example", false),
            ("hub.lan.evil.example:9590", false),
            ("127.0.0.1.evil.example", false),
            ("[::1.evil]:9590", false),
            ("", false),
        ] {
            let checked = access.check_name(&headers(&[("host", host)]));
            assert_eq!(checked.is_ok(), served, "{host}: {checked:?}");
        }
        assert!(access.check_name(&headers(&[])).is_ok(), "no browser omits it");
    }

    #[test]
    fn only_listed_clients_and_this_machine_are_served() {
        let allow = vec!["10.0.0.0/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
        let access = MetricsAccess::new(&MetricsConfig { allow, ..config() }).unwrap();
        for (client, served) in [
            ("10.1.2.3:9", true),
            ("[::ffff:10.1.2.3]:9", true),
            ("[2001:db8::9]:9", true),
            ("127.0.0.1:9", true),
            ("[::1]:9", true),
            ("192.0.2.1:9", false),
            ("[2001:db9::1]:9", false),
            ("[::ffff:192.0.2.1]:9", false),
        ] {
            assert_eq!(access.admits(client.parse().unwrap()), served, "{client}");
        }
    }

    #[test]
    fn every_request_needs_the_token() {
        let access = with_token(&format!("{TOKEN}\n")).unwrap();
        let cookie = format!("other=1; skyhop-9590={TOKEN}");
        let bearer = format!("Bearer {TOKEN}");
        for (shown, good) in [
            (&[("authorization", &*bearer)][..], true),
            (&[("cookie", &*cookie)], true),
            (&[("authorization", "Bearer wrong"), ("cookie", &*cookie)], true),
            (&[("authorization", TOKEN)], false),
            (&[("authorization", "Bearer 0123456789abcdef_")], false),
            (&[("cookie", "skyhop-9590=")], false),
            (&[("cookie", "skyhop-1=0123456789abcdef_-")], false),
            (&[], false),
        ] {
            assert_eq!(access.is_authentic(&headers(shown)), good, "{shown:?}");
        }
        let given = access.cookie(TOKEN).unwrap();
        assert!(given.contains("HttpOnly") && given.contains("SameSite=Strict"), "{given}");
        assert_eq!(access.cookie("wrong"), None);
        assert!(!format!("{access:?}").contains(TOKEN));
        // The token protects whatever the name, which a proxy before us may have changed.
        let named = headers(&[("host", "page.example")]);
        assert!(access.check_name(&named).is_ok());
        let open = MetricsAccess::new(&config()).unwrap();
        assert!(open.is_authentic(&headers(&[])) && open.cookie("").is_none());
    }

    #[test]
    fn a_token_that_others_can_read_or_guess_is_refused() {
        for (text, told) in
            [("short", "16 to 128"), ("", "openssl"), ("has spaces in the text", "no token")]
        {
            let error = with_token(text).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), TOKEN).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o644)).unwrap();
        let token_file = Some(file.path().to_owned());
        let error =
            MetricsAccess::new(&MetricsConfig { token_file, ..config() }).unwrap_err().to_string();
        assert!(error.contains("metrics.token_file") && error.contains("chmod 600"), "{error}");
        let token_file = Some("/nonexistent/token".into());
        let error =
            MetricsAccess::new(&MetricsConfig { token_file, ..config() }).unwrap_err().to_string();
        assert!(error.contains("cannot read"), "{error}");
    }
}
