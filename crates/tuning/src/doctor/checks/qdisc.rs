// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queueing disciplines: `fq` paces each connection by the time stamps that TCP gives its packets.

use super::super::{facts::Facts, finding::Finding, path::Path};

const WHY: &str = "fq lets packets out at the rate that TCP paces them by; without it TCP's own \
                   timers do that, a timer a connection, and what does not pace leaves in bursts";

pub(super) fn check(facts: &Facts, _: Path) -> Vec<Finding> {
    let mut findings: Vec<Finding> = default(facts).into_iter().collect();
    for interface in &facts.interfaces {
        // What has no queue, as most virtual interfaces, hands packets on at once.
        let queued = |kind: &&String| !matches!(kind.as_str(), "noqueue" | "noop");
        let kinds: Vec<&String> = interface.qdiscs.iter().filter(queued).collect();
        let place = format!("{} qdisc", interface.name);
        let found = interface.qdiscs.join(" ");
        findings.push(match kinds.iter().all(|kind| *kind == "fq") {
            true => Finding::ok(place, found),
            false => lacking(facts, Finding::note(place, found, WHY), |finding| {
                finding.run(format!("tc qdisc replace dev {} root fq", interface.name))
            }),
        });
    }
    findings
}

fn default(facts: &Facts) -> Option<Finding> {
    const NAME: &str = "net.core.default_qdisc";
    let found = facts.setting(NAME)?;
    Some(match found {
        "fq" => Finding::ok(NAME, found),
        _ => lacking(facts, Finding::note(NAME, found, WHY), |f| f.set("fq")),
    })
}

/// The fix, unless the kernel has no fq.
fn lacking(facts: &Facts, finding: Finding, fix: impl FnOnce(Finding) -> Finding) -> Finding {
    match facts.lacks("NET_SCH_FQ") {
        true => finding.advise("this kernel was built without fq; TCP's own pacing has to do"),
        false => fix(finding),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            super::{
                facts::Interface,
                finding::{Fix, Severity},
            },
            bench::*,
        },
        *,
    };

    fn with(qdiscs: &[&str]) -> Finding {
        let mut facts = facts(&[]);
        facts.interfaces = vec![Interface {
            name: "eth0".to_owned(),
            qdiscs: qdiscs.iter().map(|kind| (*kind).to_owned()).collect(),
            ..Interface::default()
        }];
        about(check(&facts, path()), "eth0 qdisc")
    }

    #[test]
    fn fq_is_wanted_on_what_has_a_queue() {
        assert_eq!(with(&["fq"]).severity, Severity::Ok);
        assert_eq!(with(&["noqueue"]).severity, Severity::Ok);
        assert_eq!(with(&["fq", "fq_codel"]).severity, Severity::Note);
        let finding = with(&["pfifo_fast"]);
        assert_eq!(
            finding.fix.unwrap().text(),
            "tc qdisc replace dev eth0 root fq"
        );
    }

    #[test]
    fn a_kernel_without_fq_is_not_asked_for_it() {
        let mut facts = facts(&[("net.core.default_qdisc", "pfifo_fast")]);
        let fix = |facts: &Facts| default(facts).unwrap().fix.unwrap();
        assert!(matches!(fix(&facts), Fix::Sysctl { .. }));
        facts
            .kernel_options
            .insert("NET_SCH_FQ".to_owned(), "n".to_owned());
        assert!(matches!(fix(&facts), Fix::Advice(_)));
    }
}
