//! Prints the throughput of the random access schemes over the offered load, as a table in
//! Markdown: `cargo run --release -p skyhop-link --example random-access`.

use link::dama::random_access::{AccessScheme, ContentionBlock, open_loop};

const SLOTS: u16 = 100;
const BLOCKS: u32 = 20_000;
const SEED: u64 = 1;
const SCHEMES: [&str; 6] =
    ["slotted-aloha", "dsa 2", "dsa 3", "crdsa 2", "crdsa 3 iterations=4", "crdsa 3"];

fn main() {
    let schemes = SCHEMES.map(|text| text.parse::<AccessScheme>().expect("a scheme of the list"));
    let blocks = schemes.map(|scheme| ContentionBlock::new(scheme, SLOTS).expect("enough slots"));
    println!("| G | {} |", SCHEMES.join(" | "));
    println!("|---|{}", "---|".repeat(SCHEMES.len()));
    let loads = (1..=12).map(|tenths| f64::from(tenths) / 10.0);
    for load in loads {
        let cells = blocks.map(|block| {
            let ours = open_loop(block, load, BLOCKS, SEED);
            let theory = block.scheme().throughput(load);
            format!("{:.3} ({theory:.3})", ours.throughput)
        });
        println!("| {load:.1} | {} |", cells.join(" | "));
    }
    let peaks = blocks.map(|block| {
        let loads = (20..=120).map(|hundredths| f64::from(hundredths) / 100.0);
        let measured = loads.map(|load| (load, open_loop(block, load, BLOCKS / 10, SEED)));
        let (load, best) =
            measured.max_by(|a, b| a.1.throughput.total_cmp(&b.1.throughput)).expect("loads");
        format!("{:.2} at {load:.2}", best.throughput)
    });
    println!("| peak | {} |", peaks.join(" | "));
}
