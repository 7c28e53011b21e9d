// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packet capture on an interface, in both directions, through a ring of blocks that the kernel fills and
//! passes to user space as a whole. Only the bytes that the filter selects are copied.
//!
//! Each packet has the header of its super-packet (PACKET_VNET_HDR), so that one of 64 KB can be counted
//! as the segments that were on the wire. Source: `net/packet/af_packet.c`,
//! `Documentation/networking/packet_mmap.rst` (TPACKET_V3).

mod block;
mod clock;
mod transmit_log;

pub use block::{Packet, Packets};
pub use clock::{Clock, HardwareClock};
pub use transmit_log::{SentPacket, TransmitLog};

use super::option::{PlainOption, get_option, set_option};
use crate::interface::index_here;
use block::STATUS;
use longhaul_packet::{capture::LinkType, packet_filter::Instruction};
use longhaul_units::Time;
use socket2::{Domain, SockFilter, Socket, Type};
use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    ptr::{self, NonNull},
    sync::atomic::{AtomicU32, Ordering},
};

/// Longest time that a packet waits for its block to fill; the largest delay of [`Ring::next_block`].
pub const BLOCK_TIMEOUT: Time = Time::from_millis(50);
/// The smallest ring, in bytes.
pub const RING_MIN: usize = BLOCKS_MIN * BLOCK_MIN;
/// The largest ring, in bytes: the kernel's limit of 32 bits.
pub const RING_MAX: usize = 2 << 30;

/// A block contains several packets of the largest size. With a few blocks, the kernel can fill one while
/// another is read.
const BLOCK_MIN: usize = 128 << 10;
const BLOCK_MAX: usize = 1 << 20;
const BLOCKS_MIN: usize = 4;
const BLOCKS_WANTED: usize = 16;
/// TPACKET_V3 packs packets tightly; the kernel only asks that frames fill blocks.
const FRAME: usize = 2048;

/// include/uapi/linux/if_packet.h
mod option {
    pub(super) const RX_RING: i32 = 5;
    pub(super) const STATISTICS: i32 = 6;
    pub(super) const VERSION: i32 = 10;
    pub(super) const VNET_HDR: i32 = 15;
    pub(super) const TIMESTAMP: i32 = 17;
    pub(super) const IGNORE_OUTGOING: i32 = 23;
    pub(super) const ADD_MEMBERSHIP: i32 = 1;
    pub(super) const PROMISCUOUS: u16 = 1;
    pub(super) const TPACKET_V2: i32 = 1;
    pub(super) const TPACKET_V3: i32 = 2;
}

/// include/uapi/linux/if_arp.h
const ARPHRD_RAWIP: u16 = 519;

/// Parameters of a capture.
#[derive(Debug, Clone, Copy)]
pub struct RingConfig<'a> {
    /// An interface of the calling thread's network namespace.
    pub interface: &'a str,
    /// Memory of the ring, rounded down to whole blocks; [`RING_MIN`] to [`RING_MAX`].
    pub ring_bytes: usize,
    /// Whether packets for other hosts are captured, too.
    pub promiscuous: bool,
    /// Source of the timestamps.
    pub clock: Clock,
}

