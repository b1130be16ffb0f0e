//! Check that the hub answers.

use std::net::{SocketAddr, ToSocketAddrs};

use config::{KnownHub, TerminalConfig};
use slacp::PublicKey;

use super::CheckFinding;
use crate::config::keys::format_public_key;
use crate::hop::knock::{HubProbe, ProbeAnswer};

const CHECK: &str = "hub";

/// Begins a handshake with the hub of this key, as the terminal would. An existing session is not replaced.
pub(super) fn check(config: &TerminalConfig, hub: &KnownHub, hub_key: PublicKey) -> CheckFinding {
    let name = hub.address.as_str();
    let addresses: Vec<SocketAddr> = match name.to_socket_addrs() {
        Ok(addresses) => addresses.collect(),
        Err(error) => {
            let mend = "correct `hub` or the name service, or use an address";
            return CheckFinding::fail(CHECK, format!("cannot resolve {name}: {error}"), mend);
        }
    };
    let link = config.link.clone();
    let identity = config.identity.clone();
    match HubProbe::new(link, identity, hub_key, addresses).probe() {
        Ok(ProbeAnswer::Permitted(address, time)) => {
            let ms = time.as_secs_f64() * 1e3;
            CheckFinding::ok(
                CHECK,
                format!("{name} ({address}) answers in {ms:.0} ms and knows this terminal's key"),
            )
        }
        Ok(ProbeAnswer::Refused(why)) => {
            CheckFinding::fail(CHECK, why, "run the same version of skyhop on both sides")
        }
        Ok(ProbeAnswer::Silence) => {
            let key = format_public_key(&config.identity.public());
            let mend = format!(
                "check that the hub runs, that firewalls pass UDP to it, that `hub_key` is its \
                 key, and that it has a [[terminal]] with key = \"{key}\""
            );
            CheckFinding::fail(CHECK, format!("{name} does not answer"), mend)
        }
        Err(error) => {
            let mend = "check the route with `ip route get`";
            CheckFinding::fail(CHECK, format!("{name} cannot be reached: {error}"), mend)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    use slacp::Endpoint;

    use super::*;
    use crate::config::pair::NewPair;
    use crate::config::{read_hub, read_terminal};
    use crate::doctor::FindingSeverity;
    use crate::process::clock;

    /// Asks a hub on loopback that knows the terminal.
    fn ask_a_hub() -> CheckFinding {
        let directory = tempfile::tempdir().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let pair = NewPair {
            hub: format!("127.0.0.1:{port}"),
            port,
            hub_rate: "10 Mbit/s".to_owned(),
            terminal_rate: "auto".to_owned(),
            interface: "lo".to_owned(),
            name: "ship".to_owned(),
            metered: false,
            hub_tcp: None,
            other_hubs: Vec::new(),
        };
        let [hub, terminal] = pair.write(directory.path()).unwrap();
        let (hub, terminal) = (read_hub(&hub).unwrap(), read_terminal(&terminal).unwrap());
        let allow = vec![hub.terminals[0].key];
        let mut endpoint = Endpoint::hub(hub.link, hub.identity, allow, [3; 32]);
        let is_done = AtomicBool::new(false);
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let serve = || {
            let (mut buffer, mut datagram) = (vec![0; 1 << 16], Vec::new());
            while !is_done.load(Ordering::Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
                endpoint.handle_datagram(clock::now(), from, &mut buffer[..length]);
                while let Some(to) = endpoint.poll_transmit(clock::now(), &mut datagram) {
                    socket.send_to(&datagram, to).unwrap();
                }
            }
        };
        thread::scope(|scope| {
            scope.spawn(serve);
            let found = check(&terminal, &terminal.hubs[0], terminal.hubs[0].key);
            is_done.store(true, Ordering::Relaxed);
            found
        })
    }

    #[test]
    fn a_hub_that_knows_the_key_answers() {
        let found = ask_a_hub();
        assert_eq!(found.verdict, FindingSeverity::Ok, "{found}");
        assert!(found.text.contains("answers in") && found.text.contains("knows"), "{found}");
    }
}
