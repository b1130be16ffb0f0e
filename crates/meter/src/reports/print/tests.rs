use serde_json::{Value, json};

use super::*;
use crate::reports::compare::{RunFile, compare};

fn report(json: Value) -> MeterReport {
    serde_json::from_value(json).expect("a report")
}

fn bulk() -> MeterReport {
    let sender = json!({
        "sent_bytes": 210_000, "segments": 150, "retransmitted_segments": 7,
        "retransmitted_bytes": 10_000, "min_rtt_seconds": 0.6003, "mean_rtt_seconds": 0.6124,
    });
    let flow = |flow: u32, outcome: Value, sender: Value| {
        json!({
            "flow": flow, "direction": "download", "client": "10.1.0.2:40000", "outcome": outcome,
            "asked_bytes": 200_000, "moved_bytes": 200_000, "start_seconds": 0.0,
            "connect_seconds": 0.602, "first_byte_seconds": null, "total_seconds": 3.7325,
            "receive_seconds": 3.0, "goodput_bits_per_second": 428_665, "sender": sender,
        })
    };
    report(json!({
        "meter": "bulk", "server": "192.0.2.1:5259", "directions": "download",
        "amount": {"bytes": 200_000}, "congestion_control": null,
        "flows": [
            flow(0, json!({"state": "complete"}), sender),
            flow(1, json!({"state": "corrupt", "offset": 7}), Value::Null),
        ],
        "sums": [{
            "direction": "download", "moved_bytes": 400_000, "total_seconds": 3.7325,
            "goodput_bits_per_second": 857_331, "jain_index": 0.9994, "retransmitted_segments": 7,
        }],
        "moved_bytes": 400_000, "total_seconds": 3.7325, "goodput_bits_per_second": 857_331,
        "jain_index": 0.9994,
    }))
}

#[test]
fn a_bulk_transfer_as_table_and_csv() {
    let expected = "\
flow  way       start    connect      first      total       moved         goodput  retrans    min RTT   mean RTT  outcome
   0  down    0.000 s    0.602 s          -    3.732 s   200.00 kB     0.43 Mbit/s        7   600.3 ms   612.4 ms  complete, verified
   1  down    0.000 s    0.602 s          -    3.732 s   200.00 kB     0.43 Mbit/s        -          -          -  corrupt from byte 7
1 of 2 flows complete: 400.00 kB in 3.732 s, 0.86 Mbit/s
down: 400.00 kB in 3.732 s, 0.86 Mbit/s, 7 segments retransmitted, Jain's index 0.999
";
    assert_eq!(bulk().to_string(), expected);
    let expected = "\
2,0,down,10.1.0.2:40000,complete,200000,200000,0,0.602,,3.7325,3,428665,210000,150,7,10000,0.6003,0.6124
2,1,down,10.1.0.2:40000,corrupt,200000,200000,0,0.602,,3.7325,3,428665,,,,,,
";
    assert_eq!(bulk().csv(2), expected);
    assert!(bulk().csv(1).starts_with("run,flow,direction,client,state,asked_bytes,moved_bytes,"));
}

#[test]
fn requests_as_table_and_csv() {
    let summary = json!({
        "count": 1, "min": 1.2, "mean": 1.2, "median": 1.2, "p90": 1.2, "p99": 1.2, "max": 1.2,
    });
    let report = report(json!({
        "meter": "rr", "server": "192.0.2.1:5259", "congestion_control": null,
        "request_bytes": 1000, "reply_bytes": 10_000,
        "connections": [{
            "connection": 0, "outcome": {"state": "unfinished"}, "asked": 2,
            "connect_seconds": 0.601, "total_seconds": 20.0,
            "responses": [{"connection": 0, "index": 0, "seconds": 1.2}],
        }],
        "total_seconds": 20.0, "response_seconds": summary,
    }));
    let expected = "\
conn    connect      total   answered  outcome
   0    0.601 s   20.000 s        1/2  unfinished at the time limit
1 of 2 requests answered in 20.000 s; response time: median 1.200 s, mean 1.200 s, p99 1.200 s, min 1.200 s, max 1.200 s
";
    assert_eq!(report.to_string(), expected);
    assert_eq!(report.csv(1), "run,connection,index,seconds\n1,0,0,1.2\n");
}

#[test]
fn a_comparison_has_a_table_for_each_metric() {
    let runs = |file: &str, seconds: &[f64]| {
        let run = |seconds: &f64| {
            let mut report = serde_json::to_value(bulk()).unwrap();
            report["flows"][1]["outcome"] = json!({"state": "complete"});
            report["total_seconds"] = json!(seconds);
            report.to_string()
        };
        RunFile::read(file, &seconds.iter().map(run).collect::<String>()).unwrap()
    };
    let text = compare(&[runs("cubic.json", &[4.0, 4.0]), runs("b", &[2.0, 2.0])], 1).unwrap();
    let text = text.to_string();
    let expected = "
completion time, s
file        runs       mean     median        min        max                 t 95 %                 t 98 %              boot 95 %              boot 98 %
cubic.json     2      4.000      4.000      4.000      4.000         4.000 to 4.000         4.000 to 4.000         4.000 to 4.000         4.000 to 4.000
b              2      2.000      2.000      2.000      2.000         2.000 to 2.000         2.000 to 2.000         2.000 to 2.000         2.000 to 2.000
            gain 2.000, 95 %: 2.000 to 2.000, 98 %: 2.000 to 2.000
";
    assert!(text.contains(expected), "{text}");
    assert!(text.starts_with("2 downloads of 200 kB each\n"), "{text}");
    assert!(text.contains("bootstrap (seed 1)"), "{text}");
}
