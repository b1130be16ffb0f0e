//! For programs inside a lab: the server's side of a connection, clients that
//! wait no longer than they should, and gateways that they start and end.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use gateway::keys::{PrivateKey, format_public_key};
use lab::{LAN_DEVICE, Node, find_netns};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::Pid;

/// Nothing in these tests takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The addresses of `server` on this port: IPv4 and IPv6.
pub(crate) fn addresses(port: u16) -> [SocketAddr; 2] {
    let server: [IpAddr; 2] = [Node::Server.address4().into(), Node::Server.address6().into()];
    server.map(|address| SocketAddr::new(address, port))
}

/// A listener on `server`, of both families.
pub(crate) fn listen(port: u16) -> TcpListener {
    let listen = || TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).unwrap();
    find_netns(Node::Server).unwrap().run(listen)
}

/// The next connection of a client, which the pair carries: the server sees the
/// hub and not the client.
pub(crate) fn accept(listener: &TcpListener) -> TcpStream {
    let (socket, peer) = listener.accept().unwrap();
    assert!(!is_client(peer.ip()), "the connection passed the pair by");
    impatient(socket)
}

fn is_client(peer: IpAddr) -> bool {
    let client: [IpAddr; 2] = [Node::Client.address4().into(), Node::Client.address6().into()];
    client.contains(&peer.to_canonical())
}

/// A connection from here.
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

/// Reads until the connection ends, which must be by a RST.
pub(crate) fn assert_reset(mut socket: &TcpStream) {
    let end = io::copy(&mut socket, &mut io::sink());
    assert_eq!(end.map_err(|error| error.kind()), Err(io::ErrorKind::ConnectionReset));
}

/// Bytes of which no two parts are alike.
pub(crate) fn payload(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..length.div_ceil(8)).flat_map(|_| next()).take(length).collect()
}

/// All that comes until a clean end.
pub(crate) fn read_all(mut socket: &TcpStream) -> Vec<u8> {
    let mut data = Vec::new();
    let end = socket.read_to_end(&mut data);
    end.unwrap_or_else(|error| panic!("after {} bytes: {error}", data.len()));
    data
}

/// Not `assert_eq`: nobody wants to see megabytes.
pub(crate) fn assert_same(got: &[u8], sent: &[u8]) {
    assert!(got == sent, "{} bytes came of {}, or others", got.len(), sent.len());
}

/// A server that tells each client whether the pair carries it, then sends back
/// what it gets.
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

    /// A new connection, and whether it is carried. `None` if it says nothing for
    /// as long as `patience`: it was taken over while the hub was dying.
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

/// A new connection that is carried, though those before may not be yet.
pub(crate) fn connect_carried_until(mirror: &Mirror) -> TcpStream {
    let began = Instant::now();
    loop {
        match mirror.try_connect(PATIENCE) {
            Some((socket, true)) => return socket,
            _ => assert!(began.elapsed() < PATIENCE, "nothing is carried"),
        }
    }
}

/// Says something and hears it back.
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

/// The keys of a pair of gateways, to start each as often as is wanted.
pub(crate) struct Pair {
    hub: PrivateKey,
    terminal: PrivateKey,
}

impl Pair {
    pub(crate) fn new() -> Self {
        let [hub, terminal] = [(); 2].map(|()| PrivateKey::generate().unwrap());
        Self { hub, terminal }
    }

    /// A hub in service.
    pub(crate) fn hub(&self) -> Gateway {
        self.hub_with("")
    }

    /// A hub in service whose configuration ends so; the section of its terminal
    /// comes last before.
    pub(crate) fn hub_with(&self, more: &str) -> Gateway {
        self.hub_with_keys("", more)
    }

    /// The same, with these keys before the first section.
    pub(crate) fn hub_with_keys(&self, keys: &str, more: &str) -> Gateway {
        let mut hub = Gateway::start(Node::Hub, "hub", &self.hub_config(keys, more));
        hub.wait_for("ready");
        hub
    }

    fn hub_config(&self, keys: &str, more: &str) -> String {
        format!(
            "private_key = \"{}\"\nrate = \"100 Mbit/s\"\n{keys}\n\
             [[terminal]]\nname = \"ship\"\nkey = \"{}\"\n{more}",
            self.hub.to_base64(),
            format_public_key(&self.terminal.public())
        )
    }

    /// A hub that has this file of hosts, and nobody else has it.
    pub(crate) fn hub_that_knows(&self, hosts: &str) -> Gateway {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(hosts.as_bytes()).unwrap();
        self.hub_that_reads(file.path(), "", "")
    }