/// Reason why no ring could be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The caller lacks CAP_NET_RAW.
    #[error("capturing needs CAP_NET_RAW: run as root")]
    NotPermitted,
    /// No such interface.
    #[error("there is no interface {0}; give each one with -i, which is repeatable")]
    NoInterface(String),
    /// The interface is down.
    #[error("interface {0} is down; bring it up with: ip link set {0} up")]
    Down(String),
    /// The link type is neither Ethernet nor plain IP.
    #[error("interface {interface} has a link type that cannot be captured (ARPHRD {kind})")]
    Kind {
        /// Name of the interface.
        interface: String,
        /// ARPHRD_* of include/uapi/linux/if_arp.h.
        kind: u16,
    },
    /// The kernel did not allocate the memory.
    #[error("no memory for a ring of {bytes} bytes: choose a smaller one")]
    Memory {
        /// Requested size.
        bytes: usize,
    },
    /// The filter has no program for the link type.
    #[error("interface {interface}: {reason}")]
    Filter {
        /// Name of the interface.
        interface: String,
        /// Why there is none.
        reason: String,
    },
    /// Anything else.
    #[error("cannot {action} on {interface}")]
    Kernel {
        /// Name of the interface.
        interface: String,
        /// Action that failed.
        action: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

/// A filter that rejects all packets.
const REJECT_ALL: Instruction = Instruction {
    code: libc::BPF_RET as u16,
    jump_true: 0,
    jump_false: 0,
    operand: 0,
};

/// Checks whether the caller may open rings: opens the smallest on this interface, and closes it.
pub fn check_permission(interface: &str) -> Result<(), OpenError> {
    let request = RingConfig {
        interface,
        ring_bytes: RING_MIN,
        promiscuous: false,
        clock: Clock::Software,
    };
    Ring::open(&request, |_| Ok(vec![REJECT_ALL])).map(drop)
}

/// Packets counted by the kernel since the ring was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that passed the filter, dropped ones included.
    pub received: u64,
    /// Packets dropped because the ring was full.
    pub dropped: u64,
    /// Times that the ring was full.
    pub freezes: u64,
}

/// An open ring and its memory.
#[derive(Debug)]
pub struct Ring {
    // Unmapped before the socket closes, as fields are dropped in order.
    memory: Mapping,
    socket: Socket,
    interface: String,
    link_type: LinkType,
    block_bytes: usize,
    blocks: usize,
    next: usize,
    counts: Counts,
}

impl Ring {
    /// Opens a ring for the packets that `filter` accepts. The program returns the bytes to capture of a
    /// packet; it depends on the [`LinkType`], and there may be none for it. An error names the remedy.
    pub fn open(
        request: &RingConfig<'_>,
        filter: impl FnOnce(LinkType) -> Result<Vec<Instruction>, String>,
    ) -> Result<Self, OpenError> {
        let failed = |action| {
            move |source| OpenError::Kernel {
                interface: request.interface.to_owned(),
                action,
                source,
            }
        };
        // Protocol 0: no packet is captured before all options are set and the socket is bound.
        let socket = Socket::new(Domain::PACKET, Type::RAW, None).map_err(not_permitted)?;
        let index = index_of(request.interface)?;
        set_packet_option(&socket, option::VERSION, option::TPACKET_V3)
            .and_then(|()| set_packet_option(&socket, option::VNET_HDR, 1))
            .map_err(failed("get super-packets"))?;
        if request.clock == Clock::Hardware {
            let hardware = libc::SOF_TIMESTAMPING_RAW_HARDWARE as i32;
            set_packet_option(&socket, option::TIMESTAMP, hardware)
                .map_err(failed("get hardware time stamps"))?;
        }
        let layout = RingLayout::of(request.ring_bytes);
        let memory = layout.map(&socket)?;
        let (link_type, loopback) = link_type(&socket, index, request.interface)?;
        let program = filter(link_type).map_err(|reason| OpenError::Filter {
            interface: request.interface.to_owned(),
            reason,
        })?;
        attach(&socket, &program).map_err(failed("attach the filter"))?;
        if loopback {
            // Each packet would be captured twice: outgoing and incoming.
            set_packet_option(&socket, option::IGNORE_OUTGOING, 1)
                .map_err(failed("leave out outgoing packets"))?;
        }
        if request.promiscuous {
            join_promiscuous(&socket, index).map_err(failed("take packets for others"))?;
        }
        bind(&socket, index, libc::ETH_P_ALL as u16).map_err(failed("capture"))?;
        if is_down(&socket).map_err(failed("capture"))? {
            return Err(OpenError::Down(request.interface.to_owned()));
        }
        Ok(Self {
            memory,
            socket,
            interface: request.interface.to_owned(),
            link_type,
            block_bytes: layout.block_bytes,
            blocks: layout.blocks,
            next: 0,
            counts: Counts::default(),
        })
    }

