//! The meter inside a lab, from the client or another host to the server.

use std::process::{Child, Command, Stdio};

use lab::{Node, find_netns};
use serde_json::Value;

use crate::PROGRAM;
use crate::run::Failure;

/// Runs it on the client; returns its report.
pub(crate) fn run(what: &str, options: &[&str]) -> Result<Value, Failure> {
    report(start(Node::Client, what, options)?)
}

/// Starts it on a host.
pub(crate) fn start(from: Node, what: &str, options: &[&str]) -> Result<Child, Failure> {
    let mut command: Command = find_netns(from)?.command(PROGRAM);
    command.args(["meter", what, "server", "--json"]).args(options);
    Ok(command.stdout(Stdio::piped()).spawn()?)
}

/// Waits for its report.
pub(crate) fn report(meter: Child) -> Result<Value, Failure> {
    let output = meter.wait_with_output()?;
    let printed = String::from_utf8(output.stdout)?;
    if output.status.success() {
        return Ok(serde_json::from_str(&printed)?);
    }
    Err(format!("the meter fails, {}: {printed}", output.status).into())
}

/// A figure of a report.
pub(crate) fn seconds(report: &Value, path: &str) -> Result<f64, Failure> {
    let figure = report.pointer(path).and_then(Value::as_f64);
    figure.ok_or_else(|| format!("no {path} in {report}").into())
}
