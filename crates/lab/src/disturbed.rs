// SPDX-License-Identifier: MIT OR Apache-2.0
//! Was the machine too busy for a run to be what it says it is? The emulator measures by how much its segments
//! departed late. That is asked before any figure is looked at, so a run is never taken again for what it found.

use crate::{
    account::{Lateness, self_checks},
    programs,
    scenario::{LinkKind, Scenario},
};
use longhaul_units::Time;
use std::path::Path;

/// Half of a link's segments this late: its path was not the scenario's. With a machine for itself it is 70 to 145 µs,
/// most of it the 100 µs between two deliveries of `bulk` (81 runs of the papers' experiments on two cores). Beside
/// another lab and compilers it was 0.3 to 15 ms in one run of six, and a round trip of 2 ms became one of 10.
const MEDIAN_US: f64 = 250.0;
/// Likewise one in a hundred: up to 4 ms where the machine has time; where half were not late but these 7 to 16 ms, a
/// queue of 12 ms overflowed.
const P99_US: f64 = 6000.0;
/// Fewer segments are an exchange of control messages, not a path in use.
const SEGMENTS_MIN: u64 = 100;

/// Which link of a run was how late, if one was.
pub(crate) fn late(scenario: &Scenario, directory: &Path) -> Option<String> {
    let links = scenario.links.iter();
    let (link, late) = links
        .filter(|link| link.kind == LinkKind::Emulated)
        .filter_map(|link| Some((link, worst(&programs::link::counters(link, directory))?)))
        .max_by(|a, b| excess(&a.1).total_cmp(&excess(&b.1)))
        .filter(|(_, late)| excess(late) > 1.0)?;
    let (share, late_us) = match late.median_us > MEDIAN_US {
        true => ("half", late.median_us),
        false => ("1 %", late.p99_us),
    };
    Some(format!(
        "the machine was too busy: {share} of {}'s segments left {} late",
        link.name,
        Time::from_secs_f64(late_us / 1e6)
    ))
}

/// Of the later direction.
fn worst(records: &Path) -> Option<Lateness> {
    self_checks(records)
        .into_iter()
        .filter(|check| check.segments >= SEGMENTS_MIN)
        .map(|check| check.lateness)
        .max_by(|a, b| excess(a).total_cmp(&excess(b)))
}

/// How many times what may be.
fn excess(late: &Lateness) -> f64 {
    (late.median_us / MEDIAN_US).max(late.p99_us / P99_US)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// What is said of a link both of whose directions carried `segments`, one of them so late, microseconds.
    fn said(segments: u64, median: f64, p99: f64) -> Option<String> {
        let directory = tempfile::tempdir().unwrap();
        let line = |median: f64, p99: f64| {
            format!(
                "{{\"record\":\"selfcheck\",\"delivery\":\"exact\",\"segments\":{segments},\"drops\":{{}},\
                 \"lateness\":{{\"median_us\":{median},\"p99_us\":{p99},\"max_us\":9e4}}}}\n"
            )
        };
        let records = [line(12.0, 50.0), line(median, p99)].concat();
        fs::write(directory.path().join("link-wan.jsonl"), records).unwrap();
        let scenario: Scenario = toml::from_str(
            "title = 't'\nquestion = 'q'\nlinks = [{ name = 'wan', between = ['a', 'b'] }]\nflows = []",
        )
        .unwrap();
        late(&scenario, directory.path())
    }

    #[test]
    fn a_link_half_of_whose_segments_are_late_is_named() {
        assert_eq!(said(5000, 140.0, 4000.0), None);
        assert_eq!(
            said(5000, 2540.0, 6100.0).unwrap(),
            "the machine was too busy: half of wan's segments left 2.54 ms late"
        );
    }

    #[test]
    fn a_link_that_was_kept_from_a_core_for_long_is_named() {
        assert_eq!(
            said(5000, 140.0, 15_900.0).unwrap(),
            "the machine was too busy: 1 % of wan's segments left 15.9 ms late"
        );
    }

    #[test]
    fn a_link_that_carried_next_to_nothing_says_nothing() {
        assert_eq!(said(20, 2540.0, 15_900.0), None);
    }
}
