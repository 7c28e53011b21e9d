// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interfaces: speed, packet size, offloads, rings, queues and queueing disciplines.

use super::super::{
    facts::{Facts, Interface},
    finding::{Finding, Severity},
    path::Path,
};
use longhaul_linux::queueing::Limits;

/// Rate below which a processor can handle single packets, in bits a second.
const SINGLE_PACKET_RATE: u64 = 1_000_000_000;
/// Rate from which packets of 1,500 bytes exceed half a million a second, in bits a second.
const JUMBO_PACKET_RATE: u64 = 10_000_000_000;

pub(super) fn check(facts: &Facts, path: Path) -> Vec<Finding> {
    facts
        .interfaces
        .iter()
        .flat_map(|interface| check_interface(interface, path))
        .collect()
}

fn check_interface(interface: &Interface, path: Path) -> impl Iterator<Item = Finding> {
    let mut findings = vec![mtu(interface, path)];
    findings.extend(speed(interface, path));
    findings.extend(offloads(interface, path));
    findings.extend(rings(interface, path));
    findings.extend(queue(interface));
    findings.into_iter()
}

fn mtu(interface: &Interface, path: Path) -> Finding {
    let place = format!("{} MTU", interface.name);
    let found = interface.mtu;
    let packets = path.rate.bits() / 8 / u64::from(found.max(1));
    if found < 1280 {
        let why =
            "IPv6 needs 1,280 bytes (RFC 8200, section 5), so it is disabled on this interface";
        return Finding::note(place, found, why)
            .run(format!("ip link set {} mtu 1500", interface.name));
    }
    if path.rate.bits() >= JUMBO_PACKET_RATE && found < 9000 {
        let why = format!(
            "{} are {packets} packets a second; 9,000 bytes, if the whole path carries them, make \
             that {}",
            path.rate,
            path.rate.bits() / 8 / 9000
        );
        return Finding::note(place, found, why)
            .run(format!("ip link set {} mtu 9000", interface.name));
    }
    Finding::ok(place, found)
}

/// Checks the speed. A slow interface is only a note, since the path may use another.
fn speed(interface: &Interface, path: Path) -> Option<Finding> {
    let found = interface.speed_mbit?;
    let place = format!("{} speed", interface.name);
    let text = format!("{found} Mbit/s");
    Some(if found * 1_000_000 >= path.rate.bits() {
        Finding::ok(place, text)
    } else {
        Finding::note(
            place,
            text,
            format!("a path through it has no {}", path.rate),
        )
        .advise("route the path through a faster interface, or give a lower --rate")
    })
}

fn offloads(interface: &Interface, path: Path) -> Option<Finding> {
    let off: Vec<&str> = ["tso", "gso", "gro"]
        .into_iter()
        .filter(|name| interface.offloads.get(*name) == Some(&false))
        .collect();
    let place = format!("{} offloads", interface.name);
    if interface.offloads.is_empty() {
        return None;
    }
    if off.is_empty() {
        return Some(Finding::ok(place, "TSO, GSO and GRO on"));
    }
    let severity = if path.rate.bits() >= SINGLE_PACKET_RATE {
        Severity::Limit
    } else {
        Severity::Note
    };
    let why = format!(
        "the processor handles each of {} packets a second alone instead of up to 44 at once",
        path.rate.bits() / 8 / u64::from(interface.mtu.max(1))
    );
    let on: Vec<String> = off.iter().map(|name| format!("{name} on")).collect();
    let found = format!("{} off", off.join(", "));
    let finding = Finding::new(severity, place, found, why);
    Some(finding.run(format!("ethtool -K {} {}", interface.name, on.join(" "))))
}

fn rings(interface: &Interface, path: Path) -> Option<Finding> {
    let rings = interface.rings?;
    let place = format!("{} rings", interface.name);
    let found = format!("rx {} tx {}", rings.receive, rings.transmit);
    let is_growable = rings.receive < rings.receive_max || rings.transmit < rings.transmit_max;
    if !is_growable || path.rate.bits() < JUMBO_PACKET_RATE {
        return Some(Finding::ok(place, found));
    }
    let packet = path.rate.time_for(u64::from(interface.mtu));
    let held_time = longhaul_units::Time::from_nanos(packet.as_nanos() * u64::from(rings.receive));
    let why = format!(
        "the receive ring holds {held_time} of {}; a processor that is busy for longer loses packets",
        path.rate
    );
    Some(Finding::note(place, found, why).run(format!(
        "ethtool -G {} rx {} tx {}",
        interface.name, rings.receive_max, rings.transmit_max
    )))
}

