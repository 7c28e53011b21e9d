// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thread that handles the source's messages: it creates entries without data, and requests data of the others.

use super::{
    block_set::reduce_version,
    extras::{CONTENTS_FOR_SINGLE_NAME, Remover},
    large_file::{copied_outcome, describe_skipped, size},
    link_hashes::{Link, link},
    state::{State, Target},
};
use crate::{
    connection::Connection,
    copy::endpoint::limits,
    protocol::{
        control::{Pass, Task},
        message::{self, Outcome, Portion, SourceMsg, TargetMsg},
    },
};
use anyhow::{Context as _, Result, bail, ensure};
use longhaul_command::{exit::Refusal, threads};
use longhaul_scheduling::Stage;
use longhaul_store::{
    blocks::BLOCK_LEN,
    entry::{Entry, Kind},
    metadata::{Metadata, MetadataField, SkippedField},
    path::RelPath,
    tree::{
        delete::DeletionPlan,
        filter::Filter,
        origin,
        same_names::SameNames,
        writer::{Options, TreeWriter, WriteOutcome},
    },
    vfs::sync_file_system,
};
use rustix::{fs::FileType, io::Errno};
use std::{
    collections::{BTreeSet, HashSet},
    os::fd::AsFd as _,
};

/// Maximum bytes of all directories' attributes: 256 for each of four million.
const DIRECTORY_XATTR_BYTES_MAX: u64 = 1 << 30;

/// Maximum refused devices and fifos whose further names are recognised: 32 MB of digests. Further names of
/// others fail as hard links.
const REFUSED_NAMES_MAX: usize = 1 << 20;

/// Maximum directories in which old parts are looked for: some 10 MB of paths.
const DIRECTORIES_MAX: usize = 100_000;

/// State of the message thread until the end of the session.
struct EntryState<'a> {
    tree_writer: TreeWriter<'a>,
    extras: DeletionPlan<'a>,
    same_names: SameNames<'a>,
    /// Whether entries of another type are removed for those of the source.
    may_remove: bool,
    remover: Remover<'a>,
    /// Directories of files of several blocks, which may have parts of interrupted copies.
    large_file_directories: BTreeSet<Option<RelPath>>,
    /// Hard links, created last: the files must exist first.
    links: Vec<(u64, Entry)>,
    unreadable: u64,
    /// Number of devices and fifos that were skipped, further names included. `refused_names`: digests of
    /// their first names.
    refused: u64,
    refused_names: HashSet<[u8; 16]>,
    /// Bytes of directories' attributes, which are set at the end.
    directory_xattr_bytes: u64,
    /// Whether directories, links or metadata must be synced. Unchanged entries count too: another copy, or
    /// one that was killed, may have created them a moment ago.
    to_sync: bool,
    /// Messages already reported about metadata that this user may not set.
    reported: BTreeSet<&'static str>,
}

impl Target {
    pub(super) fn handle_messages(&self, mut from: Connection) -> Result<()> {
        let filter = self.filter(&mut from)?;
        let root = self.root.clone();
        let mut remover = Remover::new(&root, &filter);
        let may_remove = self.task.plans_deletion(&self.options)
            && self.check_deletion(&mut from, &mut remover)?;
        let options = Options {
            update: self.options.update,
            dry_run: self.options.dry_run,
            checksum: self.options.checksum,
            modify_window_s: self.modify_window_s(),
        };
        let mut entries = EntryState {
            tree_writer: TreeWriter::new(&root, options),
            extras: DeletionPlan::new(&root, &filter),
            same_names: SameNames::new(&root, !self.options.dry_run),
            may_remove,
            remover,
            large_file_directories: BTreeSet::new(),
            links: Vec::new(),
            unreadable: 0,
            refused: 0,
            refused_names: HashSet::new(),
            directory_xattr_bytes: 0,
            to_sync: false,
            reported: BTreeSet::new(),
        };
        let mut measurement = self.counters.metrics.measure_thread(Stage::Waiting, None);
        loop {
            measurement.enter(Stage::Waiting);
            let message = message::read::<SourceMsg>(&mut from)?;
            measurement.enter(Stage::Scanning);
            let message = message.context("the source closed the connection")?;
            match self.handle_data_message(message) {
                None => {}
                Some(SourceMsg::Entry {
                    number,
                    entry,
                    portion,
                }) => self.handle_entry(&mut entries, number, entry, portion)?,
                Some(SourceMsg::RootMetadata(mut metadata)) => {
                    self.add_contents(&mut entries.extras)?;
                    self.preserve.strip_metadata(&mut metadata, true);
                    entries.tree_writer.set_top_metadata(metadata);
                }
                Some(SourceMsg::Excluded(path)) => entries.extras.protect(&self.path_here(path)?),
                Some(SourceMsg::ScanError) => entries.unreadable += 1,
                Some(SourceMsg::ScanEnded) => break,
                Some(_) => bail!("unexpected message of the source"),
            }
        }
        drop(measurement);
        self.finish_session(entries, from)
    }

