// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits of queueing disciplines and police filters: rates, queues, delay and loss that an experiment may have
//! left.

use super::super::{
    facts::{Facts, Interface},
    finding::{Finding, Severity},
    path::Path,
};
use longhaul_linux::queueing::Discipline;
use longhaul_units::{BitRate, Bytes, Time};

/// Bytes of the largest super-packet, which counts as one packet of a queue (`GSO_LEGACY_MAX_SIZE`).
const SUPER_PACKET: u64 = 65_536;
/// Data of one connection that TCP keeps in the queue (`net/ipv4/tcp_output.c`, `tcp_small_queue_check`).
const HANDED_OVER: Time = Time::from_millis(1);
/// Packets that a queue should hold.
const QUEUE_PACKETS_MIN: u64 = 1000;
/// Packets of one connection that a queue should hold, as by default (`net/sched/sch_fq.c`).
const FLOW_PACKETS_MIN: u64 = 100;
/// Payload bytes of a packet of 1500 bytes.
const SEGMENT: u64 = 1448;

pub(super) fn check(facts: &Facts, path: Path) -> Vec<Finding> {
    facts
        .interfaces
        .iter()
        .flat_map(|interface| check_interface(interface, path))
        .collect()
}

/// Checks each discipline. The queues of a card mostly have equal ones, which are reported once.
fn check_interface(interface: &Interface, path: Path) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for discipline in &interface.disciplines {
        let attached = AttachedDiscipline {
            interface,
            discipline,
        };
        for finding in attached.check(path) {
            if !findings.contains(&finding) {
                findings.push(finding);
            }
        }
    }
    findings
}

/// A discipline and the interface that it is attached to.
struct AttachedDiscipline<'a> {
    interface: &'a Interface,
    discipline: &'a Discipline,
}

