// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raw records of an experiment: `DIR/raw/CELL-REPETITION/FILE`. A manifest beside them lists what
//! the lab wrote. The next run into the same `DIR` removes exactly these files, whatever the names
//! of its cells.

use anyhow::{Context, Result};
use longhaul_command::exit::Refusal;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, Write},
    path::{Component, Path, PathBuf},
};

/// Name of the manifest below `raw`. It has the line `RUN/` when a run begins, and `RUN/FILE`
/// for each file when it ends.
const MANIFEST: &str = ".manifest";

/// File name extensions of records. Used only for a run that was interrupted before it could list
/// its files.
const EXTENSIONS: [&str; 6] = ["conf", "json", "jsonl", "log", "out", "pcapng"];

/// Names of the records in each run's directory.
type Manifest = BTreeMap<String, BTreeSet<String>>;

/// Directory with the raw records of one experiment.
#[derive(Debug)]
pub(crate) struct RecordDir {
    root: PathBuf,
    manifest: File,
    files_by_run: Manifest,
}

impl RecordDir {
    /// Prepares `out/raw` for runs into `run_dirs`. All earlier records are removed, except those
    /// in `kept`, which are completed runs of this experiment.
    ///
    /// # Errors
    /// A directory that a run is about to use holds a file that no run wrote. Then nothing is
    /// changed.
    pub(crate) fn open(
        out: &Path,
        run_dirs: &BTreeSet<String>,
        kept: &BTreeSet<String>,
    ) -> Result<Self> {
        let root = out.join("raw");
        let all = read_manifest(out, &root)?.into_iter();
        let (kept_files, old_files): (Manifest, Manifest) =
            all.partition(|(run_dir, _)| kept.contains(run_dir));
        for run_dir in run_dirs.difference(kept) {
            let own = old_files.get(run_dir).cloned().unwrap_or_default();
            if let Some(foreign_file) = file_names(&root.join(run_dir))?.difference(&own).next() {
                return Err(Refusal::usage(format!(
                    "--out {}: raw/{run_dir}/{foreign_file} was not written by a run; move it \
                     away or choose another directory",
                    out.display()
                )));
            }
        }
        let message = || format!("cannot write into {}", root.display());
        for (run_dir, files) in &old_files {
            remove_files(&root.join(run_dir), files).with_context(message)?;
        }
        fs::create_dir_all(&root).with_context(message)?;
        let manifest = write_manifest(&root, &kept_files).with_context(message)?;
        Ok(Self {
            manifest,
            files_by_run: kept_files,
            root,
        })
    }

    /// Creates an empty directory for a run. Records of an earlier run with the same name are
    /// removed.
    pub(crate) fn begin(&mut self, run_dir: &str) -> Result<PathBuf> {
        let directory = self.root.join(run_dir);
        if let Some(files) = self.files_by_run.remove(run_dir) {
            remove_files(&directory, &files)?;
        }
        fs::create_dir_all(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        writeln!(self.manifest, "{run_dir}/")?;
        Ok(directory)
    }

    /// Ends a run: all files in its directory are recorded in the manifest.
    pub(crate) fn end(&mut self, run_dir: &str) -> Result<()> {
        let files = file_names(&self.root.join(run_dir))?;
        for file in &files {
            writeln!(self.manifest, "{run_dir}/{file}")?;
        }
        self.files_by_run.insert(run_dir.to_owned(), files);
        Ok(())
    }

    /// Returns all files of all runs, relative to `out`.
    pub(crate) fn files(&self) -> Vec<String> {
        let in_run_dir = |(run_dir, files): (&String, &BTreeSet<String>)| -> Vec<String> {
            let path = |file| format!("raw/{run_dir}/{file}");
            files.iter().map(path).collect()
        };
        self.files_by_run.iter().flat_map(in_run_dir).collect()
    }
}

/// Replaces the manifest by one with the `kept` files. If this is interrupted, the old or the new
/// one remains whole.
fn write_manifest(root: &Path, kept: &Manifest) -> io::Result<File> {
    let new = root.join(format!("{MANIFEST}.new"));
    let mut manifest = File::create(&new)?;
    for (run_dir, files) in kept {
        for file in files {
            writeln!(manifest, "{run_dir}/{file}")?;
        }
    }
    manifest.sync_data()?;
    fs::rename(&new, root.join(MANIFEST))?;
    Ok(manifest)
}

fn read_manifest(out: &Path, root: &Path) -> Result<Manifest> {
    let path = root.join(MANIFEST);
    let manifest = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => listed_in_result(out),
        read => read.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let mut written = Manifest::new();
    for (run_dir, file) in manifest.lines().filter_map(|line| line.split_once('/')) {
        if is_name(run_dir) {
            let files = written.entry(run_dir.to_owned()).or_default();
            files.extend(Some(file).filter(|file| is_name(file)).map(str::to_owned));
        }
    }
    for (run_dir, files) in written.iter_mut().filter(|(_, files)| files.is_empty()) {
        let names = file_names(&root.join(run_dir))?;
        files.extend(names.into_iter().filter(|name| is_record(name)));
    }
    Ok(written)
}

/// Returns the lines of a manifest from the files that `result.json` lists, because the first
/// versions wrote no manifest.
fn listed_in_result(out: &Path) -> String {
    let result = fs::read(out.join("result.json")).unwrap_or_default();
    let result: serde_json::Value = serde_json::from_slice(&result).unwrap_or_default();
    let files = result["raw"].as_array().into_iter().flatten();
    let below = files.filter_map(|file| file.as_str()?.strip_prefix("raw/"));
    below.collect::<Vec<_>>().join("\n")
}

/// Returns whether the text is a single file name, not a path.
fn is_name(text: &str) -> bool {
    let mut parts = Path::new(text).components();
    matches!(
        (parts.next(), parts.next()),
        (Some(Component::Normal(_)), None)
    )
}

fn is_record(name: &str) -> bool {
    let extension = Path::new(name).extension();
    extension.is_some_and(|extension| EXTENSIONS.iter().any(|known| extension == *known))
}

/// Returns the file names in a directory, or none if the directory does not exist.
fn file_names(directory: &Path) -> Result<BTreeSet<String>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        read => read.with_context(|| format!("cannot read {}", directory.display()))?,
    };
    let name = |entry: io::Result<fs::DirEntry>| {
        let name = entry?.file_name();
        Ok(name.to_string_lossy().into_owned())
    };
    entries.map(name).collect()
}