    /// Reads the names of the sources; returns the filter of `--exclude`, which also protects entries here.
    fn filter(&self, from: &mut Connection) -> Result<Filter> {
        let Some(SourceMsg::Roots(roots)) = message::read(from)? else {
            bail!("the source did not send the names of its sources");
        };
        if self.top_name.is_some() && roots.len() != 1 {
            return Err(Refusal::usage(CONTENTS_FOR_SINGLE_NAME));
        }
        let root_paths = roots.into_iter().map(|root| self.path_here(root));
        let roots: Vec<RelPath> = root_paths.collect::<Result<_>>()?;
        Ok(self.options.filter()?.with_source_names(roots.iter()))
    }

    /// Handles messages about data in flight; returns any other message.
    fn handle_data_message(&self, message: SourceMsg) -> Option<SourceMsg> {
        match message {
            SourceMsg::Sealed { file, hash } => self.shared.update(|state| {
                if let Some(large) = state.large_files.get(&file) {
                    large.seal(hash);
                }
            }),
            SourceMsg::HashReply { file, hash } => self.handle_hash(file, hash),
            SourceMsg::Reannounce {
                old,
                number,
                entry,
                portion,
            } => self.handle_reannounced(old, number, entry, portion),
            SourceMsg::Aborted { file } => self.discard_file(file),
            SourceMsg::StreamAbandoned { stream } => self.shut_down_stream(stream),
            SourceMsg::StreamCount(count) => self.opener.set_wanted(count.into()),
            other => return Some(other),
        }
        None
    }

    /// Waits for the data of all announced entries. Then creates hard links, removes extra entries, and sets
    /// the metadata of directories.
    fn finish_session(&self, mut entries: EntryState<'_>, mut from: Connection) -> Result<()> {
        let reader = self.clone();
        threads::spawn(move || {
            while let Ok(Some(message)) = message::read::<SourceMsg>(&mut from)
                && reader.handle_data_message(message).is_none()
            {}
            reader
                .shared
                .update(|state| state.source_disconnected = true);
        })?;
        self.shared
            .wait_until(|state| state.has_only_links_left() || state.source_disconnected);
        if !self.shared.read(State::has_only_links_left) {
            bail!("the source closed the connection");
        }
        let links = std::mem::take(&mut entries.links);
        let names: Vec<Link> = links.iter().filter_map(|(_, entry)| link(entry)).collect();
        for (number, entry) in links {
            self.write_entry(&mut entries, number, entry, Portion::Whole);
        }
        if !self.options.dry_run {
            self.record_link_hashes(&names);
        }
        let failed = self.counters.snapshot().failed;
        if self.options.delete {
            self.remove_extras(entries.extras, &mut entries.remover, entries.unreadable);
        }
        if !self.options.dry_run {
            self.remove_old_parts(&entries.large_file_directories);
        }
        let removed = entries.remover.removed;
        // Other workers still write in these directories; the session after all extents sets their metadata.
        let directories = match self.task {
            Task::Extents | Task::Gather(Pass::Data) => Vec::new(),
            _ => entries.tree_writer.finish(),
        };
        self.counters.update(|progress| progress.removed += removed);
        let to_sync = entries.to_sync || removed > 0;
        for (_, applied) in directories {
            if let Err(failure) = applied {
                self.report_failure(failure.to_string());
            }
        }
        if to_sync && !self.options.dry_run {
            self.sync();
        }
        if entries.refused > 0 {
            let what = match entries.refused {
                1 => "1 device or fifo was skipped".to_owned(),
                count => format!("{count} devices and fifos were skipped"),
            };
            self.reporter.send_problem(format!(
                "{what} (--no-devices, --no-special; the default for a source at a site)"
            ));
        }
        let failed = self.counters.snapshot().failed - failed;
        // Streams that end from now on are not opened again.
        self.opener.stop();
        self.to_source.push(TargetMsg::Finished { removed, failed });
        // The source closes its connection after that message.
        self.shared.wait_until(|state| state.source_disconnected);
        Ok(())
    }