impl AttachedDiscipline<'_> {
    fn check(&self, path: Path) -> Vec<Finding> {
        [
            self.rate(path),
            self.default_class(path),
            self.slowest_class(path),
            self.flow_rate(path),
            self.queue(path),
            self.flow_queue(path),
            self.delay(path),
            self.loss(path),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn name(&self, property: &str) -> String {
        format!(
            "{} {} {property}",
            self.interface.name, self.discipline.kind
        )
    }

    fn rate(&self, path: Path) -> Option<Finding> {
        let found = BitRate::from_bits(self.discipline.limits.rate_bits?);
        let why = match self.discipline.preference {
            Some(_) => format!(
                "packets beyond {found} are dropped; the path has {}",
                path.rate
            ),
            None => format!(
                "packets leave at {found} at most; the path has {}",
                path.rate
            ),
        };
        Some(self.limit_unless(found >= path.rate, "rate", found.to_string(), why))
    }

    fn default_class(&self, path: Path) -> Option<Finding> {
        let class = self.discipline.default_class.as_ref()?;
        let found = BitRate::from_bits(class.rate_bits);
        let value = format!("{found} in class {}", class.id);
        let why = format!(
            "packets that no filter classifies leave at {found} at most; the path has {}",
            path.rate
        );
        Some(self.limit_unless(found >= path.rate, "rate", value, why))
    }

    /// Checks the other classes. What is in them depends on filters, so they are only a note.
    fn slowest_class(&self, path: Path) -> Option<Finding> {
        let class = self.discipline.slowest_class.as_ref()?;
        let found = BitRate::from_bits(class.rate_bits);
        let value = format!("{found} in class {}", class.id);
        let why = format!(
            "packets that are put into class {} leave at {found} at most",
            class.id
        );
        let is_slow = found < path.rate;
        is_slow.then(|| self.removable(Finding::note(self.name("class"), value, why)))
    }

    fn flow_rate(&self, path: Path) -> Option<Finding> {
        let found = BitRate::from_bits(self.discipline.limits.flow_rate_bits?);
        let why = format!(
            "each connection has {found} at most; the path has {}",
            path.rate
        );
        Some(self.limit_unless(found >= path.rate, "maxrate", found.to_string(), why))
    }

    fn queue(&self, path: Path) -> Option<Finding> {
        let limits = &self.discipline.limits;
        let packets = limits.queue_packets;
        let value = match (packets, limits.queue_bytes) {
            (Some(packets), Some(bytes)) => format!("{packets} packets, {}", Bytes::new(bytes)),
            (Some(packets), None) => format!("{packets} packets"),
            (None, Some(bytes)) => Bytes::new(bytes).to_string(),
            (None, None) => return None,
        };
        let of_packets = packets.map(|packets| packets.saturating_mul(self.packet_bytes_max()));
        let holds = of_packets.into_iter().chain(limits.queue_bytes).min()?;
        let few_packets = packets.is_some_and(|packets| packets < self.packets_min(path));
        let few_bytes = limits
            .queue_bytes
            .is_some_and(|bytes| bytes < self.bytes_min());
        let is_long = !few_packets && !few_bytes;
        Some(self.queue_finding(path, "limit", value, holds, is_long))
    }

    fn flow_queue(&self, path: Path) -> Option<Finding> {
        let packets = self.discipline.limits.flow_packets?;
        let holds = packets.saturating_mul(self.packet_bytes_max());
        let value = format!("{packets} packets");
        let is_long = packets >= FLOW_PACKETS_MIN;
        Some(self.queue_finding(path, "flow_limit", value, holds, is_long))
    }

    fn queue_finding(
        &self,
        path: Path,
        property: &str,
        value: String,
        holds: u64,
        is_long: bool,
    ) -> Finding {
        let name = self.name(property);
        let held_time = self.held_time();
        let needed = path.rate.bytes_in(held_time);
        if holds < needed {
            let why = format!(
                "the queue has at most {}; {held_time} of {} are {}",
                Bytes::new(holds),
                path.rate,
                Bytes::new(needed)
            );
            return self.removable(Finding::limit(name, value, why));
        }
        let why = format!("a burst of more than {value} is dropped on this host already");
        if is_long {
            Finding::ok(name, value)
        } else {
            self.removable(Finding::note(name, value, why))
        }
    }

    /// Returns the time for which a packet is in the queue at least.
    fn held_time(&self) -> Time {
        let delay = self.discipline.limits.delay_ns.map(Time::from_nanos);
        delay.unwrap_or(HANDED_OVER).max(HANDED_OVER)
    }

    /// Returns the packets that the queue should hold: single ones of the rate while they are delayed.
    fn packets_min(&self, path: Path) -> u64 {
        let delay = self.discipline.limits.delay_ns.map(Time::from_nanos);
        let delayed = delay.map_or(0, |delay| path.rate.bytes_in(delay));
        (delayed / self.packet_bytes()).max(QUEUE_PACKETS_MIN)
    }

    fn bytes_min(&self) -> u64 {
        QUEUE_PACKETS_MIN * self.packet_bytes()
    }

    fn packet_bytes(&self) -> u64 {
        u64::from(self.interface.mtu.max(1))
    }

    /// Returns the bytes of the largest packet in the queue: a super-packet, unless GSO is off.
    fn packet_bytes_max(&self) -> u64 {
        match self.interface.offloads.get("gso") {
            Some(false) => self.packet_bytes(),
            _ => SUPER_PACKET,
        }
    }

    /// Checks a delay, by which windows that suffice for the path are too small.
    fn delay(&self, path: Path) -> Option<Finding> {
        let delay = Time::from_nanos(self.discipline.limits.delay_ns?);
        let together = Time::from_nanos(path.rtt.as_nanos().saturating_add(delay.as_nanos()));
        let carried = BitRate::mean(path.bdp(), together).unwrap_or(path.rate);
        let why = format!(
            "windows for {} carry {carried} at {together}; give a longer --rtt if the delay is meant",
            path.rtt
        );
        // A twentieth is less than the spare room of windows.
        let is_short = delay.as_nanos() <= path.rtt.as_nanos() / 20;
        let severity = if is_short {
            Severity::Note
        } else {
            Severity::Limit
        };
        let finding = Finding::new(severity, self.name("delay"), delay, why);
        Some(self.removable(finding))
    }

    /// Checks losses by the formula for Reno: a rate of MSS/RTT × √(3/2p) (Mathis et al., CCR 27(3), 1997).
    fn loss(&self, path: Path) -> Option<Finding> {
        let ppm = self.discipline.limits.lost_ppm? as f64;
        let window = (SEGMENT as f64 * (1.5e6 / ppm).sqrt()) as u64;
        let reached = path.rate_of_window(Bytes::new(window));
        let value = format!("{} %", ppm / 1e4);
        let why = format!("with these losses reno reaches {reached} at {}", path.rtt);
        let severity = if reached < path.rate {
            Severity::Limit
        } else {
            Severity::Note
        };
        Some(self.removable(Finding::new(severity, self.name("loss"), value, why)))
    }

    fn limit_unless(&self, good: bool, property: &str, value: String, why: String) -> Finding {
        let name = self.name(property);
        if good {
            Finding::ok(name, value)
        } else {
            self.removable(Finding::limit(name, value, why))
        }
    }

    /// Adds the command that removes the discipline or the filter.
    fn removable(&self, finding: Finding) -> Finding {
        let (device, discipline) = (&self.interface.name, self.discipline);
        if let Some(preference) = discipline.preference {
            let parent = &discipline.parent;
            return finding.run(format!(
                "tc filter del dev {device} {parent} pref {preference}"
            ));
        }
        let removal = format!("tc qdisc del dev {device} root");
        match (self.is_chosen(), discipline.kind.as_str()) {
            // The kernel's own choice can't be deleted. A replacement has its own limits.
            (false, _) => finding.run(format!(
                "tc qdisc replace dev {device} root pfifo limit {QUEUE_PACKETS_MIN}"
            )),
            (true, "fq") => finding.run(format!("{removal}; tc qdisc add dev {device} root fq")),
            (true, _) => finding.run(removal),
        }
    }

    /// Whether somebody chose the root discipline: the kernel's own choice has the handle 0.
    fn is_chosen(&self) -> bool {
        let mut all = self.interface.disciplines.iter();
        all.any(|discipline| discipline.parent == "root" && discipline.handle != "0:")
    }
}

#[cfg(test)]
mod tests {
    use super::{super::fixtures::*, *};
    use longhaul_linux::queueing::{Class, Limits};

    fn root(kind: &str, limits: Limits) -> Discipline {
        Discipline {
            kind: kind.to_owned(),
            handle: "8001:".to_owned(),
            parent: "root".to_owned(),
            limits,
            ..Discipline::default()
        }
    }

    /// Returns the findings at 1 Gbit/s and 100 ms, as severity, setting and value.
    fn findings(disciplines: Vec<Discipline>) -> Vec<Finding> {
        let mut facts = facts(&[]);
        facts.interfaces = vec![Interface {
            name: "d0".to_owned(),
            mtu: 1500,
            disciplines,
            ..Interface::default()
        }];
        let path = Path {
            rate: BitRate::from_bits(1_000_000_000),
            rtt: Time::from_millis(100),
            ..path()
        };
        check(&facts, path)
    }

    fn lines(findings: &[Finding]) -> Vec<String> {
        let line = |f: &Finding| format!("{:?} {} {}", f.severity, f.setting, f.value);
        findings.iter().map(line).collect()
    }

    #[test]
    fn token_bucket_below_the_rate_limits() {
        let limits = Limits {
            rate_bits: Some(10_000_000),
            queue_bytes: Some(10_000),
            ..Limits::default()
        };
        let found = findings(vec![root("tbf", limits)]);
        assert_eq!(
            lines(&found),
            ["Limit d0 tbf rate 10 Mbit/s", "Limit d0 tbf limit 10 KB"]
        );
        assert_eq!(
            found[0].reason,
            "packets leave at 10 Mbit/s at most; the path has 1 Gbit/s"
        );
        assert_eq!(
            found[1].reason,
            "the queue has at most 10 KB; 1 ms of 1 Gbit/s are 125 KB"
        );
        for finding in &found {
            let fix = finding.fix.as_ref().unwrap().text();
            assert_eq!(fix, "tc qdisc del dev d0 root");
        }
    }

    #[test]
    fn token_bucket_in_a_queue_of_the_card_limits_once() {
        let limits = Limits {
            rate_bits: Some(999_999_999),
            ..Limits::default()
        };
        let inner = |parent: &str| Discipline {
            parent: parent.to_owned(),
            ..root("tbf", limits.clone())
        };
        let found = findings(vec![
            root("mq", Limits::default()),
            inner("8001:1"),
            inner("8001:2"),
        ]);
        assert_eq!(lines(&found), ["Limit d0 tbf rate 1 Gbit/s"]);
        let limits = Limits {
            rate_bits: Some(1_000_000_000),
            ..Limits::default()
        };
        let enough = findings(vec![root("tbf", limits)]);
        assert_eq!(lines(&enough), ["Ok d0 tbf rate 1 Gbit/s"]);
    }

    #[test]
    fn short_queues_are_reported_with_their_length() {
        let with = |queue_packets, queue_bytes| {
            let limits = Limits {
                queue_packets,
                queue_bytes,
                ..Limits::default()
            };
            findings(vec![root("pfifo", limits)]).remove(0)
        };
        let short = with(Some(2), None);
        assert_eq!(short.severity, Severity::Note);
        assert_eq!(short.value, "2 packets");
        assert_eq!(
            short.reason,
            "a burst of more than 2 packets is dropped on this host already"
        );
        // One super-packet is less than a millisecond.
        assert_eq!(with(Some(1), None).severity, Severity::Limit);
        assert_eq!(with(Some(999), None).severity, Severity::Note);
        assert_eq!(with(Some(1000), None).severity, Severity::Ok);
        assert_eq!(with(None, Some(124_999)).severity, Severity::Limit);
        assert_eq!(with(None, Some(125_000)).severity, Severity::Note);
        assert_eq!(with(None, Some(1_500_000)).severity, Severity::Ok);
        // As fq_codel has both.
        assert_eq!(with(Some(10_240), Some(32 << 20)).severity, Severity::Ok);
        assert_eq!(with(Some(10_240), Some(100)).severity, Severity::Limit);
    }

    #[test]
    fn queue_of_single_packets_holds_less() {
        let discipline = root(
            "pfifo",
            Limits {
                queue_packets: Some(83),
                ..Limits::default()
            },
        );
        let interface = Interface {
            mtu: 1500,
            offloads: [("gso".to_owned(), false)].into(),
            disciplines: vec![discipline],
            ..Interface::default()
        };
        let path = Path {
            rate: BitRate::from_bits(1_000_000_000),
            ..path()
        };
        let found = check_interface(&interface, path);
        assert_eq!(found[0].severity, Severity::Limit);
        assert!(
            found[0].reason.starts_with("the queue has at most 124 KB"),
            "{}",
            found[0].reason
        );
    }

    #[test]
    fn queue_of_the_kernel_is_replaced_and_not_deleted() {
        let limits = Limits {
            queue_packets: Some(5),
            ..Limits::default()
        };
        let own = Discipline {
            handle: "0:".to_owned(),
            ..root("pfifo", limits)
        };
        let fix = findings(vec![own]).remove(0).fix.unwrap().text();
        assert_eq!(fix, "tc qdisc replace dev d0 root pfifo limit 1000");
    }

    #[test]
    fn classes_below_the_rate_limit_what_is_in_them() {
        let class = |id: &str, rate_bits| {
            let id = id.to_owned();
            Some(Class { id, rate_bits })
        };
        let htb = Discipline {
            default_class: class("1:30", 20_000_000),
            slowest_class: class("1:10", 10_000_000),
            ..root("htb", Limits::default())
        };
        assert_eq!(
            lines(&findings(vec![htb.clone()])),
            [
                "Limit d0 htb rate 20 Mbit/s in class 1:30",
                "Note d0 htb class 10 Mbit/s in class 1:10"
            ]
        );
        let fast = Discipline {
            default_class: class("1:30", 1_000_000_000),
            slowest_class: class("1:10", 1_000_000_000),
            ..htb
        };
        let found = findings(vec![fast]);
        assert_eq!(lines(&found), ["Ok d0 htb rate 1 Gbit/s in class 1:30"]);
    }

    #[test]
    fn left_over_netem_limits_by_delay_loss_rate_and_queue() {
        let limits = Limits {
            rate_bits: Some(10_000_000),
            queue_packets: Some(1000),
            delay_ns: Some(50_000_000),
            lost_ppm: Some(10_000),
            ..Limits::default()
        };
        let found = findings(vec![root("netem", limits.clone())]);
        assert_eq!(
            lines(&found),
            [
                "Limit d0 netem rate 10 Mbit/s",
                "Note d0 netem limit 1000 packets",
                "Limit d0 netem delay 50 ms",
                "Limit d0 netem loss 1 %"
            ]
        );
        assert!(
            found[2]
                .reason
                .starts_with("windows for 100 ms carry 667 Mbit/s at 150 ms"),
            "{}",
            found[2].reason
        );
        assert_eq!(
            found[3].reason,
            "with these losses reno reaches 1.42 Mbit/s at 100 ms"
        );
        // 50 ms are 4,166 packets, or 96 super-packets.
        let queue = |queue_packets| {
            let limits = Limits {
                queue_packets: Some(queue_packets),
                ..limits.clone()
            };
            findings(vec![root("netem", limits)]).remove(1).severity
        };
        assert_eq!(queue(4166), Severity::Ok);
        assert_eq!(queue(95), Severity::Limit);
    }

    #[test]
    fn short_delay_and_rare_loss_are_notes() {
        let limits = Limits {
            delay_ns: Some(5_000_000),
            ..Limits::default()
        };
        let found = findings(vec![root("netem", limits)]);
        assert_eq!(lines(&found), ["Note d0 netem delay 5 ms"]);
        let limits = Limits {
            lost_ppm: Some(1),
            ..Limits::default()
        };
        let found = findings(vec![root("netem", limits)]);
        assert_eq!(lines(&found), ["Limit d0 netem loss 0.0001 %"]);
    }

    #[test]
    fn fair_queueing_may_limit_each_connection() {
        let limits = Limits {
            flow_rate_bits: Some(100_000_000),
            queue_packets: Some(10_000),
            flow_packets: Some(50),
            ..Limits::default()
        };
        let found = findings(vec![root("fq", limits)]);
        assert_eq!(
            lines(&found),
            [
                "Limit d0 fq maxrate 100 Mbit/s",
                "Ok d0 fq limit 10000 packets",
                "Note d0 fq flow_limit 50 packets"
            ]
        );
        let fix = found[0].fix.as_ref().unwrap().text();
        assert_eq!(fix, "tc qdisc del dev d0 root; tc qdisc add dev d0 root fq");
    }

    #[test]
    fn police_filter_is_removed_by_its_preference() {
        let limits = Limits {
            rate_bits: Some(10_000_000),
            ..Limits::default()
        };
        let police = Discipline {
            parent: "ingress".to_owned(),
            preference: Some(7),
            ..root("police", limits)
        };
        let found = findings(vec![police]).remove(0);
        assert_eq!(found.severity, Severity::Limit);
        assert_eq!(
            found.reason,
            "packets beyond 10 Mbit/s are dropped; the path has 1 Gbit/s"
        );
        let fix = found.fix.unwrap().text();
        assert_eq!(fix, "tc filter del dev d0 ingress pref 7");
    }
}
