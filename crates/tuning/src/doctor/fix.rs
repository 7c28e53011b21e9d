// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--fix`, `--undo` and `--clean`: changes kernel settings and restores them.

use super::{
    finding::{Finding, Fix},
    host_facts::SETTINGS,
    record::{self, Change, Persisted, Record, Store},
    relay_cleanup,
};
use anyhow::{Context, Result};
use longhaul_command::exit::Refusal;
use longhaul_linux::sysctl;
use serde::Serialize;
use std::{collections::BTreeMap, fs, path::Path};

/// Result of a change.
#[derive(Debug, Default, Serialize)]
pub(super) struct Outcome {
    /// Settings that were changed, or should have been.
    pub(super) changes: Vec<ChangeResult>,
    /// Other messages.
    pub(super) notes: Vec<String>,
}

/// Change of a setting, or the reason why it failed.
#[derive(Debug, Serialize)]
pub(super) struct ChangeResult {
    pub(super) key: String,
    pub(super) from: String,
    pub(super) to: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

impl ChangeResult {
    fn new(key: &str, from: &str, to: &str, error: Option<String>) -> Self {
        Self {
            key: key.to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
            error,
        }
    }
}

/// Setting that belongs to each network namespace, and that its root may change.
const NAMESPACED_SETTING: &str = "net.ipv4.tcp_rmem";

/// Applies the fixes that are kernel settings. If `prefixes` has entries, the setting's name must begin with
/// one of them. Also writes the settings to the file `persist`, if given.
pub(super) fn apply(
    store: &Store,
    findings: &[Finding],
    prefixes: &[String],
    persist: Option<&Path>,
) -> Result<Outcome> {
    refuse_unknown(prefixes)?;
    let old_file = persist.map(read_own_file).transpose()?;
    let mut outcome = Outcome::default();
    let (wanted, forbidden): (BTreeMap<_, _>, BTreeMap<_, _>) = wanted_settings(findings, prefixes)
        .into_iter()
        .partition(|(key, _)| sysctl::is_writable_here(key));
    let note =
        |(key, value)| format!("{key}: this namespace may not set {value}; root of the host may");
    outcome.notes.extend(forbidden.into_iter().map(note));
    if wanted.is_empty()
        && !outcome.notes.is_empty()
        && !sysctl::is_writable_here(NAMESPACED_SETTING)
    {
        return Err(Refusal::unsupported(
            "no setting can be changed from here: that needs CAP_NET_ADMIN and a writable /proc/sys, which root of \
             the machine has",
        ));
    }
    if wanted.is_empty() {
        outcome.notes.push("nothing to change".to_owned());
        return Ok(outcome);
    }
    let mut record = store.load()?.unwrap_or_else(Record::new);
    record_planned(&mut record, &wanted)?;
    if let (Some(file), Some(before)) = (persist, old_file) {
        record_planned_file(&mut record, file, before);
    }
    record.finished = false;
    store.save(&record)?;

    for key in wanted.keys() {
        outcome.changes.push(apply_change(&mut record, key));
    }
    // Settings that the kernel refused are unchanged.
    record
        .changes
        .retain(|change| change.before != change.after);
    if let Some(persisted) = &mut record.persisted {
        persisted.after = sysctl_lines(&record.changes);
        record::write_atomically(&persisted.file, &persisted.after)
            .with_context(|| format!("cannot write {}", persisted.file.display()))?;
    }
    record.finished = true;
    if record.changes.is_empty() && record.persisted.is_none() {
        store.remove()?;
        return Ok(outcome);
    }
    store.save(&record)?;
    outcome.notes.push(format!(
        "'longhaul doctor --undo' restores the settings recorded in {}",
        store.path().display()
    ));
    Ok(outcome)
}

fn refuse_unknown(prefixes: &[String]) -> Result<()> {
    let known = |prefix: &String| {
        SETTINGS
            .iter()
            .any(|name| name.starts_with(prefix.as_str()))
    };
    match prefixes.iter().find(|prefix| !known(prefix)) {
        None => Ok(()),
        Some(prefix) => Err(Refusal::usage(format!(
            "--filter {prefix}: no checked setting has this prefix (try net.ipv4.tcp_ or fs.)"
        ))),
    }
}

fn wanted_settings(findings: &[Finding], prefixes: &[String]) -> BTreeMap<String, String> {
    let chosen =
        |key: &str| prefixes.is_empty() || prefixes.iter().any(|p| key.starts_with(p.as_str()));
    findings
        .iter()
        .filter_map(|finding| match &finding.fix {
            Some(Fix::Sysctl { key, value }) if chosen(key) => Some((key.clone(), value.clone())),
            _ => None,
        })
        .collect()
}

/// Records the planned changes. A setting that is recorded already keeps its oldest value.
fn record_planned(record: &mut Record, wanted: &BTreeMap<String, String>) -> Result<()> {
    for (key, value) in wanted {
        match record.changes.iter_mut().find(|change| change.key == *key) {
            Some(change) => change.after.clone_from(value),
            None => record.changes.push(Change {
                key: key.clone(),
                before: sysctl::read_here(key)?,
                after: value.clone(),
            }),
        }
    }
    Ok(())
}

/// Changes one recorded setting. Then records the value that the kernel made of it.
fn apply_change(record: &mut Record, key: &str) -> ChangeResult {
    let Some(planned) = record.changes.iter_mut().find(|change| change.key == key) else {
        return ChangeResult::new(key, "", "", Some("not recorded".to_owned()));
    };
    let from = sysctl::read_here(key);
    let problem = sysctl::write_here(key, &planned.after).err();
    let to = sysctl::read_here(key);
    // What can't be read stays recorded as planned.
    if let Ok(to) = &to {
        planned.after.clone_from(to);
    }
    let problem = problem.as_ref().or(to.as_ref().err());
    let problem = problem.map(ToString::to_string);
    ChangeResult::new(key, &or_unknown(&from), &or_unknown(&to), problem)
}

fn or_unknown(read: &std::io::Result<String>) -> String {
    match read {
        Ok(value) => value.clone(),
        Err(_) => "unknown".to_owned(),
    }
}

/// First line of files that `--persist` writes.
const HEADER: &str = "# Written by longhaul doctor --fix --persist; --undo removes it.\n";

/// Reads the file, which must be written by longhaul if it exists.
fn read_own_file(file: &Path) -> Result<Option<String>> {
    match fs::read_to_string(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => match file.parent() {
            Some(directory) if directory.is_dir() => Ok(None),
            _ => Err(Refusal::usage(format!(
                "--persist={}: there is no such directory",
                file.display()
            ))),
        },
        Ok(text) if text.starts_with(HEADER) => Ok(Some(text)),
        Ok(_) => Err(Refusal::usage(format!(
            "--persist={}: longhaul did not write this file; name another",
            file.display()
        ))),
        Err(error) => Err(Refusal::usage(format!(
            "--persist={}: {error}",
            file.display()
        ))),
    }
}

fn record_planned_file(record: &mut Record, file: &Path, before: Option<String>) {
    let same = record.persisted.take().filter(|old| old.file == file);
    record.persisted = Some(Persisted {
        file: file.to_owned(),
        before: same.map_or(before, |old| old.before),
        after: sysctl_lines(&record.changes),
    });
}

fn sysctl_lines(changes: &[Change]) -> String {
    let line = |change: &Change| format!("{} = {}\n", change.key, change.after);
    let lines: Vec<String> = changes.iter().map(line).collect();
    format!("{HEADER}{}", lines.concat())
}

/// Restores the settings of this namespace's record.
pub(super) fn undo(store: &Store) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let Some(mut record) = store.load()? else {
        outcome
            .notes
            .push(format!("nothing to undo: no {}", store.path().display()));
        return Ok(outcome);
    };
    restore_file(&mut record, &mut outcome)?;
    restore_settings(&mut record, &mut outcome, |_| true);
    if record.changes.is_empty() {
        store.remove()?;
    } else {
        store.save(&record)?;
    }
    Ok(outcome)
}

