// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requirements of single commands of longhaul: programs, TUN devices, user namespaces.

use super::super::{
    facts::{Facts, Tun},
    finding::{Finding, Severity},
    path::Path,
};

pub(super) fn check(facts: &Facts, path: Path) -> Vec<Finding> {
    let transparent = if path.transparent {
        Severity::Limit
    } else {
        Severity::Note
    };
    let mut findings = vec![
        program(facts, "nft", "nftables", "a transparent relay", transparent),
        program(
            facts,
            "ip",
            "iproute2",
            "inspection of the lab's networks",
            Severity::Note,
        ),
        tun(facts),
    ];
    findings.extend(user_namespaces(facts));
    findings
}

fn program(facts: &Facts, name: &str, package: &str, user: &str, missing: Severity) -> Finding {
    if facts.programs.contains(name) {
        Finding::ok(name, "present")
    } else {
        Finding::new(missing, name, "absent", format!("{user} needs it"))
            .run(format!("apt-get install {package}   # or dnf"))
    }
}

fn tun(facts: &Facts) -> Finding {
    const SETTING: &str = "/dev/net/tun";
    const WHY: &str = "longhaul link and longhaul lab need it";
    match facts.tun {
        Tun::Open => Finding::ok(SETTING, "open to this user"),
        Tun::Denied => {
            Finding::note(SETTING, "not open to this user", WHY).run("chmod 666 /dev/net/tun")
        }
        Tun::Absent => Finding::note(SETTING, "absent", WHY).run("modprobe tun"),
    }
}

/// Checks user namespaces, in which the lab makes its network namespaces without root.
fn user_namespaces(facts: &Facts) -> Option<Finding> {
    const NONE: &[(&str, i64, i64)] = &[
        // Setting, forbidding value, allowing value.
        ("user.max_user_namespaces", 0, 15_000),
        ("kernel.unprivileged_userns_clone", 0, 1),
        ("kernel.apparmor_restrict_unprivileged_userns", 1, 0),
    ];
    let forbids =
        |&&(name, forbidden, _): &&(&str, i64, i64)| facts.number(name) == Some(forbidden);
    if let Some((name, forbidden, allowed)) = NONE.iter().find(forbids) {
        let why = "longhaul lab needs root: users may not make namespaces";
        // A security setting, which an administrator must decide.
        let finding = Finding::note(*name, forbidden, why);
        return Some(finding.run(format!("sysctl -w {name}={allowed}")));
    }
    let known = facts.number("user.max_user_namespaces")?;
    Some(Finding::ok("user.max_user_namespaces", known))
}

#[cfg(test)]
mod tests {
    use super::{super::fixtures::*, *};

    #[test]
    fn nft_limits_transparent_relays_only() {
        let nft = |transparent, programs: &[&str]| {
            let mut facts = facts(&[]);
            facts.programs = programs.iter().map(|name| (*name).to_owned()).collect();
            let path = Path {
                transparent,
                ..path()
            };
            about(check(&facts, path), "nft").severity
        };
        assert_eq!(nft(true, &[]), Severity::Limit);
        assert_eq!(nft(false, &[]), Severity::Note);
        assert_eq!(nft(true, &["nft"]), Severity::Ok);
    }

    #[test]
    fn checks_access_to_tun_device() {
        let with = |tun| super::tun(&Facts { tun, ..facts(&[]) }).severity;
        assert_eq!(with(Tun::Open), Severity::Ok);
        assert_eq!(with(Tun::Denied), Severity::Note);
        assert_eq!(with(Tun::Absent), Severity::Note);
    }

    #[test]
    fn detects_each_setting_that_forbids_user_namespaces() {
        let with = |name, value| user_namespaces(&facts(&[(name, value)]));
        let is_note = |finding: Option<Finding>| finding.unwrap().severity == Severity::Note;
        assert!(is_note(with("user.max_user_namespaces", "0")));
        assert!(is_note(with(
            "kernel.apparmor_restrict_unprivileged_userns",
            "1"
        )));
        assert!(is_note(with("kernel.unprivileged_userns_clone", "0")));
        let open = with("user.max_user_namespaces", "96365").unwrap();
        assert_eq!(open.severity, Severity::Ok);
    }
}
