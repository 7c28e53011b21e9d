// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings and changes as text and as JSON.

use super::{
    facts::Facts,
    finding::{Finding, Severity},
    fix::Outcome,
    path::Path,
};
use anyhow::{Context, bail};
use longhaul_command::outln;
use longhaul_report::count::counted;
use serde_json::json;
use std::fmt::Write;

/// Returns findings as text: setting and value in columns, then reason and fix.
pub(super) fn text(path: Path, findings: &[Finding], colour: bool) -> String {
    let widest = findings.iter().map(|f| f.setting.chars().count()).max();
    let width = widest.unwrap_or(0).min(SETTING_WIDTH);
    let mut out = format!(
        "{}, {} connections{}\n\n",
        path.bdp_text(),
        path.connections,
        if path.transparent {
            ", transparent"
        } else {
            ""
        }
    );
    for finding in findings {
        out += &finding_text(finding, width, colour);
    }
    let count = |severity| findings.iter().filter(|f| f.severity == severity).count();
    let _ = writeln!(
        out,
        "\n{} ok, {}, {}",
        count(Severity::Ok),
        counted(count(Severity::Note) as u64, "note"),
        counted(count(Severity::Limit) as u64, "limit")
    );
    out
}

/// Width of the column of settings; longer names (conntrack's) shift their value.
const SETTING_WIDTH: usize = 42;

fn finding_text(finding: &Finding, width: usize, colour: bool) -> String {
    let severity = severity_label(finding.severity, colour);
    let mut out = format!(
        "{severity}  {:width$}  {}\n",
        finding.setting, finding.value
    );
    if !finding.reason.is_empty() {
        let _ = writeln!(out, "       {}", finding.reason);
    }
    if let Some(fix) = &finding.fix {
        let _ = writeln!(out, "       fix: {}", fix.text());
    }
    out
}

fn severity_label(severity: Severity, colour: bool) -> String {
    let (word, code) = match severity {
        Severity::Ok => ("ok   ", 32),
        Severity::Note => ("note ", 33),
        Severity::Limit => ("limit", 31),
    };
    if colour {
        format!("\x1b[{code}m{word}\x1b[0m")
    } else {
        word.to_owned()
    }
}

/// Returns findings as JSON, with the facts, which `--facts` reads.
pub(super) fn json(path: Path, facts: &Facts, findings: &[Finding]) -> serde_json::Result<String> {
    let findings: Vec<_> = findings
        .iter()
        .map(|finding| {
            let mut value = json!(finding);
            value["command"] = json!(finding.fix.as_ref().map(super::finding::Fix::text));
            value
        })
        .collect();
    serde_json::to_string_pretty(&json!({
        "longhaul": longhaul_command::version(),
        "path": path,
        "findings": findings,
        "facts": facts,
    }))
}

/// Reads the facts that [`json()`] wrote.
pub(super) fn facts_in(text: &str) -> anyhow::Result<Facts> {
    let mut whole: serde_json::Value = serde_json::from_str(text)?;
    let facts = whole
        .get_mut("facts")
        .context("the file has no \"facts\"")?;
    Ok(serde_json::from_value(facts.take())?)
}

/// Prints the changes; returns an error if a change failed.
pub(super) fn print_outcome(outcome: &Outcome, json: bool) -> anyhow::Result<()> {
    if json {
        outln!("{}", serde_json::to_string_pretty(outcome)?);
    } else {
        outln!("{}", changes(outcome));
    }
    let problems = outcome.changes.iter().filter(|c| c.error.is_some());
    match problems.count() {
        0 => Ok(()),
        1 => bail!("1 setting could not be changed"),
        n => bail!("{n} settings could not be changed"),
    }
}

fn changes(outcome: &Outcome) -> String {
    let mut out = String::new();
    for change in &outcome.changes {
        let _ = match &change.error {
            None => writeln!(out, "{}: {} -> {}", change.key, change.from, change.to),
            Some(error) => writeln!(out, "{}: {}: {error}", change.key, change.from),
        };
    }
    for note in &outcome.notes {
        let _ = writeln!(out, "{note}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_units::{BitRate, Time};

    fn path() -> Path {
        Path {
            rate: BitRate::from_bits(10_000_000_000),
            rtt: Time::from_millis(200),
            connections: 1,
            transparent: false,
        }
    }

    #[test]
    fn text_is_aligned_and_has_fixes() {
        let findings = [
            Finding::ok("net.ipv4.tcp_sack", 1),
            Finding::limit("fs.nr_open", 10, "too few").set(20),
        ];
        assert_eq!(
            text(path(), &findings, false),
            "10 Gbit/s × 200 ms = 250 MB, 1 connections\n\n\
             ok     net.ipv4.tcp_sack  1\n\
             limit  fs.nr_open         10\n\
             \x20      too few\n\
             \x20      fix: sysctl -w fs.nr_open='20'\n\n\
             1 ok, 0 notes, 1 limit\n"
        );
        assert!(text(path(), &findings, true).contains("\x1b[31mlimit\x1b[0m"));
    }

    #[test]
    fn reads_facts_from_own_json() {
        let facts = super::super::host_facts::read_all();
        let text = json(path(), &facts, &[]).unwrap();
        assert_eq!(facts_in(&text).unwrap(), facts);
        assert!(facts_in("{}").is_err());
        assert!(facts_in("no JSON").is_err());
    }
}
