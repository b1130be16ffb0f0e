//! Sends requests to a running gateway.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use super::path::present;
use super::protocol::{Answer, LONGEST_ANSWER, Request, read, write};

/// Time limit for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to a running gateway.
pub struct Control {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

/// Why a gateway cannot be reached or refuses. Each error prints as one line.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ControlError {
    /// No gateway of this user is running.
    #[error(
        "no gateway runs here that this user may ask: no control socket is in {places}; --control \
         names another, and a gateway of another user, such as root, needs that user"
    )]
    Nobody {
        /// The directories searched.
        places: String,
    },
    /// Several gateways are running.
    #[error("several gateways run here: choose one with --control: {}", list(paths))]
    Several {
        /// Their control sockets.
        paths: Vec<PathBuf>,
    },
    /// Nothing listens on this socket.
    #[error("no gateway answers at {}: {cause}", path.display())]
    Unreachable {
        /// The socket.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// The connection broke.
    #[error("invalid answer from the gateway at {}: {problem}", path.display())]
    Broken {
        /// The socket.
        path: PathBuf,
        /// What went wrong.
        problem: String,
    },
    /// The gateway refused the request.
    #[error("{0}")]
    Refused(String),
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

impl Control {
    /// Connects to the gateway at `path`.
    ///
    /// # Errors
    /// If nothing listens there.
    pub fn connect(path: &Path) -> Result<Self, ControlError> {
        let failed = |cause| ControlError::Unreachable { path: path.to_owned(), cause };
        let stream = UnixStream::connect(path).map_err(failed)?;
        stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
        stream.set_write_timeout(Some(TIMEOUT)).map_err(failed)?;
        Ok(Self { path: path.to_owned(), stream: BufReader::new(stream) })
    }

    /// Connects to all gateways of this user that answer in the default directories.
    ///
    /// # Errors
    /// If there are none.
    pub fn all() -> Result<Vec<Self>, ControlError> {
        let found: Vec<Self> =
            present().iter().filter_map(|path| Self::connect(path).ok()).collect();
        if found.is_empty() {
            let places = list(&super::default_directories());
            return Err(ControlError::Nobody { places });
        }
        Ok(found)
    }

    /// Connects to the gateway at `path`, or to the only one running.
    ///
    /// # Errors
    /// If there is none, or more than one.
    pub fn one(path: Option<&Path>) -> Result<Self, ControlError> {
        if let Some(path) = path {
            return Self::connect(path);
        }
        let mut all = Self::all()?;
        match (all.pop(), all.is_empty()) {
            (Some(only), true) => Ok(only),
            (last, _) => {
                let paths = all.into_iter().chain(last).map(|control| control.path).collect();
                Err(ControlError::Several { paths })
            }
        }
    }

    /// Path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sends a request and waits for the answer, which is never [`Answer::Error`].
    ///
    /// # Errors
    /// If the gateway is gone, or refuses.
    pub fn ask(&mut self, request: &Request) -> Result<Answer, ControlError> {
        match self.exchange(request) {
            Ok(Answer::Error(why)) => Err(ControlError::Refused(why)),
            Ok(answer) => Ok(answer),
            Err(problem) => Err(ControlError::Broken { path: self.path.clone(), problem }),
        }
    }

    fn exchange(&mut self, request: &Request) -> Result<Answer, String> {
        let said = self.stream.get_mut().write_all(&write(request));
        said.map_err(|error| error.to_string())?;
        let mut line = Vec::new();
        let mut stream = (&mut self.stream).take(LONGEST_ANSWER);
        stream.read_until(b'\n', &mut line).map_err(|error| error.to_string())?;
        if line.is_empty() {
            return Err("it closed the connection".to_owned());
        }
        read(&line)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// Asks a gateway that answers each request with these bytes.
    fn ask(answer: &[u8]) -> Result<Answer, ControlError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let (stream, _) = listener.accept().unwrap();
                let mut request = String::new();
                BufReader::new(&stream).read_line(&mut request).unwrap();
                assert!(request.contains("reload"), "{request}");
                (&stream).write_all(answer).unwrap();
            });
            Control::connect(&path).unwrap().ask(&Request::Reload)
        })
    }

    #[test]
    fn an_answer_is_a_result_and_an_error_a_refusal() {
        let done = Answer::Done(vec!["reloaded".to_owned()]);
        assert_eq!(ask(&write(&done)).unwrap(), done);
        let refused = ask(&write(Answer::Error("line 7".to_owned()))).unwrap_err();
        assert!(matches!(refused, ControlError::Refused(_)));
        assert_eq!(refused.to_string(), "line 7");
    }

    #[test]
    fn an_answer_that_cannot_be_read_names_the_socket_and_the_trouble() {
        let whole = write(Answer::Done(vec![]));
        for (answer, told) in [
            (&b""[..], "closed the connection"),
            (b"\n", "cannot parse"),
            (b"{\"skyhop\":9,\"say\":\"hi\"}\n", "version 9"),
            (&whole[..whole.len() - 3], "cannot parse"),
        ] {
            let error = ask(answer).unwrap_err().to_string();
            assert!(error.contains(told) && error.contains("/s: "), "{error}");
        }
    }

    #[test]
    fn without_a_gateway_the_error_names_the_socket() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let Err(error) = Control::one(Some(&path)) else { panic!("nothing listens there") };
        assert!(matches!(error, ControlError::Unreachable { .. }));
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        let paths = vec!["/a".into(), "/b".into()];
        let several = ControlError::Several { paths }.to_string();
        assert!(several.ends_with("choose one with --control: /a, /b"), "{several}");
    }
}