fn queue(interface: &Interface) -> Option<Finding> {
    /// In packets.
    const QUEUE_LEN_MIN: u32 = 1000;
    // fq and fq_codel have their own limits, and an interface without a queue has no length.
    let counts = |kind: &&String| kind.contains("fifo");
    let mut kinds = interface.qdiscs.iter().filter(counts);
    if kinds.all(|kind| has_own_limit(interface, kind)) {
        return None;
    }
    let place = format!("{} txqueuelen", interface.name);
    let found = interface.transmit_queue;
    Some(if found >= QUEUE_LEN_MIN {
        Finding::ok(place, found)
    } else {
        Finding::note(
            place,
            found,
            format!("a burst of more than {found} packets is dropped on this host already"),
        )
        .run(format!(
            "ip link set {} txqueuelen {QUEUE_LEN_MIN}",
            interface.name
        ))
    })
}

/// Whether the disciplines of this kind have a length of their own, which `txqueuelen` does not change.
fn has_own_limit(interface: &Interface, kind: &str) -> bool {
    let mut same = interface.disciplines.iter().filter(|one| one.kind == kind);
    let has_limit = |limits: &Limits| limits.queue_packets.or(limits.queue_bytes).is_some();
    same.clone().next().is_some() && same.all(|one| has_limit(&one.limits))
}

const WITHOUT_FQ: &str = "fq lets packets out at the rate that TCP paces them by; without it TCP's own \
                   timers do that, a timer a connection, and unpaced traffic leaves in bursts";

/// Checks queueing disciplines: `fq` paces each connection by the time stamps that TCP gives its packets.
pub(super) fn qdiscs(facts: &Facts, _: Path) -> Vec<Finding> {
    let mut findings: Vec<Finding> = default_qdisc(facts).into_iter().collect();
    for interface in &facts.interfaces {
        // Interfaces without a queue, such as most virtual ones, pass packets on at once.
        let queued = |kind: &&String| !matches!(kind.as_str(), "noqueue" | "noop");
        let kinds: Vec<&String> = interface.qdiscs.iter().filter(queued).collect();
        let place = format!("{} qdisc", interface.name);
        let found = interface.qdiscs.join(" ");
        findings.push(if kinds.iter().all(|kind| *kind == "fq") {
            Finding::ok(place, found)
        } else {
            fix_if_fq_exists(facts, Finding::note(place, found, WITHOUT_FQ), |finding| {
                finding.run(format!("tc qdisc replace dev {} root fq", interface.name))
            })
        });
    }
    findings
}

fn default_qdisc(facts: &Facts) -> Option<Finding> {
    const NAME: &str = "net.core.default_qdisc";
    let found = facts.setting(NAME)?;
    Some(match found {
        "fq" => Finding::ok(NAME, found),
        _ => fix_if_fq_exists(facts, Finding::note(NAME, found, WITHOUT_FQ), |f| {
            f.set("fq")
        }),
    })
}

