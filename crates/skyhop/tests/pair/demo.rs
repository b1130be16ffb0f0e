//! `skyhop demo`.

use crate::common::{as_each_user, text};

#[test]
fn the_demo_ends_in_a_table() {
    let link =
        ["--rate", "100Mbit/s", "--return-rate", "20Mbit/s", "--delay", "25ms", "--per", "0"];
    as_each_user(|runner| {
        let mut demo = runner.skyhop();
        demo.args(["demo", "--only", "download", "--runs", "1"]).args(link);
        let output = demo.output().unwrap();
        let (table, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{table}\n{said}");
        assert!(table.contains("Download of 20 MB"), "{table}");
        let ours = table.lines().find_map(|line| line.trim().strip_prefix("skyhop "));
        let ours: Vec<&str> = ours.expect("a row of ours").split_whitespace().collect();
        // Time, first byte, goodput, of the limit, share, gain.
        let [time, _, goodput, _, "%", share, "%", gain, "×"] = ours[..] else {
            panic!("not what was expected: {ours:?}\n{table}");
        };
        let [time, goodput, share, gain] =
            [time, goodput, share, gain].map(|figure| figure.parse::<f64>().unwrap());
        assert!((goodput - 160.0 / time).abs() < 1.0, "{table}");
        assert!((1.0..=100.0).contains(&share) && gain > 0.0, "{table}");
    });
}
