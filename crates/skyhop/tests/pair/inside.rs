//! For programs inside a lab: the server's side of a connection, clients with time limits, and
//! gateways that they start and stop.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use gateway::keys::{PrivateKey, format_public_key};
use lab::{LAN_DEVICE, Node, find_netns};
use meter::protocol::payload::{Payload, PayloadSide};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::Pid;

/// Time limit for everything in these tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until something is so, which must come within `patience`.
pub(crate) fn wait_until(patience: Duration, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < patience, "it never is");
        thread::sleep(Duration::from_millis(20));
    }
}

/// IPv4 and IPv6 address of `server` with this port.
pub(crate) fn addresses(port: u16) -> [SocketAddr; 2] {
    let server: [IpAddr; 2] = [Node::Server.address4().into(), Node::Server.address6().into()];
    server.map(|address| SocketAddr::new(address, port))
}

/// A listener on `server` for both address families.
pub(crate) fn listen(port: u16) -> TcpListener {
    let listen = || TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).unwrap();
    find_netns(Node::Server).unwrap().run(listen)
}

/// The next connection of a client, which must come through the pair: the server sees the hub's
/// address, not the client's.
pub(crate) fn accept(listener: &TcpListener) -> TcpStream {
    let (socket, peer) = listener.accept().unwrap();
    assert!(!is_client(peer.ip()), "the connection passed the pair by");
    impatient(socket)
}

fn is_client(peer: IpAddr) -> bool {
    let client: [IpAddr; 2] = [Node::Client.address4().into(), Node::Client.address6().into()];
    client.contains(&peer.to_canonical())
}

/// A connection from this host.
pub(crate) fn connect(to: SocketAddr) -> TcpStream {
    impatient(TcpStream::connect_timeout(&to, PATIENCE).unwrap())
}

fn impatient(socket: TcpStream) -> TcpStream {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Closes the connection with a RST.
pub(crate) fn reset(socket: TcpStream) {
    let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
    setsockopt(&socket, sockopt::Linger, &at_once).unwrap();
    drop(socket);
}

/// Reads until the connection ends, which must be with a RST.
pub(crate) fn assert_reset(mut socket: &TcpStream) {
    let end = io::copy(&mut socket, &mut io::sink());
    assert_eq!(end.map_err(|error| error.kind()), Err(io::ErrorKind::ConnectionReset));
}

/// Bytes of which no two parts are alike.
pub(crate) fn payload(length: usize) -> Vec<u8> {
    let mut data = vec![0; length];
    Payload::new(0x2545_f491_4f6c_dd1d, PayloadSide::Client).fill(0, &mut data);
    data
}

/// Reads until a clean end.
pub(crate) fn read_all(mut socket: &TcpStream) -> Vec<u8> {
    let mut data = Vec::new();
    let end = socket.read_to_end(&mut data);
    end.unwrap_or_else(|error| panic!("after {} bytes: {error}", data.len()));
    data
}

/// Unlike `assert_eq`, does not print megabytes.
pub(crate) fn assert_same(got: &[u8], sent: &[u8]) {
    assert!(got == sent, "{} bytes came of {}, or others", got.len(), sent.len());
}

/// A server that tells each client whether it came through the pair, then echoes.
pub(crate) struct Mirror(SocketAddr);

impl Mirror {
    pub(crate) fn start(port: u16) -> Self {
        let listener = listen(port);
        thread::spawn(move || {
            for client in listener.incoming() {
                thread::spawn(move || mirror(&client.unwrap()));
            }
        });
        Self(addresses(port)[0])
    }

    /// A new connection, and whether it is carried. `None` if it stays silent for `patience`: it
    /// was intercepted while the hub was dying.
    pub(crate) fn try_connect(&self, patience: Duration) -> Option<(TcpStream, bool)> {
        let socket = connect(self.0);
        socket.set_read_timeout(Some(patience)).unwrap();
        let mut answer = [0];
        (&socket).read_exact(&mut answer).ok()?;
        Some((impatient(socket), answer == [b'c']))
    }

    /// A new connection, and whether it is carried.
    pub(crate) fn connect(&self) -> (TcpStream, bool) {
        self.try_connect(PATIENCE).expect("the server answers")
    }

    /// A new connection that is carried.
    pub(crate) fn connect_carried(&self) -> TcpStream {
        let (socket, carried) = self.connect();
        assert!(carried);
        socket
    }

    pub(crate) fn assert_passes_by(&self) {
        let (mut socket, carried) = self.connect();
        assert!(!carried);
        exchange(&mut socket);
    }
}

/// A new connection that is carried; earlier attempts may not be.
pub(crate) fn connect_carried_until(mirror: &Mirror) -> TcpStream {
    let began = Instant::now();
    loop {
        match mirror.try_connect(PATIENCE) {
            Some((socket, true)) => return socket,
            _ => assert!(began.elapsed() < PATIENCE, "nothing is carried"),
        }
    }
}

/// Sends data and receives it back.
pub(crate) fn exchange(socket: &mut TcpStream) {
    socket.write_all(b"ping").unwrap();
    let mut back = [0; 4];
    socket.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"ping");
}

