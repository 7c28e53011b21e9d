// SPDX-License-Identifier: MIT OR Apache-2.0
//! The links' own account of what they did: the self-checks in their records, over all runs.

use indexmap::IndexMap;
use longhaul_results::{
    result::{DelayError, LinkAccount},
    summary::Summary,
};
use serde::Deserialize;
use std::{collections::BTreeMap, fs, path::Path};

/// What a link writes last, one record a direction.
#[derive(Debug, Deserialize)]
pub(crate) struct SelfCheck {
    delivery: String,
    pub(crate) segments: u64,
    drops: BTreeMap<String, u64>,
    #[serde(default)]
    device_overflow: u64,
    #[serde(default)]
    no_memory: u64,
    pub(crate) lateness: Lateness,
}

/// Actual minus planned departure.
#[derive(Debug, Deserialize)]
pub(crate) struct Lateness {
    pub(crate) median_us: f64,
    pub(crate) p99_us: f64,
    max_us: f64,
}

/// The self-checks of all runs so far.
#[derive(Debug, Default)]
pub(crate) struct Accounts(IndexMap<String, Vec<SelfCheck>>);

impl Accounts {
    /// Reads the records of one run of the link `name`; a file without a self-check adds nothing.
    pub(crate) fn add(&mut self, name: &str, records: &Path) {
        let checks = self_checks(records);
        self.0.entry(name.to_owned()).or_default().extend(checks);
    }

    /// One account a link: the median of the medians, the worst of the rest, the sum of counts.
    pub(crate) fn result(&self) -> Vec<LinkAccount> {
        self.0
            .iter()
            .filter_map(|(name, checks)| account(name, checks))
            .collect()
    }
}

/// What a link said of itself in `records`; nothing if it did not come to that.
pub(crate) fn self_checks(records: &Path) -> Vec<SelfCheck> {
    let text = fs::read_to_string(records).unwrap_or_default();
    let checks = text.lines().filter(|line| line.contains("\"selfcheck\""));
    checks
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

fn account(name: &str, checks: &[SelfCheck]) -> Option<LinkAccount> {
    let worst = |of: fn(&Lateness) -> f64| {
        checks
            .iter()
            .map(|check| of(&check.lateness))
            .fold(0.0, f64::max)
    };
    let mut drops = BTreeMap::new();
    for check in checks {
        let causes = check
            .drops
            .iter()
            .map(|(cause, count)| (cause.as_str(), *count));
        let own = [
            ("before_the_link", check.device_overflow),
            ("no_memory", check.no_memory),
        ];
        for (cause, count) in causes.chain(own).filter(|(_, count)| *count > 0) {
            *drops.entry(cause.to_owned()).or_default() += count;
        }
    }
    Some(LinkAccount {
        name: name.to_owned(),
        mode: checks.first()?.delivery.clone(),
        delay_error_us: DelayError {
            median: Summary::of(checks.iter().map(|check| check.lateness.median_us))?.median,
            p99: worst(|lateness| lateness.p99_us),
            max: worst(|lateness| lateness.max_us),
        },
        drops,
        packets: Some(checks.iter().map(|check| check.segments).sum()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_directions_and_runs() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("wan.jsonl");
        let line = |median: f64, max: f64| {
            format!(
                r#"{{"record":"selfcheck","link":"wan","direction":"forward","delivery":"exact","segments":10,
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
        let mut accounts = Accounts::default();
        accounts.add("wan", &file);
        let [account] = &accounts.result()[..] else {
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
}