    /// Returns the link-layer type of the frames.
    #[must_use]
    pub fn link_type(&self) -> LinkType {
        self.link_type
    }

    /// Returns the next filled block, if any; it returns to the kernel when it is dropped. Wait for more with
    /// poll(2).
    pub fn next_block(&mut self) -> Option<Block<'_>> {
        let filled = self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0;
        filled.then(|| Block { ring: self })
    }

    /// Returns the packets counted so far.
    pub fn counts(&mut self) -> io::Result<Counts> {
        let new: Statistics = get_option(&self.socket, libc::SOL_PACKET, option::STATISTICS)?;
        // Reading resets the kernel's counters.
        self.counts.received += u64::from(new.received);
        self.counts.dropped += u64::from(new.dropped);
        self.counts.freezes += u64::from(new.freezes);
        Ok(self.counts)
    }

    /// Stops capturing. Packets captured before are returned within [`BLOCK_TIMEOUT`].
    pub fn stop_capture(&self) -> io::Result<()> {
        attach(&self.socket, &[REJECT_ALL])
    }

    /// Checks that the interface still exists. One that is down may come up again.
    pub fn check(&self) -> io::Result<()> {
        // An interface is down before it is removed. Only the first is an error of the socket, which must be
        // cleared.
        is_down(&self.socket)?;
        if bound_to(&self.socket)?.sll_ifindex < 0 {
            let message = format!("interface {} is gone", self.interface);
            return Err(io::Error::new(io::ErrorKind::NotFound, message));
        }
        Ok(())
    }

    /// Returns the status word of the next block, which tells whether it is filled.
    fn status(&self) -> &AtomicU32 {
        // SAFETY: within the mapping, which outlives the reference; blocks are aligned to pages; both
        // sides only read and write this word as a whole.
        unsafe { AtomicU32::from_ptr(self.block_start().add(STATUS).as_ptr().cast()) }
    }

    fn block_start(&self) -> NonNull<u8> {
        // SAFETY: `next` is less than `blocks`, and the mapping has so many of them.
        unsafe { self.memory.start.add(self.next * self.block_bytes) }
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A block that belongs to this process until it is dropped.
#[derive(Debug)]
pub struct Block<'a> {
    ring: &'a mut Ring,
}

impl Block<'_> {
    /// Returns its packets, in capture order.
    #[must_use]
    pub fn packets(&self) -> Packets<'_> {
        let (start, length) = (self.ring.block_start(), self.ring.block_bytes);
        // SAFETY: within the mapping; the kernel does not write to a block that it handed over, and
        // gets it back only when `self`, which the slice borrows, is dropped.
        Packets::of(unsafe { std::slice::from_raw_parts(start.as_ptr(), length) })
    }
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        let owned_by_kernel = libc::TP_STATUS_KERNEL;
        self.ring.status().store(owned_by_kernel, Ordering::Release);
        self.ring.next = (self.ring.next + 1) % self.ring.blocks;
    }
}

/// Division of a ring into blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RingLayout {
    block_bytes: usize,
    blocks: usize,
}

impl RingLayout {
    fn of(ring_bytes: usize) -> Self {
        let ring_bytes = ring_bytes.clamp(RING_MIN, RING_MAX);
        let wanted = (ring_bytes / BLOCKS_WANTED).max(1);
        let block_bytes = (1 << wanted.ilog2()).clamp(BLOCK_MIN, BLOCK_MAX);
        Self {
            block_bytes,
            blocks: ring_bytes / block_bytes,
        }
    }

    const fn bytes(self) -> usize {
        self.block_bytes * self.blocks
    }

