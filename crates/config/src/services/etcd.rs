//! Section `[etcd]` of a hub: permits of terminals in an etcd.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;

use crate::file::FileError;
use crate::file::place::{KeyContext, quoted};
use crate::file::text::Text;
use crate::values::hub_address::HubAddress;
use crate::values::tls_files::TlsFiles;

/// An etcd that keeps permits.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Etcd")]
pub(crate) struct EtcdSection {
    /// Client addresses of the etcd's members, 1 to 16, host and port; asked in this order.
    #[schemars(extend("examples" = [["127.0.0.1:2379"]]))]
    pub(crate) members: Vec<Text<HubAddress>>,
    /// The beginning of the keys of permits, ending in `/`; the rest of a key is the terminal's name.
    #[schemars(extend("default" = "/skyhop/terminals/"))]
    pub(crate) prefix: Option<String>,
    /// Connect to members over TLS.
    #[serde(default)]
    pub(crate) tls: bool,
    /// With `tls`: a PEM file with the authorities that verify the members. Default: the system's.
    #[schemars(extend("examples" = ["etcd-ca.pem"]))]
    pub(crate) authorities: Option<String>,
    /// With `tls`: a PEM file with the certificate that the hub shows to members that ask for one. Used with
    /// `key`.
    #[schemars(extend("examples" = ["etcd-client.pem"]))]
    pub(crate) certificate: Option<String>,
    /// A PEM file with the private key of `certificate`.
    #[schemars(extend("examples" = ["etcd-client-key.pem"]))]
    pub(crate) key: Option<String>,
    /// The user that the hub authenticates as, if etcd has authentication switched on. Used with `password_file`.
    pub(crate) user: Option<String>,
    /// A file with the user's password. Only its owner may be able to read it.
    #[schemars(extend("examples" = ["etcd.password"]))]
    pub(crate) password_file: Option<String>,
}

/// Settings of an etcd that stores permits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdConfig {
    /// Client addresses of its members, at least one. Key `members`.
    pub members: Vec<HubAddress>,
    /// Prefix of the keys of permits; ends in `/`. Key `prefix`, default [`Self::PREFIX`].
    pub prefix: String,
    /// TLS with the members. Key `tls`, default none.
    pub tls: Option<EtcdTls>,
    /// The user as which the hub authenticates. Keys `user` and `password_file`, default none.
    pub login: Option<EtcdLogin>,
}

/// TLS to an etcd.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EtcdTls {
    /// Authorities that verify the members (PEM). Key `authorities`, default the system's.
    pub authorities: Option<PathBuf>,
    /// Certificate of the hub for members that request one. Keys `certificate` and `key`, default none.
    pub identity: Option<TlsFiles>,
}

/// A user of an etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdLogin {
    /// Name of the user in etcd.
    pub user: String,
    /// The file with its password.
    pub password_file: PathBuf,
}

impl EtcdConfig {
    /// Prefix of the keys unless one is configured.
    pub const PREFIX: &str = "/skyhop/terminals/";
}

/// Reads the section `[etcd]`.
pub(crate) fn read(place: &KeyContext<'_>, raw: EtcdSection) -> Result<EtcdConfig, FileError> {
    let members: Vec<HubAddress> = raw.members.into_iter().map(|member| member.0).collect();
    let expected = "the client addresses of its members, like [\"127.0.0.1:2379\"]";
    place.check((1..=MOST_MEMBERS).contains(&members.len()), "members", members.len(), expected)?;
    let prefix = raw.prefix.unwrap_or_else(|| EtcdConfig::PREFIX.to_owned());
    let good = prefix.ends_with('/') && prefix.bytes().all(|byte| byte.is_ascii_graphic());
    place.check(
        good,
        "prefix",
        quoted(&prefix),
        "the beginning of keys, like \"/skyhop/terminals/\"",
    )?;
    let at = |path: String| place.folder().locate(Path::new(&path));
    let needs = |given: bool, name: &str, why: &str| match given {
        true => Ok(()),
        false => Err(place.missing_key(name, why)),
    };
    let authorities = raw.authorities;
    let certificate = raw.certificate;
    let key = raw.key;
    let is_plain = authorities.is_none() && certificate.is_none() && key.is_none();
    needs(raw.tls || is_plain, "tls", "true, as there are certificates")?;
    needs(key.is_none() || certificate.is_some(), "certificate", "the certificate of the key")?;
    needs(certificate.is_none() || key.is_some(), "key", "the key of the certificate")?;
    let identity = certificate.zip(key);
    let identity =
        identity.map(|(certificate, key)| TlsFiles { certificate: at(certificate), key: at(key) });
    let tls = raw.tls.then(|| EtcdTls { authorities: authorities.map(at), identity });
    let user = raw.user;
    let file = raw.password_file;
    needs(file.is_none() || user.is_some(), "user", "whose password it is")?;
    needs(user.is_none() || file.is_some(), "password_file", "the file with the user's password")?;
    let login = user.zip(file).map(|(user, file)| EtcdLogin { user, password_file: at(file) });
    Ok(EtcdConfig { members, prefix, tls, login })
}

/// Maximum number of members of an etcd.
const MOST_MEMBERS: usize = 16;
