//! What is written is read again, and nothing else is.

use super::*;
use crate::policy::is_storable;

fn record() -> ResponseRecord {
    let asked = get("Accept: a,b\nCookie: ");
    let reply = response(200, "Vary: Accept, Cookie, Origin\nETag: \"1\"\nX: é");
    ResponseRecord {
        key: key("/a?b=c"),
        stored: StoredResponse::new(&asked, &reply, at(1), at(2)),
        length: 10,
        digest: "0a1b".to_owned(),
        owner: client(3),
    }
}

#[test]
fn a_record_is_read_as_it_was_written() {
    let record = record();
    assert_eq!(ResponseRecord::decode(&record.encode()), Some(record));
}

#[test]
fn a_request_s_fields_select_byte_for_byte_also_after_a_restart() {
    let reply = response(200, "Vary: Cookie\nETag: \"1\"");
    let stored = StoredResponse::new(&get_with("Cookie", &[b"id=\xff"]), &reply, at(1), at(2));
    let record = ResponseRecord { stored, ..record() };
    let read = ResponseRecord::decode(&record.encode()).unwrap();
    assert_eq!(read, record);
    let has = |cookie: &[u8]| read.stored.is_selected_by(&get_with("Cookie", &[cookie]));
    assert!(has(b"id=\xff") && !has(b"id=\xfe") && !has("id=\u{fffd}".as_bytes()));
}

#[test]
fn what_no_field_s_name_selects_is_not_stored() {
    for vary in ["a=b", "*", "x, \"y\"", "a b"] {
        let reply = response(200, &format!("Cache-Control: max-age=10\nVary: {vary}"));
        assert!(!is_storable(&get(""), &reply), "{vary}");
    }
    let reply = response(200, "Cache-Control: max-age=10\nVary: X-A!#, cookie");
    assert!(is_storable(&get(""), &reply));
}

#[test]
fn a_file_with_one_client_s_cookie_is_not_read() {
    let mut record = record();
    record.stored.head.fields.push("Set-Cookie", "session=1");
    assert_eq!(ResponseRecord::decode(&record.encode()), None);
    record.stored.head.fields.push("Cache-Control", "public");
    assert_eq!(ResponseRecord::decode(&record.encode()), Some(record));
}

#[test]
fn a_file_of_what_must_not_be_shared_is_not_read() {
    for said in [&b"private"[..], b"no-store, x=\"\xff\""] {
        let mut record = record();
        record.stored.head.fields.push("Cache-Control", said);
        assert_eq!(ResponseRecord::decode(&record.encode()), None, "{said:?}");
    }
}

#[test]
fn a_file_that_was_cut_off_or_is_another_s_is_not_read() {
    let bytes = record().encode();
    for cut in 0..bytes.len() {
        assert_eq!(ResponseRecord::decode(&bytes[..cut]), None, "{cut}");
    }
    assert_eq!(ResponseRecord::decode(&[&bytes[..], b"x"].concat()), None);
    assert_eq!(ResponseRecord::decode(b"GET / HTTP/1.1\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"), None);
}
