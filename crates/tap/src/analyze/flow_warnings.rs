// SPDX-License-Identifier: MIT OR Apache-2.0
//! Warnings about a capture that its flows show: packets that were captured more than once, packets that
//! are missing, and a clock that was set back.

use longhaul_flow::record::{Copies, Data, Direction, Flow};
use longhaul_flow::verdict::MISSING_SHARE_MIN;
use longhaul_report::count::counted;
use longhaul_units::{Bytes, Time};

/// Share of the packets with copies from which every packet is said to have some.
const ALL_SHARE: f64 = 0.99;
/// Share from which the capture is said to have them, and not perhaps the network.
const MOST_SHARE: f64 = 0.5;

/// Sums over the flows of a capture point or a file.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FlowSums {
    packets: u64,
    copies: Option<Copies>,
    unique_bytes: u64,
    acked_unseen_bytes: u64,
    /// Flows during which the clock was set back.
    flows_with_clock_steps: u64,
}

impl FlowSums {
    /// Adds a flow.
    pub(super) fn add_flow(&mut self, flow: &Flow) {
        for Direction { data, copies, .. } in [&flow.upload, &flow.download] {
            self.add(&Self {
                packets: data.packets,
                copies: *copies,
                unique_bytes: data.unique_bytes,
                acked_unseen_bytes: data.acked_unseen_bytes,
                flows_with_clock_steps: 0,
            });
        }
        self.flows_with_clock_steps += u64::from(flow.clock_steps_back > 0);
    }

    /// Adds other sums.
    pub(super) fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.unique_bytes += other.unique_bytes;
        self.acked_unseen_bytes =
            (self.acked_unseen_bytes).saturating_add(other.acked_unseen_bytes);
        self.flows_with_clock_steps += other.flows_with_clock_steps;
        self.copies = match (self.copies, other.copies) {
            (Some(one), Some(other)) => Some(one.merged(other)),
            (one, other) => one.or(other),
        };
    }

    /// Returns a sentence for each fault of the capture.
    pub(super) fn warnings(&self) -> Vec<String> {
        let warnings = [
            self.copies_warning(),
            self.missing_warning(),
            self.clock_warning(),
        ];
        warnings.into_iter().flatten().collect()
    }

    fn missing_warning(&self) -> Option<String> {
        let data = Data {
            unique_bytes: self.unique_bytes,
            acked_unseen_bytes: self.acked_unseen_bytes,
            ..Data::default()
        };
        let share = data.acked_unseen_share();
        (share > MISSING_SHARE_MIN).then(|| {
            let bytes = Bytes::new(self.acked_unseen_bytes);
            format!(
                "the capture lacks {bytes} ({:.0} %) of the data, which was acknowledged; rates, bursts and losses are uncertain",
                share * 100.0
            )
        })
    }

    fn clock_warning(&self) -> Option<String> {
        let flows = self.flows_with_clock_steps;
        (flows > 0).then(|| {
            format!(
                "the clock was set back during {}; round trips across that are left out, and the rates of that time are wrong",
                counted(flows, "flow")
            )
        })
    }

    fn copies_warning(&self) -> Option<String> {
        let copies = self.copies?;
        let subject = match copies.packets as f64 / self.packets as f64 {
            ALL_SHARE.. => format!("every packet was captured {}", times(copies)),
            MOST_SHARE.. => format!("most packets were captured {}", times(copies)),
            _ => format!(
                "{} of {} came more than once, in the network or in the capture",
                copies.packets,
                counted(self.packets, "packet")
            ),
        };
        let ttl = match copies.ttl_difference_max {
            0 => "the same TTL".to_owned(),
            difference => format!("a TTL less by {difference}"),
        };
        let delay = Time::from_nanos(copies.delay_mean_ns);
        Some(format!(
            "{subject} ({delay} apart, with {ttl}); only the copy seen first is analysed"
        ))
    }
}

fn times(copies: Copies) -> String {
    match 1.0 + copies.copies as f64 / copies.packets as f64 {
        ..2.5 => "twice".to_owned(),
        times => format!("{times:.0} times"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warning(packets: u64, copies: Copies) -> String {
        let sums = FlowSums {
            packets,
            copies: Some(copies),
            ..FlowSums::default()
        };
        let warnings = sums.warnings();
        assert_eq!(warnings.len(), 1);
        warnings[0].clone()
    }

    #[test]
    fn flows_without_faults_have_no_warning() {
        let sums = FlowSums {
            packets: 1_000,
            unique_bytes: 99_000,
            acked_unseen_bytes: 1_000,
            ..FlowSums::default()
        };
        assert!(sums.warnings().is_empty());
    }

    #[test]
    fn missing_data_and_clock_steps_have_warnings() {
        let sums = FlowSums {
            unique_bytes: 80_000,
            acked_unseen_bytes: 20_000,
            flows_with_clock_steps: 2,
            ..FlowSums::default()
        };
        let warnings = sums.warnings();
        assert_eq!(warnings.len(), 2);
        assert!(warnings[0].starts_with("the capture lacks 20 KB (20 %) of the data"));
        assert!(warnings[1].starts_with("the clock was set back during 2 flows"));
    }

    #[test]
    fn says_how_often_packets_were_captured() {
        let mut copies = Copies {
            packets: 1_000,
            copies: 1_000,
            ttl_difference_max: 1,
            delay_mean_ns: 20_000,
        };
        assert_eq!(
            warning(1_000, copies),
            "every packet was captured twice (20 us apart, with a TTL less by 1); only the copy seen first is analysed"
        );
        (copies.copies, copies.ttl_difference_max) = (2_000, 0);
        let text = warning(1_000, copies);
        assert!(
            text.starts_with("every packet was captured 3 times (20 us apart, with the same TTL)"),
            "{text}"
        );
        let text = warning(9_000, copies);
        assert!(
            text.starts_with("1000 of 9000 packets came more than once"),
            "{text}"
        );
    }
}
