// SPDX-License-Identifier: MIT OR Apache-2.0
//! Warnings about a capture that its flows show: packets that were captured more than once.

use longhaul_flow::record::{Copies, Direction, Flow};
use longhaul_report::count::counted;
use longhaul_units::Time;

/// Share of the packets with copies from which every packet is said to have some.
const ALL_SHARE: f64 = 0.99;
/// Share from which the capture is said to have them, and not perhaps the network.
const MOST_SHARE: f64 = 0.5;

/// Sums over the flows of a capture point or a file.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FlowSums {
    packets: u64,
    copies: Option<Copies>,
}

impl FlowSums {
    /// Adds a flow.
    pub(super) fn add_flow(&mut self, flow: &Flow) {
        for Direction { data, copies, .. } in [&flow.upload, &flow.download] {
            self.add(&Self {
                packets: data.packets,
                copies: *copies,
            });
        }
    }

    /// Adds other sums.
    pub(super) fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.copies = match (self.copies, other.copies) {
            (Some(one), Some(other)) => Some(one.merged(other)),
            (one, other) => one.or(other),
        };
    }

    /// Returns a sentence for each fault of the capture.
    pub(super) fn warnings(&self) -> Vec<String> {
        self.copies_warning().into_iter().collect()
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
        };
        let warnings = sums.warnings();
        assert_eq!(warnings.len(), 1);
        warnings[0].clone()
    }

    #[test]
    fn flows_without_faults_have_no_warning() {
        let sums = FlowSums {
            packets: 1_000,
            ..FlowSums::default()
        };
        assert!(sums.warnings().is_empty());
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
