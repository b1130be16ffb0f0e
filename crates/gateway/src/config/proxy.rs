//! Section `[proxy]`.

use pep::config::{Answer, Names, ProxyConfig};

use super::parse::quoted;
use super::{ConfigError, Source, raw};

const NAMES: &str = "proxy.names";
const ANSWERS: &str = "expected \"early\" or \"deferred\"";

impl Source {
    pub(super) fn proxy(&self, raw: raw::Proxy) -> Result<ProxyConfig, ConfigError> {
        const LISTEN: &str = "proxy.listen";
        const CLIENTS: &str = "the addresses that may use the proxy, like [\"10.1.0.0/16\"]";
        let accepted = "an address and a TCP port, like \"127.0.0.1:1080\"";
        let text = raw.listen.ok_or_else(|| self.missing(LISTEN, accepted))?;
        let malformed = |_| self.value(LISTEN, quoted(&text), format!("expected {accepted}"));
        let listen = text.parse().map_err(malformed)?;
        let proxy = ProxyConfig {
            listen,
            clients: self.prefixes("proxy.clients", raw.clients)?,
            answer: self.answer("proxy.answer", raw.answer.as_deref())?,
            names: self.names(raw.names.as_deref())?,
        };
        if proxy.clients.is_empty() && !listen.ip().to_canonical().is_loopback() {
            return Err(self.missing("proxy.clients", CLIENTS));
        }
        Ok(proxy)
    }

    fn names(&self, text: Option<&str>) -> Result<Names, ConfigError> {
        match text {
            None | Some("hub") => Ok(Names::Hub),
            Some("here") => Ok(Names::Here),
            Some(other) => Err(self.value(NAMES, quoted(other), "expected \"hub\" or \"here\"")),
        }
    }

    /// Rejects `names` on a gateway without a hub, which always resolves names itself.
    pub(super) fn no_hub(&self, raw: Option<&raw::Proxy>) -> Result<(), ConfigError> {
        let names = raw.and_then(|raw| raw.names.as_deref());
        names.map_or(Ok(()), |text| {
            Err(self.value(NAMES, quoted(text), "a solo gateway resolves names itself"))
        })
    }

    pub(super) fn answer(
        &self,
        key: &'static str,
        text: Option<&str>,
    ) -> Result<Answer, ConfigError> {
        match text {
            None | Some("early") => Ok(Answer::Early),
            Some("deferred") => Ok(Answer::Deferred),
            Some(other) => Err(self.value(key, quoted(other), ANSWERS)),
        }
    }
}