/// Restores the settings that `choose` selects, the last first; those that fail stay recorded.
fn restore_settings(record: &mut Record, outcome: &mut Outcome, choose: impl Fn(&str) -> bool) {
    let mut kept = Vec::new();
    let finished = record.finished;
    for change in std::mem::take(&mut record.changes).into_iter().rev() {
        if !choose(&change.key) {
            continue;
        }
        let done = restore(&change, finished);
        if done.error.is_some() {
            kept.push(change);
        }
        outcome.changes.push(done);
    }
    kept.reverse();
    record.changes = kept;
}

/// Restores one setting. A value that is neither the old one nor longhaul's was set by another program and stays,
/// unless `--fix` was interrupted.
fn restore(change: &Change, finished: bool) -> ChangeResult {
    let Change { key, before, after } = change;
    let failed = |now: &str, why: String| ChangeResult::new(key, now, now, Some(why));
    if !SETTINGS.contains(&key.as_str()) {
        return failed("", "not a setting that longhaul doctor changes".to_owned());
    }
    let now = match sysctl::read_here(key) {
        Ok(now) => now,
        Err(error) => return failed("", error.to_string()),
    };
    if now != *before {
        if finished && now != *after {
            let why = format!(
                "another program changed it after --fix had set {after}; before that it was {before}"
            );
            return failed(&now, why);
        }
        if let Err(error) = sysctl::write_here(key, before) {
            return failed(&now, error.to_string());
        }
    }
    let to = match sysctl::read_here(key) {
        Ok(to) => to,
        Err(error) => return failed(&now, error.to_string()),
    };
    let problem = (to != *before).then(|| format!("the kernel set {to} instead of {before}"));
    ChangeResult::new(key, &now, &to, problem)
}

