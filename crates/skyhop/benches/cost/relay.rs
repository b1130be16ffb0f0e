//! The simplest possible relay: one connection in, one out, one thread per direction, 64 kB at a
//! time.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use crate::{CHUNK, Failure};

/// Relays all connections from `listen` to `to`, for ever.
pub(crate) fn run(listen: SocketAddr, to: SocketAddr) -> Result<(), Failure> {
    let listener = TcpListener::bind(listen)?;
    println!("ready");
    for inner in listener.incoming() {
        let inner = inner?;
        let outer = TcpStream::connect(to)?;
        let (from, back) = (inner.try_clone()?, outer.try_clone()?);
        thread::spawn(move || copy(from, outer));
        thread::spawn(move || copy(back, inner));
    }
    Ok(())
}

fn copy(mut from: TcpStream, mut to: TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    loop {
        match from.read(&mut buffer)? {
            0 => return to.shutdown(Shutdown::Write),
            count => to.write_all(&buffer[..count])?,
        }
    }
}