    /// A hub that has this in place of its file of hosts, with these keys before the first
    /// section and these at the end.
    pub(crate) fn hub_that_reads(&self, hosts: &Path, keys: &str, more: &str) -> Gateway {
        let skyhop = std::env::var_os("SKYHOP").unwrap();
        let mut command = find_netns(Node::Hub).unwrap().command(skyhop);
        command.args(["hub", "/dev/stdin"]);
        let path = hosts.to_owned();
        let cover = move || {
            unshare(CloneFlags::CLONE_NEWNS)?;
            mount(
                None::<&str>,
                "/",
                None::<&str>,
                MsFlags::MS_PRIVATE | MsFlags::MS_REC,
                None::<&str>,
            )?;
            mount(Some(&path), "/etc/hosts", None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
            Ok(())
        };
        // SAFETY: system calls alone, on memory that is there already.
        unsafe { command.pre_exec(cover) };
        let mut hub = Gateway::run(command, &self.hub_config(keys, more));
        hub.wait_for("ready");
        hub
    }

    /// A terminal that looks for the hub.
    pub(crate) fn terminal(&self) -> Gateway {
        self.terminal_with(&format!("[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]"))
    }

    /// The same with these sections.
    pub(crate) fn terminal_with(&self, sections: &str) -> Gateway {
        let config = self.terminal_config(sections);
        let mut terminal = Gateway::start(Node::Terminal, "terminal", &config);
        terminal.wait_for("looking for the hub");
        terminal
    }

    /// The configuration of such a terminal.
    pub(crate) fn terminal_config(&self, sections: &str) -> String {
        format!(
            "private_key = \"{}\"\nhub = \"hub:5900\"\nhub_key = \"{}\"\nrate = \"50 Mbit/s\"\n{sections}\n",
            self.terminal.to_base64(),
            format_public_key(&self.hub.public())
        )
    }

    /// Both, carrying connections.
    pub(crate) fn both(&self) -> (Gateway, Gateway) {
        let (hub, mut terminal) = (self.hub(), self.terminal());
        terminal.wait_for("ready");
        (hub, terminal)
    }
}

/// A gateway that this program has started.
pub(crate) struct Gateway {
    process: Child,
    /// What it says, on stdout and stderr.
    lines: Receiver<String>,
    /// What it has said and nobody has waited for.
    said: Vec<String>,
}

impl Gateway {
    pub(crate) fn start(node: Node, role: &str, config: &str) -> Self {
        Self::start_with(node, role, config, &[])
    }

    /// The same, with variables in its environment.
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

    /// Starts one with a configuration that it can read again.
    pub(crate) fn start_from(node: Node, role: &str, file: &Path) -> Self {
        let skyhop = std::env::var_os("SKYHOP").unwrap();
        let mut command = find_netns(node).unwrap().command(skyhop);
        command.arg(role).arg(file);
        Self::run(command, "")
    }

    /// Starts this command, with `config` on its stdin.
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

    /// Starts one that may have so many descriptors.
    pub(crate) fn start_poor(node: Node, role: &str, config: &str, descriptors: usize) -> Self {
        let mut command = find_netns(node).unwrap().command("sh");
        let script = format!("ulimit -n {descriptors}; exec \"$SKYHOP\" {role} /dev/stdin");
        command.args(["-c", &script]);
        Self::run(command, config)
    }

    /// Waits until it says a line with this in it.
    pub(crate) fn wait_for(&mut self, part: &str) {
        self.line_with(part);
    }

    /// Whether it has said a line with this in it before those waited for.
    pub(crate) fn has_said(&self, part: &str) -> bool {
        self.said.iter().any(|line| line.contains(part))
    }

    /// The line with this in it, once it has said it.
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

    /// The same; what it counted, as it tells at its end.
    pub(crate) fn end_with(mut self, signal: Signal) -> String {
        kill(Pid::from_raw(self.process.id() as i32), signal).unwrap();
        let told = self.line_with("stopped: ");
        self.end_by(signal);
        told
    }

    /// How many descriptors it has open.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.process.id())).unwrap().count()
    }

    /// Its resident memory, in bytes.
    pub(crate) fn resident(&self) -> u64 {
        let file = format!("/proc/{}/status", self.process.id());
        let status = std::fs::read_to_string(file).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1024
    }

    /// Sends it a signal and waits for its end, which must be the right one.
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
    /// SIGHUP: it is to read its configuration again.
    pub(crate) fn hang_up(&self) {
        kill(Pid::from_raw(self.process.id() as i32), Signal::SIGHUP).unwrap();
    }

    /// Waits until it ends by itself, as it should.
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

/// A test that fails leaves none behind.
impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn forward(output: impl Read + Send + 'static, sender: Sender<String>) {
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // The test is over, or has seen enough.
            let _ = sender.send(line);
        }
    });
}
