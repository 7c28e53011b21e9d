// SPDX-License-Identifier: MIT OR Apache-2.0
//! The raw records of a lab: `DIR/raw/CELL-REPETITION/FILE`. A list beside them says what the lab
//! wrote, so that the next one into the same `DIR` removes that, whatever its cells are called, and
//! nothing else.

use anyhow::{Context, Result};
use longhaul_command::exit::Refusal;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, Write},
    path::{Component, Path, PathBuf},
};

/// Below `raw`: `FOLDER/` when a run begins, and `FOLDER/FILE` for what it wrote when it ends.
const LIST: &str = ".written";

/// What the lab and its programs write. Only asked where a run was cut off before it could list.
const KINDS: [&str; 6] = ["conf", "json", "jsonl", "log", "out", "pcapng"];

/// Files by folder.
type Written = BTreeMap<String, BTreeSet<String>>;

/// The records of one lab.
#[derive(Debug)]
pub(crate) struct Raw {
    root: PathBuf,
    list: File,
    written: Written,
}

impl Raw {
    /// Makes `out/raw` ready for runs into `folders`, without what earlier labs wrote there but in `kept`: those runs
    /// were of this lab. Refuses, and touches nothing, if one of the folders holds what no lab wrote.
    pub(crate) fn open(
        out: &Path,
        folders: &BTreeSet<String>,
        kept: &BTreeSet<String>,
    ) -> Result<Self> {
        let root = out.join("raw");
        let earlier = earlier(out, &root)?.into_iter();
        let (written, earlier): (Written, Written) =
            earlier.partition(|(folder, _)| kept.contains(folder));
        for folder in folders.difference(kept) {
            let own = earlier.get(folder).cloned().unwrap_or_default();
            if let Some(foreign) = names_in(&root.join(folder))?.difference(&own).next() {
                return Err(Refusal::usage(format!(
                    "--out {}: raw/{folder}/{foreign} is in the way and no run wrote it; move it \
                     away or choose another folder",
                    out.display()
                )));
            }
        }
        let place = || format!("cannot write into {}", root.display());
        for (folder, files) in &earlier {
            erase(&root.join(folder), files).with_context(place)?;
        }
        fs::create_dir_all(&root).with_context(place)?;
        let list = list(&root, &written).with_context(place)?;
        Ok(Self {
            list,
            written,
            root,
        })
    }

    /// An empty folder for a run; that of an earlier run of this lab if it has the same name.
    pub(crate) fn begin(&mut self, folder: &str) -> Result<PathBuf> {
        let directory = self.root.join(folder);
        if let Some(files) = self.written.remove(folder) {
            erase(&directory, &files)?;
        }
        fs::create_dir_all(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        writeln!(self.list, "{folder}/")?;
        Ok(directory)
    }

    /// The run is over: what is in its folder now is its.
    pub(crate) fn end(&mut self, folder: &str) -> Result<()> {
        let files = names_in(&self.root.join(folder))?;
        for file in &files {
            writeln!(self.list, "{folder}/{file}")?;
        }
        self.written.insert(folder.to_owned(), files);
        Ok(())
    }

    /// All files of all runs, relative to `out`.
    pub(crate) fn files(&self) -> Vec<String> {
        let in_folder = |(folder, files): (&String, &BTreeSet<String>)| -> Vec<String> {
            let path = |file| format!("raw/{folder}/{file}");
            files.iter().map(path).collect()
        };
        self.written.iter().flat_map(in_folder).collect()
    }
}

/// The list with what is kept, in place of the earlier one; whenever this is cut off, one of the two stands.
fn list(root: &Path, written: &Written) -> io::Result<File> {
    let fresh = root.join(format!("{LIST}.new"));
    let mut list = File::create(&fresh)?;
    for (folder, files) in written {
        for file in files {
            writeln!(list, "{folder}/{file}")?;
        }
    }
    list.sync_data()?;
    fs::rename(&fresh, root.join(LIST))?;
    Ok(list)
}

fn earlier(out: &Path, root: &Path) -> Result<Written> {
    let list = match fs::read_to_string(root.join(LIST)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => listed_in_result(out),
        read => read.with_context(|| format!("cannot read {}", root.join(LIST).display()))?,
    };
    let mut written = Written::new();
    for (folder, file) in list.lines().filter_map(|line| line.split_once('/')) {
        if is_name(folder) {
            let files = written.entry(folder.to_owned()).or_default();
            files.extend(Some(file).filter(|file| is_name(file)).map(str::to_owned));
        }
    }
    for (folder, files) in written.iter_mut().filter(|(_, files)| files.is_empty()) {
        let names = names_in(&root.join(folder))?;
        files.extend(names.into_iter().filter(|name| is_record(name)));
    }
    Ok(written)
}

/// The files that a result names: labs wrote no list at first.
fn listed_in_result(out: &Path) -> String {
    let result = fs::read(out.join("result.json")).unwrap_or_default();
    let result: serde_json::Value = serde_json::from_slice(&result).unwrap_or_default();
    let files = result["raw"].as_array().into_iter().flatten();
    let below = files.filter_map(|file| file.as_str()?.strip_prefix("raw/"));
    below.collect::<Vec<_>>().join("\n")
}

/// A single name that leads nowhere else.
fn is_name(text: &str) -> bool {
    let mut parts = Path::new(text).components();
    matches!(
        (parts.next(), parts.next()),
        (Some(Component::Normal(_)), None)
    )
}

fn is_record(name: &str) -> bool {
    let kind = Path::new(name).extension();
    kind.is_some_and(|kind| KINDS.iter().any(|known| kind == *known))
}

/// What is in a folder; nothing if there is none.
fn names_in(folder: &Path) -> Result<BTreeSet<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        read => read.with_context(|| format!("cannot read {}", folder.display()))?,
    };
    let name = |entry: io::Result<fs::DirEntry>| {
        let name = entry?.file_name();
        Ok(name.to_string_lossy().into_owned())
    };
    entries.map(name).collect()
}