    /// Makes names of directories, links and removals durable. This waits for data that others have written
    /// there too; files alone are durable already and do not need it.
    fn sync(&self) {
        if let Ok(top) = self.root.open_dir_to_write(None)
            && let Err(error) = sync_file_system(top.as_fd())
        {
            self.report_failure(format!("cannot make directories durable: {error}"));
        }
    }

    fn handle_entry(
        &self,
        entries: &mut EntryState<'_>,
        number: u64,
        mut entry: Entry,
        portion: Portion,
    ) -> Result<()> {
        entry.path = self.path_here(entry.path)?;
        entry.kind = reduce_version(entry.kind, &portion);
        self.preserve.strip(&mut entry);
        if let Kind::HardLink { to } = &mut entry.kind {
            *to = self.path_here(to.clone())?;
            entry.metadata = Metadata::default();
        }
        if entry.kind == Kind::Directory {
            entries.directory_xattr_bytes += limits::xattr_bytes(&entry.metadata);
        }
        self.counters.update(|progress| progress.entries += 1);
        let accepted = self.accepts(entries, &entry);
        let link = accepted && matches!(entry.kind, Kind::HardLink { .. });
        let exceeds_limit = self.shared.update_silent(|state| {
            state.in_flight += 1;
            state.links += u64::from(link);
            state.xattr_budget.add(number, &entry.metadata);
            state.announced_too_much()
        });
        ensure!(
            !exceeds_limit && entries.directory_xattr_bytes <= DIRECTORY_XATTR_BYTES_MAX,
            "the source announces more than allowed"
        );
        entries.extras.add_entry(&entry);
        if size(&entry) > BLOCK_LEN && entries.large_file_directories.len() < DIRECTORIES_MAX {
            entries.large_file_directories.insert(entry.path.parent());
        }
        if let Some(other) = entries.same_names.find(&entry.path) {
            let why = format!(
                "{}: not copied, because the target's file system takes this name for {other}",
                entry.path
            );
            entries.extras.keep_tree(other);
            self.complete(number, &entry.path, Outcome::Failed(why));
            return Ok(());
        }
        match entry.kind {
            _ if !accepted => {
                entries.refused += 1;
                self.complete(number, &entry.path, Outcome::Skipped);
            }
            Kind::HardLink { .. } => entries.links.push((number, entry)),
            _ => self.write_entry(entries, number, entry, portion),
        }
        Ok(())
    }

    /// Returns whether the entry is of a kind created here, and not a further name of a refused entry.
    fn accepts(&self, entries: &mut EntryState<'_>, entry: &Entry) -> bool {
        if let Kind::HardLink { to } = &entry.kind {
            return entries.refused_names.is_empty()
                || !entries.refused_names.contains(&digest(to));
        }
        let accepts = self.preserve.accepts(&entry.kind);
        if !accepts && entries.refused_names.len() < REFUSED_NAMES_MAX {
            entries.refused_names.insert(digest(&entry.path));
        }
        accepts
    }

