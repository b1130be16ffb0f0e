//! Gateways in a lab with arbitrary configurations, for programs inside it, and connections between
//! any two of its hosts.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

use gateway::keys::{PrivateKey, format_public_key};
use lab::{LAN_DEVICE, Node, find_netns};
use slacp::{KeyPair, PublicKey};

use crate::inside::{Gateway, PATIENCE, connect};

/// A terminal that accepts connections from the hub's side to every client.
pub(crate) const ACCEPT: &str = "[accept]\nto = [\"0.0.0.0/0\", \"::/0\"]\n";

/// The keys of a hub and of the terminals of a test.
pub(crate) struct Keys {
    hub: PrivateKey,
    terminals: Vec<PrivateKey>,
}

impl Keys {
    pub(crate) fn new(terminals: usize) -> Self {
        let key = || PrivateKey::generate().unwrap();
        Self { hub: key(), terminals: (0..terminals).map(|_| key()).collect() }
    }

    /// The keys of the `number`-th terminal and of its hub, for a peer that is no gateway.
    #[allow(dead_code, reason = "a benchmark uses it")]
    pub(crate) fn of_terminal(&self, number: u8) -> (KeyPair, PublicKey) {
        (self.terminals[usize::from(number) - 1].pair(), self.hub.public())
    }

    /// A running hub that knows its terminals' networks.
    pub(crate) fn hub(&self, keys: &str, sections: &str) -> Gateway {
        let mut hub = Gateway::start(Node::Hub, "hub", &self.hub_config(keys, sections));
        hub.wait_for("ready");
        hub
    }

    /// A running hub that also intercepts connections to its terminals.
    pub(crate) fn intercepting_hub(&self, keys: &str, intercept: &str) -> Gateway {
        let section = format!("[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]\n{intercept}\n");
        self.hub(keys, &section)
    }

    pub(crate) fn hub_config(&self, keys: &str, sections: &str) -> String {
        let terminal = |(number, key): (u8, &PrivateKey)| {
            let client = Node::client(number).unwrap();
            let networks = [format!("{}/24", lan(client)[0]), format!("{}/64", lan(client)[1])];
            let key = format_public_key(&key.public());
            format!("[[terminal]]\nname = \"{number}\"\nkey = \"{key}\"\nnetworks = {networks:?}\n")
        };
        let terminals: String = (1..).zip(&self.terminals).map(terminal).collect();
        let key = self.hub.to_base64();
        let rate = if keys.contains("rate =") { "" } else { "rate = \"100 Mbit/s\"" };
        format!("private_key = \"{key}\"\n{rate}\n{keys}\n{sections}\n{terminals}")
    }

    /// The `number`-th terminal, in service.
    pub(crate) fn terminal(&self, number: u8, keys: &str, intercept: &str) -> Gateway {
        self.terminal_on(Node::terminal(number).unwrap(), number, keys, intercept)
    }

    /// The `number`-th terminal on any host.
    pub(crate) fn terminal_on(
        &self,
        node: Node,
        number: u8,
        keys: &str,
        intercept: &str,
    ) -> Gateway {
        let config = self.terminal_config(number, keys, intercept);
        let mut terminal = Gateway::start(node, "terminal", &config);
        terminal.wait_for("ready");
        terminal
    }

    /// Configuration of the `number`-th terminal.
    pub(crate) fn terminal_config(&self, number: u8, keys: &str, intercept: &str) -> String {
        let rate = if keys.contains("rate =") { "" } else { "rate = \"50 Mbit/s\"" };
        format!(
            "private_key = \"{}\"\nhub = \"hub:5900\"\nhub_key = \"{}\"\n{rate}\n\
             {keys}\n{ACCEPT}[intercept]\ninterfaces = [\"{LAN_DEVICE}\"]\n{intercept}\n",
            self.terminals[usize::from(number) - 1].to_base64(),
            format_public_key(&self.hub.public())
        )
    }
}

/// First addresses of a host's LAN.
fn lan(node: Node) -> [IpAddr; 2] {
    let v4 = node.address4().to_bits() & !0xff;
    let v6 = node.address6().to_bits() & !u128::from(u64::MAX);
    [IpAddr::V4(v4.into()), IpAddr::V6(v6.into())]
}

/// The host's IPv4 and IPv6 address with this port.
pub(crate) fn both(node: Node, port: u16) -> [SocketAddr; 2] {
    let addresses: [IpAddr; 2] = [node.address4().into(), node.address6().into()];
    addresses.map(|address| SocketAddr::new(address, port))
}

/// A listener on this host for one address family.
pub(crate) fn listen_on(node: Node, address: SocketAddr) -> TcpListener {
    find_netns(node).unwrap().run(|| TcpListener::bind(address)).unwrap()
}

/// A connection from this host.
pub(crate) fn connect_from(node: Node, to: SocketAddr) -> TcpStream {
    find_netns(node).unwrap().run(|| connect(to))
}

/// The next connection, with its original destination.
pub(crate) fn accept_any(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    let (socket, peer) = listener.accept().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
    (socket, peer)
}
