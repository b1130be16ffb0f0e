//! The cases, and the bounds they must meet.

/// One line of the table.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Additional options for the link.
    pub(crate) link: &'static [&'static str],
    /// Script on the client; `{meter}` is the meter, `{cc}` the congestion control set on the end
    /// hosts, if any.
    pub(crate) script: &'static str,
    /// Position of the figure in its output.
    pub(crate) figure: Figure,
    pub(crate) bound: Bound,
    pub(crate) unit: &'static str,
    /// Whether plain TCP is measured too.
    pub(crate) plain: bool,
}

/// The figure in the last output of a script.
pub(crate) enum Figure {
    /// The output is the figure itself.
    Number,
    /// A path in a JSON report.
    Json(&'static str),
}

/// Bound on the pair's median.
#[derive(Clone, Copy)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
    /// This fraction of the better plain median.
    OfPlain(f64),
}

impl Bound {
    pub(crate) fn value(self, best_plain: f64) -> f64 {
        match self {
            Self::AtMost(value) | Self::AtLeast(value) => value,
            Self::OfPlain(share) => share * best_plain,
        }
    }
}

const RTT: f64 = 0.6;
/// Rate in bit/s of IP packets.
const RATE: f64 = 50e6;

/// Time for `bytes`, at 92 % of the limit: request, one-way delays, and bytes at the link's rate.
const fn download(bytes: f64, per: f64) -> Bound {
    Bound::AtMost((RTT + bytes * 8.0 / (RATE * (1.0 - per))) / 0.92)
}

const TOTAL: Figure = Figure::Json("/sums/0/total_seconds");
const P99: Figure = Figure::Json("/response_seconds/p99");
const JAIN: Figure = Figure::Json("/sums/0/jain_index");
const DOWNLOAD: &str = "{meter} bulk server --bytes 20MB --limit 60s --json {cc}";
const REQUESTS: &str = "{meter} rr server --count 500 --connections 20 --limit 60s --json {cc}";

const fn case(
    name: &'static str,
    link: &'static [&'static str],
    script: &'static str,
    figure: Figure,
    bound: Bound,
) -> Case {
    Case { name, link, script, figure, bound, unit: "s", plain: true }
}

/// A case without plain TCP.
const fn alone(case: Case) -> Case {
    Case { plain: false, ..case }
}

const fn fairness(name: &'static str, script: &'static str) -> Case {
    Case { unit: "", ..alone(case(name, &[], script, JAIN, Bound::AtLeast(0.98))) }
}

/// The project's requirements.
pub(crate) const CASES: &[Case] = &[
    case("20 MB down", &[], DOWNLOAD, TOTAL, download(20e6, 0.0)),
    case("20 MB down, PER 0.1 %", &["--per", "0.1%"], DOWNLOAD, TOTAL, download(20e6, 0.001)),
    case("20 MB down, PER 1 %", &["--per", "1%"], DOWNLOAD, TOTAL, download(20e6, 0.01)),
    case("20 MB down, PER 5 %", &["--per", "5%"], DOWNLOAD, TOTAL, download(20e6, 0.05)),
    case(
        "first byte (curl)",
        &[],
        "curl -s -o /dev/null -w '%{time_starttransfer}' http://server/10kB",
        Figure::Number,
        Bound::AtMost(RTT + 0.02),
    ),
    case(
        "page, 40 connections, PER 1 %",
        &["--per", "1%"],
        "{meter} page server --objects 40x50kB --http 1.0 --connections 6 --limit 60s --json {cc}",
        Figure::Json("/total_seconds"),
        Bound::OfPlain(0.55),
    ),
    case(
        "page, keep-alive, PER 1 %",
        &["--per", "1%"],
        "{meter} page server --objects 40x50kB --http 1.1 --connections 6 --limit 60s --json {cc}",
        Figure::Json("/total_seconds"),
        Bound::OfPlain(0.75),
    ),
    case(
        "requests, p99, PER 1 %",
        &["--per", "1%"],
        REQUESTS,
        P99,
        Bound::AtMost(1.1 * RTT + 0.02),
    ),
    case(
        "requests beside bulk, p99, PER 1 %",
        &["--per", "1%"],
        "{meter} bulk server --time 25s {cc} > /dev/null & {meter} rr server --count 300 --connections 20 --limit 25s --json {cc}; wait",
        P99,
        Bound::AtMost(1.1 * RTT + 0.02),
    ),
    alone(case(
        "1 flow of 100 MB",
        &[],
        "{meter} bulk server --bytes 100MB --limit 60s --json",
        TOTAL,
        download(100e6, 0.0),
    )),
    alone(case(
        "10 flows of 10 MB",
        &[],
        "{meter} bulk server --flows 10 --bytes 10MB --limit 60s --json",
        TOTAL,
        download(100e6, 0.0),
    )),
    alone(case(
        "100 flows of 1 MB",
        &[],
        "{meter} bulk server --flows 100 --bytes 1MB --limit 60s --json",
        TOTAL,
        download(100e6, 0.0),
    )),
    alone(case(
        "1000 flows of 100 kB",
        &[],
        "{meter} bulk server --flows 1000 --bytes 100kB --limit 60s --json",
        TOTAL,
        download(100e6, 0.0),
    )),
    fairness("10 flows, Jain", "{meter} bulk server --flows 10 --bytes 10MB --limit 60s --json"),
    fairness("100 flows, Jain", "{meter} bulk server --flows 100 --bytes 1MB --limit 60s --json"),
    fairness(
        "1000 flows, Jain",
        "{meter} bulk server --flows 1000 --bytes 100kB --limit 60s --json",
    ),
    alone(case(
        "20 MB down, return 64 kbit/s",
        &["--return-rate", "64kbit/s"],
        DOWNLOAD,
        TOTAL,
        download(20e6, 0.0),
    )),
    alone(case(
        "RTT that the server sees, mean",
        &[],
        DOWNLOAD,
        Figure::Json("/flows/0/sender/mean_rtt_seconds"),
        Bound::AtMost(0.1),
    )),
];
