//! The echo service (RFC 862) over TCP. It sends back what it receives, and finishes after the
//! client has finished and everything is sent.

use core::time::Duration;
use std::io;

use tokio::io::{AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};

/// Pause after a failed accept, for example when out of file descriptors.
const RETRY: Duration = Duration::from_millis(100);

/// Serves connections until the task is dropped.
pub(super) async fn serve(listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((connection, _)) => drop(tokio::spawn(echo(connection))),
            Err(error) => {
                tracing::warn!("echo service: {error}");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

async fn echo(mut connection: TcpStream) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let (mut from, mut to) = connection.split();
    copy(&mut from, &mut to).await?;
    to.shutdown().await
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[test]
    fn all_comes_back_after_a_half_close() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let back = runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            tokio::spawn(serve(listener));
            let mut connection = TcpStream::connect(address).await.unwrap();
            connection.write_all(b"over the hop").await.unwrap();
            connection.shutdown().await.unwrap();
            let mut back = Vec::new();
            connection.read_to_end(&mut back).await.unwrap();
            back
        });
        assert_eq!(back, b"over the hop");
    }
}
