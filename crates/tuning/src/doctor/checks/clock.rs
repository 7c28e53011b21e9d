// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clock and timers: pacing, and the emulator, live by them.

use super::super::{facts::Facts, finding::Finding, path::Path};
use longhaul_units::{Bytes, Time};

pub(super) fn check(facts: &Facts, path: Path) -> Vec<Finding> {
    [source(facts), slack(facts, path)]
        .into_iter()
        .flatten()
        .collect()
}

fn source(facts: &Facts) -> Option<Finding> {
    const PLACE: &str = "clock source";
    let found = facts.clock_source.as_deref()?;
    if !matches!(found, "hpet" | "acpi_pm" | "jiffies" | "pit") {
        return Some(Finding::ok(PLACE, found));
    }
    let why = "each look at the clock leaves the processor, about a microsecond; TCP looks twice a \
               packet";
    Some(
        Finding::limit(PLACE, found, why)
            .run("echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource"),
    )
}

/// Linux's own value is 50 µs.
fn slack(facts: &Facts, path: Path) -> Option<Finding> {
    const MOST_NS: u64 = 100_000;
    const PLACE: &str = "timer slack";
    let slack = facts.timer_slack_ns?;
    let found = Time::from_nanos(slack);
    if slack <= MOST_NS {
        return Some(Finding::ok(PLACE, found));
    }
    let why = format!(
        "timers of programs started from here fire up to {found} late, {} at {}",
        Bytes::new(path.rate.bytes_in(found)),
        path.rate
    );
    Some(Finding::note(PLACE, found, why).advise("start it from another shell, or TimerSlackNSec="))
}

#[cfg(test)]
mod tests {
    use super::{
        super::{super::finding::Severity, bench::*},
        *,
    };

    #[test]
    fn slow_clocks_are_named() {
        let with = |name: &str| {
            let mut facts = facts(&[]);
            facts.clock_source = Some(name.to_owned());
            source(&facts).unwrap().severity
        };
        for good in ["tsc", "kvm-clock", "arch_sys_counter"] {
            assert_eq!(with(good), Severity::Ok, "{good}");
        }
        for bad in ["hpet", "acpi_pm"] {
            assert_eq!(with(bad), Severity::Limit, "{bad}");
        }
    }

    #[test]
    fn slack_beyond_100_us_is_worth_a_word() {
        let with = |ns| {
            let mut facts = facts(&[]);
            facts.timer_slack_ns = Some(ns);
            slack(&facts, path()).unwrap().severity
        };
        assert_eq!(with(100_000), Severity::Ok);
        assert_eq!(with(100_001), Severity::Note);
    }
}
