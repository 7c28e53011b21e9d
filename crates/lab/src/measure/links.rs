// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timing reports of the links, from the end of their records: totals over all runs, and whether
//! the emulator was too late for a valid run, or lost packets. The latter is decided before any metric is read,
//! so a run is never repeated because of its results.

use crate::{
    network::link,
    scenario::{LinkKind, Scenario},
};
use indexmap::IndexMap;
use longhaul_netem::LinkConfig;
use longhaul_report::unit::Unit;
use longhaul_results::{
    result::{DelayError, LinkStats},
    summary::Summary,
};
use serde::Deserialize;
use std::{collections::BTreeMap, fs, io, path::Path};

/// Last record of a link, one for each direction.
#[derive(Debug, Deserialize)]
pub(crate) struct TimingReport {
    delivery: String,
    pub(crate) segments: u64,
    drops: BTreeMap<String, u64>,
    #[serde(default)]
    direction: String,
    /// `None` if the emulator could not read it.
    #[serde(default)]
    device_overflow: Option<u64>,
    #[serde(default)]
    no_memory: u64,
    pub(crate) lateness: Lateness,
}

/// Actual minus planned departure time of segments.
#[derive(Debug, Deserialize)]
pub(crate) struct Lateness {
    pub(crate) median_us: f64,
    pub(crate) p99_us: f64,
    max_us: f64,
}

/// Timing reports of all runs so far, by link.
#[derive(Debug, Default)]
pub(crate) struct TimingReports(IndexMap<String, Vec<TimingReport>>);

impl TimingReports {
    /// Adds the records of one run of the link `name`. A file without a timing report adds nothing:
    /// [`late_link`] names it.
    pub(crate) fn add(&mut self, name: &str, records: &Path) {
        let reports = read_timing_reports(records).unwrap_or_default();
        self.0.entry(name.to_owned()).or_default().extend(reports);
    }

    /// Returns the totals of each link: the median of the medians, the maximum of the percentiles,
    /// the sum of the counts.
    pub(crate) fn result(&self) -> Vec<LinkStats> {
        self.0
            .iter()
            .filter_map(|(name, reports)| totals(name, reports))
            .collect()
    }
}

/// Name of the record of a timing report.
const RECORD_NAME: &str = "\"timing_report\"";

/// Reads the timing reports in `records`; empty if the link was killed before it wrote them.
pub(crate) fn read_timing_reports(records: &Path) -> io::Result<Vec<TimingReport>> {
    let text = fs::read_to_string(records)?;
    let reports = text.lines().filter(|line| line.contains(RECORD_NAME));
    let parsed = reports.map(|line| serde_json::from_str(line).map_err(io::Error::other));
    parsed.collect()
}

fn totals(name: &str, reports: &[TimingReport]) -> Option<LinkStats> {
    let max = |of: fn(&Lateness) -> f64| {
        reports
            .iter()
            .map(|report| of(&report.lateness))
            .fold(0.0, f64::max)
    };
    let mut drops = BTreeMap::new();
    for report in reports {
        let causes = report
            .drops
            .iter()
            .map(|(cause, count)| (cause.as_str(), *count));
        let own = [
            (
                "before_the_link",
                report.device_overflow.unwrap_or_default(),
            ),
            ("no_memory", report.no_memory),
        ];
        for (cause, count) in causes.chain(own).filter(|(_, count)| *count > 0) {
            *drops.entry(cause.to_owned()).or_default() += count;
        }
    }
    Some(LinkStats {
        name: name.to_owned(),
        mode: reports.first()?.delivery.clone(),
        delay_error_us: DelayError {
            median: Summary::of(reports.iter().map(|report| report.lateness.median_us))?.median,
            p99: max(|lateness| lateness.p99_us),
            max: max(|lateness| lateness.max_us),
        },
        drops,
        packets: Some(reports.iter().map(|report| report.segments).sum()),
    })
}

/// Largest valid median lateness in µs. Beyond it, the path was not the scenario's.
///
/// An idle machine has 70 to 145 µs, mostly the 100 µs between two deliveries of `batched` (81 runs of
/// the papers' experiments on two cores). Beside another lab and compilers it was 0.3 to 15 ms in
/// one run of six, and a round trip of 2 ms became one of 10 ms.
const MEDIAN_US: f64 = 250.0;
/// Largest valid 99th percentile of the lateness in µs. An idle machine has up to 4 ms. With 7 to
/// 16 ms, and a normal median, a queue of 12 ms overflowed.
const P99_US: f64 = 6000.0;
/// Largest valid 99th percentile as a share of the time that a full queue takes to drain. Segments that come late come
/// together, and so do the ACKs and the data that answer them: a burst of that time.
const QUEUE_SHARE: f64 = 0.5;
/// Least segments to judge. Fewer are an exchange of control messages, not a path in use.
const SEGMENTS_MIN: u64 = 100;

