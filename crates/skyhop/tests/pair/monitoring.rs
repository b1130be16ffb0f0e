//! The dashboards and alerts in `monitoring/`, against the metrics of running gateways.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use lab::Node;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::bare;
use crate::common::{as_myself, is_present, skip, text};
use crate::gateways::Keys;
use crate::inside::{Gateway, Mirror, exchange};
use crate::operate::get;

const PORT: u16 = 4000;
const METRICS: &str = "[metrics]\nlisten = \"127.0.0.1:9590\"\n";
/// Labels that Prometheus adds.
const OWN_LABELS: [&str; 2] = ["instance", "job"];

/// Labels of each series, by its name.
type Series = BTreeMap<String, BTreeSet<String>>;

fn file(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap()
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../monitoring")).join(name)
}

/// All queries of the dashboard.
fn dashboard_queries(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str() {
                    Some(query) if ["expr", "definition"].contains(&&**name) => {
                        found.push(query.to_owned());
                    }
                    _ => dashboard_queries(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| dashboard_queries(value, found)),
        _ => {}
    }
}

fn alert_queries() -> Vec<String> {
    let rules = file("prometheus/alerts.yml");
    let queries = rules.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    let queries: Vec<String> = queries.map(str::to_owned).collect();
    assert_eq!(queries.len(), rules.matches("- alert: ").count(), "each has a query on one line");
    queries
}

/// The series that a query names, with the labels that it selects them by.
fn named(query: &str) -> Vec<(&str, Vec<&str>)> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let starts = query.match_indices("skyhop_").map(|(at, _)| at);
    let series = starts.map(|at| {
        let rest = &query[at..];
        let (name, rest) = rest.split_at(rest.find(|c| !is_word(c)).unwrap_or(rest.len()));
        let selector = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let matchers = selector.map_or("", |(matchers, _)| matchers).split(',');
        let label = |matcher: &'_ str| matcher.find(['=', '!']);
        let labels = matchers.filter_map(|it| Some(it[..label(it)?].trim()));
        (name, labels.collect())
    });
    series.collect()
}

/// Labels by which a query groups or joins.
fn grouped(query: &str) -> Vec<&str> {
    let openings = ["by (", "on ("].iter().flat_map(|word| query.match_indices(word));
    let lists = openings.filter_map(|(at, word)| query[at + word.len()..].split(')').next());
    lists.flat_map(|list| list.split(',').map(str::trim)).collect()
}

/// The series of a scrape.
fn scraped(metrics: &str) -> Series {
    let mut series = Series::new();
    for line in metrics.lines().filter(|line| line.starts_with("skyhop_")) {
        let end = line.find(['{', ' ']).unwrap();
        let labels = series.entry(line[..end].to_owned()).or_default();
        let list = line[end..].strip_prefix('{').and_then(|rest| rest.rsplit_once('}'));
        for pair in list.map_or("", |(list, _)| list).split("\",") {
            labels.extend(pair.split_once('=').map(|(name, _)| name.to_owned()));
        }
    }
    series
}

#[test]
fn dashboards_and_alerts_name_what_gateways_export() {
    as_myself(|runner| runner.inside(bare(), "monitoring::inside_metrics_are_scraped"));
}

pub(crate) fn inside_metrics_are_scraped() {
    let (mirror, keys) = (Mirror::start(PORT), Keys::new(1));
    let hub = keys.hub_config("", &format!("{METRICS}[intercept]\ninterfaces = [\"lan0\"]"));
    let hub = hub.replace("lan0", lab::LAN_DEVICE);
    let mut hub = Gateway::start(Node::Hub, "hub", &hub);
    hub.wait_for("ready");
    let terminal = keys.terminal(1, "", METRICS);
    // A connection that is carried, and one that has ended.
    exchange(&mut mirror.connect_carried());
    let mut client = mirror.connect_carried();
    exchange(&mut client);

    let mut queries = alert_queries();
    let dashboard: Value = serde_json::from_str(&file("grafana/skyhop.json")).unwrap();
    dashboard_queries(&dashboard, &mut queries);
    assert!(queries.len() > 70, "{queries:#?}");
    let documented = documented();
    assert!(documented.len() > 100 && documented["skyhop_link_works"].contains("link"));
    assert_each_part_is_drawn(&queries, &documented);
    for node in [Node::Hub, Node::Terminal] {
        let answer = get(node, "/metrics");
        let (_, metrics) = answer.split_once("\r\n\r\n").unwrap();
        let series = scraped(metrics);
        queries.iter().for_each(|query| assert_exported(query, &series, &documented));
        check_metrics(metrics);
    }
    terminal.end_by(Signal::SIGTERM);
    hub.end_by(Signal::SIGTERM);
}

