//! Sends requests to a running gateway.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use control::Role;
use control::protocol::{ControlAnswer, ControlRequest, MAX_ANSWER, read, write};
use thiserror::Error;

use super::path::{existing_sockets, role_of};

/// Time limit of an answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to a running gateway.
pub struct ControlClient {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

/// Reason for which a request to a gateway failed. Each prints as one line.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ControlError {
    /// No gateway of this user is running.
    #[error(
        "no gateway runs here that this user may ask: no control socket is in {places}; --control \
         names another, and a gateway of another user, such as root, needs that user"
    )]
    NoGateway {
        /// The directories searched, with commas between them.
        places: String,
    },
    /// Several gateways are running, and the request names none.
    #[error("several gateways run here: choose one with {}", choices(running))]
    SeveralGateways {
        /// The gateways to choose from.
        running: Vec<RunningGateway>,
    },
    /// No gateway of this role is running.
    #[error("no gateway of role {} runs here, but {}", role.as_str(), list(running))]
    NoGatewayOfRole {
        /// The role that was asked for.
        role: Role,
        /// The gateways that do run.
        running: Vec<RunningGateway>,
    },
    /// Nothing listens on this socket.
    #[error("no gateway answers at {}: {cause}", path.display())]
    Unreachable {
        /// Path of the control socket.
        path: PathBuf,
        /// The system's error on connecting.
        cause: io::Error,
    },
    /// The connection broke, or the answer cannot be read.
    #[error("invalid answer from the gateway at {}: {problem}", path.display())]
    InvalidAnswer {
        /// Path of the control socket.
        path: PathBuf,
        /// Description of the fault, for the user.
        problem: String,
    },
    /// The gateway refused the request.
    #[error("{0}")]
    Refused(String),
}

/// A running gateway, found by its control socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningGateway {
    /// Its role; `None` if it does not answer.
    pub role: Option<Role>,
    /// Path of its control socket.
    pub path: PathBuf,
}

impl fmt::Display for RunningGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = self.role.map_or("a gateway that does not answer", Role::as_str);
        write!(f, "{role} ({})", self.path.display())
    }
}

