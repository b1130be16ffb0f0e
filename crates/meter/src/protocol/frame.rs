//! Framing of a download's payload, so that the receiver sees its end although the connection stays
//! open for the sender's figures. The payload is divided into blocks, each of a length (4 bytes,
//! big-endian) and that many bytes. The last block has length 0.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::sockets::patience::with_idle_limit;

/// Size of a block's head in bytes.
pub const HEAD_LEN: usize = 4;

/// Encodes the head of a block of `length` bytes.
pub fn head(length: usize) -> [u8; HEAD_LEN] {
    u32::try_from(length).expect("blocks are small").to_be_bytes()
}

/// Reads the head of the next block; `None` if the stream ends there.
pub(crate) async fn read_head<R: AsyncRead + Unpin>(reader: &mut R) -> io::Result<Option<u32>> {
    let mut bytes = [0; HEAD_LEN];
    match with_idle_limit(reader.read_exact(&mut bytes)).await {
        Ok(_) => Ok(Some(u32::from_be_bytes(bytes))),
        // Also inside a head: the caller knows the length, and sees whether anything is missing.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}
