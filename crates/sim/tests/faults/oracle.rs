//! What the endings must be.

use sim::{EndpointState, World};

use super::plan::{ClientEnd, Connection, Network, Plan, ServerEnd};

/// What has happened, so that a test can tell that everything has.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) connections: u64,
    pub(crate) bytes: u64,
    /// Both hosts have read everything up to the other's end.
    pub(crate) whole: u64,
    /// Broken off by a host: the other has learnt of it.
    pub(crate) resets: u64,
    /// Those of them before which the host had sent something that the other has read.
    pub(crate) resets_after_data: u64,
    pub(crate) refused: u64,
    pub(crate) timed_out: u64,
    /// Broken off because of a gateway.
    pub(crate) by_gateways: u64,
}

impl Counts {
    pub(crate) fn and(&self, other: &Self) -> Self {
        Self {
            connections: self.connections + other.connections,
            bytes: self.bytes + other.bytes,
            whole: self.whole + other.whole,
            resets: self.resets + other.resets,
            resets_after_data: self.resets_after_data + other.resets_after_data,
            refused: self.refused + other.refused,
            timed_out: self.timed_out + other.timed_out,
            by_gateways: self.by_gateways + other.by_gateways,
        }
    }

    pub(crate) fn assert_that_everything_happened(&self) {
        let Self { connections, whole, resets, resets_after_data, .. } = *self;
        let Self { refused, timed_out, by_gateways, .. } = *self;
        for (what, count) in [
            ("whole", whole),
            ("resets", resets),
            ("resets after data", resets_after_data),
            ("refused", refused),
            ("timed out", timed_out),
            ("by gateways", by_gateways),
        ] {
            assert!(count * 100 > connections, "only {count} of {connections} are {what}");
        }
    }
}

/// Judges a world at its end.
pub(crate) fn judge(plan: &Plan, world: &World, network: &Network) -> Counts {
    let mut counts = Counts::default();
    for (connection, key) in plan.connections.iter().zip(&network.connections) {
        let [client, server] = world.endings(*key).expect("it was opened");
        let context =
            || format!("{connection:#?}\nclient {client:?}\nserver {server:?}\n{plan:#?}");
        for (end, other) in [(client, server), (server, client)] {
            never_wrong(end, other, &context);
        }
        assert!(client.is_over(), "the client waits for ever: {}", context());
        assert!(
            !server.is_connected || server.is_over(),
            "the server waits for ever: {}",
            context()
        );
        if plan.is_calm() {
            as_the_hosts_have_ended_it(connection, client, server, &context);
        }
        count(&mut counts, connection, client, server);
    }
    for gateway in [network.terminal, network.hub] {
        let left = (world.connections(gateway), world.streams(gateway));
        assert_eq!(left, (0, 0), "connections and streams left at a gateway: {plan:#?}");
    }
    assert_eq!(world.sockets(), 0, "sockets left: {plan:#?}");
    counts
}

/// What holds whatever breaks.
fn never_wrong(end: EndpointState, other: EndpointState, context: &impl Fn() -> String) {
    assert!(end.read <= other.written, "bytes from nowhere: {}", context());
    if end.has_ended {
        assert!(other.has_finished, "an end that the other has not made: {}", context());
        assert_eq!(end.read, other.written, "cut off, and looks whole: {}", context());
    }
}

/// Without a fault of a gateway, each host learns exactly what the other has done.
fn as_the_hosts_have_ended_it(
    connection: &Connection,
    client: EndpointState,
    server: EndpointState,
    context: &impl Fn() -> String,
) {
    let is_reached = !matches!(connection.server, ServerEnd::Refuses | ServerEnd::Silent);
    for (end, other) in [(client, server), (server, client)] {
        let broke_off = other.has_reset || !is_reached;
        assert!(end.failure.is_none() || broke_off, "reset by nobody: {}", context());
        // After an end that was passed on, a reset may come too late to matter.
        if other.has_reset && !other.has_finished && end.is_connected {
            let learnt = end.failure.is_some() || end.has_reset;
            assert!(learnt, "a reset that looks like no reset: {}", context());
        }
    }
    if !is_reached {
        assert!(client.failure.is_some() || client.has_reset, "connected to nobody: {}", context());
        assert_eq!((client.read, client.has_ended), (0, false), "{}", context());
    }
    // What a host has sent before it reset the connection arrives before the reset, and all that it
    // has written if it had ended its data, unless it had not left yet.
    let reads = [
        !matches!(connection.client, ClientEnd::Unread(..)),
        !matches!(connection.server, ServerEnd::Unread(..)),
    ];
    for (reads, (end, other)) in reads.into_iter().zip([(client, server), (server, client)]) {
        if !is_reached || !reads || !end.is_connected || end.has_reset {
            continue;
        }
        if other.has_reset {
            assert!(end.read >= other.sent, "overtaken by a reset: {}", context());
        } else if other.has_finished {
            assert_eq!(end.read, other.written, "cut off by a close: {}", context());
        }
    }
    let is_clean = matches!(connection.client, ClientEnd::Polite | ClientEnd::HalfClose)
        && matches!(connection.server, ServerEnd::First | ServerEnd::Last);
    if is_clean {
        assert!(client.has_ended && server.has_ended, "not whole: {}", context());
    }
}

fn count(
    counts: &mut Counts,
    connection: &Connection,
    client: EndpointState,
    server: EndpointState,
) {
    counts.connections += 1;
    counts.bytes += client.read + server.read;
    let is_broken = client.failure.is_some() || server.failure.is_some();
    if client.has_ended && server.has_ended {
        counts.whole += 1;
    } else if client.has_reset || server.has_reset {
        counts.resets += 1;
        let has_read =
            |end: EndpointState, other: EndpointState| other.sent > 0 && end.read >= other.sent;
        let arrived = has_read(client, server) || has_read(server, client);
        counts.resets_after_data += u64::from(arrived);
    } else if is_broken {
        match connection.server {
            ServerEnd::Refuses => counts.refused += 1,
            ServerEnd::Silent => counts.timed_out += 1,
            _ => counts.by_gateways += 1,
        }
    }
}