    fn map(self, socket: &Socket) -> Result<Mapping, OpenError> {
        // `struct tpacket_req3`.
        let request = [
            self.block_bytes as u32,
            self.blocks as u32,
            FRAME as u32,
            (self.bytes() / FRAME) as u32,
            (BLOCK_TIMEOUT.as_nanos() / 1_000_000) as u32,
            0,
            0,
        ];
        let bytes = self.bytes();
        set_packet_option(socket, option::RX_RING, request)
            .and_then(|()| Mapping::of(socket, bytes))
            .map_err(|_| OpenError::Memory { bytes })
    }
}

/// Memory shared with the kernel.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory belongs to the owner of the mapping, on any thread.
unsafe impl Send for Mapping {}

impl Mapping {
    fn of(socket: &Socket, bytes: usize) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; it has no effect on others.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                access,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast());
        let start = start.ok_or_else(|| io::Error::other("memory at address zero"))?;
        Ok(Self { start, bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which nothing refers any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// `struct tpacket_stats_v3`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Statistics {
    received: u32,
    dropped: u32,
    freezes: u32,
}

// SAFETY: integers only, no padding.
unsafe impl PlainOption for Statistics {}
// SAFETY: as above.
unsafe impl PlainOption for [u32; 4] {}
// SAFETY: as above.
unsafe impl PlainOption for [u32; 7] {}

/// `struct packet_mreq`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Membership {
    index: i32,
    kind: u16,
    address_len: u16,
    address: [u8; 8],
}

// SAFETY: integers only, no padding.
unsafe impl PlainOption for Membership {}

fn set_packet_option<T: PlainOption>(socket: &Socket, name: i32, value: T) -> io::Result<()> {
    set_option(socket, libc::SOL_PACKET, name, value)
}

/// Enables promiscuous mode, until the socket is closed.
fn join_promiscuous(socket: &Socket, index: i32) -> io::Result<()> {
    let membership = Membership {
        index,
        kind: option::PROMISCUOUS,
        address_len: 0,
        address: [0; 8],
    };
    set_packet_option(socket, option::ADD_MEMBERSHIP, membership)
}

fn not_permitted(error: io::Error) -> OpenError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => OpenError::NotPermitted,
        _ => OpenError::Kernel {
            interface: "a packet socket".to_owned(),
            action: "capture",
            source: error,
        },
    }
}

fn index_of(interface: &str) -> Result<i32, OpenError> {
    match index_here(interface) {
        Ok(index) => Ok(index as i32),
        Err(_) => Err(OpenError::NoInterface(interface.to_owned())),
    }
}

/// Returns the interface's link type, and whether it is the loopback. A socket bound without a protocol
/// captures no packets.
fn link_type(socket: &Socket, index: i32, interface: &str) -> Result<(LinkType, bool), OpenError> {
    let kind = bind(socket, index, 0).and_then(|()| Ok(bound_to(socket)?.sll_hatype));
    let kind = kind.map_err(|source| OpenError::Kernel {
        interface: interface.to_owned(),
        action: "capture",
        source,
    })?;
    match kind {
        libc::ARPHRD_ETHER => Ok((LinkType::Ethernet, false)),
        libc::ARPHRD_LOOPBACK => Ok((LinkType::Ethernet, true)),
        // TUN, WireGuard and other devices that carry plain IP.
        libc::ARPHRD_NONE | ARPHRD_RAWIP => Ok((LinkType::Raw, false)),
        kind => Err(OpenError::Kind {
            interface: interface.to_owned(),
            kind,
        }),
    }
}

fn bind(socket: &Socket, index: i32, protocol: u16) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: pointer and length describe `address`, which lives through the call.
    match unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the interface that the socket is bound to: its index, -1 once it is removed, and its ARPHRD_* kind.
fn bound_to(socket: &Socket) -> io::Result<libc::sockaddr_ll> {
    // SAFETY: an all-zero sockaddr_ll is a valid one.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    let fd = socket.as_raw_fd();
    // SAFETY: the kernel writes at most `length` bytes, the size of `address`.
    match unsafe { libc::getsockname(fd, (&raw mut address).cast(), &raw mut length) } {
        0 => Ok(address),
        _ => Err(io::Error::last_os_error()),
    }
}

