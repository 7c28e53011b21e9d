// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--fix`, `--undo` and `--clean`: kernel settings changed and put back.

use super::{
    finding::{Finding, Fix},
    host_facts::SETTINGS,
    leftovers,
    record::{self, Change, Persisted, Record, Store},
};
use anyhow::{Context, Result};
use longhaul_command::exit::Refusal;
use longhaul_linux::sysctl;
use serde::Serialize;
use std::{collections::BTreeMap, fs, path::Path};

/// What was done.
#[derive(Debug, Default, Serialize)]
pub(super) struct Outcome {
    /// Settings that were changed, or should have been.
    pub(super) changes: Vec<Changed>,
    /// What else there is to say.
    pub(super) notes: Vec<String>,
}

/// A setting that was changed, or why it was not.
#[derive(Debug, Serialize)]
pub(super) struct Changed {
    pub(super) key: String,
    pub(super) from: String,
    pub(super) to: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<String>,
}

impl Changed {
    fn new(key: &str, from: &str, to: &str, problem: Option<String>) -> Self {
        Self {
            key: key.to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
            problem,
        }
    }
}

/// A setting that each network namespace has for itself, and its root may change.
const OWN: &str = "net.ipv4.tcp_rmem";

/// Applies the findings' fixes that are settings whose names begin with one of `only`, if it names
/// any; with `persist`, writes them to that file too.
pub(super) fn apply(
    store: &Store,
    findings: &[Finding],
    only: &[String],
    persist: Option<&Path>,
) -> Result<Outcome> {
    refuse_unknown(only)?;
    let old_file = persist.map(readable_as_ours).transpose()?;
    let mut outcome = Outcome::default();
    let (wanted, forbidden): (BTreeMap<_, _>, BTreeMap<_, _>) = wanted(findings, only)
        .into_iter()
        .partition(|(key, _)| sysctl::is_writable_here(key));
    let say = |(key, value)| format!("{key}: this namespace may not set {value}; the host may");
    outcome.notes.extend(forbidden.into_iter().map(say));
    if wanted.is_empty() && !outcome.notes.is_empty() && !sysctl::is_writable_here(OWN) {
        return Err(Refusal::unsupported(
            "no setting can be changed from here: it takes CAP_NET_ADMIN and a /proc/sys that can be written to, as \
             the machine's root has them",
        ));
    }
    if wanted.is_empty() {
        outcome.notes.push("nothing to change".to_owned());
        return Ok(outcome);
    }
    let mut record = store.load()?.unwrap_or_else(Record::new);
    plan(&mut record, &wanted)?;
    if let (Some(file), Some(before)) = (persist, old_file) {
        plan_file(&mut record, file, before);
    }
    record.finished = false;
    store.save(&record)?;

    for key in wanted.keys() {
        outcome.changes.push(change(&mut record, key));
    }
    // What the kernel refused is as it was.
    record
        .changes
        .retain(|change| change.before != change.after);
    if let Some(persisted) = &mut record.persisted {
        persisted.after = lines_for_boot(&record.changes);
        record::write_whole(&persisted.file, &persisted.after)
            .with_context(|| format!("cannot write {}", persisted.file.display()))?;
    }
    record.finished = true;
    if record.changes.is_empty() && record.persisted.is_none() {
        store.remove()?;
        return Ok(outcome);
    }
    store.save(&record)?;
    outcome.notes.push(format!(
        "'longhaul doctor --undo' puts back what {} records",
        store.path().display()
    ));
    Ok(outcome)
}

fn refuse_unknown(only: &[String]) -> Result<()> {
    let known = |prefix: &String| {
        SETTINGS
            .iter()
            .any(|name| name.starts_with(prefix.as_str()))
    };
    match only.iter().find(|prefix| !known(prefix)) {
        None => Ok(()),
        Some(prefix) => Err(Refusal::usage(format!(
            "--only {prefix}: no checked setting begins so (try net.ipv4.tcp_ or fs.)"
        ))),
    }
}

fn wanted(findings: &[Finding], only: &[String]) -> BTreeMap<String, String> {
    let chosen = |key: &str| only.is_empty() || only.iter().any(|p| key.starts_with(p.as_str()));
    findings
        .iter()
        .filter_map(|finding| match &finding.fix {
            Some(Fix::Sysctl { key, value }) if chosen(key) => Some((key.clone(), value.clone())),
            _ => None,
        })
        .collect()
}

