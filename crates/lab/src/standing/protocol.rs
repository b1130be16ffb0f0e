//! The protocol of the control socket: one request and one reply per connection, each a line of
//! JSON. Both sides are the same program.

use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use nix::cmsg_space;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::status::Status;

/// Maximum length of a line, in bytes.
const LONGEST: u64 = 1 << 20;
/// Maximum number of descriptors in a reply: four namespaces.
pub(super) const DESCRIPTORS: usize = 4;

/// A request to a persistent lab.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Request {
    /// Return its status.
    Status,
    /// Change its links.
    Set(Change),
    /// Return the namespaces to enter this host.
    Join { node: String },
    /// End the lab.
    Down,
}

/// A change to the links of a running lab.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Options as on the command line, parsed by the process that keeps the lab.
    pub options: Vec<String>,
    /// The directory that relative file names among them refer to.
    pub directory: PathBuf,
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Reply {
    /// The request failed.
    Error(String),
    Status(Box<Status>),
    /// The request was carried out, or will be.
    Done,
    /// Comes with the namespaces: user, mount, PID, network.
    Joined {
        variables: Vec<(String, String)>,
    },
}

/// Sends `what` together with descriptors.
pub(super) fn send(
    mut stream: &UnixStream,
    what: &impl Serialize,
    descriptors: &[RawFd],
) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    let mut sent = 0;
    if !descriptors.is_empty() {
        let rights = [ControlMessage::ScmRights(descriptors)];
        let (fd, parts) = (stream.as_raw_fd(), [IoSlice::new(&line)]);
        sent = sendmsg::<()>(fd, &parts, &rights, MsgFlags::MSG_NOSIGNAL, None)?;
    }
    stream.write_all(&line[sent..])
}

/// Receives what [`send`] sent.
pub(super) fn receive<T: DeserializeOwned>(stream: &UnixStream) -> io::Result<(T, Vec<OwnedFd>)> {
    let (mut line, descriptors) = first_part(stream)?;
    if !line.ends_with(b"\n") {
        BufReader::new(stream.take(LONGEST)).read_until(b'\n', &mut line)?;
    }
    Ok((serde_json::from_slice(&line)?, descriptors))
}

/// Receives the first bytes, which carry the descriptors.
fn first_part(stream: &UnixStream) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; 4096];
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let mut space = cmsg_space!([RawFd; DESCRIPTORS]);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(stream.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    let mut descriptors = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(received) = control {
            // SAFETY: the kernel has just made them for this process.
            descriptors.extend(received.iter().map(|fd| unsafe { OwnedFd::from_raw_fd(*fd) }));
        }
    }
    let length = message.bytes;
    bytes.truncate(length);
    Ok((bytes, descriptors))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn requests_and_descriptors_arrive() {
        let (one, other) = UnixStream::pair().unwrap();
        let request =
            Request::Set(Change { options: vec!["--rate".into(); 2000], ..Change::default() });
        send(&one, &request, &[]).unwrap();
        assert_eq!(receive::<Request>(&other).unwrap().0, request);
        let (null, zero) = (File::open("/dev/null").unwrap(), File::open("/dev/zero").unwrap());
        send(&one, &Reply::Done, &[null.as_raw_fd(), zero.as_raw_fd()]).unwrap();
        let (reply, descriptors) = receive::<Reply>(&other).unwrap();
        assert_eq!(reply, Reply::Done);
        let mut bytes = [7; 3];
        File::from(descriptors.into_iter().nth(1).unwrap()).read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, [0; 3]);
    }

    #[test]
    fn nonsense_is_an_error() {
        for text in ["", "\n", "{}\n", "\"status\"", "{\"status\":1}\n", "{\"set\":{\"rate\":1}}\n"]
        {
            let (mut one, other) = UnixStream::pair().unwrap();
            one.write_all(text.as_bytes()).unwrap();
            drop(one);
            let received = receive::<Request>(&other);
            assert_eq!(received.is_ok(), text == "\"status\"", "{text:?}: {received:?}");
        }
    }
}
