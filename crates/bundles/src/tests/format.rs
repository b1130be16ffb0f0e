//! Bundles as bytes.

use core::time::Duration;

use proptest::prelude::*;

use crate::{
    BundleNodeId, BundlePurpose, FileName, NewBundle, ReportedEvent, forwarded, parts, read,
    read_report, report,
};

/// 2026-11-25 in milliseconds since 1970.
const NOW: u64 = 1_795_600_000_000;

fn made(created: u64, payload: &[u8], name: Option<&str>) -> Vec<u8> {
    let node: BundleNodeId = "dtn://ship/".parse().unwrap();
    let name = name.map(|name| FileName::new(name).unwrap());
    let bundle = NewBundle {
        source: &node.service("out").unwrap(),
        destination: &"ipn:1.7".parse().unwrap(),
        created,
        sequence: 5,
        lifetime: Duration::from_secs(60),
        file_name: name.as_ref(),
        purpose: BundlePurpose::Reported,
        payload,
    };
    bundle.encode()
}

#[test]
fn a_bundle_says_what_it_was_made_with() {
    let bytes = made(NOW, b"hello", Some("a.txt"));
    let (summary, other) = read(&bytes).unwrap();
    assert_eq!(other, None);
    assert_eq!(summary.source.to_string(), "dtn://ship/out");
    assert_eq!(summary.destination.to_string(), "ipn:1.7");
    assert_eq!((summary.created, summary.age), (Some(NOW), None));
    assert_eq!(summary.expires(NOW + 30_000), NOW + 60_000);
    assert_eq!(summary.file_name.as_ref().map(FileName::as_str), Some("a.txt"));
    assert_eq!(&bytes[summary.payload], b"hello");
    assert_eq!(read(&made(NOW, b"other", None)).unwrap().0.id, summary.id, "the same identity");
    assert_ne!(read(&made(NOW + 1, b"hello", None)).unwrap().0.id, summary.id);
}

#[test]
fn without_a_clock_a_bundle_ages() {
    let node = "ipn:2.0".parse().unwrap();
    let bytes = made(1000, b"hello", None);
    let (first, _) = read(&bytes).unwrap();
    assert_eq!((first.created, first.age), (None, Some(Duration::ZERO)));
    let onward = forwarded(&bytes, &node, Duration::from_secs(20));
    let (second, other) = read(&onward).unwrap();
    assert_eq!((second.id, second.age), (first.id, Some(Duration::from_secs(20))));
    assert_eq!(other, None, "canonical");
    assert_eq!(second.expires(NOW), NOW + 40_000);
    assert_eq!(&onward[second.payload], b"hello");
}

#[test]
fn a_bundle_that_circles_ends() {
    let node = "ipn:2.0".parse().unwrap();
    let mut bytes = made(NOW, b"hello", Some("a.txt"));
    let mut hops = 0;
    while read(&bytes).is_ok() {
        bytes = forwarded(&bytes, &node, Duration::ZERO);
        hops += 1;
        assert!(hops <= 32);
    }
    assert_eq!(hops, 32);
    assert!(read(&bytes).unwrap_err().to_string().contains("hop limit"));
}

#[test]
fn a_report_names_its_bundle() {
    let hub: BundleNodeId = "ipn:1.0".parse().unwrap();
    // With a clock and without.
    for created in [NOW, 1000] {
        let (about, _) = read(&made(created, b"hello", None)).unwrap();
        assert_eq!(about.reports.as_ref().unwrap().to.to_string(), "dtn://ship/");
        let bytes = report(&about, ReportedEvent::Delivered, &hub, NOW, 9).unwrap();
        let (summary, other) = read(&bytes).unwrap();
        assert_eq!((summary.destination.to_string().as_str(), other), ("dtn://ship/", None));
        let said = read_report(&bytes[summary.payload]).unwrap();
        assert_eq!((said.id, said.source.as_str()), (about.id, "dtn://ship/out"));
        assert_eq!(said.happenings, ["delivered"]);
        assert_eq!(report(&about, ReportedEvent::Received, &hub, NOW, 9), None);
    }
    // Parts of the same place but other lengths are different bundles, also in reports.
    let whole = made(NOW, &[7; 900], None);
    let [small, large] = [500, 700].map(|largest| parts(&whole, largest).unwrap().swap_remove(0));
    assert_ne!(small.0, large.0);
    let (about, _) = read(&large.1).unwrap();
    let bytes = report(&about, ReportedEvent::Delivered, &hub, NOW, 9).unwrap();
    let said = read_report(&bytes[read(&bytes).unwrap().0.payload]).unwrap();
    assert_eq!(said.id, large.0);
    assert_eq!(read_report(b"hello"), None);
}

proptest! {
    #[test]
    fn any_bytes_are_a_report_or_not(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read_report(&bytes);
    }

    #[test]
    fn a_damaged_bundle_is_refused(at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut bytes = made(NOW, b"some contents that matter", Some("a.txt"));
        let at = at.index(bytes.len());
        bytes[at] ^= 1u8 << bit;
        if let Ok((summary, kept)) = read(&bytes) {
            // All that a flipped bit may change is how the whole array is written.
            let kept = kept.unwrap_or(bytes);
            prop_assert_eq!(&kept[summary.payload], b"some contents that matter");
        }
    }

    #[test]
    fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(&bytes);
    }
}
