//! A running lab, and what remains of it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use os::process::Handle;

use super::Runner;

/// A lab that runs a shell script, with all its processes.
pub(crate) struct Running {
    pub(crate) supervisor: Child,
    remains: Remains,
}

/// The processes and namespaces of a lab, which must not outlive it.
pub(crate) struct Remains {
    processes: Vec<Handle>,
    namespaces: BTreeSet<PathBuf>,
    /// Keeps the namespaces open, so that another lab's cannot reuse their numbers.
    _pinned: Vec<File>,
}

impl Running {
    /// Starts the lab; the script prints `ready`.
    pub(crate) fn start(runner: &Runner, options: &[&str], script: &str) -> Self {
        let mut command = runner.shell(options, script);
        let mut supervisor = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(supervisor.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let inside = descendants(supervisor.id());
        assert!(inside.len() >= 3, "init, lab and command: {inside:?}");
        let remains = Remains::of(supervisor.id());
        assert_eq!(remains.namespaces.len(), 6, "the lab's own, four hosts, the sky");
        Self { supervisor, remains }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.supervisor.id() as i32), signal).unwrap();
    }

    /// Waits for the end and checks that nothing remains. Returns the supervisor's exit code.
    pub(crate) fn end(mut self) -> Option<i32> {
        let code = self.supervisor.wait().unwrap().code();
        self.remains.assert_gone();
        code
    }
}

impl Remains {
    /// Everything that belongs to this supervisor's lab so far.
    pub(crate) fn of(supervisor: u32) -> Self {
        let inside = descendants(supervisor);
        assert!(inside.len() >= 2, "init and lab: {inside:?}");
        let all = inside.iter().chain([&supervisor]);
        let open = |pid: &u32| Handle::open(*pid).unwrap().expect("it runs");
        let processes = all.map(open).collect();
        let own = fs::read_link("/proc/self/ns/net").unwrap();
        let held = inside.iter().flat_map(|pid| held_netns(*pid));
        let held: Vec<_> = held.filter(|(_, netns)| *netns != own).collect();
        let pinned = held.iter().map(|(link, _)| File::open(link).unwrap()).collect();
        let namespaces = held.into_iter().map(|(_, netns)| netns).collect();
        Self { processes, namespaces, _pinned: pinned }
    }

    /// Sends a signal to all processes.
    pub(crate) fn signal(&self, signal: Signal) {
        for process in &self.processes {
            assert!(process.signal(signal).unwrap(), "a process has ended");
        }
    }

    /// Waits for the end, also of the supervisor, and checks that nothing remains.
    pub(crate) fn assert_gone(&self) {
        for process in &self.processes {
            let mut fds = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
            let ended = poll(&mut fds, PollTimeout::from(10_000u16)).unwrap();
            assert_eq!(ended, 1, "a process of the lab still runs");
        }
        // This process holds the namespaces open, and so do its children until they exec. None of
        // our children belong to the lab: its supervisor has ended.
        let us = std::process::id();
        let others = processes().filter(|pid| *pid != us && parent(*pid) != Some(us));
        let left: Vec<_> = others
            .flat_map(|pid| held_netns(pid).into_iter().map(move |(_, netns)| (pid, netns)))
            .filter(|(_, netns)| self.namespaces.contains(netns))
            .collect();
        assert!(left.is_empty(), "namespaces still held: {left:?}");
        let devices = fs::read_to_string("/proc/net/dev").unwrap();
        let mut names = devices.lines().filter_map(|line| line.trim().split_once(':'));
        assert!(!names.any(|(name, _)| ["sat0", "t0", "h0", "lan0"].contains(&name)), "{devices}");
    }
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// All descendants of `ancestor`.
fn descendants(ancestor: u32) -> Vec<u32> {
    let children: Vec<u32> = processes().filter(|pid| parent(*pid) == Some(ancestor)).collect();
    children.iter().flat_map(|child| [vec![*child], descendants(*child)].concat()).collect()
}

/// Network namespaces that a process is in or holds open, with the path of each reference.
fn held_netns(pid: u32) -> Vec<(PathBuf, PathBuf)> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = descriptors.map(|entry| entry.path());
    let links = links.chain([PathBuf::from(format!("/proc/{pid}/ns/net"))]);
    let held = links.filter_map(|link| fs::read_link(&link).ok().map(|target| (link, target)));
    held.filter(|(_, target)| target.to_string_lossy().starts_with("net:")).collect()
}
