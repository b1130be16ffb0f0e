//! One of a page's connections; with HTTP/1.0, a sequence of connections.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::flow::outcome::FlowOutcome;
use crate::flow::stream::PayloadSink;
use crate::flow::{self, FlowError};
use crate::http::{self, RequestHead, RequestedObject, ResponseHead};
use crate::page::{HttpMode, PageLoad};
use crate::protocol::payload::{Payload, PayloadSide, flow_key};
use crate::sockets::SocketOptions;

pub(crate) struct PageConnection {
    page: Arc<PageLoad>,
    index: u32,
}

impl PageConnection {
    pub(crate) fn new(page: Arc<PageLoad>, index: u32) -> Self {
        Self { page, index }
    }

    /// Loads objects until none are left.
    pub(crate) async fn run(self) {
        match self.page.options.mode {
            HttpMode::Http10 => {
                while let Some(object) = self.page.next_object() {
                    let result = self.fetch_alone(object).await;
                    self.fail(object, result);
                }
            }
            HttpMode::Http10KeepAlive | HttpMode::Http11 => {
                while let Some(object) = self.page.next_object() {
                    // A failed object ends its connection; the next object gets a new one.
                    let mut now = object;
                    let result = self.fetch_in_sequence(&mut now).await;
                    self.fail(now, result);
                }
            }
            HttpMode::Http11Pipelined => {
                let mine = self.assigned_objects();
                let mut now = 0;
                let result = self.fetch_pipelined(&mine, &mut now).await;
                if let Err(error) = result {
                    let told = error.to_string();
                    self.fail(mine[now], Err(error));
                    // The objects requested after it are lost with the connection.
                    for &object in &mine[now + 1..] {
                        let error = told.clone();
                        self.page.update_object(object, |report| {
                            report.outcome = FlowOutcome::Failed { error }
                        });
                    }
                }
            }
        }
    }

    /// The objects of this connection, if they are dealt out in turn.
    fn assigned_objects(&self) -> Vec<usize> {
        let all = self.page.options.objects.len();
        (self.index as usize..all).step_by(self.page.options.connections as usize).collect()
    }

    /// Fetches one object on a connection of its own.
    async fn fetch_alone(&self, object: usize) -> Result<(), FlowError> {
        let begun = self.begin(object);
        let mut stream = self.connect().await?;
        let (reader, mut writer) = stream.split();
        let mut reader = BufReader::new(reader);
        self.send_request(&mut writer, object, false).await?;
        self.read_response(&mut reader, object, begun).await?;
        flow::read_close(&mut reader, self.size(object)).await?;
        flow::disable_reset_on_drop(&stream)
    }

    /// Fetches `object` and later ones on one connection, one after the other. `object` is always
    /// the one in progress.
    async fn fetch_in_sequence(&self, object: &mut usize) -> Result<(), FlowError> {
        let mut begun = self.begin(*object);
        let mut stream = self.connect().await?;
        {
            let (reader, mut writer) = stream.split();
            let mut reader = BufReader::new(reader);
            loop {
                self.send_request(&mut writer, *object, true).await?;
                self.read_response(&mut reader, *object, begun).await?;
                let Some(next) = self.page.next_object() else { break };
                *object = next;
                begun = self.begin(next);
            }
            writer.shutdown().await.map_err(FlowError::broken("closing"))?;
            flow::read_close(&mut reader, self.size(*object)).await?;
        }
        flow::disable_reset_on_drop(&stream)
    }

