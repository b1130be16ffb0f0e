//! `skyhop check` validates files of any kind; `skyhop schema` prints the JSON schemas with which editors
//! check them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::config::{FileError, FileKind};
use anyhow::{Context, Result};
use clap::ValueEnum;
use gateway::config::{self, KeyCheck};
use scenario::{Documents, Preset, Published, Scenario};
use serde::Serialize;

use crate::print;

/// The arguments of `skyhop check`.
#[derive(clap::Args)]
pub(crate) struct CheckArgs {
    /// Configurations of gateways, presets, scenarios, published results, publications
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Kind of all files [default: that of their schema line or their keys]
    #[arg(long, value_enum)]
    kind: Option<FileKindArg>,
    /// Check files away from their gateways: do not read `private_key_file`
    #[arg(long)]
    without_keys: bool,
    /// Print JSON: a list with file, kind, validity, warnings, and line, key and message of the first error
    #[arg(long)]
    json: bool,
}

/// The arguments of `skyhop schema`.
#[derive(clap::Args)]
pub(crate) struct SchemaArgs {
    /// Kind of file
    #[arg(value_enum, required_unless_present = "write")]
    kind: Option<FileKindArg>,
    /// Write all schemas into this directory instead, for lines such as `#:schema
    /// DIR/hub.schema.json`
    #[arg(long, value_name = "DIR", conflicts_with = "kind")]
    write: Option<PathBuf>,
}

/// A kind of file on the command line.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum FileKindArg {
    /// Configuration of a hub
    Hub,
    /// Configuration of a terminal
    Terminal,
    /// Configuration of a single gateway
    Solo,
    /// Permit of a terminal, in the directory `permits` of a hub
    Permit,
    /// Preset of a link
    Preset,
    /// Scenario
    Scenario,
    /// Published results beside a scenario
    Published,
    /// List of publications
    Documents,
}

impl From<FileKindArg> for FileKind {
    fn from(kind: FileKindArg) -> Self {
        match kind {
            FileKindArg::Hub => Self::Hub,
            FileKindArg::Terminal => Self::Terminal,
            FileKindArg::Solo => Self::Solo,
            FileKindArg::Permit => Self::Permit,
            FileKindArg::Preset => Self::Preset,
            FileKindArg::Scenario => Self::Scenario,
            FileKindArg::Published => Self::Published,
            FileKindArg::Documents => Self::Documents,
        }
    }
}

/// The result for one file.
#[derive(Serialize)]
struct CheckedFile {
    file: String,
    /// `None` if the kind could not be recognised.
    kind: Option<&'static str>,
    valid: bool,
    /// A warning for each removed key.
    warnings: Vec<String>,
    /// The first error's line, from 1.
    line: Option<u32>,
    key: Option<String>,
    /// The error as a gateway, the lab or the simulator would report it.
    error: Option<String>,
}

/// Checks all files. Returns exit code 1 if one is invalid.
pub(crate) fn check(args: &CheckArgs) -> Result<ExitCode> {
    let checked: Vec<CheckedFile> = args.files.iter().map(|path| args.check(path)).collect();
    let text = match args.json {
        true => serde_json::to_string_pretty(&checked)? + "\n",
        false => checked.iter().map(CheckedFile::text).collect(),
    };
    print(&text)?;
    let all_valid = checked.iter().all(|file| file.valid);
    Ok(if all_valid { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl CheckArgs {
    fn check(&self, path: &Path) -> CheckedFile {
        let kind = match self.kind {
            Some(kind) => Ok(kind.into()),
            None => recognise(path),
        };
        let keys = if self.without_keys { KeyCheck::Elsewhere } else { KeyCheck::Read };
        let (kind, result) = match kind {
            Ok(kind) => (Some(kind), validate(path, kind, keys)),
            Err(error) => (None, Err(error)),
        };
        let (warnings, error) = match result {
            Ok(warnings) => (warnings, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        CheckedFile {
            file: path.display().to_string(),
            kind: kind.map(FileKind::name),
            valid: error.is_none(),
            warnings,
            line: error.as_ref().and_then(FileError::line),
            key: error.as_ref().and_then(FileError::key),
            error: error.map(|error| error.to_string()),
        }
    }
}

impl CheckedFile {
    fn text(&self) -> String {
        match &self.error {
            Some(error) => format!("{error}\n"),
            None => {
                let warnings: String =
                    self.warnings.iter().map(|warning| format!("{warning}\n")).collect();
                format!("{warnings}{}: valid, {}\n", self.file, self.kind.unwrap_or_default())
            }
        }
    }
}

/// Recognises a file's kind by its schema line or its keys. Pipes are refused, because the file is read a
/// second time to be checked.
fn recognise(path: &Path) -> Result<FileKind, FileError> {
    if fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        let cause = io::Error::other("this can be read only once: give its kind with --kind");
        return Err(FileError::Read { file: path.display().to_string(), cause });
    }
    FileKind::find(&path.display().to_string(), &Scenario::text_at(path)?)
}

/// Reads a file and the files that it names, as the program that uses it would. Returns warnings.
fn validate(path: &Path, kind: FileKind, keys: KeyCheck) -> Result<Vec<String>, FileError> {
    let origin = path.display().to_string();
    let checked = match kind {
        FileKind::Preset => Preset::load_file(path).map(drop),
        FileKind::Scenario => Scenario::load(path).map(drop),
        FileKind::Published => {
            let scenario = scenario_of(path).map(|path| Scenario::load(&path)).transpose()?;
            Published::parse_for(&origin, &Scenario::text_at(path)?, scenario.as_ref()).map(drop)
        }
        FileKind::Documents => Documents::parse(&origin, &Scenario::text_at(path)?).map(drop),
        gateway => return config::check(path, gateway, keys),
    };
    checked.map(|()| Vec::new())
}

/// Returns the path of the scenario beside published results, if it exists: NAME.toml of
/// NAME.published.toml.
fn scenario_of(published: &Path) -> Option<PathBuf> {
    let name = published.file_name()?.to_str()?.strip_suffix(".published.toml")?;
    Some(published.with_file_name(format!("{name}.toml"))).filter(|path| path.exists())
}

/// Prints one schema, or writes all into a directory.
pub(crate) fn schema(args: &SchemaArgs) -> Result<ExitCode> {
    if let Some(kind) = args.kind {
        print(&scenario::schema(FileKind::from(kind)))?;
    }
    if let Some(directory) = &args.write {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        for kind in FileKind::ALL {
            let path = directory.join(kind.schema_file());
            fs::write(&path, scenario::schema(kind))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
