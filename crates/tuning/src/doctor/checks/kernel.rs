// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel: its age, and what eBPF congestion controls and IPv6 need of it.

use super::super::{facts::Facts, finding::Finding, path::Path};

/// The oldest that longhaul is meant for (RHEL 9).
const OLDEST: (u32, u32) = (5, 14);

pub(super) fn check(facts: &Facts, _: Path) -> Vec<Finding> {
    let mut findings = vec![version(facts), type_information(facts)];
    findings.extend(ipv6(facts));
    findings
}

fn version(facts: &Facts) -> Finding {
    const PLACE: &str = "kernel";
    match facts.version() {
        Some(version) if version >= OLDEST => Finding::ok(PLACE, &facts.kernel),
        _ => {
            let why = "longhaul is meant for Linux 5.14 and later; older ones lack parts of it";
            Finding::note(PLACE, &facts.kernel, why).advise("take a newer kernel")
        }
    }
}

/// CO-RE programs find the kernel's structures by it.
fn type_information(facts: &Facts) -> Finding {
    const PLACE: &str = "/sys/kernel/btf/vmlinux";
    match facts.btf {
        true => Finding::ok(PLACE, "present"),
        false => Finding::note(
            PLACE,
            "absent",
            "without it no eBPF congestion control can be loaded, only the kernel's own",
        )
        .advise("take a kernel with CONFIG_DEBUG_INFO_BTF"),
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
        super::{super::finding::Severity, bench::*},
        *,
    };

    #[test]
    fn from_5_14_on() {
        let with = |release: &str| {
            let kernel = release.to_owned();
            version(&Facts {
                kernel,
                ..Facts::default()
            })
            .severity
        };
        assert_eq!(with("5.14.0-427.13.1.el9_4.x86_64"), Severity::Ok);
        assert_eq!(with("5.13.19"), Severity::Note);
        assert_eq!(with("6.1.0-28-amd64"), Severity::Ok);
    }

    #[test]
    fn ipv6_on_off_and_absent() {
        const NAME: &str = "net.ipv6.conf.all.disable_ipv6";
        let with = |name, value| ipv6(&facts(&[(name, value)])).unwrap();
        assert_eq!(with(NAME, "0").severity, Severity::Ok);
        assert_eq!(with(NAME, "1").severity, Severity::Note);
        assert_eq!(with("net.core.somaxconn", "4096").found, "absent");
    }

    #[test]
    fn btf_decides_on_ebpf() {
        let with = |btf| type_information(&Facts { btf, ..facts(&[]) }).severity;
        assert_eq!(with(true), Severity::Ok);
        assert_eq!(with(false), Severity::Note);
    }
}
