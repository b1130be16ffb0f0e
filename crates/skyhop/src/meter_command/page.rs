//! `skyhop meter page`.

use std::fmt::Write as _;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use meter::page::ObjectReport;
use meter::{HttpMode, PageOptions, PageReport, Progress};
use units::ByteCount;

use super::text::{csv_line, outcome, seconds, size, state};
use super::{Output, Target, Tcp, fresh_key};

/// Maximum number of objects on a page.
const OBJECTS_MAX: usize = 10_000;

/// Arguments of `skyhop meter page`.
#[derive(Debug, Args)]
pub(crate) struct PageArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    tcp: Tcp,
    #[command(flatten)]
    pub(super) output: Output,
    /// Sizes of the page's objects, e.g. 20kB,9x10kB
    #[arg(long, value_name = "SIZES", default_value = "20 kB,9x10 kB")]
    objects: String,
    /// HTTP version
    #[arg(long, value_enum, default_value_t = Http::Http11)]
    http: Http,
    /// Maximum number of parallel connections
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    connections: u32,
}

/// How objects are fetched.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Http {
    /// HTTP/1.0: a new connection for each object
    #[value(name = "1.0")]
    Http10,
    /// HTTP/1.0 with keep-alive
    #[value(name = "1.0-keep-alive")]
    Http10KeepAlive,
    /// HTTP/1.1
    #[value(name = "1.1")]
    Http11,
    /// HTTP/1.1 with pipelining
    #[value(name = "1.1-pipelined")]
    Http11Pipelined,
}

impl From<Http> for HttpMode {
    fn from(http: Http) -> Self {
        match http {
            Http::Http10 => Self::Http10,
            Http::Http10KeepAlive => Self::Http10KeepAlive,
            Http::Http11 => Self::Http11,
            Http::Http11Pipelined => Self::Http11Pipelined,
        }
    }
}

impl PageArgs {
    pub(super) fn options(&self) -> Result<PageOptions> {
        Ok(PageOptions {
            server: self.target.resolve()?,
            mode: self.http.into(),
            objects: objects(&self.objects)?,
            connections: self.connections,
            congestion_control: self.tcp.cc.clone(),
            limit: self.tcp.limit,
            key: fresh_key()?,
            progress: Progress::default(),
        })
    }
}

/// Parses `20kB,9x10kB`: one object of 20 kB and nine of 10 kB.
fn objects(text: &str) -> Result<Vec<ByteCount>> {
    let mut objects = Vec::new();
    for part in text.split(',') {
        let counted = part.split_once('x').map(|(count, size)| (count.trim().parse(), size));
        let (count, size) = match counted {
            Some((Ok(count), size)) => (count, size),
            Some((Err(_), _)) => bail!("{part:?} is not a number of objects: expected e.g. 9x10kB"),
            None => (1, part),
        };
        let size: ByteCount = size.trim().parse()?;
        if objects.len().saturating_add(count) > OBJECTS_MAX {
            bail!("more than {OBJECTS_MAX} objects in {text:?}");
        }
        objects.resize(objects.len() + count, size);
    }
    if objects.is_empty() {
        bail!("no objects in {text:?}");
    }
    Ok(objects)
}

pub(super) fn text(report: &PageReport) -> String {
    let mut text = format!(
        "{:>6}  {:>4}  {:>10}  {:>9}  {:>9}  {:>9}  {}\n",
        "object", "conn", "size", "start", "first", "time", "outcome"
    );
    for object in &report.objects {
        let _ = writeln!(
            text,
            "{:>6}  {:>4}  {:>10}  {:>9}  {:>9}  {:>9}  {}",
            object.object,
            object.connection.map_or_else(|| "-".to_owned(), |it| it.to_string()),
            size(object.bytes),
            seconds(object.start),
            seconds(object.first_byte),
            seconds(object.time),
            outcome(&object.outcome),
        );
    }
    let complete = report.objects.iter().filter(|object| object.outcome.is_complete());
    let (complete, all, total) =
        (complete.count(), report.objects.len(), seconds(Some(report.total)));
    let _ = write!(text, "{complete} of {all} objects complete; page load time {total}");
    if let Some(times) = report.object_seconds {
        let (median, mean, max) = (times.median, times.mean, times.max);
        let _ = write!(text, "; objects: median {median:.3} s, mean {mean:.3} s, max {max:.3} s");
    }
    text + "\n"
}

/// The columns of [`csv`].
pub(super) const CSV_HEAD: &str =
    "run,object,connection,bytes,state,start_seconds,first_byte_seconds,seconds";

/// One CSV line per object.
pub(super) fn csv(run: u32, report: &PageReport) -> String {
    let line = |object: &ObjectReport| {
        let time = |time: Option<std::time::Duration>| time.map(|it| it.as_secs_f64().to_string());
        csv_line(&[
            Some(run.to_string()),
            Some(object.object.to_string()),
            object.connection.map(|connection| connection.to_string()),
            Some(object.bytes.to_string()),
            Some(state(&object.outcome).to_owned()),
            time(object.start),
            time(object.first_byte),
            time(object.time),
        ])
    };
    report.objects.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_may_be_counted() {
        let sizes = |text| objects(text).map(|it| it.iter().map(|it| it.get()).collect::<Vec<_>>());
        assert_eq!(sizes("20kB, 3x10 kB,1B").unwrap(), [20_000, 10_000, 10_000, 10_000, 1]);
        for wrong in ["", "x", "ax1kB", "99999x1B", "0x1kB"] {
            assert!(objects(wrong).is_err(), "{wrong:?}");
        }
    }
}
