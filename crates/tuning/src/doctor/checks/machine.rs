// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processors, clock and timers of the machine, and features of its kernel.

use super::super::{facts::Facts, finding::Finding, path::Path};
use longhaul_units::{Bytes, Time};

/// Processor time of a relay for a gigabyte, in milliseconds. Splicing through 1 MiB pipes between two veth interfaces
/// took 390 to 410 ms on one machine.
const MILLISECONDS_PER_GB: u64 = 400;

/// Checks the number of processors, and whether more than one receives packets.
pub(super) fn processors(facts: &Facts, path: Path) -> Vec<Finding> {
    let mut findings = vec![processor_count(facts, path)];
    findings.extend(
        facts
            .interfaces
            .iter()
            .filter_map(|interface| receive_steering(facts.cpus, &interface.name, &interface.rps)),
    );
    findings
}

fn processor_count(facts: &Facts, path: Path) -> Finding {
    const SETTING: &str = "processors";
    let megabytes = path.rate.bits() / 8_000_000;
    let busy_ms = megabytes * MILLISECONDS_PER_GB / 1000;
    if facts.cpus * 1000 >= busy_ms {
        return Finding::ok(SETTING, facts.cpus);
    }
    let why = format!(
        "a relay takes about 0.4 processor seconds a gigabyte: {} keep {} busy",
        path.rate,
        busy_ms.div_ceil(1000)
    );
    Finding::limit(SETTING, facts.cpus, why).advise("more processors, or several hosts")
}

/// Checks RPS on interfaces with one receive queue, whose interrupts go to one processor
/// (Linux `Documentation/networking/scaling.rst`).
fn receive_steering(cpus: u64, interface: &str, masks: &[String]) -> Option<Finding> {
    let [mask] = masks else {
        return None;
    };
    let is_enabled = mask.chars().any(|digit| !matches!(digit, '0' | ','));
    let place = format!("{interface} RPS");
    if is_enabled || cpus == 1 {
        return Some(Finding::ok(place, mask));
    }
    let all = u64::MAX >> (64 - cpus.clamp(1, 32));
    let why = format!("one of {cpus} processors handles every packet that comes in");
    Some(Finding::note(place, mask, why).run(format!(
        "echo {all:x} > /sys/class/net/{interface}/queues/rx-0/rps_cpus"
    )))
}

/// Checks clock and timers, on which pacing and the emulator depend.
pub(super) fn clock(facts: &Facts, path: Path) -> Vec<Finding> {
    [clock_source(facts), timer_slack(facts, path)]
        .into_iter()
        .flatten()
        .collect()
}

fn clock_source(facts: &Facts) -> Option<Finding> {
    const SETTING: &str = "clock source";
    let found = facts.clock_source.as_deref()?;
    if !matches!(found, "hpet" | "acpi_pm" | "jiffies" | "pit") {
        return Some(Finding::ok(SETTING, found));
    }
    let why = "a read of this clock takes about a microsecond, and TCP reads it twice for each \
               packet";
    Some(
        Finding::limit(SETTING, found, why)
            .run("echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource"),
    )
}

/// Checks the timer slack; Linux's default is 50 µs.
fn timer_slack(facts: &Facts, path: Path) -> Option<Finding> {
    const SLACK_MAX_NS: u64 = 100_000;
    const SETTING: &str = "timer slack";
    let slack = facts.timer_slack_ns?;
    let found = Time::from_nanos(slack);
    if slack <= SLACK_MAX_NS {
        return Some(Finding::ok(SETTING, found));
    }
    let why = format!(
        "timers of programs started from here fire up to {found} late, {} at {}",
        Bytes::new(path.rate.bytes_in(found)),
        path.rate
    );
    Some(
        Finding::note(SETTING, found, why)
            .advise("start it from another shell, or set TimerSlackNSec= in its systemd unit"),
    )
}

/// Checks the kernel's features for eBPF congestion controls and IPv6.
pub(super) fn kernel(facts: &Facts, _: Path) -> Vec<Finding> {
    let mut findings = vec![type_information(facts)];
    findings.extend(ipv6(facts));
    findings
}