    /// Replaces a requested file that changed at the source by its new number and version.
    fn handle_reannounced(&self, old: u64, number: u64, mut entry: Entry, portion: Portion) {
        // First, so that the copy does not look finished between the two steps.
        self.shared.update(|state| {
            state.in_flight += 1;
            state.xattr_budget.add(number, &entry.metadata);
        });
        self.discard_file(old);
        match self.path_here(entry.path.clone()) {
            Ok(path) if !path.is_internal() => {
                entry.path = path;
                entry.kind = reduce_version(entry.kind, &portion);
                self.preserve.strip(&mut entry);
                self.request_file(number, entry, portion);
            }
            _ => {
                let why = format!("{}: no name for a file", entry.path);
                self.complete(number, &entry.path, Outcome::Failed(why));
            }
        }
    }

    /// Returns the path of an entry at the target.
    pub(super) fn path_here(&self, path: RelPath) -> Result<RelPath> {
        if let Some(dir) = &self.planned_directory {
            return Ok(dir.join_path(&path)?);
        }
        let Some(name) = &self.top_name else {
            return Ok(path);
        };
        let rest: Vec<&[u8]> = path.components().skip(1).collect();
        if rest.is_empty() {
            Ok(name.clone())
        } else {
            Ok(name.join_path(&RelPath::parse(&rest.join(&b'/'))?)?)
        }
    }

    fn write_entry(
        &self,
        entries: &mut EntryState<'_>,
        number: u64,
        entry: Entry,
        portion: Portion,
    ) {
        if self.options.dry_run
            && self.options.delete
            && let Some(outcome) = self.plan_replacement(&mut entries.remover, &entry)
        {
            return self.complete(number, &entry.path, outcome);
        }
        let is_directory = entry.kind == Kind::Directory;
        if entries.may_remove && self.is_in_the_way(&entry.path, is_directory) {
            let place = BTreeSet::from([entry.path.clone()]);
            self.remove_found(&mut entries.remover, &place);
        }
        let is_named = self.is_named_top(&entry);
        if is_named && self.root.stat(&entry.path).is_err() {
            // On failure the directory is created below without the record, which is then added.
            let _ = origin::make(&self.root, &entry.path, &self.options.origin);
        }
        if !self.options.dry_run && self.has_file_in_place_of(&entry) {
            entries.remover.hashes.remove(self, [&entry.path]);
        }
        let written = entries.tree_writer.write(&entry);
        if matches!(
            written,
            Ok((WriteOutcome::Changed | WriteOutcome::Transfer, _))
        ) && !self.options.dry_run
        {
            self.report_denied(&mut entries.reported, &entry);
        }
        if is_named && written.is_ok() {
            self.record_origin(&entry.path);
        }
        let written = written.map(|(written, skipped)| {
            (written, self.report_foreign(&mut entries.reported, skipped))
        });
        let outcome = match written {
            Ok((WriteOutcome::Unchanged, _)) if self.options.dry_run => Outcome::Unchanged,
            Ok((written @ (WriteOutcome::Changed | WriteOutcome::Transfer), _))
                if self.options.dry_run =>
            {
                self.plan_entry(&entry, &written)
            }
            Ok((WriteOutcome::Unchanged, skipped_metadata)) => {
                self.report_missing_metadata(&entry.path, &skipped_metadata);
                entries.to_sync |= !matches!(entry.kind, Kind::File { .. });
                self.present_outcome(&entry)
            }
            Ok((WriteOutcome::KeptNewer, _)) => Outcome::Newer,
            Ok((WriteOutcome::Changed, skipped_metadata)) => {
                entries.to_sync = true;
                copied_outcome(describe_skipped(&skipped_metadata))
            }
            Ok((WriteOutcome::Compare, _)) => {
                match entries.tree_writer.make_parent_writable(&entry.path) {
                    Ok(()) => {
                        // Its metadata may be changed later.
                        entries.to_sync = true;
                        return self.request_hash(number, entry);
                    }
                    Err(failure) => Outcome::Failed(failure.to_string()),
                }
            }
            Ok((WriteOutcome::Transfer, _)) => match self.kept_outcome(&entry, &portion) {
                Some(outcome) => outcome,
                None => return self.request_file(number, entry, portion),
            },
            Err(failure) => Outcome::Failed(match (&entry.kind, failure.errno()) {
                (
                    Kind::HardLink { .. },
                    Some(Errno::PERM | Errno::OPNOTSUPP | Errno::MLINK | Errno::NOSYS),
                ) => format!("{failure} (--no-hard-links copies each name as a file)"),
                _ => failure.to_string(),
            }),
        };
        self.complete(number, &entry.path, outcome);
    }