/// Describes why the emulator made the run invalid: it lost packets, left no report, or was late.
pub(crate) fn late_link(scenario: &Scenario, directory: &Path) -> Option<String> {
    let links = scenario.links.iter();
    let emulated = links.filter(|link| link.kind == LinkKind::Emulated);
    let mut reasons: Vec<Reason> = emulated
        .flat_map(|link| {
            let limits = link::configs(link).map(|both| both.map(|one| p99_limit_us(&one.initial)));
            reasons_of(
                &link.name,
                &link::counters_file(link, directory),
                limits.unwrap_or([P99_US; 2]),
            )
        })
        .collect();
    reasons.sort_by(|a, b| b.excess.total_cmp(&a.excess));
    reasons.into_iter().next().map(|reason| reason.text)
}

/// Reason why a run is invalid.
struct Reason {
    /// Value as a multiple of its limit; infinite for what may not happen at all.
    excess: f64,
    text: String,
}

/// Largest valid 99th percentile of the lateness in this direction, in µs.
fn p99_limit_us(config: &LinkConfig) -> f64 {
    let Some(rate) = config.rate.mean() else {
        return P99_US;
    };
    let capacity = config.queue_capacity();
    let packets = (capacity.packets as u64).saturating_mul(config.mtu.into());
    let queue_us = rate.time_for(capacity.bytes.min(packets)).as_secs_f64() * 1e6;
    P99_US.min(queue_us * QUEUE_SHARE)
}

/// Returns the reasons of one link. `limits` are of its two directions.
fn reasons_of(name: &str, records: &Path, limits: [f64; 2]) -> Vec<Reason> {
    let certain = |text: String| Reason {
        excess: f64::INFINITY,
        text,
    };
    match read_timing_reports(records) {
        Ok(reports) if reports.is_empty() => {
            vec![certain(format!(
                "emulator unknown: link {name} left no timing report"
            ))]
        }
        Ok(reports) => {
            let of_direction = |report: &TimingReport| {
                let limit = limits[usize::from(report.direction == "backward")];
                let lost = losses(name, report).into_iter().map(certain);
                lost.chain(lateness_reason(name, report, limit))
                    .collect::<Vec<_>>()
            };
            reports.iter().flat_map(of_direction).collect()
        }
        Err(error) => vec![certain(format!(
            "emulator unknown: timing report of link {name}: {error}"
        ))],
    }
}

/// Describes packets that the machine lost, not the path.
fn losses(name: &str, report: &TimingReport) -> Vec<String> {
    let lost = |count: u64, why: &str| {
        (count > 0).then(|| format!("emulator late: link {name} lost {count} packets {why}"))
    };
    let before_read = match report.device_overflow {
        Some(count) => lost(count, "before it read them"),
        None => Some(format!(
            "emulator unknown: link {name} could not read what its interface dropped"
        )),
    };
    let found = [before_read, lost(report.no_memory, "for lack of memory")];
    found.into_iter().flatten().collect()
}