/// Adds the fix, unless the kernel has no fq.
fn fix_if_fq_exists(
    facts: &Facts,
    finding: Finding,
    fix: impl FnOnce(Finding) -> Finding,
) -> Finding {
    if facts.lacks("NET_SCH_FQ") {
        finding.advise("this kernel was built without fq; TCP's own pacing must suffice")
    } else {
        fix(finding)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{super::finding::Fix, fixtures::*},
        *,
    };
    use longhaul_linux::{ethtool::Rings, queueing::Discipline};
    use longhaul_units::BitRate;

    fn eth0() -> Interface {
        Interface {
            name: "eth0".to_owned(),
            mtu: 1500,
            ..Interface::default()
        }
    }

    fn at(bits: u64) -> Path {
        Path {
            rate: BitRate::from_bits(bits),
            ..path()
        }
    }

    #[test]
    fn suggests_jumbo_packets_from_10_gbit() {
        let with = |mtu, bits| super::mtu(&Interface { mtu, ..eth0() }, at(bits)).severity;
        assert_eq!(with(1500, JUMBO_PACKET_RATE), Severity::Note);
        assert_eq!(with(1500, JUMBO_PACKET_RATE - 1), Severity::Ok);
        assert_eq!(with(8999, JUMBO_PACKET_RATE), Severity::Note);
        assert_eq!(with(9000, JUMBO_PACKET_RATE), Severity::Ok);
        assert_eq!(with(1279, 1), Severity::Note);
        assert_eq!(with(1280, 1), Severity::Ok);
    }

    #[test]
    fn missing_offloads_limit_fast_paths() {
        let mut interface = eth0();
        assert_eq!(offloads(&interface, path()), None);
        interface.offloads = [("tso".to_owned(), true), ("gro".to_owned(), false)].into();
        let fast = offloads(&interface, at(SINGLE_PACKET_RATE)).unwrap();
        assert_eq!(fast.severity, Severity::Limit);
        assert_eq!(fast.fix.unwrap().text(), "ethtool -K eth0 gro on");
        let slow = offloads(&interface, at(SINGLE_PACKET_RATE - 1)).unwrap();
        assert_eq!(slow.severity, Severity::Note);
        interface.offloads.insert("gro".to_owned(), true);
        let on = offloads(&interface, path()).unwrap();
        assert_eq!(on.severity, Severity::Ok);
    }

    #[test]
    fn notes_interface_slower_than_the_path() {
        let with = |speed_mbit| {
            let interface = Interface {
                speed_mbit: Some(speed_mbit),
                ..eth0()
            };
            speed(&interface, path()).unwrap().severity
        };
        assert_eq!(with(10_000), Severity::Ok);
        assert_eq!(with(9_999), Severity::Note);
    }

    #[test]
    fn suggests_largest_ring_of_the_card() {
        let with = |receive| {
            let rings = Some(Rings {
                receive,
                receive_max: 4096,
                transmit: 4096,
                transmit_max: 4096,
            });
            super::rings(&Interface { rings, ..eth0() }, path()).unwrap()
        };
        assert_eq!(with(4096).severity, Severity::Ok);
        let short = with(512);
        assert!(short.reason.contains("614 us"), "{}", short.reason);
        assert_eq!(short.fix.unwrap().text(), "ethtool -G eth0 rx 4096 tx 4096");
    }

    #[test]
    fn checks_queue_length_of_fifos_only() {
        let with = |kind: &str, transmit_queue| {
            let qdiscs = vec![kind.to_owned()];
            queue(&Interface {
                qdiscs,
                transmit_queue,
                ..eth0()
            })
        };
        assert_eq!(with("fq", 10), None);
        assert_eq!(with("pfifo_fast", 999).unwrap().severity, Severity::Note);
        assert_eq!(with("pfifo_fast", 1000).unwrap().severity, Severity::Ok);
    }

    #[test]
    fn fifo_with_own_limit_does_not_use_txqueuelen() {
        let with = |queue_packets| {
            let limits = Limits {
                queue_packets,
                ..Limits::default()
            };
            let discipline = Discipline {
                kind: "pfifo".to_owned(),
                limits,
                ..Discipline::default()
            };
            queue(&Interface {
                qdiscs: vec!["pfifo".to_owned()],
                disciplines: vec![discipline],
                transmit_queue: 1000,
                ..eth0()
            })
        };
        assert_eq!(with(Some(2)), None);
        assert_eq!(with(None).unwrap().severity, Severity::Ok);
    }

    fn qdisc(kinds: &[&str]) -> Finding {
        let mut facts = facts(&[]);
        facts.interfaces = vec![Interface {
            qdiscs: kinds.iter().map(|kind| (*kind).to_owned()).collect(),
            ..eth0()
        }];
        about(qdiscs(&facts, path()), "eth0 qdisc")
    }

    #[test]
    fn suggests_fq_for_interfaces_with_a_queue() {
        assert_eq!(qdisc(&["fq"]).severity, Severity::Ok);
        assert_eq!(qdisc(&["noqueue"]).severity, Severity::Ok);
        assert_eq!(qdisc(&["fq", "fq_codel"]).severity, Severity::Note);
        let finding = qdisc(&["pfifo_fast"]);
        assert_eq!(
            finding.fix.unwrap().text(),
            "tc qdisc replace dev eth0 root fq"
        );
    }

    #[test]
    fn does_not_suggest_fq_if_the_kernel_lacks_it() {
        let mut facts = facts(&[("net.core.default_qdisc", "pfifo_fast")]);
        let fix = |facts: &Facts| default_qdisc(facts).unwrap().fix.unwrap();
        assert!(matches!(fix(&facts), Fix::Sysctl { .. }));
        facts
            .kernel_options
            .insert("NET_SCH_FQ".to_owned(), "n".to_owned());
        assert!(matches!(fix(&facts), Fix::Advice(_)));
    }
}
