//! Simulates kernels that lack a feature, with a system call filter (seccomp).

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Sockets for the kernel to refuse, and the error.
#[derive(Clone, Copy)]
pub(super) struct NoSockets {
    family: libc::c_int,
    /// `None` matches any protocol.
    protocol: Option<libc::c_int>,
    errno: libc::c_int,
}

/// A kernel without IPv6.
pub(super) const NO_IPV6: NoSockets =
    NoSockets { family: libc::AF_INET6, protocol: None, errno: libc::EAFNOSUPPORT };
/// A kernel without netfilter's netlink, or a container that blocks it.
pub(super) const NO_NFTABLES: NoSockets = NoSockets {
    family: libc::AF_NETLINK,
    protocol: Some(libc::NETLINK_NETFILTER),
    errno: libc::EPROTONOSUPPORT,
};

/// Offsets in `struct seccomp_data`: system call number, and lower half of an argument.
const NUMBER: u32 = 0;
const fn argument(index: u32) -> u32 {
    16 + 8 * index + if cfg!(target_endian = "big") { 4 } else { 0 }
}

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const SKIP_UNLESS: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

fn instruction(code: u32, k: u32, skipped: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: skipped, k }
}

impl NoSockets {
    /// The command and its children get no such socket.
    pub(super) fn restrain(self, command: &mut Command) {
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
            // SAFETY: the program outlives the calls; the kernel copies it.
            let refused = unsafe {
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0
                    || libc::prctl(
                        libc::PR_SET_SECCOMP,
                        libc::SECCOMP_MODE_FILTER,
                        &raw const program,
                    ) < 0
            };
            if refused { Err(std::io::Error::last_os_error()) } else { Ok(()) }
        };
        // SAFETY: only system calls, on memory that is already allocated.
        unsafe { command.pre_exec(install) };
    }
}
