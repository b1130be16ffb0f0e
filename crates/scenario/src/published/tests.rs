mod number;

use std::fs;
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};

use super::*;

fn shipped() -> Vec<(String, Published)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.to_string_lossy().ends_with(".published.toml")).collect();
    files.sort();
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    files.iter().map(|path| (name(path), Published::load(path).unwrap())).collect()
}

/// What must be found on a line of a document.
struct Cited<'a> {
    file: &'a str,
    document: &'a str,
    place: &'a str,
    line: u32,
    wanted: Wanted<'a>,
}

#[derive(Debug)]
enum Wanted<'a> {
    Number(f64),
    Words(&'a str),
}

impl<'a> Wanted<'a> {
    fn value(value: f64, written: Option<&'a str>) -> Self {
        written.map_or(Self::Number(value), Self::Words)
    }

    fn is_on(&self, line: &str) -> bool {
        match self {
            Self::Number(value) => number::has(line, *value),
            Self::Words(words) => line.contains(words),
        }
    }
}

fn cited<'a>(file: &'a str, published: &'a Published) -> Vec<Cited<'a>> {
    let document = published.document.as_str();
    let mut all = Vec::new();
    let mut add = |place: &'a str, line, wanted| {
        all.push(Cited { file, document, place, line, wanted });
    };
    for output in &published.output {
        for point in &output.points {
            add(&output.place, point.line, Wanted::value(point.value, point.written.as_deref()));
            if let (Some(to), None) = (point.to, &point.written) {
                add(&output.place, point.line, Wanted::Number(to));
            }
        }
    }
    for input in &published.input {
        for point in &input.points {
            add(&input.place, point.line, Wanted::value(point.value, point.written.as_deref()));
        }
    }
    for trend in &published.trend {
        add(&trend.place, trend.line, Wanted::Words(&trend.words));
    }
    for lost in &published.lost {
        add(&lost.place, lost.line, Wanted::Words(&lost.words));
    }
    all
}

/// Needs the documents' texts in the directory `SKYHOP_SOURCES`; they are not ours to ship.
#[test]
fn every_published_value_is_on_its_line_of_the_document() {
    let Some(folder) = std::env::var_os("SKYHOP_SOURCES") else {
        println!("SKIPPED: SKYHOP_SOURCES does not name a directory with the documents' texts");
        return;
    };
    let documents = Documents::shipped().unwrap();
    let texts = fs::read_dir(folder).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap());
    let hash = |text: &[u8]| -> String {
        digest(&SHA256, text).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let texts: Vec<(String, String)> =
        texts.map(|text| (hash(&text), String::from_utf8_lossy(&text).into_owned())).collect();
    let line = |document: &str, number: u32| {
        let publication = documents.find(document).unwrap();
        let text = texts.iter().find(|(hash, _)| *hash == publication.text);
        let (_, text) = text.unwrap_or_else(|| panic!("no text of {document} is there"));
        text.split('\n').nth(number as usize - 1).unwrap_or_default().to_owned()
    };
    let shipped = shipped();
    let all = shipped.iter().flat_map(|(file, published)| cited(file, published));
    let mut wrong: Vec<String> = all
        .filter(|it| !it.wanted.is_on(&line(it.document, it.line)))
        .map(|it| format!("{} {}: {:?} is not on line {}", it.file, it.place, it.wanted, it.line))
        .collect();
    for publication in &documents.document {
        for Erratum { place, line: number, words, .. } in &publication.erratum {
            if !line(&publication.name, *number).contains(words) {
                let name = &publication.name;
                wrong.push(format!("{name} {place}: {words:?} is not on line {number}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn shipped_results_come_from_known_documents() {
    let documents = Documents::shipped().unwrap();
    for (file, published) in shipped() {
        assert!(documents.find(&published.document).is_some(), "{file}: {}", published.document);
    }
}

const FILE: &str = "
document = 'own'
title = 'a file'
[[output]]
where = 'Table 1'
of = 'ftp'
metric = 'goodput-mbit/s'
unit = 'kbytes/s'
tolerance = 0.1
tolerance-because = 'x'
points = [{ case = 'a', value = 125, line = 1 }]
[[trend]]
where = 'Table 1'
says = 'a is faster'
line = 1
words = 'faster'
of = 'ftp'
metric = 'time-median-s'
rising = ['a', 'b']
";

#[test]
fn values_keep_the_document_s_unit() {
    let published = Published::parse("own.toml", FILE).unwrap();
    let output = &published.output[0];
    assert_eq!(output.points[0].value, 125.0);
    assert_eq!(output.in_metric_unit(125.0), 1.0);
    assert_eq!(output.statistic, Statistic::Median);
}

#[test]
fn what_contradicts_itself_is_an_error_with_its_line() {
    for (from, to, told) in [
        ("kbytes/s", "s", "own.toml:8: output.0.unit = s"),
        ("0.1", "1.5", "own.toml:9: output.0.tolerance = 1.5"),
        ("value = 125", "value = nan", "own.toml:11: output.0.points.0.value = NaN"),
        ("value = 125", "value = 125, to = 100", "own.toml:11: output.0.points.0.to = 100"),
        ("value = 125", "value = 125, by = 'b'", "own.toml:11: output.0.points.0.by = b"),
        ("'a', 'b'", "'a'", "own.toml:12: trend.0.rising, pairs = 1 and 0"),
        ("rising = ['a', 'b']", "pairs = [['a', 'b']]", "own.toml:12: trend.0.least, most = false"),
        ("rising", "falling", "own.toml:19: unknown key `falling`"),
    ] {
        let wrong = FILE.replace(from, to);
        let error = Published::parse("own.toml", &wrong).unwrap_err().to_string();
        assert!(error.contains(told), "{told}: {error}");
    }
}