    /// Requests all of `mine` at once on one connection. `now` is the index of the one in progress.
    async fn fetch_pipelined(&self, mine: &[usize], now: &mut usize) -> Result<(), FlowError> {
        let begun: Vec<Instant> = mine.iter().map(|&object| self.begin(object)).collect();
        let mut stream = self.connect().await?;
        {
            let (reader, mut writer) = stream.split();
            let mut reader = BufReader::new(reader);
            let asking = async {
                for &object in mine {
                    self.send_request(&mut writer, object, true).await?;
                }
                writer.shutdown().await.map_err(FlowError::broken("closing"))
            };
            let reading = async {
                for (&object, &begun) in mine.iter().zip(&begun) {
                    self.read_response(&mut reader, object, begun).await?;
                    // Stays an index of `mine`: closing may still fail after the last object.
                    *now = (*now + 1).min(mine.len() - 1);
                }
                flow::read_close(&mut reader, 0).await
            };
            // Both at once: responses may fill the buffers while requests still leave.
            tokio::try_join!(asking, reading)?;
        }
        flow::disable_reset_on_drop(&stream)
    }

    async fn connect(&self) -> Result<TcpStream, FlowError> {
        let server = self.page.options.server;
        flow::connect(flow::open(server, &SocketOptions::default())?, server).await
    }

    /// Records the start of an object.
    fn begin(&self, object: usize) -> Instant {
        let now = Instant::now();
        let start = now - self.page.start;
        self.page.update_object(object, |report| {
            report.connection = Some(self.index);
            report.start = Some(start);
        });
        now
    }

    async fn send_request<W: AsyncWriteExt + Unpin>(
        &self,
        writer: &mut W,
        object: usize,
        persistent: bool,
    ) -> Result<(), FlowError> {
        let options = &self.page.options;
        let version = match options.mode {
            HttpMode::Http10 | HttpMode::Http10KeepAlive => "1.0",
            HttpMode::Http11 | HttpMode::Http11Pipelined => "1.1",
        };
        let wanted = RequestedObject {
            key: self.key(object),
            size: self.size(object),
            congestion_control: options.congestion_control.clone(),
            fresh: options.fresh,
        };
        let head = RequestHead { object: wanted, persistent };
        let text = head.encode(version, &options.server.to_string());
        let sent = writer.write_all(text.as_bytes()).await;
        sent.map_err(FlowError::broken("sending a request"))
    }

    /// Reads a response and checks every byte.
    async fn read_response<R: AsyncBufRead + Unpin>(
        &self,
        reader: &mut R,
        object: usize,
        begun: Instant,
    ) -> Result<(), FlowError> {
        let waiting = || FlowError::broken("waiting for a reply");
        // Waits without consuming anything, to time the first byte before the head is parsed.
        let some =
            crate::sockets::patience::with_idle_limit(reader.fill_buf()).await.map_err(waiting())?;
        let asked = self.size(object);
        if some.is_empty() {
            return Err(FlowError::Truncated { received: 0, asked });
        }
        let first: Duration = begun.elapsed();
        self.page.update_object(object, |report| report.first_byte = Some(first));
        let head = http::read_head(reader).await.map_err(waiting())?;
        let reply = ResponseHead::decode(&head.unwrap_or_default())?;
        if reply.length > asked {
            return Err(FlowError::TooLong { asked });
        }
        let mut sink = PayloadSink::new(Payload::new(self.key(object), PayloadSide::Server));
        // A reply that is too short, announced or not, shows in the receipt.
        sink.read_to(reader, reply.length).await.map_err(FlowError::broken("receiving"))?;
        flow::check(sink.receipt(), asked)?;
        let time = begun.elapsed();
        self.page.update_object(object, |report| {
            report.time = Some(time);
            report.outcome = FlowOutcome::Complete;
        });
        self.page.options.progress.add(1);
        Ok(())
    }

    fn fail(&self, object: usize, result: Result<(), FlowError>) {
        if let Err(error) = result {
            self.page
                .update_object(object, |report| report.outcome = FlowOutcome::of(Ok(Err(error))));
        }
    }

    fn key(&self, object: usize) -> u64 {
        flow_key(self.page.options.key, object as u64)
    }

    fn size(&self, object: usize) -> u64 {
        self.page.options.objects[object].get()
    }
}
