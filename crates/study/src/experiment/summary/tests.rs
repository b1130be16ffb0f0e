use std::time::Duration;

use units::{BitRate, Probability};

use super::*;

fn limit(task: Task) -> LinkLimit {
    let rate = BitRate::from_mbit(if task == Task::Upload { 10 } else { 50 });
    LinkLimit { rate, per: Probability::new(0.01).unwrap(), rtt: Duration::from_millis(600) }
}

fn entry(task: Task, way: &TrafficPath, figures: TaskFigures) -> MeasurementEntry {
    MeasurementEntry { round: 0, task, way: way.clone(), figures: Some(figures), failure: None }
}

fn flow(task: Task, way: &TrafficPath, bytes: u64, seconds: f64) -> MeasurementEntry {
    let first_byte_seconds = Some(if *way == TrafficPath::Pair { 0.601 } else { 1.204 });
    let figures = TaskFigures::new(task, bytes, seconds, &limit(task));
    entry(task, way, TaskFigures { first_byte_seconds, ..figures })
}

fn requests(
    way: &TrafficPath,
    done: u64,
    seconds: f64,
    [least, most]: [f64; 2],
) -> MeasurementEntry {
    let figures = TaskFigures::new(Task::Requests, done, seconds, &limit(Task::Requests));
    entry(Task::Requests, way, figures.with_responses(&[least, least, most]))
}

fn failed(task: Task, way: &TrafficPath, why: &str) -> MeasurementEntry {
    let failure = Some(why.to_owned());
    MeasurementEntry { round: 0, task, way: way.clone(), figures: None, failure }
}

fn ways() -> [TrafficPath; 3] {
    TrafficPath::all(Some(&"bbr".parse().unwrap())).try_into().unwrap()
}

fn table(entries: &[MeasurementEntry], tasks: &[Task], unavailable: &[Unavailable]) -> String {
    let entries: Vec<&MeasurementEntry> = entries.iter().collect();
    let limits = [&limit(Task::Download), &limit(Task::Upload)];
    text(&SummaryInput { entries: &entries, tasks, ways: &ways(), unavailable, limits })
}

#[test]
fn one_round_as_a_whole() {
    let [cubic, bbr, pair] = ways();
    let entries = [
        flow(Task::Download, &pair, 20_000_000, 4.0),
        flow(Task::Download, &bbr, 20_000_000, 12.5),
        flow(Task::Download, &cubic, 1_520_000, 12.0),
        requests(&cubic, 65, 5.25, [0.61, 1.9]),
        requests(&bbr, 100, 4.75, [0.605, 1.875]),
        requests(&pair, 100, 3.25, [0.6034, 1.2]),
    ];
    let expected = "\
Download of 20 MB
                         time  first byte  goodput  goodput  share ¹  gain ²
                            s           s   Mbit/s  / limit
  plain CUBIC          >12.00        1.20     1.01    2.0 %    7.0 %          not finished: 1.52 MB in 12.0 s
  plain BBR (default)   12.50        1.20    12.80     26 %     31 %
  skyhop                 4.00        0.60    40.00     81 %     96 %   3.1 ×

100 requests of 1 kB, replies of 10 kB, over 20 connections
                         time      median      p99  goodput  share ¹  gain ²
                            s          ms       ms   Mbit/s
  plain CUBIC           >5.25         610     1874     0.99     46 %          not finished: 65 replies in 5.2 s
  plain BBR (default)    4.75         605     1850     1.68     63 %
  skyhop                 3.25         603     1188     2.46     93 %   1.5 ×

All payload is verified at the receiver.
limit    rate × (1 − PER): 49.5 Mbit/s down, 9.9 Mbit/s up; headers are not deducted
¹ share  least time over time taken, both for the data moved;
         least time = 1 RTT (600 ms: request up, first byte down) + bytes / limit.
         Each request waits for the previous reply: 5 replies in a row
² gain   goodput over that of the better plain one
";
    assert_eq!(table(&entries, &[Task::Download, Task::Requests], &[]), expected);
}

#[test]
fn several_rounds_show_median_and_range() {
    let [cubic, bbr, pair] = ways();
    let bytes = |seconds: f64| if seconds < 20.0 { 3_000_000 } else { 2_900_000 };
    let upload = |way: &TrafficPath, seconds| flow(Task::Upload, way, bytes(seconds), seconds);
    let mut entries: Vec<MeasurementEntry> = [20.0, 16.0, 12.5].map(|s| upload(&bbr, s)).into();
    entries.extend([5.0, 5.25].map(|s| upload(&pair, s)));
    entries.push(failed(Task::Upload, &pair, "truncated"));
    let absent = Unavailable { way: cubic, reason: "unknown".to_owned() };
    let expected = "\
Upload of 3 MB
                                      time  first byte           goodput  goodput  share ¹  gain ²
                                         s           s            Mbit/s  / limit
  plain CUBIC                                                                                       not available here
  plain BBR (default)  16.00 (12.50–20.00)        1.20  1.50 (1.16–1.92)     15 %     19 %          1/3 not finished
  skyhop                  5.12 (5.00–5.25)        0.60  4.69 (4.57–4.80)     47 %     59 %   3.1 ×  1/3 failed: truncated
";
    let shown = table(&entries, &[Task::Upload], &[absent]);
    let shown: String = shown.lines().take(6).map(|line| line.to_owned() + "\n").collect();
    assert_eq!(shown, expected);
}

#[test]
fn what_failed_has_no_figures_and_no_gain() {
    let [_, bbr, pair] = ways();
    let entries = [
        failed(Task::Download, &bbr, "cannot connect to 10.2.0.2:5259: refused"),
        flow(Task::Download, &pair, 20_000_000, 4.0),
    ];
    let shown = table(&entries, &[Task::Download], &[]);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[3].ends_with("failed: cannot connect to 10.2.0.2:5259: refused"), "{shown}");
    assert!(lines[4].ends_with("96 %"), "{shown}");
}