fn mirror(socket: &TcpStream) -> io::Result<u64> {
    let (mut from, mut to) = (socket, socket);
    let carried = !is_client(socket.peer_addr()?.ip());
    to.write_all(if carried { b"c" } else { b"-" })?;
    io::copy(&mut from, &mut to)
}

/// The keys of a pair of gateways, to start each any number of times.
pub(crate) struct Pair {
    hub: PrivateKey,
    terminal: PrivateKey,
}

impl Pair {
    pub(crate) fn new() -> Self {
        let [hub, terminal] = [(); 2].map(|()| PrivateKey::generate().unwrap());
        Self { hub, terminal }
    }

    /// A running hub.
    pub(crate) fn hub(&self) -> Gateway {
        self.hub_with("")
    }

    /// A running hub with `more` at the end of its configuration, directly after the terminal's
    /// section.
    pub(crate) fn hub_with(&self, more: &str) -> Gateway {
        self.hub_with_keys("", more)
    }

    /// A running hub with these keys before the first section, and `more` at the end.
    pub(crate) fn hub_with_keys(&self, keys: &str, more: &str) -> Gateway {
        let mut hub = Gateway::start(Node::Hub, "hub", &self.hub_config(keys, more));
        hub.wait_for("ready");
        hub
    }

    pub(crate) fn hub_config(&self, keys: &str, more: &str) -> String {
        format!(
            "private_key = \"{}\"\nrate = \"100 Mbit/s\"\n{keys}\n\
             [[terminal]]\nname = \"ship\"\nkey = \"{}\"\n{more}",
            self.hub.to_base64(),
            format_public_key(&self.terminal.public())
        )
    }

    /// A hub with its own hosts file.
    pub(crate) fn hub_that_knows(&self, hosts: &str) -> Gateway {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(hosts.as_bytes()).unwrap();
        self.hub_that_reads(file.path(), "", "")
    }

    /// A hub with this file as its hosts file, these keys before the first section, and `more` at
    /// the end.
    pub(crate) fn hub_that_reads(&self, hosts: &Path, keys: &str, more: &str) -> Gateway {
        self.hub_with_files(&[(hosts, "/etc/hosts")], keys, more)
    }

    /// A hub that finds these files at those places.
    pub(crate) fn hub_with_files(
        &self,
        files: &[(&Path, &str)],
        keys: &str,
        more: &str,
    ) -> Gateway {
        let cover = "while [ $# -gt 0 ]; do mount --bind \"$1\" \"$2\" || exit 1; shift 2; done; \
                     exec \"$SKYHOP\" hub /dev/stdin";
        let mut command = find_netns(Node::Hub).unwrap().command("unshare");
        command.args(["--mount", "sh", "-c", cover, "sh"]);
        for (file, place) in files {
            command.arg(file).arg(place);
        }
        let mut hub = Gateway::run(command, &self.hub_config(keys, more));
        hub.wait_for("ready");
        hub
    }

    /// A terminal that looks for the hub.
    pub(crate) fn terminal(&self) -> Gateway {
        self.terminal_with(&format!("[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]"))
    }

    /// A terminal with these additional sections.
    pub(crate) fn terminal_with(&self, sections: &str) -> Gateway {
        let config = self.terminal_config(sections);
        let mut terminal = Gateway::start(Node::Terminal, "terminal", &config);
        terminal.wait_for("looking for the hub");
        terminal
    }

    /// Configuration of a terminal with these additional sections.
    pub(crate) fn terminal_config(&self, sections: &str) -> String {
        format!(
            "private_key = \"{}\"\nhub = \"hub:5900\"\nhub_key = \"{}\"\nrate = \"50 Mbit/s\"\n{sections}\n",
            self.terminal.to_base64(),
            format_public_key(&self.hub.public())
        )
    }

    /// Both gateways, in service.
    pub(crate) fn both(&self) -> (Gateway, Gateway) {
        let (hub, mut terminal) = (self.hub(), self.terminal());
        terminal.wait_for("ready");
        (hub, terminal)
    }
}

/// A gateway started by this program.
pub(crate) struct Gateway {
    process: Child,
    /// Its output on stdout and stderr.
    lines: Receiver<String>,
    /// Output that was read while waiting for other lines.
    said: Vec<String>,
}

impl Gateway {
    pub(crate) fn start(node: Node, role: &str, config: &str) -> Self {
        Self::start_with(node, role, config, &[])
    }