/// Describes the lateness of a direction, if it is too large.
fn lateness_reason(name: &str, report: &TimingReport, p99_limit_us: f64) -> Option<Reason> {
    let late = &report.lateness;
    let statistics = [
        ("median", late.median_us, MEDIAN_US),
        ("99th percentile", late.p99_us, p99_limit_us),
    ];
    let (statistic, late_us, limit_us) = statistics
        .into_iter()
        .find(|(_, late, limit)| late > limit)
        .filter(|_| report.segments >= SEGMENTS_MIN)?;
    let [late, limit] = [late_us, limit_us].map(|us| Unit::Micros.format(us));
    Some(Reason {
        excess: late_us / limit_us,
        text: format!("emulator late: {statistic} lateness of link {name} {late} > {limit}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_reports_over_directions_and_runs() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("wan.jsonl");
        let line = |median: f64, max: f64| {
            format!(
                r#"{{"record":"timing_report","link":"wan","direction":"forward","delivery":"per-packet","segments":10,
                "delivered_segments":9,"delivered_bytes":9,"drops":{{"loss":1,"overflow":0}},"device_overflow":2,
                "no_memory":0,"lateness":{{"median_us":{median},"p99_us":5.0,"max_us":{max}}}}}"#
            )
            .replace('\n', "")
        };
        fs::write(
            &file,
            format!(
                "{{\"record\":\"link\"}}\n{}\n{}\n",
                line(1.0, 9.0),
                line(3.0, 7.0)
            ),
        )
        .unwrap();
        let mut timing_reports = TimingReports::default();
        timing_reports.add("wan", &file);
        let [account] = &timing_reports.result()[..] else {
            panic!("one link")
        };
        assert_eq!(
            account.delay_error_us,
            DelayError {
                median: 2.0,
                p99: 5.0,
                max: 9.0
            }
        );
        assert_eq!(
            account.drops,
            BTreeMap::from([("loss".to_owned(), 2), ("before_the_link".to_owned(), 4)])
        );
        assert_eq!(account.packets, Some(20));
    }

    /// Returns the message for a link that carried `segments` in both directions, one of them with
    /// this lateness in µs.
    fn message(segments: u64, median: f64, p99: f64) -> Option<String> {
        let directory = tempfile::tempdir().unwrap();
        let line = |median: f64, p99: f64| {
            format!(
                "{{\"record\":\"timing_report\",\"delivery\":\"per-packet\",\"segments\":{segments},\"drops\":{{}},\"device_overflow\":0,\
                 \"lateness\":{{\"median_us\":{median},\"p99_us\":{p99},\"max_us\":9e4}}}}\n"
            )
        };
        let records = [line(12.0, 50.0), line(median, p99)].concat();
        fs::write(directory.path().join("link-wan.jsonl"), records).unwrap();
        let scenario: Scenario = toml::from_str(
            "title = 't'\nquestion = 'q'\nlinks = [{ name = 'wan', endpoints = ['a', 'b'] }]\nflows = []",
        )
        .unwrap();
        late_link(&scenario, directory.path())
    }

    #[test]
    fn reports_a_link_with_a_late_median() {
        assert_eq!(message(5000, 140.0, 4000.0), None);
        assert_eq!(
            message(5000, 2540.0, 6100.0).unwrap(),
            "emulator late: median lateness of link wan 2.54 ms > 250 µs"
        );
    }

    #[test]
    fn reports_a_link_with_a_late_99th_percentile() {
        assert_eq!(
            message(5000, 140.0, 15_900.0).unwrap(),
            "emulator late: 99th percentile lateness of link wan 15.9 ms > 6 ms"
        );
    }

    /// Returns the message for a link with this report, at 10 Mbit/s with a queue of 8 ms.
    fn message_of(report: &str) -> Option<String> {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("link-wan.jsonl"), report).unwrap();
        let scenario: Scenario = toml::from_str(
            "title = 't'\nquestion = 'q'\nflows = []\n\
             links = [{ name = 'wan', endpoints = ['a', 'b'], rate = '10mbit', queue = '10KB' }]",
        )
        .unwrap();
        late_link(&scenario, directory.path())
    }

    fn report(p99: f64, overflow: &str, no_memory: u64) -> String {
        format!(
            r#"{{"record":"timing_report","delivery":"per-packet","segments":1000,"drops":{{}},"device_overflow":{overflow},"no_memory":{no_memory},"lateness":{{"median_us":9.0,"p99_us":{p99},"max_us":9e4}}}}"#
        )
    }

    #[test]
    fn reports_a_link_that_lost_packets_or_is_late_for_its_queue() {
        assert_eq!(message_of(&report(3_900.0, "0", 0)), None);
        for (report, part) in [
            (
                report(4_100.0, "0", 0),
                "99th percentile lateness of link wan 4.1 ms > 4 ms",
            ),
            (
                report(9.0, "7", 0),
                "link wan lost 7 packets before it read them",
            ),
            (
                report(9.0, "null", 0),
                "could not read what its interface dropped",
            ),
            (report(9.0, "0", 3), "lost 3 packets for lack of memory"),
            (String::new(), "link wan left no timing report"),
            (
                report(9.0, "0", 0).replace("9.0", "x"),
                "timing report of link wan: ",
            ),
        ] {
            let message = message_of(&report).unwrap();
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn ignores_a_link_with_few_segments() {
        assert_eq!(message(20, 2540.0, 15_900.0), None);
    }
}
