//! One connection that carries more than 4 GiB each way, every byte verified, which would expose
//! any 32-bit counter.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

use lab::{CabledLab, Node};

use crate::way::{Running, Way};
use crate::{CHUNK, Failure, SERVER_PORT};

/// Size of a payload word in bytes. Each word contains its own index.
const WORD: usize = 8;

pub(crate) fn run(gigabytes: f64) -> Result<(), Failure> {
    lab::enter()?;
    let hosts = CabledLab::start()?;
    let server = (hosts.address4(Node::Server), SERVER_PORT).into();
    let listener = hosts.node(Node::Server).run(|| TcpListener::bind(server))?;
    let words = (gigabytes * 1e9) as u64 / WORD as u64;
    let _running = Running::start(&hosts, Way::Skyhop, server)?;
    let client = hosts.node(Node::Client).run(|| TcpStream::connect(server))?;
    let (server, _) = listener.accept()?;
    let begin = Instant::now();
    let mut ends = Vec::new();
    for (way, from, to) in [("up", &client, &server), ("down", &server, &client)] {
        let (from, to) = (from.try_clone()?, to.try_clone()?);
        ends.push(thread::spawn(move || send(&from, words)));
        ends.push(thread::spawn(move || verify(way, &to, words)));
    }
    for end in ends {
        end.join().map_err(|_| "a thread panicked")??;
    }
    let (bytes, seconds) = (words * WORD as u64, begin.elapsed().as_secs_f64());
    println!("{bytes} bytes each way in {seconds:.1} s, all verified, then a FIN");
    Ok(())
}

fn send(mut socket: &TcpStream, words: u64) -> Result<(), Failure> {
    let mut chunk = Vec::with_capacity(CHUNK);
    let mut next = 0;
    while next < words {
        let end = words.min(next + (CHUNK / WORD) as u64);
        chunk.clear();
        (next..end).for_each(|word| chunk.extend_from_slice(&word.to_le_bytes()));
        socket.write_all(&chunk)?;
        next = end;
    }
    Ok(socket.shutdown(Shutdown::Write)?)
}

fn verify(way: &str, mut socket: &TcpStream, words: u64) -> Result<(), Failure> {
    let mut chunk = vec![0; CHUNK];
    let mut next = 0;
    while next < words {
        let end = words.min(next + (CHUNK / WORD) as u64);
        let part = &mut chunk[..(end - next) as usize * WORD];
        socket.read_exact(part)?;
        let got = part.chunks_exact(WORD);
        let got = got.map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
        if !got.eq(next..end) {
            return Err(format!("{way}: wrong bytes in words {next} to {end}").into());
        }
        next = end;
        if next % (words / 100).max(1) < (CHUNK / WORD) as u64 {
            eprint!("\r\x1b[K{way}: {} %", 100 * next / words);
        }
    }
    eprint!("\r\x1b[K");
    match socket.read(&mut [0])? {
        0 => Ok(()),
        _ => Err(format!("{way}: more bytes than were sent").into()),
    }
}
