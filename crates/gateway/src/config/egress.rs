//! Egress rules: section `[egress]` and the keys `reach` and `deny` of a `[[terminal]]` on a hub,
//! section `[accept]` on a terminal.

use pep::egress::{Egress, Target};

use super::parse::quoted;
use super::{ConfigError, Source, raw};

/// Maximum lines per list: each connection is compared with all of them.
const MOST_TARGETS: usize = 1000;

impl Source {
    /// Default rules of a hub, for terminals without rules of their own.
    pub(super) fn egress(&self, raw: Option<raw::Egress>) -> Result<Egress, ConfigError> {
        let raw = raw.unwrap_or_default();
        self.narrowed(&Egress::everywhere(), raw, ("egress.reach", "egress.deny"))
    }

    /// Rules of one terminal: its `reach` replaces the `usual` one, its `deny` adds to the usual
    /// one.
    pub(super) fn egress_of(
        &self,
        usual: &Egress,
        raw: raw::Egress,
    ) -> Result<Egress, ConfigError> {
        self.narrowed(usual, raw, ("terminal.reach", "terminal.deny"))
    }

    /// Rules for connections from the hub.
    pub(super) fn accept(&self, raw: Option<raw::Accept>) -> Result<Egress, ConfigError> {
        let Some(raw) = raw else { return Ok(Egress::nowhere()) };
        Ok(Egress {
            reach: self.targets("accept.to", raw.to)?,
            deny: self.targets("accept.deny", raw.deny)?,
        })
    }

    fn narrowed(
        &self,
        usual: &Egress,
        raw: raw::Egress,
        (reach_key, deny_key): (&str, &str),
    ) -> Result<Egress, ConfigError> {
        let reach = match raw.reach {
            Some(texts) => self.targets(reach_key, texts)?,
            None => usual.reach.clone(),
        };
        let deny = [usual.deny.clone(), self.targets(deny_key, raw.deny)?].concat();
        Ok(Egress { reach, deny })
    }

    fn targets(&self, key: &str, texts: Vec<String>) -> Result<Vec<Target>, ConfigError> {
        if texts.len() > MOST_TARGETS {
            let problem = format!("expected at most {MOST_TARGETS} lines");
            return Err(self.value(key, format!("{} lines", texts.len()), problem));
        }
        let target = |text: String| text.parse().map_err(|e| self.value(key, quoted(&text), e));
        texts.into_iter().map(target).collect()
    }

    /// Rejects `allow_loopback`, which hubs of earlier versions had.
    pub(super) fn no_allow_loopback(&self, key: Option<bool>) -> Result<(), ConfigError> {
        let problem = "this key has been removed: list loopback addresses in what terminals may \
                       reach, like `[egress]` with `reach = [\"0.0.0.0/0\", \"::/0\", \
                       \"127.0.0.0/8\", \"::1\"]`";
        key.map_or(Ok(()), |value| Err(self.value("allow_loopback", value, problem)))
    }
}