fn erase(folder: &Path, files: &BTreeSet<String>) -> io::Result<()> {
    for file in files {
        match fs::remove_file(folder.join(file)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    // With something else in it, it stays.
    let _ = fs::remove_dir(folder);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn put(out: &Path, file: &str) {
        let path = out.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }

    /// A lab with one run into each folder.
    fn lab(out: &Path, names: &[&str]) -> Raw {
        let mut raw = Raw::open(out, &folders(names), &folders(&[])).unwrap();
        for name in names {
            let directory = raw.begin(name).unwrap();
            fs::write(directory.join("tcp_info.jsonl"), "").unwrap();
            raw.end(name).unwrap();
        }
        raw
    }

    #[test]
    fn cells_that_are_no_more_are_gone_and_only_they() {
        let out = tempfile::tempdir().unwrap();
        let out = out.path();
        put(out, "notes.txt");
        put(out, "raw/mine/plot.log");
        lab(out, &["01-a-1", "02-b-1"]);
        put(out, "raw/02-b-1/notes.txt");
        let raw = lab(out, &["01-c-1"]);
        assert_eq!(raw.files(), ["raw/01-c-1/tcp_info.jsonl"]);
        assert!(!out.join("raw/01-a-1").exists());
        assert!(!out.join("raw/02-b-1/tcp_info.jsonl").exists());
        for kept in ["notes.txt", "raw/mine/plot.log", "raw/02-b-1/notes.txt"] {
            assert!(out.join(kept).exists(), "{kept}");
        }
    }

    #[test]
    fn a_run_that_was_cut_off_is_cleared_of_records() {
        let out = tempfile::tempdir().unwrap();
        let out = out.path();
        let mut raw = Raw::open(out, &folders(&["01-a-1"]), &folders(&[])).unwrap();
        raw.begin("01-a-1").unwrap();
        put(out, "raw/01-a-1/link-wan.jsonl");
        put(out, "raw/01-a-1/copy.out");
        put(out, "raw/01-a-1/why.txt");
        drop(raw);
        lab(out, &["01-b-1"]);
        assert!(!out.join("raw/01-a-1/link-wan.jsonl").exists());
        assert!(!out.join("raw/01-a-1/copy.out").exists());
        assert!(out.join("raw/01-a-1/why.txt").exists());
    }

    #[test]
    fn what_no_run_wrote_is_refused_before_anything_is_removed() {
        let out = tempfile::tempdir().unwrap();
        let out = out.path();
        lab(out, &["01-a-1", "02-b-1"]);
        put(out, "raw/02-b-1/notes.txt");
        let refused = Raw::open(out, &folders(&["02-b-1"]), &folders(&[])).unwrap_err();
        assert!(refused.to_string().contains("raw/02-b-1/notes.txt"));
        assert!(out.join("raw/01-a-1/tcp_info.jsonl").exists());
    }

    #[test]
    fn a_result_without_a_list_names_its_files() {
        let out = tempfile::tempdir().unwrap();
        let out = out.path();
        put(out, "raw/01-old-1/get.json");
        fs::write(
            out.join("result.json"),
            r#"{"raw": ["raw/01-old-1/get.json"]}"#,
        )
        .unwrap();
        lab(out, &["01-new-1"]);
        assert!(!out.join("raw/01-old-1").exists());
    }

    #[test]
    fn a_list_leads_nowhere_else() {
        let out = tempfile::tempdir().unwrap();
        let out = out.path();
        put(out, "notes.log");
        put(out, "raw/.written");
        fs::write(out.join("raw/.written"), "../notes.log\n../\n/notes.log\n").unwrap();
        lab(out, &["01-a-1"]);
        assert!(out.join("notes.log").exists());
    }

    #[test]
    fn runs_of_this_lab_are_kept() {
        let out = tempfile::tempdir().unwrap();
        let out = out.path();
        lab(out, &["01-a-1", "02-b-1"]);
        let all = folders(&["01-a-1", "03-c-1"]);
        let mut raw = Raw::open(out, &all, &folders(&["01-a-1"])).unwrap();
        raw.begin("03-c-1").unwrap();
        drop(raw);
        assert!(!out.join("raw/02-b-1").exists());
        let raw = Raw::open(out, &all, &folders(&["01-a-1"])).unwrap();
        assert_eq!(raw.files(), ["raw/01-a-1/tcp_info.jsonl"]);
    }

    #[test]
    fn a_second_warm_up_takes_the_place_of_the_first() {
        let out = tempfile::tempdir().unwrap();
        let mut raw = lab(out.path(), &["01-a-warmup"]);
        let directory = raw.begin("01-a-warmup").unwrap();
        assert_eq!(names_in(&directory).unwrap(), BTreeSet::new());
        raw.end("01-a-warmup").unwrap();
        assert_eq!(raw.files(), [""; 0]);
    }
}
