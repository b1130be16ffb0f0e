//! Simulates kernels that lack a feature, with a system call filter (seccomp).

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::sys::prctl;

/// The sockets that the simulated kernel refuses, with its error.
#[derive(Debug, Clone, Copy)]
pub struct NoSockets {
    family: libc::c_int,
    /// `None` matches any protocol.
    protocol: Option<libc::c_int>,
    errno: libc::c_int,
}

/// Offsets in `struct seccomp_data`: system call number, and lower half of an argument.
pub(super) const NUMBER: u32 = 0;
const fn argument(index: u32) -> u32 {
    16 + 8 * index + if cfg!(target_endian = "big") { 4 } else { 0 }
}

pub(super) const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
pub(super) const SKIP_UNLESS: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
pub(super) const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

pub(super) fn instruction(code: u32, k: u32, skipped: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: skipped, k }
}

impl NoSockets {
    /// A kernel without IPv6.
    pub const IPV6: Self =
        Self { family: libc::AF_INET6, protocol: None, errno: libc::EAFNOSUPPORT };

    /// A kernel without netfilter's netlink, or a container that blocks it.
    pub const NFTABLES: Self = Self {
        family: libc::AF_NETLINK,
        protocol: Some(libc::NETLINK_NETFILTER),
        errno: libc::EPROTONOSUPPORT,
    };

    /// Refuses these sockets to a command and its children.
    pub fn apply_to(self, command: &mut Command) {
        let mut tests = vec![(NUMBER, libc::SYS_socket as u32), (argument(0), self.family as u32)];
        tests.extend(self.protocol.map(|protocol| (argument(2), protocol as u32)));
        let count = tests.len();
        // A failing test skips the remaining tests and the refusal.
        let each = tests.into_iter().zip(0..).flat_map(|((offset, value), index)| {
            let skipped = 2 * (count - index) - 1;
            [instruction(LOAD, offset, 0), instruction(SKIP_UNLESS, value, skipped as u8)]
        });
        let mut filter: Vec<libc::sock_filter> = each.collect();
        filter.push(instruction(RETURN, libc::SECCOMP_RET_ERRNO | self.errno as u32, 0));
        filter.push(instruction(RETURN, libc::SECCOMP_RET_ALLOW, 0));
        let install = move || {
            let program =
                libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
            prctl::set_no_new_privs()?;
            let mode = libc::SECCOMP_MODE_FILTER;
            // SAFETY: the program outlives the call; the kernel copies it.
            let code = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) };
            Errno::result(code).map(drop).map_err(io::Error::from)
        };
        // SAFETY: only system calls, on memory that is already allocated.
        unsafe { command.pre_exec(install) };
    }
}