    /// Starts one with these environment variables.
    pub(crate) fn start_with(
        node: Node,
        role: &str,
        config: &str,
        variables: &[(&str, PathBuf)],
    ) -> Self {
        let skyhop = std::env::var_os("SKYHOP").unwrap();
        let mut command: Command = find_netns(node).unwrap().command(skyhop);
        command.args([role, "/dev/stdin"]).envs(variables.iter().map(|(name, at)| (name, at)));
        Self::run(command, config)
    }

    /// Starts one whose configuration can be reloaded.
    pub(crate) fn start_from(node: Node, role: &str, file: &Path) -> Self {
        let skyhop = std::env::var_os("SKYHOP").unwrap();
        let mut command = find_netns(node).unwrap().command(skyhop);
        command.arg(role).arg(file);
        Self::run(command, "")
    }

    /// Runs this command, with `config` on its stdin.
    pub(crate) fn run(mut command: Command, config: &str) -> Self {
        command.env_remove("SKYHOP_LOG");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let (sender, lines) = channel();
        forward(process.stdout.take().unwrap(), sender.clone());
        forward(process.stderr.take().unwrap(), sender);
        process.stdin.take().unwrap().write_all(config.as_bytes()).unwrap();
        Self { process, lines, said: Vec::new() }
    }

    /// Starts one with a limited number of descriptors.
    pub(crate) fn start_poor(node: Node, role: &str, config: &str, descriptors: usize) -> Self {
        let mut command = find_netns(node).unwrap().command("sh");
        let script = format!("ulimit -n {descriptors}; exec \"$SKYHOP\" {role} /dev/stdin");
        command.args(["-c", &script]);
        Self::run(command, config)
    }

    /// Its process.
    #[allow(dead_code, reason = "a benchmark uses it")]
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Fails, and says what it has said, if it has ended.
    #[allow(dead_code, reason = "a benchmark uses it")]
    pub(crate) fn assert_runs(&mut self) {
        if let Some(status) = self.process.try_wait().unwrap() {
            self.said.extend(self.lines.iter());
            panic!("it has ended, {status}, and said {:#?}", self.said);
        }
    }

    /// Number of lines that it has said since those read last.
    #[allow(dead_code, reason = "a benchmark uses it")]
    pub(crate) fn count_lines(&mut self) -> usize {
        let before = self.said.len();
        self.said.extend(self.lines.try_iter());
        self.said.len() - before
    }

    /// Waits for a line that contains this.
    pub(crate) fn wait_for(&mut self, part: &str) {
        self.line_with(part);
    }

    /// Whether a line with this came before those waited for.
    pub(crate) fn has_said(&self, part: &str) -> bool {
        self.said.iter().any(|line| line.contains(part))
    }

    /// Waits for a line that contains this, and returns it.
    pub(crate) fn line_with(&mut self, part: &str) -> String {
        loop {
            if let Some(at) = self.said.iter().position(|line| line.contains(part)) {
                return self.said.remove(at);
            }
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => self.said.push(line),
                Err(error) => panic!("did not say {part:?} but {:#?}: {error}", self.said),
            }
        }
    }

    /// Stops it; returns the counters that it logs at the end.
    pub(crate) fn end_with(mut self, signal: Signal) -> String {
        kill(Pid::from_raw(self.process.id() as i32), signal).unwrap();
        let told = self.line_with("stopped: ");
        self.end_by(signal);
        told
    }

    /// Number of open descriptors.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.process.id())).unwrap().count()
    }

    /// Resident memory in bytes.
    pub(crate) fn resident(&self) -> u64 {
        let file = format!("/proc/{}/status", self.process.id());
        let status = std::fs::read_to_string(file).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1024
    }

    /// Sends a signal and waits for the process to exit, which it must do as expected.
    pub(crate) fn end_by(mut self, signal: Signal) {
        kill(Pid::from_raw(self.process.id() as i32), signal).unwrap();
        let status = self.process.wait().unwrap();
        if signal == Signal::SIGKILL {
            assert_eq!(status.signal(), Some(signal as i32));
        } else {
            assert_eq!(status.code(), Some(0), "after {signal}: {status}");
        }
    }
}

impl Gateway {
    /// Sends SIGHUP, which reloads the configuration.
    pub(crate) fn hang_up(&self) {
        kill(Pid::from_raw(self.process.id() as i32), Signal::SIGHUP).unwrap();
    }

    /// Waits for it to exit in order by itself.
    pub(crate) fn wait_for_end(mut self) {
        let began = Instant::now();
        let status = loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                break status;
            }
            assert!(began.elapsed() < PATIENCE, "it goes on");
            thread::sleep(Duration::from_millis(20));
        };
        assert_eq!(status.code(), Some(0), "{status}");
    }
}

/// A failing test leaves no gateway behind.
impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn forward(output: impl Read + Send + 'static, sender: Sender<String>) {
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // The receiver is gone once the test is over or has seen enough.
            let _ = sender.send(line);
        }
    });
}
