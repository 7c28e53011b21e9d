// SPDX-License-Identifier: MIT OR Apache-2.0
//! Invariant 1: an analysis that has warmed up does not allocate memory for a packet.

use assert_no_alloc::{AllocDisabler, assert_no_alloc};

#[global_allocator]
static ALLOCATOR: AllocDisabler = AllocDisabler;

/// Sink that counts bins and drops them.
#[derive(Default)]
struct Counter {
    bins: u64,
}

impl longhaul_flow::Sink for Counter {
    fn receive_bin(&mut self, _: u64, _: bool, _: usize, _: u64, _: &longhaul_flow::bin::Bin) {
        self.bins += 1;
    }

    fn receive_flow(&mut self, _: longhaul_flow::record::Flow) {}
}

/// A transfer as seen by a capture point beside the sender: every second segment is acknowledged 5 ms later. Each
/// 1,000th is lost, and ACKs carry SACK blocks until it is retransmitted.
struct Transfer {
    flows: longhaul_flow::Flows,
    sink: Counter,
    packets: u64,
}

impl Transfer {
    const SIZE: u32 = 1_448;
    const SEGMENTS_IN_FLIGHT: u32 = 4_000;

    fn run(&mut self, segments: std::ops::Range<u32>) {
        for index in segments {
            let at_ns = u64::from(index) * 1_200;
            self.process_packet(at_ns, true, index, Self::SIZE, []);
            let lost = index / 1_000 * 1_000;
            if index % 1_000 == 500 {
                self.process_packet(at_ns + 1, true, lost, Self::SIZE, []);
            }
            if index % 2 == 0 && index > Self::SEGMENTS_IN_FLIGHT {
                let (acked_end, gap_start) = (
                    index - Self::SEGMENTS_IN_FLIGHT,
                    (index - Self::SEGMENTS_IN_FLIGHT) / 1_000 * 1_000,
                );
                match acked_end % 1_000 {
                    0..600 => self.process_packet(
                        at_ns + 2,
                        false,
                        gap_start,
                        0,
                        [(gap_start + 1, acked_end + 1)],
                    ),
                    _ => self.process_packet(at_ns + 2, false, acked_end + 1, 0, []),
                }
            }
        }
    }

    /// Processes the packet with data segment `number`, or the ACK of all segments below `number`. `sack` has the
    /// first and last (exclusive) segments of each SACK block.
    fn process_packet<const N: usize>(
        &mut self,
        at_ns: u64,
        is_upload: bool,
        number: u32,
        payload: u32,
        sack: [(u32, u32); N],
    ) {
        use longhaul_flow::segment::{CapturePoint, Endpoint, FlowKey, NO_SCALE, Segment};
        let endpoint = |last: u8| Endpoint {
            address: std::net::IpAddr::from([10, 0, 0, last]),
            port: 5201,
        };
        let first_byte = |number: u32| number.wrapping_mul(Self::SIZE);
        let mut blocks = [(0, 0); 4];
        for (block, (left, right)) in blocks.iter_mut().zip(sack) {
            *block = (first_byte(left), first_byte(right));
        }
        let (seq, ack) = if is_upload {
            (first_byte(number), 1)
        } else {
            (1, first_byte(number))
        };
        let millis = (at_ns / 1_000_000) as u32;
        let segment = Segment {
            at_ns,
            seq,
            ack,
            payload,
            wire_bytes: payload + 52,
            wire_segments: 1,
            window: 60_000,
            flags: longhaul_packet::tcp::ACK,
            sack_blocks: N as u8,
            from_low: is_upload,
            window_scale: NO_SCALE,
            has_timestamps: true,
            tsval: millis,
            tsecr: millis.saturating_sub(5),
            sack: blocks,
            ..Segment::default()
        };
        let key = FlowKey {
            low: endpoint(1),
            high: endpoint(2),
        };
        self.flows.process_segment(
            self.packets,
            CapturePoint(0),
            &key,
            &segment,
            &mut self.sink,
        );
        self.packets += 1;
    }
}

#[test]
fn warm_analysis_does_not_allocate() {
    let mut transfer = Transfer {
        flows: longhaul_flow::Flows::new(longhaul_flow::Settings::default()),
        sink: Counter::default(),
        packets: 0,
    };
    // Past 4.1 s, where a time series of 4,096 bins of 1 ms has its largest table.
    transfer.run(0..3_600_000);
    let before = (transfer.sink.bins, transfer.packets);
    assert_no_alloc(|| transfer.run(3_600_000..4_000_000));
    assert!(
        transfer.sink.bins - before.0 > 470,
        "{}",
        transfer.sink.bins
    );
    assert!(transfer.packets - before.1 > 500_000);
}
