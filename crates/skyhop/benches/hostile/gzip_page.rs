//! A server sends compressed pages that are one tag with many `>`, to a hub that reads pages.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::thread;

use super::scene::{Attack, Case};
use crate::gateways::Keys;
use crate::inside::{addresses, connect, listen};

pub(crate) const CASE: Case = Case {
    name: "gzip page",
    keys: "",
    hub: "[http]\npush = true\n",
    terminal: "[http]\nports = [8080]\n",
    attack,
};

const PORT: u16 = 8080;

fn attack(_: &Keys, attack: &Attack) {
    let (listener, page) = (listen(PORT), page());
    let length = page.len();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let page = page.clone();
            thread::spawn(move || serve(&client, &page));
        }
    });
    let mut number = 0;
    loop {
        let mut client = connect(addresses(PORT)[0]);
        let request = format!("GET /{number} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        client.write_all(request.as_bytes()).expect("it is taken");
        let got = client.read_to_end(&mut Vec::new()).expect("a page");
        assert!(got > length, "the page is not whole: {got}");
        number += 1;
        if !attack.sent(got) {
            return;
        }
    }
}

/// A page of 8 MB in 8 kB.
fn page() -> Vec<u8> {
    let mut gzip = Command::new("gzip");
    let gzip = gzip.arg("-9").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut gzip = gzip.spawn().expect("gzip is installed");
    let (mut input, begin) = (gzip.stdin.take().expect("a pipe"), b"<html><img alt=\"");
    let writing = thread::spawn(move || {
        input.write_all(begin)?;
        input.write_all(&vec![b'>'; 8 << 20])
    });
    let page = gzip.wait_with_output().expect("it compresses").stdout;
    writing.join().expect("it is written").expect("gzip reads");
    page
}

fn serve(mut client: &TcpStream, page: &[u8]) -> std::io::Result<()> {
    let lines = BufReader::new(client.try_clone()?).lines().map_while(Result::ok);
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\n\
         Cache-Control: no-store\r\nContent-Length: {}\r\n\r\n",
        page.len()
    );
    client.write_all(&[head.as_bytes(), page].concat())
}
