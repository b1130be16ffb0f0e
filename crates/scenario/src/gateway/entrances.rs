//! Sources of connections: sections `[intercept]` and `[proxy]`.

use config::{AnswerTiming, InterceptConfig, NameResolution, ProxyConfig};
use pep::traffic::Prefix;

use super::interface;
use super::raw::sections;
use crate::FileError;
use crate::place::KeyContext;
use crate::text::Text;

const INTERFACES: &str = "the interfaces to the clients, like [\"lan0\"]";

/// Reads both sections. It is an error if `[intercept]` is `needed` and missing.
pub(super) fn read(
    place: &KeyContext<'_>,
    intercept: Option<sections::Intercept>,
    proxy: Option<sections::Proxy>,
    needed: bool,
) -> Result<(Option<InterceptConfig>, Option<ProxyConfig>), FileError> {
    let proxy = proxy.map(|raw| self::proxy(place, raw)).transpose()?;
    if intercept.is_none() && needed {
        return Err(place.missing_key("intercept.interfaces", INTERFACES));
    }
    let intercept = intercept.map(|raw| self::intercept(place, raw)).transpose()?;
    Ok((intercept, proxy))
}

pub(super) fn intercept(
    place: &KeyContext<'_>,
    raw: sections::Intercept,
) -> Result<InterceptConfig, FileError> {
    let place = place.within("intercept");
    let interfaces = raw.interfaces.ok_or_else(|| place.missing_key("interfaces", INTERFACES))?;
    place.check(!interfaces.is_empty(), "interfaces", "[]", INTERFACES)?;
    for (index, name) in interfaces.iter().enumerate() {
        interface(&place, &format!("interfaces.{index}"), name)?;
    }
    let answer = raw.answer.map_or(AnswerTiming::Early, Into::into);
    Ok(InterceptConfig { interfaces, answer, own_traffic: raw.own_traffic.unwrap_or(false) })
}

/// Returns the destinations that pass unaccelerated.
pub(super) fn bypass(raw: Option<&sections::Intercept>) -> Vec<Prefix> {
    raw.map_or_else(Vec::new, |raw| raw.bypass.iter().map(|prefix| prefix.0).collect())
}

fn proxy(place: &KeyContext<'_>, raw: sections::Proxy) -> Result<ProxyConfig, FileError> {
    const LISTEN: &str = "an address and a TCP port, like \"127.0.0.1:1080\"";
    const CLIENTS: &str = "the addresses that may use the proxy, like [\"10.1.0.0/16\"]";
    let place = place.within("proxy");
    let Text(listen) = raw.listen.ok_or_else(|| place.missing_key("listen", LISTEN))?;
    let clients: Vec<Prefix> = raw.clients.into_iter().map(|prefix| prefix.0).collect();
    // Without a list of clients, only this machine may use the proxy.
    if clients.is_empty() && !listen.0.ip().to_canonical().is_loopback() {
        return Err(place.missing_key("clients", CLIENTS));
    }
    Ok(ProxyConfig {
        listen: listen.0,
        clients,
        answer: raw.answer.map_or(AnswerTiming::Early, Into::into),
        names: raw.names.map_or(NameResolution::Hub, Into::into),
    })
}
