//! The kinds of files that skyhop reads, and the keys by which they are recognised.

use core::fmt;

use toml::de::DeTable;

use super::FileError;

/// A kind of file that skyhop reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileKind {
    /// A link preset (docs/presets.md).
    Preset,
    /// A scenario of the simulator (docs/sim.md).
    Scenario,
    /// Published results beside a scenario (docs/published.md).
    Published,
    /// The list of publications behind published results.
    Documents,
    /// The configuration of a terminal.
    Terminal,
    /// The configuration of a hub.
    Hub,
    /// The configuration of a single gateway.
    Solo,
    /// A terminal that a hub permits.
    Permit,
}

/// Beginning of the comment that names a file's schema.
const SCHEMA_MARK: &str = "#:schema ";

impl FileKind {
    /// Keys of both sides of a pair that a solo gateway does not have. They decide, because all keys of
    /// a solo gateway other than `lan` and `wan` occur in a pair, too.
    const OF_A_PAIR: [&str; 5] = ["private_key", "private_key_file", "rate", "hub", "terminal"];

    /// Top-level keys by which each kind is recognised; the first match decides.
    const SIGNS: [(Self, &[&str]); 8] = [
        (Self::Scenario, &["hop", "flow", "case", "server-side", "client-side", "gateways"]),
        (Self::Preset, &["forward", "return", "terrestrial"]),
        (Self::Published, &["output", "trend", "input", "lost"]),
        (Self::Documents, &["document"]),
        (Self::Terminal, &["hub", "hub_key", "accept"]),
        (Self::Hub, &["terminal", "permits", "egress", "mesh", "limits"]),
        (Self::Solo, &["lan", "wan", "intercept", "proxy"]),
        (Self::Permit, &["key", "invite", "networks"]),
    ];

    /// All kinds, in the order of the enum.
    pub const ALL: [Self; 8] = [
        Self::Preset,
        Self::Scenario,
        Self::Published,
        Self::Documents,
        Self::Terminal,
        Self::Hub,
        Self::Solo,
        Self::Permit,
    ];

    /// Returns the kind as one word: `hub`, `preset`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Preset => "preset",
            Self::Scenario => "scenario",
            Self::Published => "published",
            Self::Documents => "documents",
            Self::Terminal => "terminal",
            Self::Hub => "hub",
            Self::Solo => "solo",
            Self::Permit => "permit",
        }
    }

    /// Returns the file name of its JSON schema.
    pub fn schema_file(self) -> String {
        format!("{}.schema.json", self.name())
    }

    /// Returns the comment by which editors find a file's schema (taplo, Even Better TOML). `folder` is
    /// the folder of the schemas, relative to the file; it ends with `/` unless it is empty.
    pub fn schema_line(self, folder: &str) -> String {
        format!("{SCHEMA_MARK}{folder}{}\n", self.schema_file())
    }

    /// Returns the kind of a file: that of its schema line or, without one, the kind that its keys
    /// match. `origin` is its name in errors.
    ///
    /// # Errors
    /// If the file has no schema line and is not TOML, or its keys match no kind.
    pub fn find(origin: &str, text: &str) -> Result<Self, FileError> {
        if let Some(declared) = Self::declared(text) {
            return Ok(declared);
        }
        let file = super::document::table(origin, text)?;
        let shown = Self::shown(file.get_ref()).next();
        shown.ok_or_else(|| FileError::Unrecognised { file: origin.to_owned() })
    }

    /// Returns the kind whose schema the comments at the top name.
    fn declared(text: &str) -> Option<Self> {
        let mut top = text.lines().take_while(|line| line.starts_with('#'));
        let schema = top.find_map(|line| line.strip_prefix(SCHEMA_MARK))?;
        let name = schema.trim().rsplit('/').next()?.strip_suffix(".schema.json")?;
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the kind that `file` appears to be, if that is not `self`.
    pub(super) fn mistaken_for(self, file: &DeTable<'_>) -> Option<Self> {
        if Self::shown(file).any(|kind| kind == self) { None } else { Self::shown(file).next() }
    }

    /// Returns the kinds that the keys of `file` match, the most specific first.
    fn shown(file: &DeTable<'_>) -> impl Iterator<Item = Self> {
        let has = |keys: &[&str]| keys.iter().any(|key| file.contains_key(*key));
        let of_a_pair = has(&Self::OF_A_PAIR);
        let shows = move |(kind, signs): &&(Self, &[&str])| {
            has(signs) && !(*kind == Self::Solo && of_a_pair)
        };
        Self::SIGNS.iter().filter(shows).map(|(kind, _)| *kind)
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Preset => "a link preset",
            Self::Scenario => "a scenario",
            Self::Published => "a list of published results",
            Self::Documents => "a list of publications",
            Self::Terminal => "the configuration of a terminal",
            Self::Hub => "the configuration of a hub",
            Self::Solo => "the configuration of a single gateway",
            Self::Permit => "the permit of a terminal",
        })
    }
}
