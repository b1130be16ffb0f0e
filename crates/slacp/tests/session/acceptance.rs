//! The performance goals of SLACP (`docs/slacp.md`), with fewer bytes and seeds than the benchmark
//! of the same name.

use crate::rows::{Row, Scale, bulk, faults, fec, interactive};

/// Prints every row; fails if one misses its goal.
fn assert_all(rows: &[Row]) {
    rows.iter().for_each(Row::print);
    let missed: Vec<&Row> = rows.iter().filter(|row| !row.ok).collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn downloads_over_links_without_loss() {
    assert_all(&bulk::lossless(Scale::QUICK));
}

#[test]
fn downloads_over_fast_links() {
    assert_all(&bulk::fast(Scale::QUICK));
}

#[test]
fn downloads_over_lossy_links() {
    assert_all(&bulk::lossy(Scale::QUICK));
}

#[test]
fn acknowledgements_take_one_percent() {
    assert_all(&bulk::acknowledgements(Scale::QUICK));
}

#[test]
fn requests_and_replies() {
    assert_all(&interactive::idle(Scale::QUICK));
}

#[test]
fn requests_and_replies_beside_a_download() {
    assert_all(&interactive::under_load(Scale::QUICK));
}

#[test]
fn a_stalled_reader_stops_no_other_stream() {
    assert_all(&faults::stalled_reader());
}

#[test]
fn no_repairs_on_a_clean_link() {
    assert_all(&fec::clean(Scale::QUICK));
}

#[test]
fn repairs_of_a_loaded_link() {
    assert_all(&fec::loaded(Scale::QUICK));
}

#[test]
fn repairs_of_requests() {
    assert_all(&fec::sparse(Scale::QUICK));
}

#[test]
fn outages_end_at_once() {
    assert_all(&faults::outages());
}

#[test]
fn nothing_is_lost_or_doubled() {
    assert_all(&faults::mangled());
}
