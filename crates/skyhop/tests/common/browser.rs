//! A headless Chromium, driven by its DevTools protocol over a pipe.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// The program.
pub(crate) const BROWSER: &str = "chromium-headless-shell";
/// Time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one page. It ends when dropped.
pub(crate) struct Browser {
    process: Child,
    requests: ChildStdin,
    messages: Receiver<Value>,
    next: u64,
    page: Option<String>,
    /// Errors that the page has reported, of its script or its security policy.
    pub(crate) errors: Vec<String>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts one with `shell`, a `sh` that runs where the browser is to run.
    pub(crate) fn start(mut shell: Command) -> Self {
        let profile = tempfile::tempdir().unwrap();
        // It reads requests from descriptor 3 and writes to 4.
        let script = "exec \"$0\" --no-sandbox --disable-gpu --remote-debugging-pipe \
                      --user-data-dir=\"$1\" about:blank 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        shell.args(["-c", script, BROWSER]).arg(profile.path());
        let mut process = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (requests, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let (sender, messages) = channel();
        thread::spawn(move || {
            for message in BufReader::new(output).split(0).map_while(Result::ok) {
                // The receiver is gone once the test is over.
                let _ = sender.send(serde_json::from_slice(&message).unwrap());
            }
        });
        let (next, page, errors) = (1, None, Vec::new());
        let mut browser =
            Self { process, requests, messages, next, page, errors, _profile: profile };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let id = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", &id);
        browser.page = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        browser
    }

    /// The result of a command.
    pub(crate) fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.try_call(method, parameters).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    fn try_call(&mut self, method: &str, parameters: &Value) -> Result<Value, Value> {
        let id = self.next;
        self.next += 1;
        let mut request = json!({ "id": id, "method": method, "params": parameters });
        if let Some(page) = &self.page {
            request["sessionId"] = page.as_str().into();
        }
        self.requests.write_all(format!("{request}\0").as_bytes()).unwrap();
        loop {
            let message = self.messages.recv_timeout(PATIENCE);
            let mut message = message.unwrap_or_else(|error| panic!("{method}: {error}"));
            if message["id"] == id {
                let error = message["error"].take();
                return if error.is_null() { Ok(message["result"].take()) } else { Err(error) };
            }
            self.note(&message);
        }
    }

    fn note(&mut self, message: &Value) {
        let parameters = &message["params"];
        let is_error = match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Log.entryAdded") => parameters["entry"]["level"] == "error",
            _ => false,
        };
        if is_error {
            self.errors.push(parameters.to_string());
        }
    }

    /// Goes to an address.
    pub(crate) fn open(&mut self, address: &str) {
        let gone = self.call("Page.navigate", &json!({ "url": address }));
        assert!(gone["errorText"].is_null(), "{address}: {gone}");
    }

    /// The value of an expression in the page.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true });
        let mut answer = self.call("Runtime.evaluate", &parameters);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].take()
    }

    /// Waits until an expression in the page is true.
    pub(crate) fn wait_for(&mut self, expression: &str) {
        let began = Instant::now();
        let wanted =
            json!({ "expression": format!("Boolean({expression})"), "returnByValue": true });
        // Errors are those of a page that has gone or is not there yet.
        while !self
            .try_call("Runtime.evaluate", &wanted)
            .is_ok_and(|it| it["result"]["value"] == true)
        {
            if began.elapsed() > PATIENCE {
                let page = self.evaluate("document.body.innerText");
                panic!("never {expression}: {:?}\n{}", self.errors, page.as_str().unwrap());
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Shows the page as on a screen of this size, in CSS pixels, light or dark.
    pub(crate) fn resize(&mut self, width: u32, height: u32, is_dark: bool) {
        let screen = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500,
        });
        self.call("Emulation.setDeviceMetricsOverride", &screen);
        let scheme = if is_dark { "dark" } else { "light" };
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.call("Emulation.setEmulatedMedia", &json!({ "features": [feature] }));
    }

    /// Presses the Tab key.
    pub(crate) fn press_tab(&mut self) {
        for kind in ["rawKeyDown", "keyUp"] {
            let key = json!({
                "type": kind, "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9,
            });
            self.call("Input.dispatchKeyEvent", &key);
        }
    }

    /// A picture of the visible part of the page (PNG).
    pub(crate) fn picture(&mut self) -> Vec<u8> {
        let picture = self.call("Page.captureScreenshot", &json!({ "format": "png" }));
        STANDARD.decode(picture["data"].as_str().unwrap()).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