fn list(each: &[impl fmt::Display]) -> String {
    each.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The options that select each gateway: roles where they suffice.
fn choices(running: &[RunningGateway]) -> String {
    let is_alone = |gateway: &RunningGateway| {
        running.iter().filter(|other| other.role == gateway.role).count() == 1
    };
    let option = |gateway: &RunningGateway| match gateway.role {
        Some(role) if is_alone(gateway) => format!("--role {}", role.as_str()),
        Some(role) => format!("--control {} ({})", gateway.path.display(), role.as_str()),
        None => format!("--control {}", gateway.path.display()),
    };
    running.iter().map(option).collect::<Vec<_>>().join(" or ")
}

impl ControlClient {
    /// Connects to the gateway at `path`.
    ///
    /// # Errors
    /// Nothing listens there.
    pub fn connect(path: &Path) -> Result<Self, ControlError> {
        let failed = |cause| ControlError::Unreachable { path: path.to_owned(), cause };
        let stream = UnixStream::connect(path).map_err(failed)?;
        stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
        stream.set_write_timeout(Some(TIMEOUT)).map_err(failed)?;
        Ok(Self { path: path.to_owned(), stream: BufReader::new(stream) })
    }

    /// Connects to all gateways of this user, or those of this role, that answer in the default
    /// directories.
    ///
    /// # Errors
    /// No gateway answers.
    pub fn connect_all(role: Option<Role>) -> Result<Vec<Self>, ControlError> {
        Self::of_role(Self::connect_found()?, role)
    }

    /// Connects to the gateway at `path`, or to the only one running, of this role if one is given.
    ///
    /// # Errors
    /// No gateway answers, or more than one.
    pub fn connect_one(path: Option<&Path>, role: Option<Role>) -> Result<Self, ControlError> {
        if let Some(path) = path {
            return Self::connect(path);
        }
        let mut all = Self::connect_all(role)?;
        match all.pop() {
            Some(only) if all.is_empty() => Ok(only),
            last => Err(ControlError::SeveralGateways {
                running: all.into_iter().chain(last).map(|mut control| control.running()).collect(),
            }),
        }
    }

    fn connect_found() -> Result<Vec<Self>, ControlError> {
        let found: Vec<Self> =
            existing_sockets().iter().filter_map(|path| Self::connect(path).ok()).collect();
        if found.is_empty() {
            let directories = super::default_directories();
            let places: Vec<_> = directories.iter().map(|path| path.display()).collect();
            return Err(ControlError::NoGateway { places: list(&places) });
        }
        Ok(found)
    }

    fn of_role(all: Vec<Self>, role: Option<Role>) -> Result<Vec<Self>, ControlError> {
        let Some(role) = role else { return Ok(all) };
        let mut found = Vec::new();
        let mut others = Vec::new();
        for mut control in all {
            let running = control.running();
            match running.role == Some(role) {
                true => found.push(control),
                false => others.push(running),
            }
        }
        if found.is_empty() {
            return Err(ControlError::NoGatewayOfRole { role, running: others });
        }
        Ok(found)
    }

    /// The gateway's role: by the default name of its socket, otherwise by its status.
    fn running(&mut self) -> RunningGateway {
        // Only a socket with another name needs a question.
        let role = role_of(&self.path).or_else(|| {
            let answer = self.ask(&ControlRequest::Status { connections: false });
            answer.ok().and_then(|answer| match answer {
                ControlAnswer::Status(status) => Some(status.role),
                _ => None,
            })
        });
        RunningGateway { role, path: self.path.clone() }
    }

    /// Path of the gateway's control socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sends a request and waits for the answer, which is never [`ControlAnswer::Error`].
    ///
    /// # Errors
    /// The gateway is gone, or refuses the request.
    pub fn ask(&mut self, request: &ControlRequest) -> Result<ControlAnswer, ControlError> {
        match self.exchange(request) {
            Ok(ControlAnswer::Error(why)) => Err(ControlError::Refused(why)),
            Ok(answer) => Ok(answer),
            Err(problem) => Err(ControlError::InvalidAnswer { path: self.path.clone(), problem }),
        }
    }

    fn exchange(&mut self, request: &ControlRequest) -> Result<ControlAnswer, String> {
        let sent = self.stream.get_mut().write_all(&write(request));
        sent.map_err(|error| error.to_string())?;
        let mut line = Vec::new();
        // What listens at a path that the user names need not be a gateway: its answer is bounded.
        let mut stream = (&mut self.stream).take(MAX_ANSWER);
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
    fn ask(answer: &[u8]) -> Result<ControlAnswer, ControlError> {
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
            ControlClient::connect(&path).unwrap().ask(&ControlRequest::Reload)
        })
    }

    #[test]
    fn an_answer_is_a_result_and_an_error_a_refusal() {
        let done = ControlAnswer::Done(vec!["reloaded".to_owned()]);
        assert_eq!(ask(&write(&done)).unwrap(), done);
        let refused = ask(&write(ControlAnswer::Error("line 7".to_owned()))).unwrap_err();
        assert!(matches!(refused, ControlError::Refused(_)));
        assert_eq!(refused.to_string(), "line 7");
    }

    #[test]
    fn an_answer_that_cannot_be_read_names_the_socket_and_the_trouble() {
        let whole = write(ControlAnswer::Done(vec![]));
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
        let Err(error) = ControlClient::connect_one(Some(&path), None) else {
            panic!("nothing listens there")
        };
        assert!(matches!(error, ControlError::Unreachable { .. }));
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }

    fn running(role: Role, path: &str) -> RunningGateway {
        RunningGateway { role: Some(role), path: path.into() }
    }

    #[test]
    fn several_gateways_are_told_apart_by_role_or_else_by_socket() {
        let mut gateways = vec![running(Role::Hub, "/a"), running(Role::Terminal, "/b")];
        let several = ControlError::SeveralGateways { running: gateways.clone() }.to_string();
        assert!(several.ends_with("choose one with --role hub or --role terminal"), "{several}");
        gateways.push(running(Role::Terminal, "/c"));
        let several = ControlError::SeveralGateways { running: gateways.clone() }.to_string();
        let choices = "--role hub or --control /b (terminal) or --control /c (terminal)";
        assert!(several.ends_with(choices), "{several}");
        let none =
            ControlError::NoGatewayOfRole { role: Role::Solo, running: gateways }.to_string();
        assert!(none.starts_with("no gateway of role solo runs here"), "{none}");
        assert!(none.ends_with("hub (/a), terminal (/b), terminal (/c)"), "{none}");
    }

    #[test]
    fn gateways_of_a_role_are_found_by_the_name_of_their_socket_or_their_answer() {
        let directory = tempfile::tempdir().unwrap();
        let serve = |name: &str| {
            let path = directory.path().join(name);
            let listener = UnixListener::bind(&path).unwrap();
            (listener, ControlClient::connect(&path).unwrap())
        };
        let (_hub, hub) = serve("hub.sock");
        let (own_name, terminal) = serve("ship.sock");
        let controls = vec![hub, terminal];
        let found = thread::scope(|scope| {
            scope.spawn(|| {
                let (stream, _) = own_name.accept().unwrap();
                BufReader::new(&stream).read_line(&mut String::new()).unwrap();
                (&stream).write_all(&write(ControlAnswer::Status(Box::default()))).unwrap();
            });
            ControlClient::of_role(controls, Some(Role::Terminal)).unwrap()
        });
        let [only] = &found[..] else { panic!("{} found", found.len()) };
        assert!(only.path().ends_with("ship.sock"));
    }
}
