//! Puts a pair of gateways into each of the set-ups, and connects a client.

use std::fmt::Write as _;
use std::io::Write as _;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use gateway::keys::{PrivateKey, format_public_key};
use nix::sys::signal::Signal;
use os::testkit::NoSockets;
use report::{TableColumn, TextTable};

use crate::inside::Gateway;
use crate::probe;
use crate::rows::{ROWS, Row};
use crate::world::World;

const PROGRAM: &str = env!("CARGO_BIN_EXE_skyhop");
/// Rows measured at the same time.
const AT_ONCE: usize = 4;

/// What became of a row's connections.
struct Outcome {
    row: &'static Row,
    /// In the order of [`Row::expected`].
    got: [String; 3],
    /// What the terminal left behind that was not there before.
    remains: Vec<String>,
}

/// All outcomes as a table.
fn table(outcomes: &[Outcome]) -> String {
    let columns = ["network", "without the pair", "early answers", "deferred answers"];
    let mut table = TextTable::new(columns.map(TableColumn::left));
    for Outcome { row, got, .. } in outcomes {
        table.row([row.name.to_owned()].into_iter().chain(got.iter().cloned()));
    }
    let mut text = table.to_string();
    for Outcome { row, got, remains } in outcomes {
        if *got != row.expected {
            let _ = writeln!(text, "{}: expected {:?}", row.name, row.expected);
        }
        remains.iter().for_each(|line| {
            let _ = writeln!(text, "{}: left behind: {line}", row.name);
        });
    }
    text
}

fn through(row: &'static Row) -> std::io::Result<Outcome> {
    let world = World::build()?;
    row.set.iter().for_each(|(host, script)| world.set(host, script));
    let client = || probe::connect(world.host("client"), row.to.parse().expect("an address"));
    let direct = client();
    let before = traces(&world);
    let keys = Keys::new();
    let mut hub = Gateway::run(command(&world, "hub"), &keys.hub());
    hub.wait_for("ready");
    let [early, deferred] = ["early", "deferred"].map(|answer| {
        let mut command = command(&world, "terminal");
        if !row.has_v6 {
            NoSockets::IPV6.apply_to(&mut command);
        }
        let mut terminal = Gateway::run(command, &keys.terminal(row, answer));
        terminal.wait_for("ready");
        row.then.iter().for_each(|(host, script)| world.set(host, script));
        (0..row.before).for_each(|_| drop(client()));
        let outcome = client();
        terminal.end_by(Signal::SIGTERM);
        outcome
    });
    hub.end_by(Signal::SIGTERM);
    let remains = traces(&world).into_iter().filter(|line| !before.contains(line)).collect();
    Ok(Outcome { row, got: [direct, early, deferred], remains })
}

fn command(world: &World, role: &str) -> std::process::Command {
    let mut command = world.host(role).command(PROGRAM);
    command.args([role, "/dev/stdin"]);
    command
}

/// What a gateway sets on the terminal, by line.
fn traces(world: &World) -> Vec<String> {
    let all = "nft list ruleset; ip rule; ip -6 rule || true; ip route show table all
               ip -6 route show table all || true; ip -o link | cut -d: -f2";
    let lines = world.said_by("terminal", all);
    let ours = |line: &&str| ["skyhop", "lookup 59", "table 59"].iter().any(|it| line.contains(it));
    lines.lines().filter(ours).map(str::to_owned).collect()
}

/// Keys and configurations of a pair.
struct Keys {
    hub: PrivateKey,
    terminal: PrivateKey,
}

impl Keys {
    fn new() -> Self {
        let [hub, terminal] = [(); 2].map(|()| PrivateKey::generate().expect("random bytes"));
        Self { hub, terminal }
    }

    fn hub(&self) -> String {
        let (own, other) = (self.hub.to_base64(), format_public_key(&self.terminal.public()));
        format!(
            "private_key = \"{own}\"\nrate = \"100 Mbit/s\"\ncontrol = \"none\"\n\
             [[terminal]]\nname = \"site\"\nkey = \"{other}\"\n"
        )
    }

    fn terminal(&self, row: &Row, answer: &str) -> String {
        let (own, other) = (self.terminal.to_base64(), format_public_key(&self.hub.public()));
        let (hub, interfaces) = (row.hub, row.interfaces);
        format!(
            "private_key = \"{own}\"\nhub = \"{hub}:5900\"\nhub_key = \"{other}\"\n\
             rate = \"100 Mbit/s\"\ncontrol = \"none\"\n\
             [intercept]\ninterfaces = {interfaces:?}\nanswer = \"{answer}\"\n"
        )
    }
}

/// Measures the rows whose names contain `only`, and prints the table. Returns whether every row came
/// out as expected.
pub(crate) fn run(only: &str) -> std::io::Result<bool> {
    let rows: Vec<&Row> = ROWS.iter().filter(|row| row.name.contains(only)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        let mine = numbers.map_while(|number| Some((number, *rows.get(number)?)));
        mine.map(|(number, row)| Ok((number, through(row)?))).collect::<std::io::Result<Vec<_>>>()
    };
    // They wait most of the time.
    let measured = thread::scope(|scope| {
        let workers = [(); AT_ONCE].map(|()| scope.spawn(work));
        workers.map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
    });
    let mut outcomes = Vec::new();
    measured.into_iter().try_for_each(|each| each.map(|each| outcomes.extend(each)))?;
    outcomes.sort_by_key(|(number, _)| *number);
    let outcomes: Vec<Outcome> = outcomes.into_iter().map(|(_, outcome)| outcome).collect();
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(table(&outcomes).as_bytes())?;
    Ok(outcomes.iter().all(|it| it.got == it.row.expected && it.remains.is_empty()))
}
