//! What SLACP promises at a fixed rate, as a table in virtual time:
//! `cargo bench -p skyhop-slacp --bench acceptance [-- PART OF A NAME]`.
//!
//! 600 ms round trip and a queue of one BDP unless said; rates are forward and
//! return, in Mbit/s. The limit is a round trip and the bytes at the rate of IP
//! packets less what the link loses. `-- side` prints quinn-proto beside it.

#[path = "../tests/kit/hop.rs"]
mod hop;
mod quic;
#[path = "quic/rows.rs"]
mod rivals;
#[path = "../tests/kit/rows/mod.rs"]
mod rows;

use rows::{Row, Scale, bulk, faults, fec, interactive};

type Group = (&'static str, fn(Scale) -> Vec<Row>);

const GROUPS: &[Group] = &[
    ("fast", bulk::fast),
    ("lossless", bulk::lossless),
    ("lossy", bulk::lossy),
    ("acknowledgements", bulk::acknowledgements),
    ("idle", interactive::idle),
    ("load", interactive::under_load),
    ("stalled", |_| faults::stalled_reader()),
    ("clean", fec::clean),
    ("loaded", fec::loaded),
    ("sparse", fec::sparse),
    ("outages", |_| faults::outages()),
    ("mangled", |_| faults::mangled()),
];

fn main() {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let chosen =
        |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()));
    let mut missed = 0;
    for (_, rows) in GROUPS.iter().filter(|(name, _)| chosen(name)) {
        for row in rows(Scale::FULL) {
            row.print();
            missed += usize::from(!row.ok);
        }
    }
    println!("{missed} missed");
    if chosen("side by side") {
        rivals::print(Scale::FULL);
    }
}