    /// Whether a file has the place of an entry that is none.
    fn has_file_in_place_of(&self, entry: &Entry) -> bool {
        let is_file = matches!(
            entry.kind,
            Kind::File { .. } | Kind::HardLink { .. } | Kind::Directory
        );
        let found = || self.root.stat(&entry.path);
        !is_file && found().is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file())
    }

    /// Reports what an entry still lacks that was there already.
    pub(super) fn report_missing_metadata(&self, path: &RelPath, skipped: &[SkippedField]) {
        if !skipped.is_empty() {
            let what = describe_skipped(skipped).join(", ");
            self.reporter
                .send_problem(format!("{path}: unchanged, but without {what}"));
        }
    }

    /// Returns the difference up to which times are the same, in seconds.
    fn modify_window_s(&self) -> u32 {
        let unit = || self.root.time_unit_s();
        self.options.modify_window_s.unwrap_or_else(unit)
    }

    /// Reports metadata that this user may not set: once for each kind, not for each of thousands of files.
    fn report_denied(&self, reported: &mut BTreeSet<&'static str>, entry: &Entry) {
        for what in entry.metadata.denied_fields() {
            let why = match what {
                MetadataField::Owner => {
                    "owners are not set, because only root may set them: new entries belong to the user who writes them"
                }
                MetadataField::Group => {
                    "groups are not set if the user who writes here is not a member"
                }
                MetadataField::SetId => {
                    "set-id bits are not set where the owner or the group differs"
                }
                _ => {
                    "attributes trusted.* and capabilities are not set, because only root may set them"
                }
            };
            if reported.insert(why) {
                self.reporter.send_problem(why.to_owned());
            }
        }
    }

    /// Reports metadata of entries that belong to another user: also once.
    fn report_foreign(
        &self,
        reported: &mut BTreeSet<&'static str>,
        skipped_metadata: Vec<SkippedField>,
    ) -> Vec<SkippedField> {
        let (foreign, skipped_metadata): (Vec<_>, Vec<_>) = skipped_metadata
            .into_iter()
            .partition(|left| left.field == MetadataField::OwnerOnly);
        let why = "permissions and times of entries that belong to another user are not set";
        if !foreign.is_empty() && reported.insert(why) {
            self.reporter.send_problem(why.to_owned());
        }
        skipped_metadata
    }

    /// Returns whether an entry is the directory that gets the name of the whole copy.
    fn is_named_top(&self, entry: &Entry) -> bool {
        let whole = self.top_name.as_ref() == Some(&entry.path);
        whole && entry.kind == Kind::Directory && !self.options.dry_run
    }

    /// Records the command that created a directory, so that the same command finds it again.
    fn record_origin(&self, path: &RelPath) {
        if let Err(error) = origin::record(&self.root, path, &self.options.origin) {
            self.reporter.send_problem(format!(
                "{path}: {error}; run again, the same command would copy into it"
            ));
        }
    }

    fn shut_down_stream(&self, stream: u64) {
        if let Some(blocks) = self.shared.update(|state| state.shut_down_stream(stream)) {
            self.to_source
                .push(TargetMsg::StreamEnded { stream, blocks });
        }
    }
}

fn digest(path: &RelPath) -> [u8; 16] {
    let mut digest = [0; 16];
    digest.copy_from_slice(&blake3::hash(path.as_bytes()).as_bytes()[..16]);
    digest
}
