// SPDX-License-Identifier: MIT OR Apache-2.0
//! The decisions of ACK thinning on the host: the same C that runs in the kernel
//! (`src/bpf/ack_thin_math.h`, `src/bpf/ack_packet.h`).
#![expect(unsafe_code, reason = "the decisions are C")]

use longhaul_units::Time;

/// `struct ack_limits`: how far thinning may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Limits {
    /// Nanoseconds: the longest that an ACK is kept.
    pub hold_ns: u64,
    /// Of so many ACKs the last goes; 1: all go.
    pub count_max: u32,
    /// Bytes: an ACK that newly covers as much goes.
    pub covered_max: u32,
}

/// `struct ack_pure`: what a pure ACK says.
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
    /// With these two fields.
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
    /// It goes, and says all that the kept one said.
    Pass,
    /// It goes, and the kept one said something of its own.
    PassBoth,
    /// It is kept, in place of the one kept before.
    Hold,
}

/// `enum ack_kind`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No business of thinning.
    NotTcp,
    /// TCP, and must go at once.
    Other,
    /// May be kept behind.
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
    /// A flow whose first ACK goes.
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

    /// Another segment of the flow goes. Whether an ACK was kept, which it makes needless.
    pub fn flush(&mut self, now: Time) -> bool {
        // SAFETY: as in `begin`.
        unsafe { longhaul_ack_flush(self, now.as_nanos()) != 0 }
    }

    /// Whether the kept ACK must go by itself now.
    pub fn release(&mut self, now: Time) -> bool {
        // SAFETY: as in `begin`.
        unsafe { longhaul_ack_release(self, now.as_nanos()) != 0 }
    }

    /// When [`release`](Self::release) has something to give.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        (self.deadline != 0).then(|| Time::from_nanos(self.deadline))
    }
}

/// What a packet, from its IP header on, means to thinning.
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
