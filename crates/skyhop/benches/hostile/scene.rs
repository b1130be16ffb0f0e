//! A hub, an honest terminal, and somebody hostile.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, fs, io, thread};

use nix::time::ClockId;
use nix::unistd::Pid;
use tempfile::TempDir;

use super::probe::{Download, Pings};
use crate::gateways::Keys;
use crate::inside::Gateway;

/// How long a case takes.
pub(crate) struct Times {
    /// For sessions and windows to settle.
    pub(crate) settle: Duration,
    /// Measured without the attack.
    pub(crate) alone: Duration,
    /// Measured beside it.
    pub(crate) beside: Duration,
}

/// Somebody hostile, and the hub that he attacks.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Keys of the hub's configuration before its sections. `{store}` is a directory that has `certificate.pem` and
    /// its `key.pem`, nothing else.
    pub(crate) keys: &'static str,
    /// Sections of the hub's configuration, after its keys.
    pub(crate) hub: &'static str,
    /// Sections of the honest terminal's, after `[intercept]`.
    pub(crate) terminal: &'static str,
    /// Attacks until told to stop, on a thread of its own. The second terminal's key is the attacker's. Panics if
    /// that is not possible.
    pub(crate) attack: fn(&Keys, &Attack),
}

/// An honest session alone: how much of what is seen elsewhere is the machine's.
pub(crate) const NOTHING: Case =
    Case { name: "nobody", keys: "", hub: "", terminal: "", attack: |_, attack| attack.wait() };

/// The attacked hub, and the honest terminal.
pub(crate) struct Scene {
    keys: Keys,
    hub: Gateway,
    terminal: Gateway,
    _files: TempDir,
}

/// An attack under way.
#[derive(Default)]
pub(crate) struct Attack {
    ends: AtomicBool,
    sent: AtomicU64,
}

impl Attack {
    /// Notes what was sent; returns whether to go on.
    pub(crate) fn sent(&self, bytes: usize) -> bool {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
        !self.ends.load(Ordering::Relaxed)
    }

    /// Ends it.
    pub(crate) fn end(&self) {
        self.ends.store(true, Ordering::Relaxed);
    }

    /// Waits for the end.
    pub(crate) fn wait(&self) {
        while self.sent(0) {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Figures of a case: rates in Mbit/s, times in milliseconds, the hub's share of a processor in percent, lines
/// that both gateways log.
pub(crate) struct Figures {
    pub(crate) attack: f64,
    pub(crate) cpu: f64,
    pub(crate) median: f64,
    pub(crate) p99: f64,
    pub(crate) longest: f64,
    pub(crate) logged: f64,
    /// The download without and with the attack.
    pub(crate) alone: f64,
    pub(crate) beside: f64,
}

/// As one line.
impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { attack, cpu, median, p99, longest, logged, alone, beside } = self;
        write!(f, "{attack} {cpu} {median} {p99} {longest} {logged} {alone} {beside}")
    }
}

impl FromStr for Figures {
    type Err = &'static str;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let figures: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [attack, cpu, median, p99, longest, logged, alone, beside] = figures[..] else {
            return Err("not eight figures");
        };
        Ok(Self { attack, cpu, median, p99, longest, logged, alone, beside })
    }
}

impl Scene {
    fn set(case: &Case) -> Self {
        let (keys, files) = (Keys::new(2), tempfile::tempdir().expect("a directory"));
        certify(files.path()).expect("it can be written");
        let own = "rate = \"50 Mbit/s\"\ncontrol = \"none\"\nlog = \"info,hickory_proto=warn\"";
        let store = files.path().display().to_string();
        let [of_hub, sections] = [case.keys, case.hub].map(|text| text.replace("{store}", &store));
        let hub = keys.hub(&format!("{own}\n{of_hub}"), &sections);
        let terminal = keys.terminal(1, own, case.terminal);
        Self { keys, hub, terminal, _files: files }
    }

    /// Number of lines that both gateways have logged since the last call.
    fn logged(&mut self) -> usize {
        self.hub.count_lines() + self.terminal.count_lines()
    }

    /// Processor time that the hub has taken, in seconds.
    fn cpu(&self) -> f64 {
        let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(self.hub.id() as i32));
        let time = clock.and_then(ClockId::now).expect("the hub runs");
        time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9
    }
}

/// Writes a certificate and its key.
pub(crate) fn certify(folder: &Path) -> io::Result<()> {
    let made = rcgen::generate_simple_self_signed(["hub".to_owned()]).expect("a certificate");
    let key = folder.join("key.pem");
    fs::write(folder.join("certificate.pem"), made.cert.pem())?;
    fs::write(&key, made.signing_key.serialize_pem())?;
    fs::set_permissions(&key, Permissions::from_mode(0o600))
}

/// Runs a case inside a lab.
pub(crate) fn measure(case: &Case, times: &Times) -> Figures {
    let (mut scene, attack) = (Scene::set(case), Attack::default());
    let (download, pings) = (Download::begin(), Pings::begin());
    let _ = (download.mbit_within(times.settle), pings.take());
    let alone = download.mbit_within(times.alone);
    let (cpu, begin) = (scene.cpu(), Instant::now());
    pings.take();
    scene.logged();
    let keys = &scene.keys;
    let (beside, attacked) = thread::scope(|scope| {
        let attacking = scope.spawn(|| (case.attack)(keys, &attack));
        let beside = download.mbit_within(times.beside);
        attack.end();
        (beside, attacking.join())
    });
    let (seconds, cpu) = (begin.elapsed().as_secs_f64(), scene.cpu() - cpu);
    scene.hub.assert_runs();
    download.assert_goes_on();
    attacked.expect("the attack goes on to the end");
    let logged = scene.logged() as f64;
    let (trips, sent) = (pings.take(), attack.sent.load(Ordering::Relaxed));
    let at = |part: f64| trips[((trips.len() - 1) as f64 * part) as usize];
    Figures {
        attack: sent as f64 * 8e-6 / seconds,
        cpu: 100.0 * cpu / seconds,
        median: at(0.5),
        p99: at(0.99),
        longest: at(1.0),
        logged,
        alone,
        beside,
    }
}
