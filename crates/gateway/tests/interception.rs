//! Both gateways between real hosts in a lab: what is intercepted, what passes unaccelerated, and
//! that nothing remains.
//!
//! The server tells each client the address it sees: the hub's if the connection crossed the hop,
//! the client's own if it passed unaccelerated.

use std::fs;
use std::future::Future;
use std::io::{self, BufRead, BufReader, Write};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use gateway::RunError;
use gateway::config::{read_hub, read_terminal};
use gateway::keys::{PrivateKey, format_public_key};
use lab::{Lab, NetNs, Node, Preset, PresetOverrides};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use os::testkit::skip;
use socket2::{Domain, Socket, Type};
use tokio::sync::oneshot;
use units::BitRate;

const PORT: u16 = 4000;
/// Longer than it takes to notice that the hub is silent, and than a new session takes.
const PATIENCE: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    // With `cargo test NAME`, other tests are wanted.
    if std::env::args().skip(1).any(|argument| !argument.starts_with('-')) {
        return ExitCode::SUCCESS;
    }
    if let Err(error) = lab::enter() {
        skip(error);
        return ExitCode::SUCCESS;
    }
    let overrides = PresetOverrides {
        rate: Some(BitRate::from_mbit(200)),
        return_rate: Some(BitRate::from_mbit(200)),
        delay: Some(Duration::from_millis(10)),
        ..PresetOverrides::default()
    };
    let preset = Preset::load("geo").unwrap().with(&overrides).unwrap();
    let place = Place::new(Lab::start(&preset, 1).unwrap());
    for (name, test) in [
        ("what_is_bypassed_is_left_alone", bypass as fn(&Place)),
        ("both_versions_are_carried_and_nothing_remains", carry),
        ("connections_from_before_go_on", connections_from_before),
        ("without_a_hub_connections_pass", fail_open),
        ("without_descriptors_connections_pass", out_of_descriptors),
        ("two_terminals_on_one_machine_do_not_clash", two_terminals),
    ] {
        test(&place);
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

fn carry(place: &Place) {
    let hub = place.hub();
    let terminal = place.terminal("");
    for server in place.servers() {
        place.wait_until(server, true);
        let mut client = place.connect(server);
        assert!(client.accelerated);
        assert_eq!(client.exchange("hello"), "hello");
        let refused = place.on(Node::Client, || TcpStream::connect((server.ip(), PORT + 1)));
        let mut refused = refused.expect("the gateway answers early");
        let error = io::Read::read(&mut refused, &mut [0]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
    terminal.stop();
    hub.stop();
    place.assert_clean();
    place.servers().into_iter().for_each(|server| assert!(!place.connect(server).accelerated));
}

fn bypass(place: &Place) {
    let hub = place.hub();
    let terminal = place.terminal("bypass = [\"fd00:2::/32\"]");
    let [v4, v6] = place.servers();
    place.wait_until(v4, true);
    assert!(!place.connect(v6).accelerated);
    terminal.stop();
    hub.stop();
}

fn connections_from_before(place: &Place) {
    let [v4, _] = place.servers();
    let mut before = place.connect(v4);
    let (hub, terminal) = (place.hub(), place.terminal(""));
    place.wait_until(v4, true);
    assert!(!before.accelerated);
    assert_eq!(before.exchange("still here"), "still here");
    terminal.stop();
    hub.stop();
}

fn fail_open(place: &Place) {
    let [v4, _] = place.servers();
    let (hub, terminal) = (place.hub(), place.terminal(""));
    place.wait_until(v4, true);
    hub.stop();
    place.wait_until(v4, false);
    let hub = place.hub();
    place.wait_until(v4, true);
    terminal.stop();
    hub.stop();
    place.assert_clean();
}

fn out_of_descriptors(place: &Place) {
    let [v4, _] = place.servers();
    let (hub, terminal) = (place.hub(), place.terminal(""));
    place.wait_until(v4, true);
    let new = || Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let sockets = place.on(Node::Client, || [(); 10].map(|()| new()));
    let mut hoard = Hoard::begin();
    // Some are served until earlier connections have released their descriptors.
    let starved = sockets.iter().position(|socket| {
        hoard.take_all();
        socket.connect(&v4.into()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        socket.peek(&mut [MaybeUninit::uninit()]).is_err()
    });
    let starved = starved.expect("descriptors run out");
    drop(hoard);
    assert!(!place.connect(v4).accelerated, "new connections pass by for a while");
    place.wait_until(v4, true);
    for socket in sockets.into_iter().take(starved + 1) {
        assert_eq!(Client::new(socket.into()).exchange("at last"), "at last");
    }
    terminal.stop();
    hub.stop();
}

/// Uses up the process's file descriptors.
struct Hoard {
    /// The soft and the hard limit before.
    limits: (u64, u64),
    files: Vec<fs::File>,
}

impl Hoard {
    /// Limits the descriptors to little more than are in use.
    fn begin() -> Self {
        let limits = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let highest = open.filter_map(|fd| fd.file_name().to_str()?.parse::<u64>().ok()).max();
        setrlimit(Resource::RLIMIT_NOFILE, highest.unwrap() + 1, limits.1).unwrap();
        Self { limits, files: Vec::new() }
    }

    fn take_all(&mut self) {
        self.files.extend(std::iter::from_fn(|| fs::File::open("/dev/null").ok()));
    }
}

impl Drop for Hoard {
    fn drop(&mut self) {
        setrlimit(Resource::RLIMIT_NOFILE, self.limits.0, self.limits.1).unwrap();
    }
}

fn two_terminals(place: &Place) {
    let [v4, v6] = place.servers();
    let hub = place.hub();
    let one = place.terminal("bypass = [\"fd00:2::/32\"]");
    place.wait_until(v4, true);
    let other = place.other_terminal("bypass = [\"10.2.0.0/24\"]");
    place.wait_until(v6, true);
    let mut first = place.connect(v4);
    assert!(first.accelerated);
    other.stop();
    assert_eq!(first.exchange("undisturbed"), "undisturbed");
    assert!(!place.connect(v6).accelerated);
    one.stop();
    hub.stop();
    place.assert_clean();
}

/// A lab with a server, and the configurations of its gateways.
struct Place {
    lab: Lab,
    directory: tempfile::TempDir,
    keys: [PrivateKey; 3],
}

impl Place {
    fn new(lab: Lab) -> Self {
        let listener =
            lab.node(Node::Server).run(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, PORT)));
        let listener = listener.unwrap();
        thread::spawn(move || {
            // Fails without descriptors, until some are available again.
            for client in listener.incoming().flatten() {
                thread::spawn(move || serve(&client));
            }
        });
        let keys = [(); 3].map(|()| PrivateKey::generate().unwrap());
        Self { lab, directory: tempfile::tempdir().unwrap(), keys }
    }

    fn servers(&self) -> [SocketAddr; 2] {
        let addresses: [IpAddr; 2] =
            [self.lab.address4(Node::Server).into(), self.lab.address6(Node::Server).into()];
        addresses.map(|address| SocketAddr::new(address, PORT))
    }

    fn on<T: Send>(&self, node: Node, work: impl FnOnce() -> T + Send) -> T {
        self.lab.node(node).run(work)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    fn hub(&self) -> Running {
        let [hub, one, other] = &self.keys;
        let text = format!(
            "private_key = \"{}\"\nrate = \"200 Mbit/s\"\n\
             [[terminal]]\nname = \"one\"\nkey = \"{}\"\n\
             [[terminal]]\nname = \"other\"\nkey = \"{}\"\n",
            hub.to_base64(),
            format_public_key(&one.public()),
            format_public_key(&other.public())
        );
        let config = read_hub(&self.write("hub.toml", &text)).unwrap();
        Running::start(self.lab.node(Node::Hub), move |stop| gateway::hub::run(config, false, stop))
    }

    fn terminal(&self, intercept: &str) -> Running {
        self.terminal_with(&self.keys[1], intercept)
    }

    fn other_terminal(&self, intercept: &str) -> Running {
        self.terminal_with(&self.keys[2], intercept)
    }

    fn terminal_with(&self, key: &PrivateKey, intercept: &str) -> Running {
        let text = format!(
            "private_key = \"{}\"\nhub = \"{}:5900\"\nhub_key = \"{}\"\nrate = \"200 Mbit/s\"\n\
             [intercept]\ninterfaces = [\"lan0\"]\n{intercept}\n",
            key.to_base64(),
            self.lab.address4(Node::Hub),
            format_public_key(&self.keys[0].public())
        );
        let config = read_terminal(&self.write("terminal.toml", &text)).unwrap();
        let node = self.lab.node(Node::Terminal);
        Running::start(node, move |stop| gateway::terminal::run(config, stop))
    }

    fn connect(&self, server: SocketAddr) -> Client {
        let socket = self.on(Node::Client, || TcpStream::connect_timeout(&server, PATIENCE));
        Client::new(socket.unwrap())
    }

    /// Connects repeatedly until connections are, or are not, accelerated.
    fn wait_until(&self, server: SocketAddr, accelerated: bool) {
        let began = Instant::now();
        while self.connect_unless_frozen(server) != Some(accelerated) {
            assert!(began.elapsed() < PATIENCE, "{server}: accelerated is not {accelerated}");
        }
    }

    /// `None` for a connection intercepted while the hub was dying, which stays silent.
    fn connect_unless_frozen(&self, server: SocketAddr) -> Option<bool> {
        let socket =
            self.on(Node::Client, || TcpStream::connect_timeout(&server, PATIENCE)).ok()?;
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let own = socket.local_addr().unwrap().ip();
        let mut line = String::new();
        BufReader::new(socket).read_line(&mut line).ok()?;
        Some(line.trim().parse::<IpAddr>().ok()? != own)
    }

    /// Asserts that the terminal has neither a table nor a rule of ours.
    fn assert_clean(&self) {
        for (program, arguments) in
            [("nft", &["list", "ruleset"][..]), ("ip", &["rule"]), ("ip", &["-6", "rule"])]
        {
            let Some(listed) = self.list(program, arguments) else { continue };
            assert!(!listed.contains("skyhop") && !listed.contains("lookup 59"), "{listed}");
        }
    }

    fn list(&self, program: &str, arguments: &[&str]) -> Option<String> {
        let places = [program.to_owned(), format!("/usr/sbin/{program}")];
        let run = |program: &String| -> Option<String> {
            let mut command: Command = self.lab.node(Node::Terminal).command(program);
            let output = command.args(arguments).output().ok()?;
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        places.iter().find_map(run)
    }
}

/// The server: sends the address it sees, then echoes.
fn serve(socket: &TcpStream) {
    let Ok(peer) = socket.peer_addr() else { return };
    let mut writer = socket;
    let _ = writeln!(writer, "{}", peer.ip().to_canonical());
    let _ = io::copy(&mut &*socket, &mut writer);
}

struct Client {
    reader: BufReader<TcpStream>,
    accelerated: bool,
}

impl Client {
    fn new(socket: TcpStream) -> Self {
        let mut reader = BufReader::new(socket);
        reader.get_ref().set_read_timeout(Some(PATIENCE)).unwrap();
        let seen: IpAddr = read_line(&mut reader).parse().unwrap();
        let own = reader.get_ref().local_addr().unwrap().ip();
        Self { reader, accelerated: seen != own }
    }

    fn exchange(&mut self, text: &str) -> String {
        writeln!(self.reader.get_mut(), "{text}").unwrap();
        read_line(&mut self.reader)
    }
}

fn read_line(reader: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// A gateway running in a thread on its node.
struct Running {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<(), RunError>>,
}

impl Running {
    fn start<F>(node: &NetNs, run: impl FnOnce(Stopped) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<(), RunError>>,
    {
        let node = node.clone();
        let (stop, stopped) = oneshot::channel();
        let stopped: Stopped = Box::pin(async { stopped.await.unwrap_or(()) });
        let thread = thread::spawn(move || {
            node.enter().unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(run(stopped))
        });
        Self { stop, thread }
    }

    fn stop(self) {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap().unwrap();
    }
}

type Stopped = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;
