//! The publications behind published results (`documents.toml`).

use schemars::JsonSchema;
use serde::Deserialize;

use crate::built_in::TRACES;
use config::file::document::TomlDocument;
use config::file::folder::BaseFolder;
use config::{FileError, FileKind};

const SHIPPED: &str = include_str!("../../documents.toml");

/// Publications.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "skyhop publications")]
pub struct Documents {
    /// In the order in which reports list them.
    pub document: Vec<Publication>,
}

/// A publication.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Publication {
    /// The name by which published results refer to it.
    pub name: String,
    /// Title.
    pub title: String,
    /// Authors, or the body that published it.
    pub by: String,
    /// Year of publication, if the document says it.
    pub year: Option<u16>,
    /// SHA-256 of the text in which lines are counted, in hexadecimal.
    pub text: String,
    /// Errors of the document.
    #[serde(default)]
    pub erratum: Vec<Erratum>,
}

/// An error of a document. Published results keep the document's value.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Erratum {
    /// The table, figure or section.
    #[serde(rename = "where")]
    pub place: String,
    /// Line of the document's text.
    pub line: u32,
    /// Words of that line.
    pub words: String,
    /// The error and its correction.
    pub because: String,
}

impl Documents {
    /// Returns the publications behind the shipped scenarios.
    ///
    /// # Errors
    /// Only if the shipped file is broken, which a test rules out.
    pub fn shipped() -> Result<Self, FileError> {
        Self::parse("documents.toml", SHIPPED)
    }

    /// Parses a list of publications; `origin` is its name in errors.
    ///
    /// # Errors
    /// If it is not valid TOML, or keys are unknown or missing.
    pub fn parse(origin: &str, text: &str) -> Result<Self, FileError> {
        // The file names no others, so any folder will do.
        TomlDocument::parse(origin, BaseFolder::BuiltIn(TRACES), text, FileKind::Documents)?.read()
    }

    /// Returns the publication of this name.
    pub fn find(&self, name: &str) -> Option<&Publication> {
        self.document.iter().find(|document| document.name == name)
    }
}