fn remove_files(run_dir: &Path, files: &BTreeSet<String>) -> io::Result<()> {
    for file in files {
        match fs::remove_file(run_dir.join(file)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    // The directory remains if it holds other files.
    let _ = fs::remove_dir(run_dir);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_dirs(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn put(out: &Path, file: &str) {
        let path = out.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }

    /// Writes the records of an experiment that has one run in each directory.
    fn run_lab(out: &Path, names: &[&str]) -> RecordDir {
        let mut raw = RecordDir::open(out, &run_dirs(names), &run_dirs(&[])).unwrap();
        for name in names {
            let directory = raw.begin(name).unwrap();
            fs::write(directory.join("tcp_info.jsonl"), "").unwrap();
            raw.end(name).unwrap();
        }
        raw
    }

    #[test]
    fn removes_only_records_of_cells_that_no_longer_exist() {
        let out = tempfile::tempdir().unwrap();
        let out = out.path();
        put(out, "notes.txt");
        put(out, "raw/mine/plot.log");
        run_lab(out, &["01-a-1", "02-b-1"]);
        put(out, "raw/02-b-1/notes.txt");
        let raw = run_lab(out, &["01-c-1"]);
        assert_eq!(raw.files(), ["raw/01-c-1/tcp_info.jsonl"]);
        assert!(!out.join("raw/01-a-1").exists());
        assert!(!out.join("raw/02-b-1/tcp_info.jsonl").exists());
        for kept in ["notes.txt", "raw/mine/plot.log", "raw/02-b-1/notes.txt"] {
            assert!(out.join(kept).exists(), "{kept}");
        }
    }

    #[test]
    fn removes_records_of_an_interrupted_run() {
        let out = tempfile::tempdir().unwrap();
        let out = out.path();
        let mut raw = RecordDir::open(out, &run_dirs(&["01-a-1"]), &run_dirs(&[])).unwrap();
        raw.begin("01-a-1").unwrap();
        put(out, "raw/01-a-1/link-wan.jsonl");
        put(out, "raw/01-a-1/copy.out");
        put(out, "raw/01-a-1/why.txt");
        drop(raw);
        run_lab(out, &["01-b-1"]);
        assert!(!out.join("raw/01-a-1/link-wan.jsonl").exists());
        assert!(!out.join("raw/01-a-1/copy.out").exists());
        assert!(out.join("raw/01-a-1/why.txt").exists());
    }

    #[test]
    fn refuses_foreign_files_before_removing_anything() {
        let out = tempfile::tempdir().unwrap();
        let out = out.path();
        run_lab(out, &["01-a-1", "02-b-1"]);
        put(out, "raw/02-b-1/notes.txt");
        let refused = RecordDir::open(out, &run_dirs(&["02-b-1"]), &run_dirs(&[])).unwrap_err();
        assert!(refused.to_string().contains("raw/02-b-1/notes.txt"));
        assert!(out.join("raw/01-a-1/tcp_info.jsonl").exists());
    }

    #[test]
    fn uses_the_files_of_a_result_without_manifest() {
        let out = tempfile::tempdir().unwrap();
        let out = out.path();
        put(out, "raw/01-old-1/get.json");
        fs::write(
            out.join("result.json"),
            r#"{"raw": ["raw/01-old-1/get.json"]}"#,
        )
        .unwrap();
        run_lab(out, &["01-new-1"]);
        assert!(!out.join("raw/01-old-1").exists());
    }

    #[test]
    fn ignores_manifest_lines_outside_the_directory() {
        let out = tempfile::tempdir().unwrap();
        let out = out.path();
        put(out, "notes.log");
        put(out, "raw/.manifest");
        fs::write(out.join("raw/.manifest"), "../notes.log\n../\n/notes.log\n").unwrap();
        run_lab(out, &["01-a-1"]);
        assert!(out.join("notes.log").exists());
    }

    #[test]
    fn keeps_completed_runs_of_this_experiment() {
        let out = tempfile::tempdir().unwrap();
        let out = out.path();
        run_lab(out, &["01-a-1", "02-b-1"]);
        let all = run_dirs(&["01-a-1", "03-c-1"]);
        let mut raw = RecordDir::open(out, &all, &run_dirs(&["01-a-1"])).unwrap();
        raw.begin("03-c-1").unwrap();
        drop(raw);
        assert!(!out.join("raw/02-b-1").exists());
        let raw = RecordDir::open(out, &all, &run_dirs(&["01-a-1"])).unwrap();
        assert_eq!(raw.files(), ["raw/01-a-1/tcp_info.jsonl"]);
    }

    #[test]
    fn second_warm_up_replaces_the_first() {
        let out = tempfile::tempdir().unwrap();
        let mut raw = run_lab(out.path(), &["01-a-warmup"]);
        let directory = raw.begin("01-a-warmup").unwrap();
        assert_eq!(file_names(&directory).unwrap(), BTreeSet::new());
        raw.end("01-a-warmup").unwrap();
        assert_eq!(raw.files(), [""; 0]);
    }
}
