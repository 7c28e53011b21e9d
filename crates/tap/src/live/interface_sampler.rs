// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sampler thread of an interface. It decodes packets, and sends a snapshot of the interface's flows each second.

use super::flow_sampler::{FlowSampler, SECOND, Snapshot};
use crate::capture::InterfaceRing;
use anyhow::Result;
use longhaul_flow::decode::decode;
use longhaul_linux::{
    clock,
    packet_ring::{BLOCK_TIMEOUT, Ring},
    wait::Waker,
};
use longhaul_packet::tunnel::UdpTunnels;
use longhaul_units::Time;
use std::sync::mpsc::SyncSender;

/// Time to wait after the end of a second: the ring may deliver that second's last packets so late.
const LAG: Time = Time::from_millis(2 * BLOCK_TIMEOUT.as_nanos() / 1_000_000);

/// Maximum number of ring blocks to read before the thread checks the clock and the stop request again.
const BLOCKS_PER_CHECK: usize = 64;

/// Sampler of one interface, with its packet ring.
pub(super) struct InterfaceSampler {
    ring: Ring,
    interface: usize,
    sampler: FlowSampler,
    snapshots: SyncSender<Snapshot>,
    stop: Waker,
    scratch: Vec<u8>,
}

impl InterfaceSampler {
    pub(super) fn new(
        ring: InterfaceRing,
        interface: usize,
        snapshots: SyncSender<Snapshot>,
        stop: Waker,
    ) -> Self {
        Self {
            ring: ring.ring,
            interface,
            sampler: FlowSampler::new(interface),
            snapshots,
            stop,
            scratch: Vec::new(),
        }
    }

    /// Runs until it is stopped, the receiver of snapshots is gone, or an error occurs.
    pub(super) fn run(mut self) -> Result<()> {
        // End of the next snapshot, in seconds since 1970.
        let mut end = wall_ns() / SECOND + 1;
        loop {
            self.drain();
            self.ring.check()?;
            let now = wall_ns();
            if now >= complete_at_ns(end) {
                // After a pause of this process or a jump of the clock, this covers several seconds.
                end = now.saturating_sub(LAG.as_nanos()) / SECOND;
                if !self.send_snapshots(end)? {
                    return Ok(());
                }
                end += 1;
            }
            let left = Time::from_nanos(complete_at_ns(end).saturating_sub(wall_ns()).min(SECOND));
            if self.stop.wait(std::iter::once(&self.ring), left)? {
                return Ok(());
            }
        }
    }

    /// Processes the packets that are in the ring.
    fn drain(&mut self) {
        let link_type = self.ring.link_type();
        let udp_tunnels = UdpTunnels::default();
        for _ in 0..BLOCKS_PER_CHECK {
            let Some(block) = self.ring.next_block() else {
                return;
            };
            for packet in block.packets() {
                let frame = packet.frame(self.interface as u32, link_type, &mut self.scratch);
                // Packets other than TCP have no flow.
                if let Ok((key, segment)) = decode(&frame, &udp_tunnels) {
                    self.sampler.process_segment(&key, &segment);
                }
            }
        }
    }

    /// Sends the snapshots of all seconds before `end`. Returns false if the receiver is gone.
    fn send_snapshots(&mut self, end: u64) -> Result<bool> {
        let dropped = self.ring.counts()?.dropped;
        let mut snapshots = self.sampler.take_snapshots(end, dropped).into_iter();
        Ok(snapshots.all(|snapshot| self.snapshots.send(snapshot).is_ok()))
    }
}

fn wall_ns() -> u64 {
    clock::wall().as_nanos()
}

/// Returns the time, in ns since 1970, from which on all packets of the second before `end` have been read.
const fn complete_at_ns(end: u64) -> u64 {
    end * SECOND + LAG.as_nanos()
}