/// The series of the generated page about metrics, with their labels.
fn documented() -> Series {
    let page = include_str!("../../../../docs/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `skyhop_"));
    let series = rows.map(|row| {
        let mut cells = row.split(" | ");
        let name = format!("skyhop_{}", cells.next().unwrap().trim_end_matches('`'));
        let labels = cells.nth(1).unwrap().split(';');
        let label = |text: &str| Some(text.split('`').nth(1)?.to_owned());
        (name, labels.filter_map(label).collect())
    });
    series.collect()
}

fn assert_exported(query: &str, series: &Series, documented: &Series) {
    let mut known: BTreeSet<&str> = OWN_LABELS.into();
    for (name, labels) in named(query) {
        // These gateways lack most services; those have tests of their own for what they export.
        let there = series.get(name).or_else(|| documented.get(name));
        let there = there.unwrap_or_else(|| panic!("nothing exports {name}: {query}"));
        known.extend(there.iter().map(String::as_str));
        for label in labels {
            let is_known = there.contains(label) || OWN_LABELS.contains(&label);
            assert!(is_known, "{name} has no label {label}: {query}");
        }
    }
    for label in grouped(query) {
        assert!(known.contains(label), "no label {label}: {query}");
    }
}

/// Fails for a part of the gateway, such as `skyhop_names_…`, of which no panel and no alert shows anything.
fn assert_each_part_is_drawn(queries: &[String], documented: &Series) {
    // Nobody looks at them but to find out why something else is as it is.
    const DETAILS: [&str; 6] = ["bundle", "bypasses", "datagrams", "draining", "stack", "urgent"];
    let part = |name: &str| name.split('_').nth(1).map(str::to_owned);
    let drawn = queries.iter().flat_map(|query| named(query)).filter_map(|(name, _)| part(name));
    let drawn: BTreeSet<String> = drawn.chain(DETAILS.map(str::to_owned)).collect();
    let parts = documented.keys().filter_map(|name| part(name));
    let missing: BTreeSet<String> = parts.filter(|part| !drawn.contains(part)).collect();
    assert!(missing.is_empty(), "no panel shows {missing:?}");
}

/// Prometheus' own opinion of what is exported.
fn check_metrics(metrics: &str) {
    if !is_present("promtool") {
        return skip("promtool is missing");
    }
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    process.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    let said = [text(&output.stdout), text(&output.stderr)].concat();
    // Rates of links are in bit/s, as everywhere here; promtool would have bytes.
    let unit = "_bits_per_second use base unit \"bytes\" instead of \"bits\"";
    let others: Vec<&str> = said.lines().filter(|line| !line.ends_with(unit)).collect();
    assert_eq!(others, [""; 0]);
    assert!(said.contains(unit), "it has looked at them: {said}");
}

#[test]
fn promtool_accepts_the_rules_and_each_alert_fires_when_it_should() {
    if !is_present("promtool") {
        return skip("promtool is missing");
    }
    for arguments in [
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts_test.yml"],
        ["check", "config", "scrape.yml"],
    ] {
        let mut command = Command::new("promtool");
        let output = command.args(arguments).current_dir(path("prometheus")).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
    // The collector's receiver takes a configuration of Prometheus.
    let collector = file("opentelemetry/collector.yaml");
    let (_, config) = collector.split_once("    config:\n").unwrap();
    let own = config.lines().take_while(|line| line.starts_with("      "));
    let mut scrapes = tempfile::NamedTempFile::new().unwrap();
    own.for_each(|line| writeln!(scrapes, "{}", &line[6..]).unwrap());
    let mut command = Command::new("promtool");
    let output = command.args(["check", "config"]).arg(scrapes.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let tests = file("prometheus/alerts_test.yml");
    for alert in file("prometheus/alerts.yml").lines().filter_map(|it| it.split("- alert: ").nth(1))
    {
        // One test in which it is silent, and one in which it fires.
        assert_eq!(tests.matches(&format!("alertname: {alert}\n")).count(), 2, "{alert}");
    }
}

#[test]
fn queries_are_taken_apart() {
    let query =
        "sum by (instance, reason) (rate(skyhop_a_total{x=~\"$x\", y!=\"1\"}[5m])) / skyhop_b";
    assert_eq!(named(query), [("skyhop_a_total", vec!["x", "y"]), ("skyhop_b", vec![])]);
    assert_eq!(grouped(query), ["instance", "reason"]);
    let series = scraped("# HELP skyhop_c c\nskyhop_a{x=\"1\",y=\"a,b\"} 1\nskyhop_b 2.0\n");
    let labels = ["x", "y"].map(str::to_owned).into();
    assert_eq!(
        series,
        [("skyhop_a".to_owned(), labels), ("skyhop_b".to_owned(), BTreeSet::new())].into()
    );
}
