// SPDX-License-Identifier: MIT OR Apache-2.0
//! The decisions of ACK thinning on the host: the same C that runs in the kernel
//! (`src/bpf/ack_thin_math.h`, `src/bpf/ack_packet.h`).
#![expect(unsafe_code, reason = "the decisions are C")]

use longhaul_units::Time;

/// `struct ack_limits`: limits of thinning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Limits {
    /// Longest delay of an ACK, nanoseconds.
    pub hold_ns: u64,
    /// One ACK of this many is sent; 1: all are sent.
    pub count_max: u32,
    /// An ACK that newly covers this many bytes is sent.
    pub covered_max: u32,
}

/// `struct ack_pure`: fields of a pure ACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct PureAck {
    /// The acknowledgement number.
    pub ack: u32,
    /// The window field, unscaled.
    pub window: u16,
    padding: u16,
}

impl PureAck {
    /// Creates one with these fields.
    #[must_use]
    pub fn new(ack: u32, window: u16) -> Self {
        let padding = 0;
        Self {
            ack,
            window,
            padding,
        }
    }
}

/// `enum ack_verdict`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Send it; it supersedes the stored one.
    Pass,
    /// Send it and the stored one, which has information of its own.
    PassBoth,
    /// Store it, in place of the one stored before.
    Hold,
}

/// `enum ack_kind`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Not TCP; thinning ignores it.
    NotTcp,
    /// TCP, and must be sent at once.
    Other,
    /// A pure ACK, which may be delayed.
    Pure(PureAck),
}

/// `struct ack_flow`: one direction of a connection under simulated time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Flow {
    passed_at: u64,
    deadline: u64,
    last: PureAck,
    passed_ack: u32,
    suppressed: u32,
    interrupted: u32,
    padding: u32,
}

impl Flow {
    /// Creates a flow whose first ACK is sent.
    #[must_use]
    pub fn begin(now: Time, ack: PureAck) -> Self {
        let mut flow = Self {
            passed_at: 0,
            deadline: 0,
            last: ack,
            passed_ack: 0,
            suppressed: 0,
            interrupted: 0,
            padding: 0,
        };
        // SAFETY: `flow` and `ack` are laid out as the C structures and live through the call.
        unsafe { longhaul_ack_begin(&mut flow, now.as_nanos(), &ack) };
        flow
    }

    /// Decides on a pure ACK.
    pub fn offer(&mut self, now: Time, ack: PureAck, limits: &Limits) -> Verdict {
        // SAFETY: as in `begin`.
        match unsafe { longhaul_ack_offer(self, now.as_nanos(), &ack, limits) } {
            0 => Verdict::Pass,
            1 => Verdict::PassBoth,
            _ => Verdict::Hold,
        }
    }

    /// Records that another segment of the flow is sent, which supersedes a stored ACK. Returns whether one was stored.
    pub fn flush(&mut self, now: Time) -> bool {
        // SAFETY: as in `begin`.
        unsafe { longhaul_ack_flush(self, now.as_nanos()) != 0 }
    }

    /// Whether the stored ACK must be sent now.
    pub fn release(&mut self, now: Time) -> bool {
        // SAFETY: as in `begin`.
        unsafe { longhaul_ack_release(self, now.as_nanos()) != 0 }
    }

    /// Returns the time at which [`release`](Self::release) returns true.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        (self.deadline != 0).then(|| Time::from_nanos(self.deadline))
    }
}

/// Classifies a packet, given from its IP header on.
#[must_use]
pub fn classify(packet: &[u8]) -> Kind {
    let mut head = [0; PACKET_MAX];
    let bytes = packet.len().min(PACKET_MAX);
    head[..bytes].copy_from_slice(&packet[..bytes]);
    let mut ack = PureAck::new(0, 0);
    // SAFETY: `head` is as long as the C code reads, whatever the packet's own length.
    match unsafe { longhaul_ack_look_at(head.as_ptr(), packet.len() as u32, &mut ack) } {
        0 => Kind::NotTcp,
        1 => Kind::Other,
        _ => Kind::Pure(ack),
    }
}

/// `ACK_PACKET_MAX`: IPv6 and TCP headers and timestamps.
pub(super) const PACKET_MAX: usize = 72;

unsafe extern "C" {
    fn longhaul_ack_begin(flow: &mut Flow, now_ns: u64, ack: &PureAck);
    fn longhaul_ack_offer(flow: &mut Flow, now_ns: u64, ack: &PureAck, limits: &Limits) -> u32;
    fn longhaul_ack_flush(flow: &mut Flow, now_ns: u64) -> u32;
    fn longhaul_ack_release(flow: &mut Flow, now_ns: u64) -> u32;
    fn longhaul_ack_look_at(packet: *const u8, bytes: u32, ack: &mut PureAck) -> u32;
}
