//! What is written is read again, and nothing else is.

use super::*;

fn record() -> Record {
    let asked = get("Accept: a,b\nCookie: ");
    let reply = response(200, "Vary: Accept, Cookie, Origin\nETag: \"1\"\nX: é");
    Record {
        key: key("/a?b=c"),
        stored: Stored::new(&asked, &reply, (at(1), at(2))),
        length: 10,
        digest: "0a1b".to_owned(),
        owner: client(3),
    }
}

#[test]
fn a_record_is_read_as_it_was_written() {
    let record = record();
    assert_eq!(Record::decode(&record.encode()), Some(record));
}

#[test]
fn a_file_with_one_client_s_cookie_is_not_read() {
    let mut record = record();
    record.stored.head.fields.push("Set-Cookie", "session=1");
    assert_eq!(Record::decode(&record.encode()), None);
    record.stored.head.fields.push("Cache-Control", "public");
    assert_eq!(Record::decode(&record.encode()), Some(record));
}

#[test]
fn a_file_that_was_cut_off_or_is_another_s_is_not_read() {
    let bytes = record().encode();
    for cut in 0..bytes.len() {
        assert_eq!(Record::decode(&bytes[..cut]), None, "{cut}");
    }
    assert_eq!(Record::decode(&[&bytes[..], b"x"].concat()), None);
    assert_eq!(Record::decode(b"GET / HTTP/1.1\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"), None);
}