fn restore_file(record: &mut Record, outcome: &mut Outcome) -> Result<()> {
    let Some(persisted) = record.persisted.take() else {
        return Ok(());
    };
    let Persisted {
        file,
        before,
        after,
    } = persisted;
    let name = file.display();
    let now = match fs::read_to_string(&file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        read => Some(read.with_context(|| format!("cannot read {name}"))?),
    };
    // After an interrupted `--fix`, it may be the old or the planned file. Both have longhaul's first line.
    let ours = now
        .as_ref()
        .is_some_and(|text| *text == after || (!record.finished && text.starts_with(HEADER)));
    let note = match (now, before) {
        (None, _) => format!("{name} is gone already"),
        (Some(_), _) if !ours => format!("{name} was changed by another program and stays"),
        (Some(_), Some(text)) => {
            record::write_atomically(&file, &text)?;
            format!("{name} restored")
        }
        (Some(_), None) => {
            fs::remove_file(&file)?;
            format!("{name} removed")
        }
    };
    outcome.notes.push(note);
    Ok(())
}

/// Removes leftovers of a killed longhaul: an interrupted `--fix`, records of deleted namespaces, nft
/// tables and routing rules of dead relays.
pub(super) fn clean(store: &Store) -> Result<Outcome> {
    let mut outcome = match store.load()? {
        Some(record) if !record.finished => undo(store)?,
        Some(record) => Outcome {
            notes: vec![format!(
                "{} settings are as --fix set them: --undo restores them",
                record.changes.len()
            )],
            ..Outcome::default()
        },
        None => Outcome::default(),
    };
    for (name, inode) in store.other_namespaces()? {
        clean_other(store, &name, inode, &mut outcome)?;
    }
    outcome.notes.extend(relay_cleanup::clean()?);
    outcome.notes.extend(crate::run::clean());
    if outcome.changes.is_empty() && outcome.notes.is_empty() {
        outcome.notes.push("nothing was left behind".to_owned());
    }
    Ok(outcome)
}

