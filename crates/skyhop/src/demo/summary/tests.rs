use std::time::Duration;

use units::{BitRate, Probability};

use super::*;

fn limit(mbit: u64) -> Limit {
    let rtt = Duration::from_millis(600);
    Limit { rate: BitRate::from_mbit(mbit), per: Probability::new(0.01).unwrap(), rtt }
}

fn transfer(task: Task, way: &Way, moved_bytes: u64, seconds: f64, complete: bool) -> Entry {
    let limit = limit(if task == Task::Download { 50 } else { 10 });
    let goodput = moved_bytes as f64 * 8.0 / seconds;
    let figures = Figures::Transfer(Transfer {
        complete,
        moved_bytes,
        seconds,
        first_byte_seconds: Some(if *way == Way::Pair { 0.601 } else { 1.204 }),
        goodput,
        of_limit: goodput / limit.bits_per_second(),
        share: limit.seconds(moved_bytes) / seconds,
    });
    Entry { round: 0, task, way: way.clone(), figures: Some(figures), failure: None }
}

fn requests(way: &Way, seconds: f64, median: f64, p99: f64) -> Entry {
    let figures = Figures::Requests(Requests {
        complete: true,
        answered: 40,
        seconds,
        median_seconds: median,
        p99_seconds: p99,
    });
    Entry {
        round: 0,
        task: Task::Requests,
        way: way.clone(),
        figures: Some(figures),
        failure: None,
    }
}

fn failed(task: Task, way: &Way, why: &str) -> Entry {
    let failure = Some(why.to_owned());
    Entry { round: 0, task, way: way.clone(), figures: None, failure }
}

fn ways() -> [Way; 3] {
    Way::all().try_into().unwrap()
}

#[test]
fn one_round_as_a_whole() {
    let [cubic, bbr, pair] = ways();
    let entries = [
        transfer(Task::Download, &cubic, 1_520_000, 20.0, false),
        transfer(Task::Download, &bbr, 20_000_000, 12.5, true),
        transfer(Task::Download, &pair, 20_000_000, 4.0, true),
        requests(&cubic, 5.25, 0.61, 1.9),
        requests(&bbr, 4.75, 0.605, 1.875),
        requests(&pair, 3.25, 0.6034, 1.2),
    ];
    let tasks = [Task::Download, Task::Requests];
    let expected = "\
Download of 20 MB
                 time  first byte  goodput  goodput  share ¹  gain ²
                    s           s   Mbit/s  / limit
  plain CUBIC  >20.00        1.20     0.61    1.2 %    4.2 %          unfinished: 1.52 MB moved
  plain BBR     12.50        1.20    12.80     26 %     31 %
  skyhop         4.00        0.60    40.00     81 %     96 %   3.1 ×

40 requests of 1 kB, replies of 10 kB, over 8 connections
                 time      median      p99                    gain ³
                    s          ms       ms
  plain CUBIC    5.25         610     1900
  plain BBR      4.75         605     1875
  skyhop         3.25         603     1200                     1.0 ×

A transfer gets 20 s. All payload is verified at the receiver.
limit    rate × (1 − PER): 49.5 Mbit/s down, 9.9 Mbit/s up; headers are not deducted
¹ share  time at the limit over time taken, both for the bytes that were moved;
         time at the limit = 1 RTT (600 ms: request up, first byte down) + bytes / limit.
         goodput / limit stays lower: nothing can arrive in that first RTT
² gain   goodput over that of the better plain one
³ gain   the better plain one's median response time over ours; 1 RTT = 600 ms is the least
";
    assert_eq!(text(&entries, &tasks, &[], [&limit(50), &limit(10)]), expected);
}

#[test]
fn several_rounds_show_median_and_range() {
    let [_, bbr, pair] = ways();
    let mut entries: Vec<Entry> = [20.0, 16.0, 12.5]
        .into_iter()
        .map(|seconds| transfer(Task::Upload, &bbr, 5_000_000, seconds, seconds < 20.0))
        .collect();
    entries.extend([5.0, 5.25].map(|s| transfer(Task::Upload, &pair, 5_000_000, s, true)));
    entries.push(failed(Task::Upload, &pair, "truncated"));
    let absent = Unavailable { way: ways()[0].clone(), reason: "unknown".to_owned() };
    let expected = "\
Upload of 5 MB
                              time  first byte           goodput  goodput  share ¹  gain ²
                                 s           s            Mbit/s  / limit
  plain CUBIC                                                                               not available here
  plain BBR    16.00 (12.50–20.00)        1.20  2.50 (2.00–3.20)     25 %     29 %          1/3 unfinished
  skyhop          5.12 (5.00–5.25)        0.60  7.81 (7.62–8.00)     79 %     91 %   3.1 ×  1/3 failed: truncated
";
    let shown = text(&entries, &[Task::Upload], &[absent], [&limit(50), &limit(10)]);
    let table: String = shown.lines().take(6).map(|line| line.to_owned() + "\n").collect();
    assert_eq!(table, expected);
}

#[test]
fn what_failed_has_no_figures_and_no_gain() {
    let [_, bbr, pair] = ways();
    let entries = [
        failed(Task::Download, &bbr, "cannot connect to 10.2.0.2:5201: refused"),
        transfer(Task::Download, &pair, 20_000_000, 4.0, true),
    ];
    let shown = text(&entries, &[Task::Download], &[], [&limit(50), &limit(10)]);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[3].ends_with("failed: cannot connect to 10.2.0.2:5201: refused"), "{shown}");
    assert!(lines[4].ends_with("96 %"), "{shown}");
}
