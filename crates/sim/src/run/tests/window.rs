//! Gateways that limit windows, on the SLACP paper's return link.

use super::*;

const DAMA: &str = include_str!("../../../../../scenarios/slacp-fig6.toml");

/// Time of the last of the transfers, and packets that the MAC buffer dropped.
fn upload(name: &str) -> (f64, f64) {
    let cases = Scenario::parse("x.toml", DAMA).unwrap().cases;
    let case = cases.into_iter().find(|case| case.name == name).unwrap();
    let metrics = run(&case, 1);
    (value(&metrics, "bulk", "time-max-s"), value(&metrics, "return", "dropped-packets"))
}

/// Slow start overshoots a MAC buffer of 600 cells, unless the sender's window keeps it from that.
#[test]
fn nothing_is_dropped_where_windows_are_limited() {
    for name in ["VBDC, none, reference", "four, VBDC, none, reference", "RBDC, none, reference"] {
        let [(plain, dropped), (limited, none)] =
            [name.to_owned(), format!("{name}, window")].map(|name| upload(&name));
        assert!(dropped > 0.0 && none == 0.0, "{name}: {dropped} and {none} packets");
        assert!(limited < plain, "{name}: {limited} against {plain} s");
    }
}