/// Cleans the record of another namespace. A deleted namespace's own settings are gone; those of the whole
/// machine remain until a reboot, and are restored.
fn clean_other(store: &Store, name: &str, inode: u64, outcome: &mut Outcome) -> Result<()> {
    let Some(mut record) = store.read(name)? else {
        return Ok(());
    };
    let same_boot = record.boot == record::this_boot();
    if same_boot && relay_cleanup::namespace_exists(inode) {
        outcome.notes.push(format!(
            "{name}: its namespace exists; run --undo or --clean inside it"
        ));
        return Ok(());
    }
    restore_file(&mut record, outcome)?;
    restore_settings(&mut record, outcome, |key| {
        same_boot && !key.starts_with("net.")
    });
    store.delete(name)?;
    outcome
        .notes
        .push(format!("{name} removed: its namespace is gone"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn applies_only_selected_settings() {
        let findings = [
            Finding::limit("fs.nr_open", 1, "").set(2),
            Finding::limit("net.ipv4.tcp_sack", 0, "").set(1),
            Finding::limit("eth0 offloads", "off", "").run("ethtool"),
        ];
        let keys = |prefixes: &[&str]| -> Vec<String> {
            let prefixes: Vec<String> = prefixes.iter().map(|p| (*p).to_owned()).collect();
            wanted_settings(&findings, &prefixes).into_keys().collect()
        };
        assert_eq!(keys(&[]), ["fs.nr_open", "net.ipv4.tcp_sack"]);
        assert_eq!(keys(&["net.ipv4."]), ["net.ipv4.tcp_sack"]);
        assert!(refuse_unknown(&["net.ipv4.tcp_".to_owned()]).is_ok());
        assert!(refuse_unknown(&["vm.swappiness".to_owned()]).is_err());
    }

    #[test]
    fn recorded_setting_keeps_its_oldest_value() {
        let mut record = Record::new();
        record.changes.push(Change {
            key: "net.ipv4.tcp_sack".to_owned(),
            before: "oldest".to_owned(),
            after: "0".to_owned(),
        });
        let wanted = [("net.ipv4.tcp_sack".to_owned(), "1".to_owned())].into();
        record_planned(&mut record, &wanted).unwrap();
        let [change] = &record.changes[..] else {
            panic!("{record:?}")
        };
        assert_eq!((&*change.before, &*change.after), ("oldest", "1"));
    }

    #[test]
    fn does_not_restore_unknown_settings() {
        let change = Change {
            key: "kernel.hostname".to_owned(),
            before: "pwned".to_owned(),
            after: "x".to_owned(),
        };
        let done = restore(&change, false);
        assert!(done.error.unwrap().contains("not a setting"));
    }

    #[test]
    fn unreadable_file_is_not_taken_for_a_removed_one() {
        let directory = tempfile::tempdir().unwrap();
        let mut record = Record::new();
        record.persisted = Some(Persisted {
            // A directory can't be read as a file.
            file: directory.path().to_owned(),
            before: None,
            after: String::new(),
        });
        let mut outcome = Outcome::default();
        let error = restore_file(&mut record, &mut outcome).unwrap_err();
        assert!(error.to_string().contains("cannot read"), "{error}");
        assert!(outcome.notes.is_empty(), "{outcome:?}");
    }

    #[test]
    fn does_not_overwrite_foreign_files() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("90.conf");
        assert_eq!(read_own_file(&file).unwrap(), None);
        fs::write(&file, "vm.swappiness = 1\n").unwrap();
        assert!(read_own_file(&file).is_err());
        fs::write(&file, sysctl_lines(&[])).unwrap();
        assert!(read_own_file(&file).unwrap().is_some());
        assert!(read_own_file(Path::new("/no/such/directory/x")).is_err());
    }
}
