// SPDX-License-Identifier: MIT OR Apache-2.0
//! Was the machine too busy for a run to be what it says it is? The emulator measures by how much its segments
//! departed late. That is asked before any figure is looked at, so a run is never taken again for what it found.

use super::{
    account::self_checks,
    programs,
    scenario::{Link, LinkKind, Scenario},
};
use std::path::Path;
use units::Time;

/// Half of a link's segments this late: its path was not the scenario's. With a machine for itself the median is 70
/// to 145 µs, most of it the 100 µs between two deliveries of `bulk` (81 runs of the papers' experiments on two
/// cores); beside another lab it was 0.3 to 3 ms in one run of seven, and a round trip of 2 ms became one of 10.
const LATE_US: f64 = 250.0;
/// Fewer segments are an exchange of control messages, not a path in use.
const SEGMENTS_MIN: u64 = 100;

/// Which link of a run was how late, if one was.
pub(super) fn late(scenario: &Scenario, directory: &Path) -> Option<String> {
    let emulated = |link: &&Link| link.kind == LinkKind::Emulated;
    let (link, late_us) = scenario
        .links
        .iter()
        .filter(emulated)
        .filter_map(|link| Some((link, worst(&programs::link::counters(link, directory))?)))
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .filter(|(_, late_us)| *late_us > LATE_US)?;
    let late = Time::from_secs_f64(late_us / 1e6);
    Some(format!(
        "the machine was too busy: half of {}'s segments left {late} late",
        link.name
    ))
}

/// The median of the later direction, microseconds.
fn worst(records: &Path) -> Option<f64> {
    self_checks(records)
        .into_iter()
        .filter(|check| check.segments >= SEGMENTS_MIN)
        .map(|check| check.lateness.median_us)
        .reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// What is said of a link both of whose directions carried `segments`, one of them `median_us` late.
    fn said(segments: u64, median_us: f64) -> Option<String> {
        let directory = tempfile::tempdir().unwrap();
        let line = |median: f64| {
            format!(
                "{{\"record\":\"selfcheck\",\"delivery\":\"exact\",\"segments\":{segments},\"drops\":{{}},\
                 \"lateness\":{{\"median_us\":{median},\"p99_us\":9e3,\"max_us\":9e4}}}}\n"
            )
        };
        let records = [line(12.0), line(median_us)].concat();
        fs::write(directory.path().join("link-wan.jsonl"), records).unwrap();
        let scenario: Scenario = toml::from_str(
            "title = 't'\nquestion = 'q'\nlinks = [{ name = 'wan', between = ['a', 'b'] }]\nflows = []",
        )
        .unwrap();
        late(&scenario, directory.path())
    }

    #[test]
    fn a_link_half_of_whose_segments_are_late_is_named() {
        assert_eq!(said(5000, 140.0), None);
        assert_eq!(
            said(5000, 2540.0).unwrap(),
            "the machine was too busy: half of wan's segments left 2.54 ms late"
        );
    }

    #[test]
    fn a_link_that_carried_next_to_nothing_says_nothing() {
        assert_eq!(said(20, 2540.0), None);
    }
}
