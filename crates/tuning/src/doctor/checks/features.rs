// SPDX-License-Identifier: MIT OR Apache-2.0
//! Features of longhaul on this host, from trials, and the kernel's support for them.

use super::super::{
    facts::{Facts, Outcome, Trial},
    finding::{Finding, Severity},
    path::Path,
};
use longhaul_command::manual;
use longhaul_congestion::Error;

pub(super) fn check(facts: &Facts, path: Path) -> Vec<Finding> {
    let tried = facts.trials.iter();
    let mut findings: Vec<Finding> = tried
        .filter_map(|trial| finding_of_trial(facts, trial, path))
        .collect();
    findings.extend(untried_features(facts));
    findings.push(kernel(facts));
    findings
}

fn finding_of_trial(facts: &Facts, trial: &Trial, path: Path) -> Option<Finding> {
    let place = format!("longhaul {}", trial.feature);
    match trial.outcome {
        Outcome::Works if facts.root || trial.needs.is_empty() => Some(Finding::ok(place, "works")),
        Outcome::Works => Some(Finding::ok(place, format!("works, with {}", trial.needs))),
        Outcome::Fails => {
            let is_required = path.transparent && trial.feature == TRANSPARENT;
            let severity = if is_required {
                Severity::Limit
            } else {
                Severity::Note
            };
            Some(Finding::new(
                severity,
                place,
                "does not work here",
                trial.reason.clone(),
            ))
        }
        Outcome::Untried => None,
    }
}

/// Feature that `--transparent` checks.
pub(super) const TRANSPARENT: &str = "relay --transparent";

/// Returns a finding for each reason: one missing right affects many features.
fn untried_features(facts: &Facts) -> Vec<Finding> {
    let untried = || {
        facts
            .trials
            .iter()
            .filter(|trial| trial.outcome == Outcome::Untried)
    };
    let mut reasons: Vec<&str> = Vec::new();
    for trial in untried() {
        if !reasons.contains(&trial.reason.as_str()) {
            reasons.push(&trial.reason);
        }
    }
    let finding = |reason: &str| {
        let affected = untried().filter(|trial| trial.reason == reason);
        let features: Vec<&str> = affected.map(|trial| trial.feature.as_str()).collect();
        let finding = Finding::note("not tried", features.join(", "), reason);
        match facts.root {
            _ if reason == Error::WithoutBpf.to_string() => finding,
            false => finding.run("sudo longhaul doctor"),
            true => finding.advise(format!(
                "run doctor as the machine's root, outside of containers and namespaces ({})",
                manual::page("rights")
            )),
        }
    };
    reasons.into_iter().map(finding).collect()
}

/// Returns the finding about the kernel, by the features that work, not by its version.
fn kernel(facts: &Facts) -> Finding {
    const SETTING: &str = "kernel";
    let with_outcome = |outcome| {
        facts
            .trials
            .iter()
            .filter(move |trial| trial.outcome == outcome)
    };
    let failed: Vec<&str> = with_outcome(Outcome::Fails)
        .map(|trial| trial.feature.as_str())
        .collect();
    if failed.is_empty() {
        return Finding::ok(SETTING, &facts.kernel);
    }
    let tried = failed.len() + with_outcome(Outcome::Works).count();
    let why = format!(
        "{} of {tried} features that were tried do not work here: {}",
        failed.len(),
        failed.join(", ")
    );
    Finding::note(SETTING, &facts.kernel, why).advise(format!(
        "{} says which kernels have them",
        manual::page("kernels")
    ))
}

#[cfg(test)]
mod tests {
    use super::{super::fixtures::*, *};

    fn trial(feature: &str, outcome: Outcome) -> Trial {
        let reason = match outcome {
            Outcome::Works => "",
            _ => "no rights or no kernel",
        };
        Trial {
            feature: feature.to_owned(),
            needs: "CAP_NET_ADMIN".to_owned(),
            outcome,
            reason: reason.to_owned(),
        }
    }

    fn facts_with_trials(trials: &[(&str, Outcome)]) -> Facts {
        Facts {
            trials: trials
                .iter()
                .map(|(name, outcome)| trial(name, *outcome))
                .collect(),
            ..facts(&[])
        }
    }

    #[test]
    fn judges_kernel_by_trials() {
        let old = facts_with_trials(&[("link", Outcome::Works), ("decp", Outcome::Fails)]);
        let kernel = about(check(&old, path()), "kernel");
        assert_eq!(kernel.severity, Severity::Note);
        assert!(
            kernel.reason.starts_with("1 of 2 features") && kernel.reason.ends_with("decp"),
            "{kernel:?}"
        );
        let new = facts_with_trials(&[("link", Outcome::Works), ("decp", Outcome::Untried)]);
        assert_eq!(about(check(&new, path()), "kernel").severity, Severity::Ok);
    }

    #[test]
    fn reports_a_missing_right_once_for_all_features() {
        let user = facts_with_trials(&[("run", Outcome::Untried), ("decp", Outcome::Untried)]);
        let finding = about(check(&user, path()), "not tried");
        assert_eq!(finding.value, "run, decp");
        assert_eq!(finding.fix.unwrap().text(), "sudo longhaul doctor");
    }

    #[test]
    fn names_required_right_of_working_features() {
        let mut facts = facts_with_trials(&[("link", Outcome::Works)]);
        let found = |facts: &Facts| about(check(facts, path()), "longhaul link").value;
        assert_eq!(found(&facts), "works, with CAP_NET_ADMIN");
        facts.root = true;
        assert_eq!(found(&facts), "works");
    }

    #[test]
    fn transparent_relay_limits_only_if_requested() {
        let facts = facts_with_trials(&[(TRANSPARENT, Outcome::Fails)]);
        let severity = |transparent| {
            let path = Path {
                transparent,
                ..path()
            };
            about(check(&facts, path), "longhaul relay --transparent").severity
        };
        assert_eq!(
            [severity(false), severity(true)],
            [Severity::Note, Severity::Limit]
        );
    }
}