/// Checks BTF, by which CO-RE programs find the kernel's structures.
fn type_information(facts: &Facts) -> Finding {
    const SETTING: &str = "/sys/kernel/btf/vmlinux";
    if facts.btf {
        Finding::ok(SETTING, "present")
    } else {
        Finding::note(
            SETTING,
            "absent",
            "without it no eBPF congestion control can be loaded, only the kernel's own",
        )
        .advise("use a kernel with CONFIG_DEBUG_INFO_BTF")
    }
}

fn ipv6(facts: &Facts) -> Option<Finding> {
    const NAME: &str = "net.ipv6.conf.all.disable_ipv6";
    let Some(found) = facts.number(NAME) else {
        let known = !facts.sysctl.is_empty();
        return known.then(|| {
            let why = "this kernel has no IPv6: relays listen and connect over IPv4 only";
            Finding::note("IPv6", "absent", why)
        });
    };
    Some(match found {
        0 => Finding::ok(NAME, found),
        _ => {
            let why = "relays listen and connect over IPv4 only";
            Finding::note(NAME, found, why).run(format!("sysctl -w {NAME}=0"))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{
        super::{super::finding::Severity, fixtures::*},
        *,
    };
    use longhaul_units::BitRate;

    #[test]
    fn requires_processors_for_the_rate() {
        let with = |cpus, gbit: u64| {
            let facts = Facts { cpus, ..facts(&[]) };
            let rate = BitRate::from_bits(gbit * 1_000_000_000);
            processor_count(&facts, Path { rate, ..path() }).severity
        };
        assert_eq!(with(1, 20), Severity::Ok);
        assert_eq!(with(1, 21), Severity::Limit);
        assert_eq!(with(2, 40), Severity::Ok);
    }

    #[test]
    fn suggests_rps_for_a_single_queue() {
        let with = |cpus, masks: &[&str]| {
            let masks: Vec<String> = masks.iter().map(|mask| (*mask).to_owned()).collect();
            receive_steering(cpus, "eth0", &masks).map(|f| f.severity)
        };
        assert_eq!(with(2, &["0"]), Some(Severity::Note));
        assert_eq!(with(2, &["00000000,00000003"]), Some(Severity::Ok));
        assert_eq!(with(1, &["0"]), Some(Severity::Ok));
        assert_eq!(with(2, &["0", "0"]), None);
    }

    #[test]
    fn reports_slow_clock_sources() {
        let with = |name: &str| {
            let mut facts = facts(&[]);
            facts.clock_source = Some(name.to_owned());
            clock_source(&facts).unwrap().severity
        };
        for good in ["tsc", "kvm-clock", "arch_sys_counter"] {
            assert_eq!(with(good), Severity::Ok, "{good}");
        }
        for bad in ["hpet", "acpi_pm"] {
            assert_eq!(with(bad), Severity::Limit, "{bad}");
        }
    }

    #[test]
    fn notes_timer_slack_beyond_100_us() {
        let with = |ns| {
            let mut facts = facts(&[]);
            facts.timer_slack_ns = Some(ns);
            timer_slack(&facts, path()).unwrap().severity
        };
        assert_eq!(with(100_000), Severity::Ok);
        assert_eq!(with(100_001), Severity::Note);
    }

    #[test]
    fn detects_ipv6_enabled_disabled_and_absent() {
        const NAME: &str = "net.ipv6.conf.all.disable_ipv6";
        let with = |name, value| ipv6(&facts(&[(name, value)])).unwrap();
        assert_eq!(with(NAME, "0").severity, Severity::Ok);
        assert_eq!(with(NAME, "1").severity, Severity::Note);
        assert_eq!(with("net.core.somaxconn", "4096").value, "absent");
    }

    #[test]
    fn notes_missing_btf() {
        let with = |btf| type_information(&Facts { btf, ..facts(&[]) }).severity;
        assert_eq!(with(true), Severity::Ok);
        assert_eq!(with(false), Severity::Note);
    }
}
