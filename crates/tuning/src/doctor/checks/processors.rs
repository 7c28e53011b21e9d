// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processors: enough of them, and more than one that receives.

use super::super::{facts::Facts, finding::Finding, path::Path};

/// Processor milliseconds that a relay takes for a gigabyte: splice through 1 MiB pipes between
/// two veth interfaces took 0.39 to 0.41 s on one machine.
const MILLISECONDS_PER_GB: u64 = 400;

pub(super) fn check(facts: &Facts, path: Path) -> Vec<Finding> {
    let mut findings = vec![count(facts, path)];
    findings.extend(
        facts
            .interfaces
            .iter()
            .filter_map(|interface| receiving(facts.cpus, &interface.name, &interface.rps)),
    );
    findings
}

fn count(facts: &Facts, path: Path) -> Finding {
    const PLACE: &str = "processors";
    let megabytes = path.rate.bits() / 8_000_000;
    let busy_ms = megabytes * MILLISECONDS_PER_GB / 1000;
    if facts.cpus * 1000 >= busy_ms {
        return Finding::ok(PLACE, facts.cpus);
    }
    let why = format!(
        "a relay takes about 0.4 processor seconds a gigabyte: {} keep {} busy",
        path.rate,
        busy_ms.div_ceil(1000)
    );
    Finding::limit(PLACE, facts.cpus, why).advise("more processors, or several hosts")
}

/// One receive queue is one processor's interrupt, unless RPS spreads the packets
/// (Linux `Documentation/networking/scaling.rst`).
fn receiving(cpus: u64, interface: &str, masks: &[String]) -> Option<Finding> {
    let [mask] = masks else {
        return None;
    };
    let spread = mask.chars().any(|digit| !matches!(digit, '0' | ','));
    let place = format!("{interface} RPS");
    if spread || cpus == 1 {
        return Some(Finding::ok(place, mask));
    }
    let all = u64::MAX >> (64 - cpus.clamp(1, 32));
    let why = format!("one of {cpus} processors handles every packet that comes in");
    Some(Finding::note(place, mask, why).run(format!(
        "echo {all:x} > /sys/class/net/{interface}/queues/rx-0/rps_cpus"
    )))
}

#[cfg(test)]
mod tests {
    use super::{
        super::{super::finding::Severity, bench::*},
        *,
    };
    use longhaul_units::BitRate;

    #[test]
    fn the_rate_takes_processors() {
        let with = |cpus, gbit: u64| {
            let facts = Facts { cpus, ..facts(&[]) };
            let rate = BitRate::from_bits(gbit * 1_000_000_000);
            count(&facts, Path { rate, ..path() }).severity
        };
        assert_eq!(with(1, 20), Severity::Ok);
        assert_eq!(with(1, 21), Severity::Limit);
        assert_eq!(with(2, 40), Severity::Ok);
    }

    #[test]
    fn a_single_queue_wants_spreading() {
        let with = |cpus, masks: &[&str]| {
            let masks: Vec<String> = masks.iter().map(|mask| (*mask).to_owned()).collect();
            receiving(cpus, "eth0", &masks).map(|f| f.severity)
        };
        assert_eq!(with(2, &["0"]), Some(Severity::Note));
        assert_eq!(with(2, &["00000000,00000003"]), Some(Severity::Ok));
        assert_eq!(with(1, &["0"]), Some(Severity::Ok));
        assert_eq!(with(2, &["0", "0"]), None);
    }
}
