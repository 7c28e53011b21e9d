// SPDX-License-Identifier: MIT OR Apache-2.0
//! Log of the packets that the kernel passes to an interface: the time of each, and its first bytes.
//!
//! A packet that a program reads from a TUN device has no timestamp. The kernel shows each sent packet to packet sockets
//! just before the device's queue takes it, and a ring of TPACKET_V2 has the time there. Its frames are readable at
//! once; blocks of TPACKET_V3 are not. Source: `net/packet/af_packet.c`, `dev_queue_xmit_nit` of `net/core/dev.c`.

use super::{Mapping, OpenError, attach, bind, index_of, not_permitted, option, set_packet_option};
use longhaul_packet::packet_filter::Instruction;
use longhaul_units::Time;
use socket2::{Domain, Socket, Type};
use std::{
    mem::offset_of,
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering},
};

/// Bytes of a frame: 80 of headers and `HEAD` of the packet.
const FRAME: usize = 128;
/// Most bytes of a packet in the log.
const HEAD: usize = 48;
/// Bytes that the kernel allocates in one piece.
const BLOCK: usize = 32 << 10;

const SECONDS: usize = offset_of!(libc::tpacket2_hdr, tp_sec);
const NANOSECONDS: usize = offset_of!(libc::tpacket2_hdr, tp_nsec);
const WIRE_LEN: usize = offset_of!(libc::tpacket2_hdr, tp_len);
const SNAP_LEN: usize = offset_of!(libc::tpacket2_hdr, tp_snaplen);
const DATA: usize = offset_of!(libc::tpacket2_hdr, tp_mac);

/// Accepts the first bytes of sent packets, and nothing of received ones: `SKF_AD_PKTTYPE` is `PACKET_OUTGOING`.
const SENT_PACKETS: [Instruction; 4] = [
    instruction(
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        0,
        0,
        PACKET_TYPE,
    ),
    instruction(
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        0,
        1,
        libc::PACKET_OUTGOING as u32,
    ),
    instruction(libc::BPF_RET | libc::BPF_K, 0, 0, HEAD as u32),
    instruction(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
];
/// `SKF_AD_OFF + SKF_AD_PKTTYPE` (include/uapi/linux/filter.h).
const PACKET_TYPE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;

const fn instruction(code: u32, jump_true: u8, jump_false: u8, operand: u32) -> Instruction {
    Instruction {
        code: code as u16,
        jump_true,
        jump_false,
        operand,
    }
}

/// A packet in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentPacket<'a> {
    /// Time since the epoch at which it was passed to the interface.
    pub wall: Time,
    /// Bytes of the whole packet, from its IP header on; of a super-packet in total.
    pub len: usize,
    /// First bytes, at most 48.
    pub head: &'a [u8],
}

/// Log of the packets that an interface without link-layer header sends, oldest first.
#[derive(Debug)]
pub struct TransmitLog {
    // Unmapped before the socket closes, as fields are dropped in order.
    memory: Mapping,
    _socket: Socket,
    frames: usize,
    oldest: usize,
}

impl TransmitLog {
    /// Opens the log of an interface of the calling thread's network namespace, for at least `packets` packets. While
    /// it is full, the kernel leaves packets out. Memory: 128 bytes a packet.
    pub fn open(interface: &str, packets: usize) -> Result<Self, OpenError> {
        let failed = |action| {
            move |source| OpenError::Kernel {
                interface: interface.to_owned(),
                action,
                source,
            }
        };
        let socket = Socket::new(Domain::PACKET, Type::RAW, None).map_err(not_permitted)?;
        let index = index_of(interface)?;
        set_packet_option(&socket, option::VERSION, option::TPACKET_V2)
            .and_then(|()| attach(&socket, &SENT_PACKETS))
            .map_err(failed("log sent packets"))?;
        let blocks = (packets * FRAME).div_ceil(BLOCK);
        let frames = blocks * BLOCK / FRAME;
        // `struct tpacket_req`.
        let request = [BLOCK as u32, blocks as u32, FRAME as u32, frames as u32];
        let memory = set_packet_option(&socket, option::RX_RING, request)
            .and_then(|()| Mapping::of(&socket, blocks * BLOCK))
            .map_err(|_| OpenError::Memory {
                bytes: blocks * BLOCK,
            })?;
        bind(&socket, index, libc::ETH_P_ALL as u16).map_err(failed("log sent packets"))?;
        Ok(Self {
            memory,
            _socket: socket,
            frames,
            oldest: 0,
        })
    }

    /// Returns the packet that has `older` packets before it in the log, if the kernel has written it.
    #[must_use]
    pub fn get(&self, older: usize) -> Option<SentPacket<'_>> {
        if older >= self.frames {
            return None;
        }
        let frame = self.frame(older);
        // SAFETY: the status is the first word of an aligned frame; both sides access it only as a whole.
        let status = unsafe { AtomicU32::from_ptr(frame.as_ptr().cast()) };
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: within the mapping; the kernel does not write to a frame that it handed over, and gets it back
        // only in `remove`, which needs `&mut self`.
        parse(unsafe { std::slice::from_raw_parts(frame.as_ptr(), FRAME) })
    }

    /// Removes the `count` oldest packets.
    pub fn remove(&mut self, count: usize) {
        for _ in 0..count {
            // SAFETY: as in `get`.
            let status = unsafe { AtomicU32::from_ptr(self.frame(0).as_ptr().cast()) };
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.oldest = (self.oldest + 1) % self.frames;
        }
    }

    fn frame(&self, older: usize) -> NonNull<u8> {
        let index = (self.oldest + older) % self.frames;
        // SAFETY: `index` is less than `frames`, and the mapping has so many of them.
        unsafe { self.memory.start.add(index * FRAME) }
    }
}

fn parse(frame: &[u8]) -> Option<SentPacket<'_>> {
    let word = |at: usize| Some(u32::from_ne_bytes(*frame.get(at..)?.first_chunk()?));
    let data = u16::from_ne_bytes(*frame.get(DATA..)?.first_chunk()?);
    let nanoseconds = u64::from(word(SECONDS)?) * 1_000_000_000 + u64::from(word(NANOSECONDS)?);
    let head = frame.get(data.into()..)?;
    Some(SentPacket {
        wall: Time::from_nanos(nanoseconds),
        len: word(WIRE_LEN)? as usize,
        head: &head[..head.len().min(word(SNAP_LEN)? as usize)],
    })
}
