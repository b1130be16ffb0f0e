//! Other gateways of this network namespace that intercept connections from the same interfaces. A SYN passes
//! through the tables of all of them, and the last one decides. It belongs to the gateway that was started
//! first: the kernel puts a new chain before those of the same priority.

use std::io;

use control::status::SharedInterface;
use nix::unistd::getppid;
use os::netlink::netfilter::NetfilterSocket;

use super::netfilter::{GatewaySlot, INTERFACE_CHAIN};
use crate::network::namespace_slot::NamespaceSlot;
use crate::network::nft::table::{FAMILY, process_of};

/// Finds the tables of gateways other than `own` that name one of these interfaces; none if tables cannot be
/// listed.
pub(crate) fn find(interfaces: &[String], own: Option<GatewaySlot>) -> Vec<SharedInterface> {
    look_up(interfaces, own).unwrap_or_else(|error| {
        tracing::debug!("cannot list the interfaces of other gateways: {error}");
        Vec::new()
    })
}

/// Logs a warning for each interface that is shared with a gateway other than `own`.
pub(crate) fn warn(interfaces: &[String], own: GatewaySlot) {
    find(interfaces, Some(own)).iter().for_each(|shared| tracing::warn!("{shared}"));
}

fn look_up(interfaces: &[String], own: Option<GatewaySlot>) -> io::Result<Vec<SharedInterface>> {
    let mut found = Vec::new();
    if interfaces.is_empty() {
        return Ok(found);
    }
    let socket = NetfilterSocket::open()?;
    let others = GatewaySlot::all().filter(|slot| Some(*slot) != own);
    let others: Vec<String> = others.map(NamespaceSlot::table_name).collect();
    // A hub starts its successor, and leaves the interfaces to it.
    let predecessor = u32::try_from(getppid().as_raw()).ok();
    for table in socket.tables(FAMILY)? {
        let process = table.comment.as_deref().and_then(process_of);
        if !others.contains(&table.name) || process.is_some() && process == predecessor {
            continue;
        }
        let claimed = socket.compared_texts(FAMILY, &table.name, INTERFACE_CHAIN)?;
        let shared = claimed.into_iter().filter(|interface| interfaces.contains(interface));
        found.extend(shared.map(|interface| SharedInterface {
            interface,
            process,
            table: table.name.clone(),
        }));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use config::InterceptConfig;

    use super::*;
    use crate::intercept::interception::rules;
    use crate::intercept::netfilter::{InterceptTable, Scope};
    use crate::testkit::{in_namespace, nft};

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn shared(interfaces: &[&str], own: u32) -> Vec<(String, String)> {
        let found = find(&names(interfaces), Some(GatewaySlot(own)));
        assert!(found.iter().all(|shared| shared.process == Some(std::process::id())), "{found:?}");
        found.into_iter().map(|shared| (shared.interface, shared.table)).collect()
    }

    #[test]
    fn tables_that_name_the_same_interface_are_found_whether_they_intercept_or_not() {
        in_namespace(|| {
            let mut first = InterceptTable::claim(false, &names(&["lan0", "lan1"])).unwrap();
            let _second = InterceptTable::claim(true, &names(&["lan1", "lan10"])).unwrap();
            let of = |interface: &str, table: &str| (interface.to_owned(), table.to_owned());
            assert_eq!(shared(&["lan0", "lan1"], 0), [of("lan1", "skyhop-1")]);
            assert_eq!(shared(&["lan1", "lan10"], 1), [of("lan1", "skyhop-0")]);
            assert_eq!(shared(&["lan", "lan2"], 1), []);
            assert_eq!(shared(&[], 1), []);
            // The doctor has no table.
            assert_eq!(find(&names(&["lan1"]), None).len(), 2);

            // The interfaces follow the configuration, whatever the scope.
            first.add_own().unwrap();
            let interfaces = names(&["lan0"]);
            let config =
                InterceptConfig { interfaces, own_traffic: true, ..InterceptConfig::nowhere() };
            for scope in [Scope::Everything, Scope::Nothing] {
                first.apply(&rules(&config, &[], vec![]), &scope).unwrap();
                let expected = [of("lan0", "skyhop-0"), of("lo", "skyhop-0")];
                assert_eq!(shared(&["lan0", "lan1", "lo"], 1), expected, "{scope:?}");
            }
            drop(first);
            assert_eq!(shared(&["lan0", "lan1"], 1), []);
        });
    }

    #[test]
    fn tables_of_other_programs_name_no_interfaces() {
        in_namespace(|| {
            const TABLES: &str = "table inet skyhop-3 { comment \"process 7\"; }
                table inet other { chain interfaces { iifname \"lan0\"; }; }";
            if nft(&["-f", "-"], TABLES).is_some() {
                assert_eq!(find(&names(&["lan0"]), None), []);
            }
        });
    }
}
