//! The receive ring of a packet socket (`PACKET_RX_RING`, packet(7)).
//!
//! The kernel writes packets into memory shared with this process. Unlike a socket's receive
//! buffer, the size of the ring is not limited by `net.core.rmem_max`, which an ordinary user
//! cannot raise: a sender on the LAN can put thousands of packets on the hop at once.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;

use crate::socket::option;

/// Size of one ring. At 2 KiB per packet that is 8192 packets, 8 ms of a sender at 12 Gbit/s.
pub const RING_BYTES: usize = 16 << 20;
/// The kernel allocates the ring in blocks of this many bytes.
const BLOCK_BYTES: usize = 1 << 17;
/// The address of a packet follows its header, aligned (`TPACKET_ALIGN`).
const _: () = assert!(size_of::<libc::tpacket2_hdr>() == 32);
/// Space before a packet in its frame: `tpacket2_hdr`, `sockaddr_ll`, padding.
const HEADROOM: usize = 80;

/// A packet in the ring.
pub struct RingFrame<'a> {
    /// The packet from its IP header on, or the whole frame, depending on how the socket was
    /// opened.
    pub bytes: &'a [u8],
    /// When the device received it: nanoseconds since the epoch.
    pub wall: u64,
    /// False if the packet was longer than a frame and is truncated.
    pub whole: bool,
    /// True if the ring was full, and packets dropped, since the kernel was last asked for their
    /// number.
    pub losing: bool,
    /// True if the device sent the packet rather than received it.
    pub outgoing: bool,
    /// True if the kernel left the checksum to the device.
    pub unfinished: bool,
}

/// The mapped ring. Packets are taken in order of arrival.
pub struct ReceiveRing {
    memory: NonNull<u8>,
    bytes: usize,
    frame_bytes: usize,
    next: usize,
}

// SAFETY: the mapping belongs to the ring alone; no thread owns it.
unsafe impl Send for ReceiveRing {}

impl ReceiveRing {
    /// Sets up a ring of `bytes` (a multiple of 128 KiB) on `socket`, which must not be bound yet,
    /// for packets of up to `mtu` bytes.
    pub fn new(socket: &OwnedFd, mtu: u16, bytes: usize) -> io::Result<Self> {
        let frame_bytes = (usize::from(mtu) + HEADROOM).next_power_of_two();
        let version = libc::tpacket_versions::TPACKET_V2 as i32;
        option::set(socket, libc::SOL_PACKET, libc::PACKET_VERSION, version)?;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: (bytes / BLOCK_BYTES) as u32,
            tp_frame_size: frame_bytes as u32,
            tp_frame_nr: (bytes / frame_bytes) as u32,
        };
        option::set(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, request)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new shared mapping of the ring that was just allocated, with
        // its exact size, at an address of the kernel's choice.
        let memory = unsafe {
            let null = core::ptr::null_mut();
            libc::mmap(null, bytes, protection, libc::MAP_SHARED, socket.as_raw_fd(), 0)
        };
        if memory == libc::MAP_FAILED {
            return Err(Errno::last().into());
        }
        let memory = NonNull::new(memory.cast()).expect("mmap does not return null");
        Ok(Self { memory, bytes, frame_bytes, next: 0 })
    }

    /// Passes the next packet to `take`; `false` if there is none.
    pub fn take(&mut self, take: impl FnOnce(RingFrame<'_>)) -> bool {
        // SAFETY: `next` is below the number of frames, so the frame is inside
        // the mapping; frames are aligned to their size, a power of two.
        let frame = unsafe { self.memory.add(self.next * self.frame_bytes) };
        // SAFETY: a frame begins with its status, which the kernel writes too,
        // hence atomic.
        let status = unsafe { frame.cast::<AtomicU32>().as_ref() };
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return false;
        }
        // SAFETY: until the status says kernel again, the frame is ours.
        take(unsafe { self.read(frame) });
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % (self.bytes / self.frame_bytes);
        true
    }

    /// # Safety
    /// `frame` must point to a frame that the kernel has handed over.
    unsafe fn read(&self, frame: NonNull<u8>) -> RingFrame<'_> {
        // SAFETY: the frame begins with a tpacket2_hdr.
        let header = unsafe { frame.cast::<libc::tpacket2_hdr>().as_ref() };
        // Without link-layer headers, this is where the IP header starts.
        let start = usize::from(header.tp_mac).min(self.frame_bytes);
        let length = (header.tp_snaplen as usize).min(self.frame_bytes - start);
        // SAFETY: `start + length` is within the frame.
        let bytes = unsafe { core::slice::from_raw_parts(frame.add(start).as_ptr(), length) };
        let wall = u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec);
        let losing = header.tp_status & libc::TP_STATUS_LOSING != 0;
        // SAFETY: the header is followed by the packet's link-layer address; both
        // fit into HEADROOM, and 32 bytes keep the alignment of the frame.
        let address = unsafe { frame.add(size_of::<libc::tpacket2_hdr>()) };
        // SAFETY: as above.
        let address = unsafe { address.cast::<libc::sockaddr_ll>().as_ref() };
        let outgoing = address.sll_pkttype == libc::PACKET_OUTGOING;
        let unfinished = header.tp_status & libc::TP_STATUS_CSUMNOTREADY != 0;
        RingFrame {
            bytes,
            wall,
            whole: header.tp_len as usize == length,
            losing,
            outgoing,
            unfinished,
        }
    }
}

impl Drop for ReceiveRing {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`, which nothing refers to any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}
