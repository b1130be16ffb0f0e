//! Join tokens: one line of text that an operator gives to a new terminal, secret until used.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use config::{HubAddress, TcpAddress};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::config::keys::{PrivateKey, format_public_key, parse_public_key};
use crate::config::pair::HubContact;

/// Prefix by which people and programs recognise a token.
const PREFIX: &str = "skyhop-join-";
/// Limit of a token's length, in characters.
const MAX_TOKEN: usize = 8192;
/// Limit of hubs in a token.
const MAX_HUBS: usize = 8;

/// An invitation as the terminal gets it.
#[derive(Debug, Clone)]
pub struct JoinToken {
    /// Name that the operator gave the terminal.
    pub name: String,
    /// Its hubs, at least one.
    pub hubs: Vec<HubContact>,
    /// Private key of the invitation.
    pub secret: PrivateKey,
}

/// The text is not a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("expected a token, as `skyhop enrol invite` prints: one line that begins with `{PREFIX}`")]
pub struct TokenError;

#[derive(Serialize, Deserialize)]
struct TokenContents {
    name: String,
    secret: String,
    hubs: Vec<TokenHub>,
}

#[derive(Serialize, Deserialize)]
struct TokenHub {
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp: Option<String>,
    key: String,
}

impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hub = |hub: &HubContact| TokenHub {
            address: hub.address.as_str().to_owned(),
            tcp: hub.tcp.as_ref().map(ToString::to_string),
            key: format_public_key(&hub.key),
        };
        let written = TokenContents {
            name: self.name.clone(),
            secret: self.secret.to_base64().to_string(),
            hubs: self.hubs.iter().map(hub).collect(),
        };
        let json = serde_json::to_vec(&written).map_err(|_| fmt::Error)?;
        write!(f, "{PREFIX}{}", URL_SAFE_NO_PAD.encode(json))
    }
}

impl FromStr for JoinToken {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        // Copied text may have white space around it.
        let body = text.trim().strip_prefix(PREFIX).filter(|body| body.len() <= MAX_TOKEN);
        let json = URL_SAFE_NO_PAD.decode(body.ok_or(TokenError)?).map_err(|_| TokenError)?;
        let written: TokenContents = serde_json::from_slice(&json).map_err(|_| TokenError)?;
        let hub = |hub: &TokenHub| {
            let address = hub.address.parse::<HubAddress>().map_err(|_| TokenError)?;
            let tcp = hub.tcp.as_deref().map(str::parse::<TcpAddress>).transpose();
            Ok(HubContact {
                address,
                tcp: tcp.map_err(|_| TokenError)?,
                key: parse_public_key(&hub.key).map_err(|_| TokenError)?,
            })
        };
        let hubs: Vec<HubContact> = written.hubs.iter().map(hub).collect::<Result<_, _>>()?;
        if hubs.is_empty() || hubs.len() > MAX_HUBS {
            return Err(TokenError);
        }
        let secret = PrivateKey::parse(&written.secret).map_err(|_| TokenError)?;
        Ok(Self { name: written.name, hubs, secret })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_read_back_and_others_are_refused() {
        let key = PrivateKey::generate().unwrap().public();
        let hub = |address: &str, tcp: Option<&str>| HubContact {
            address: address.parse().unwrap(),
            tcp: tcp.map(|tcp| tcp.parse().unwrap()),
            key,
        };
        let token = JoinToken {
            name: "ship-1".to_owned(),
            hubs: vec![hub("hub.example.net:5900", Some("hub:443")), hub("[2001:db8::1]:1", None)],
            secret: PrivateKey::generate().unwrap(),
        };
        let text = token.to_string();
        let read: JoinToken = format!(" {text}\n").parse().unwrap();
        assert_eq!((&read.name, &read.hubs), (&token.name, &token.hubs));
        assert_eq!(read.secret.public(), token.secret.public());
        for end in 0..text.len() {
            assert_eq!(text[..end].parse::<JoinToken>().map(drop), Err(TokenError), "{end}");
        }
        let none = JoinToken { hubs: Vec::new(), ..token }.to_string();
        assert_eq!(none.parse::<JoinToken>().map(drop), Err(TokenError));
    }
}