/// Writes into the record what is about to be done. A setting that is in it already keeps its
/// oldest value.
fn plan(record: &mut Record, wanted: &BTreeMap<String, String>) -> Result<()> {
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

/// Changes one setting that the record names, and records what the kernel made of the value.
fn change(record: &mut Record, key: &str) -> Changed {
    let Some(planned) = record.changes.iter_mut().find(|change| change.key == key) else {
        return Changed::new(key, "", "", Some("not recorded".to_owned()));
    };
    let from = sysctl::read_here(key).unwrap_or_default();
    let problem = sysctl::write_here(key, &planned.after).err();
    let to = sysctl::read_here(key).unwrap_or_default();
    planned.after.clone_from(&to);
    Changed::new(key, &from, &to, problem.map(|error| error.to_string()))
}

/// The first line of files that `--persist` writes.
const HEADER: &str = "# Written by longhaul doctor --fix --persist; --undo removes it.\n";

/// What is in the file, which must be one of ours if it is there.
fn readable_as_ours(file: &Path) -> Result<Option<String>> {
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

fn plan_file(record: &mut Record, file: &Path, before: Option<String>) {
    let same = record.persisted.take().filter(|old| old.file == file);
    record.persisted = Some(Persisted {
        file: file.to_owned(),
        before: same.map_or(before, |old| old.before),
        after: lines_for_boot(&record.changes),
    });
}

fn lines_for_boot(changes: &[Change]) -> String {
    let line = |change: &Change| format!("{} = {}\n", change.key, change.after);
    let lines: Vec<String> = changes.iter().map(line).collect();
    format!("{HEADER}{}", lines.concat())
}

/// Puts back what this namespace's record names.
pub(super) fn undo(store: &Store) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let Some(mut record) = store.load()? else {
        outcome
            .notes
            .push(format!("nothing to undo: no {}", store.path().display()));
        return Ok(outcome);
    };
    put_file_back(&mut record, &mut outcome)?;
    put_back(&mut record, &mut outcome, |_| true);
    match record.changes.is_empty() {
        true => store.remove()?,
        false => store.save(&record)?,
    }
    Ok(outcome)
}

/// Restores the settings that `choose` names, the last first; those that can't be stay recorded.
fn put_back(record: &mut Record, outcome: &mut Outcome, choose: impl Fn(&str) -> bool) {
    let mut kept = Vec::new();
    let finished = record.finished;
    for change in std::mem::take(&mut record.changes).into_iter().rev() {
        if !choose(&change.key) {
            continue;
        }
        let done = restore(&change, finished);
        if done.problem.is_some() {
            kept.push(change);
        }
        outcome.changes.push(done);
    }
    kept.reverse();
    record.changes = kept;
}

/// A value that is neither the old one nor ours is somebody else's and stays, unless ours may have
/// been cut short.
fn restore(change: &Change, finished: bool) -> Changed {
    let Change { key, before, after } = change;
    let failed = |now: &str, why: String| Changed::new(key, now, now, Some(why));
    if !SETTINGS.contains(&key.as_str()) {
        return failed("", "not a setting that doctor changes".to_owned());
    }
    let now = match sysctl::read_here(key) {
        Ok(now) => now,
        Err(error) => return failed("", error.to_string()),
    };
    if now != *before {
        if finished && now != *after {
            let why = format!(
                "somebody changed it after --fix had set {after}; before that it was {before}"
            );
            return failed(&now, why);
        }
        if let Err(error) = sysctl::write_here(key, before) {
            return failed(&now, error.to_string());
        }
    }
    let to = sysctl::read_here(key).unwrap_or_default();
    let problem = (to != *before).then(|| format!("the kernel makes {to} of {before}"));
    Changed::new(key, &now, &to, problem)
}

fn put_file_back(record: &mut Record, outcome: &mut Outcome) -> Result<()> {
    let Some(persisted) = record.persisted.take() else {
        return Ok(());
    };
    let Persisted {
        file,
        before,
        after,
    } = persisted;
    let name = file.display();
    let now = fs::read_to_string(&file).ok();
    // Cut short, it may hold what was planned, or not be there yet; either has our first line.
    let ours = now
        .as_ref()
        .is_some_and(|text| *text == after || (!record.finished && text.starts_with(HEADER)));
    let note = match (now, before) {
        (None, _) => format!("{name} is gone already"),
        (Some(_), _) if !ours => format!("{name} was changed by somebody else and stays"),
        (Some(_), Some(text)) => {
            record::write_whole(&file, &text)?;
            format!("{name} is as it was")
        }
        (Some(_), None) => {
            fs::remove_file(&file)?;
            format!("{name} removed")
        }
    };
    outcome.notes.push(note);
    Ok(())
}

/// Puts right what a killed longhaul left: a `--fix` that was cut short, records of namespaces that
/// are gone, nft tables and routing rules of relays that are dead.
pub(super) fn clean(store: &Store) -> Result<Outcome> {
    let mut outcome = match store.load()? {
        Some(record) if !record.finished => undo(store)?,
        Some(record) => Outcome {
            notes: vec![format!(
                "{} settings are as --fix left them: --undo puts them back",
                record.changes.len()
            )],
            ..Outcome::default()
        },
        None => Outcome::default(),
    };
    for (name, inode) in store.others()? {
        clean_other(store, &name, inode, &mut outcome)?;
    }
    outcome.notes.extend(leftovers::clean()?);
    outcome.notes.extend(crate::run::clean());
    if outcome.changes.is_empty() && outcome.notes.is_empty() {
        outcome.notes.push("nothing was left behind".to_owned());
    }
    Ok(outcome)
}

/// A namespace's own settings went with it. Those of the whole machine did not, unless it was
/// started again since.
fn clean_other(store: &Store, name: &str, inode: u64, outcome: &mut Outcome) -> Result<()> {
    let Some(mut record) = store.read(name)? else {
        return Ok(());
    };
    let same_boot = record.boot == record::this_boot();
    if same_boot && leftovers::namespace_lives(inode) {
        outcome.notes.push(format!(
            "{name}: its namespace lives; run --undo or --clean inside it"
        ));
        return Ok(());
    }
    put_file_back(&mut record, outcome)?;
    put_back(&mut record, outcome, |key| {
        same_boot && !key.starts_with("net.")
    });
    store.forget(name)?;
    outcome
        .notes
        .push(format!("{name} removed: its namespace is gone"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_chosen_is_wanted() {
        let findings = [
            Finding::limit("fs.nr_open", 1, "").set(2),
            Finding::limit("net.ipv4.tcp_sack", 0, "").set(1),
            Finding::limit("eth0 offloads", "off", "").run("ethtool"),
        ];
        let keys = |only: &[&str]| -> Vec<String> {
            let only: Vec<String> = only.iter().map(|p| (*p).to_owned()).collect();
            wanted(&findings, &only).into_keys().collect()
        };
        assert_eq!(keys(&[]), ["fs.nr_open", "net.ipv4.tcp_sack"]);
        assert_eq!(keys(&["net.ipv4."]), ["net.ipv4.tcp_sack"]);
        assert!(refuse_unknown(&["net.ipv4.tcp_".to_owned()]).is_ok());
        assert!(refuse_unknown(&["vm.swappiness".to_owned()]).is_err());
    }

    #[test]
    fn a_recorded_setting_keeps_its_oldest_value() {
        let mut record = Record::new();
        record.changes.push(Change {
            key: "net.ipv4.tcp_sack".to_owned(),
            before: "oldest".to_owned(),
            after: "0".to_owned(),
        });
        let wanted = [("net.ipv4.tcp_sack".to_owned(), "1".to_owned())].into();
        plan(&mut record, &wanted).unwrap();
        let [change] = &record.changes[..] else {
            panic!("{record:?}")
        };
        assert_eq!((&*change.before, &*change.after), ("oldest", "1"));
    }

    #[test]
    fn a_key_that_doctor_does_not_check_is_not_restored() {
        let change = Change {
            key: "kernel.hostname".to_owned(),
            before: "pwned".to_owned(),
            after: "x".to_owned(),
        };
        let done = restore(&change, false);
        assert!(done.problem.unwrap().contains("not a setting"));
    }

    #[test]
    fn foreign_files_are_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("90.conf");
        assert_eq!(readable_as_ours(&file).unwrap(), None);
        fs::write(&file, "vm.swappiness = 1\n").unwrap();
        assert!(readable_as_ours(&file).is_err());
        fs::write(&file, lines_for_boot(&[])).unwrap();
        assert!(readable_as_ours(&file).unwrap().is_some());
        assert!(readable_as_ours(Path::new("/no/such/directory/x")).is_err());
    }
}
