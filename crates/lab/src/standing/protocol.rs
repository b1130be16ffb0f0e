//! The protocol of the control socket: one request and one reply per connection, each a line of
//! JSON. Both sides are the same program.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use os::descriptor;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::status::LabStatus;

/// Maximum length of a line, in bytes.
const LONGEST: u64 = 1 << 20;

/// A request to a persistent lab.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum LabRequest {
    /// Return the status of the lab.
    Status,
    /// Change the links of the lab.
    Set(LinkChange),
    /// Return the namespaces to enter this host.
    Join { node: String },
    /// End the lab and everything in it.
    Down,
}

/// A change to the links of a running lab.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkChange {
    /// Options as on the command line, parsed by the process that keeps the lab.
    pub options: Vec<String>,
    /// The directory that relative file names among them refer to.
    pub directory: PathBuf,
}

/// A reply of a persistent lab.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum LabReply {
    /// The request failed, for the given reason.
    Error(String),
    Status(Box<LabStatus>),
    /// The request was carried out, or will be.
    Done,
    /// The variables to set; sent with the namespaces: user, mount, PID, network.
    Joined {
        variables: Vec<(String, String)>,
    },
}

/// Sends `what` together with descriptors.
pub(super) fn send(
    mut stream: &UnixStream,
    what: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    let sent = descriptor::send(stream, &line, descriptors)?;
    // The descriptors went with the first bytes; the rest is plain data.
    stream.write_all(&line[sent..])
}

/// Receives a value and the descriptors sent with it by [`send`].
pub(super) fn receive<T: DeserializeOwned>(stream: &UnixStream) -> io::Result<(T, Vec<OwnedFd>)> {
    let mut line = vec![0; 4096];
    // The descriptors come with the first bytes.
    let (length, descriptors) = descriptor::receive(stream, &mut line)?;
    line.truncate(length);
    if !line.ends_with(b"\n") {
        BufReader::new(stream.take(LONGEST)).read_until(b'\n', &mut line)?;
    }
    Ok((serde_json::from_slice(&line)?, descriptors))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn requests_and_descriptors_arrive() {
        let (one, other) = UnixStream::pair().unwrap();
        let request = LabRequest::Set(LinkChange {
            options: vec!["--rate".into(); 2000],
            ..LinkChange::default()
        });
        send(&one, &request, &[]).unwrap();
        assert_eq!(receive::<LabRequest>(&other).unwrap().0, request);
        let null = File::open("/dev/null").unwrap();
        send(&one, &LabReply::Done, &[null.as_fd()]).unwrap();
        let (reply, descriptors) = receive::<LabReply>(&other).unwrap();
        assert_eq!((reply, descriptors.len()), (LabReply::Done, 1));
    }

    #[test]
    fn nonsense_is_an_error() {
        for text in ["", "\n", "{}\n", "\"status\"", "{\"status\":1}\n", "{\"set\":{\"rate\":1}}\n"]
        {
            let (mut one, other) = UnixStream::pair().unwrap();
            one.write_all(text.as_bytes()).unwrap();
            drop(one);
            let received = receive::<LabRequest>(&other);
            assert_eq!(received.is_ok(), text == "\"status\"", "{text:?}: {received:?}");
        }
    }
}