fn attach(socket: &Socket, program: &[Instruction]) -> io::Result<()> {
    let filter = |i: &Instruction| SockFilter::new(i.code, i.jump_true, i.jump_false, i.operand);
    let program: Vec<_> = program.iter().map(filter).collect();
    socket.attach_filter(&program)
}

fn is_down(socket: &Socket) -> io::Result<bool> {
    match socket.take_error()? {
        Some(error) if error.raw_os_error() == Some(libc::ENETDOWN) => Ok(true),
        Some(error) => Err(error),
        None => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{interface, netns::Netns};
    use longhaul_packet::packet_filter;

    #[test]
    fn ring_layout_is_whole_blocks_within_the_requested_size() {
        let layout = |bytes| RingLayout::of(bytes);
        let (kib, mib) = (1 << 10, 1 << 20);
        assert_eq!(layout(0).bytes(), RING_MIN);
        assert_eq!(
            (layout(256 * mib).block_bytes, layout(256 * mib).blocks),
            (mib, 256)
        );
        assert_eq!(
            (layout(8 * mib).block_bytes, layout(8 * mib).blocks),
            (512 * kib, 16)
        );
        assert_eq!(layout(usize::MAX).bytes(), RING_MAX);
        for bytes in [RING_MIN, 700_000, 1_000_000, 250_000_000] {
            let layout = layout(bytes);
            assert!(
                layout.bytes() <= bytes && layout.blocks >= BLOCKS_MIN,
                "{layout:?}"
            );
        }
    }

    /// A namespace of this test's own, with its loopback up; `None` where none can be created.
    fn loopback(name: &str) -> Option<(Netns, String)> {
        let name = format!("ring-{name}-{}", std::process::id());
        match Netns::create(&name) {
            Ok(netns) => {
                interface::bring_up(&netns, "lo").unwrap();
                Some((netns, name))
            }
            Err(error) => {
                let _ =
                    longhaul_testprograms::skip::require(false, format!("namespaces ({error})"));
                None
            }
        }
    }

    /// Returns the bytes and the length of the first frame within some seconds.
    fn first_frame(ring: &mut Ring) -> Option<(Vec<u8>, u32)> {
        let link_type = ring.link_type();
        for _ in 0..100 {
            if let Some(block) = ring.next_block()
                && let Some(packet) = block.packets().next()
            {
                let mut space = Vec::new();
                let frame = packet.frame(0, link_type, &mut space);
                return Some((frame.bytes.to_vec(), frame.wire_len));
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        None
    }

    /// The kernel removes the tag of a received packet; the test sends the packet with it.
    #[test]
    fn restores_the_vlan_tag() {
        let Some((netns, name)) = loopback("vlan") else {
            return;
        };
        let mut frame = vec![0; 60];
        frame[12..18].copy_from_slice(&[0x81, 0, 0x20, 7, 0x88, 0xb5]);
        let request = RingConfig {
            interface: "lo",
            ring_bytes: RING_MIN,
            promiscuous: false,
            clock: Clock::Software,
        };
        let seen = netns.run(|| {
            let everything = |_| Ok(packet_filter::accept_all(40));
            let mut ring = Ring::open(&request, everything).map_err(io::Error::other)?;
            let sender = Socket::new(Domain::PACKET, Type::RAW, None)?;
            bind(&sender, index_of("lo").map_err(io::Error::other)?, 0)?;
            sender.send(&frame)?;
            let seen = first_frame(&mut ring);
            let counts = ring.counts()?;
            Ok((seen, counts))
        });
        Netns::delete(&name).unwrap();
        let (seen, counts) = seen.unwrap();
        // 40 bytes without the tag, and the loopback's packet once, not twice.
        assert_eq!(seen, Some((frame[..44].to_vec(), 60)));
        assert_eq!((counts.received, counts.dropped), (1, 0));
    }
}
