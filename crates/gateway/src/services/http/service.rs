//! `[http]` as services: the hub's exchanges and the terminal's cache.

use std::time::Duration;

use control::status::GatewayStatus;
use slacp::ResetReason;

use super::hub::{ExchangeJob, HubHttp};
use super::{TerminalHttp, serve};
use crate::figures::connections::ArrivingConnection;
use crate::intercept::ClientArrival;
use crate::intercept::listener::AcceptedConnection;
use crate::services::http::hub::store::CacheTenant;
use crate::services::{Admitted, Service, Surroundings};

impl Service for HubHttp {
    fn has_exchanges(&self) -> bool {
        true
    }

    fn exchange(&mut self, role: &mut Surroundings<'_>, admitted: Admitted) {
        let Admitted { stream, open, addresses, admission } = admitted;
        let Some((side, terminal)) = role.hub.as_ref().zip(role.terminal(stream.session())) else {
            return role.refuse(stream, &open, ResetReason::Prohibited);
        };
        let asker = CacheTenant::new(&terminal.key, terminal.cache.as_deref());
        let policy = side.dial;
        let counters = role.counters.clone();
        let job = ExchangeJob { stream, open, addresses, admission, policy, counters, asker };
        role.relays.spawn(self.clone().run_exchange(job));
    }

    fn housekeep(&mut self, _: &mut Surroundings<'_>) {
        self.close_idle();
    }

    fn add_status(&self, _: &Surroundings<'_>, status: &mut GatewayStatus) {
        status.http = Some(self.status());
    }

    fn release(&mut self, _: &mut Surroundings<'_>, _: Duration) -> bool {
        self.leave_disk();
        true
    }
}

impl Service for TerminalHttp {
    fn take(
        &mut self,
        role: &mut Surroundings<'_>,
        arrival: ClientArrival,
    ) -> Option<ClientArrival> {
        match arrival {
            ClientArrival::Connection(AcceptedConnection { socket, open })
                if self.shared.takes(open.destination.port()) =>
            {
                let arriving = ArrivingConnection::new(role.counters.clone(), open.source.ip());
                let shared = self.shared();
                role.relays.spawn(async move {
                    // `serve` registers the connection before its first await, so it is counted
                    // throughout.
                    drop(arriving);
                    serve(shared, socket, open.into()).await;
                });
                None
            }
            arrival => Some(arrival),
        }
    }

    fn follow_uplink(&mut self, role: &mut Surroundings<'_>) {
        self.set(role.uplink.route());
    }

    fn offline_ports(&self) -> &[u16] {
        self.ports_to_serve_offline()
    }

    fn add_status(&self, _: &Surroundings<'_>, status: &mut GatewayStatus) {
        status.http = Some(self.status());
    }
}
