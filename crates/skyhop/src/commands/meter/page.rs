//! `skyhop meter page`: loads a page of objects over HTTP.

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use meter::{HttpMode, PageOptions, ProgressCounter, Stop};
use units::ByteCount;

use super::{OutputArgs, TargetArg, TcpArgs, fresh_key};

/// Maximum number of objects on a page.
const OBJECTS_MAX: usize = 10_000;

/// Arguments of `skyhop meter page`.
#[derive(Debug, Args)]
pub(crate) struct PageArgs {
    #[command(flatten)]
    target: TargetArg,
    #[command(flatten)]
    tcp: TcpArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
    /// Sizes of the page's objects, e.g. 20kB,9x10kB
    #[arg(long, value_name = "SIZES", default_value = "20 kB,9x10 kB")]
    objects: String,
    /// HTTP version
    #[arg(long, value_enum, default_value_t = HttpVersion::Http11)]
    http: HttpVersion,
    /// Maximum number of parallel connections
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    connections: u32,
}

/// The version of HTTP, with its use of connections.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum HttpVersion {
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

impl From<HttpVersion> for HttpMode {
    fn from(http: HttpVersion) -> Self {
        match http {
            HttpVersion::Http10 => Self::Http10,
            HttpVersion::Http10KeepAlive => Self::Http10KeepAlive,
            HttpVersion::Http11 => Self::Http11,
            HttpVersion::Http11Pipelined => Self::Http11Pipelined,
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
            fresh: None,
            limit: self.tcp.limit,
            key: fresh_key()?,
            progress: ProgressCounter::default(),
            stop: Stop::default(),
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
        // Checked before the memory is taken.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_may_be_counted() {
        let sizes = |text| {
            objects(text).map(|sizes| sizes.iter().map(|size| size.get()).collect::<Vec<_>>())
        };
        assert_eq!(sizes("20kB, 3x10 kB,1B").unwrap(), [20_000, 10_000, 10_000, 10_000, 1]);
        for wrong in ["", "x", "ax1kB", "99999x1B", "0x1kB"] {
            assert!(objects(wrong).is_err(), "{wrong:?}");
        }
    }
}
