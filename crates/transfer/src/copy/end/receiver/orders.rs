// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thread that handles the source's messages: it makes entries without data, and requests data of the others.

use super::{
    block_set::of_pieces,
    large::{made, said},
    state::State,
    target::Target,
};
use crate::{
    copy::end::limits as attributes,
    protocol::{
        control::{Pass, Task},
        message::{self, Outcome, Portion, SourceMsg, TargetMsg},
    },
    transport::connection::Connection,
};
use anyhow::{Context as _, Result, bail, ensure};
use longhaul_command::{exit::Refusal, threads};
use longhaul_scheduling::Stage;
use longhaul_store::{
    entry::{Entry, Kind},
    metadata::{LeftOut, Metadata, What},
    path::RelPath,
    tree::{
        delete::Extras,
        filter::Filter,
        origin,
        place::{Options, Placed, Placer},
    },
};
use std::collections::{BTreeSet, HashSet};

/// Maximum bytes of all directories' attributes: 256 for each of four million.
const OF_DIRECTORIES_MAX: u64 = 1 << 30;

const CONTENTS_FOR_ONE: &str =
    "the source copies what is in a directory, where one thing was to get a name";

/// Maximum refused devices and fifos whose further names are recognised: 32 MB of digests. Further names of
/// others fail as hard links.
const UNTAKEN_MAX: usize = 1 << 20;

/// State of the message thread until the end of the session.
struct Site<'a> {
    placer: Placer<'a>,
    extras: Extras<'a>,
    filter: &'a Filter,
    /// Hard links, made last: the files must exist first.
    links: Vec<(u64, Entry)>,
    unread: u64,
    /// Number of devices and fifos that were not made, further names included. `untaken`: digests of their
    /// first names.
    not_taken: u64,
    untaken: HashSet<[u8; 16]>,
    /// Bytes of directories' attributes, which are set at the end.
    of_directories: u64,
    /// Whether directories, links or metadata must be synced. Unchanged entries count too: another copy, or
    /// one that was killed, may have made them a moment ago.
    to_sync: bool,
    /// Messages already reported about metadata that this user may not set.
    denied: BTreeSet<&'static str>,
}

impl Target {
    pub(super) fn obey(&self, mut from: Connection) -> Result<()> {
        let filter = self.filter(&mut from)?;
        let root = self.root.clone();
        let options = Options {
            update: self.options.update,
            dry_run: self.options.dry_run,
            checksum: self.options.checksum,
        };
        let mut site = Site {
            placer: Placer::new(&root, options),
            extras: Extras::new(&root, &filter),
            filter: &filter,
            links: Vec::new(),
            unread: 0,
            not_taken: 0,
            untaken: HashSet::new(),
            of_directories: 0,
            to_sync: false,
            denied: BTreeSet::new(),
        };
        let mut gauge = self.tally.metrics.measure_thread(Stage::Waiting, None);
        loop {
            gauge.enter(Stage::Waiting);
            let order = message::read::<SourceMsg>(&mut from)?;
            gauge.enter(Stage::Scanning);
            let order = order.context("the source went away")?;
            match self.hear_of_data(order) {
                None => {}
                Some(SourceMsg::Entry {
                    number,
                    entry,
                    portion: share,
                }) => self.hear_of(&mut site, number, entry.into(), share)?,
                // A source must not change the directory around a single named entry.
                Some(SourceMsg::RootMetadata(_)) if self.renamed.is_some() => {
                    return Err(Refusal::usage(CONTENTS_FOR_ONE));
                }
                Some(SourceMsg::RootMetadata(metadata)) => {
                    let mut metadata = metadata.into();
                    self.preserve.reduce_metadata(&mut metadata, true);
                    site.placer.top(metadata);
                    // A directory that does not exist yet has no extra entries.
                    if self.imagined.is_none() {
                        site.extras.top();
                    }
                }
                Some(SourceMsg::Excluded(path)) => site.extras.spare(&self.here(path)?),
                Some(SourceMsg::ScanError) => site.unread += 1,
                Some(SourceMsg::ScanEnded) => break,
                Some(_) => bail!("an order out of order"),
            }
        }
        drop(gauge);
        self.complete(site, from)
    }

    /// Reads the names of the sources; returns the filter of `--exclude`, which also protects entries here.
    fn filter(&self, from: &mut Connection) -> Result<Filter> {
        let Some(SourceMsg::Roots(tops)) = message::read(from)? else {
            bail!("the source does not say what it copies");
        };
        if self.renamed.is_some() && tops.len() != 1 {
            return Err(Refusal::usage(CONTENTS_FOR_ONE));
        }
        let here = tops.into_iter().map(|top| self.here(top));
        let tops: Vec<RelPath> = here.collect::<Result<_>>()?;
        Ok(self.options.filter()?.with_tops(tops.iter()))
    }

    /// Handles messages about data in flight; returns any other message.
    fn hear_of_data(&self, order: SourceMsg) -> Option<SourceMsg> {
        match order {
            SourceMsg::Sealed { file, hash } => self.shared.update(|state| {
                if let Some(large) = state.large.get(&file) {
                    large.seal(hash);
                }
            }),
            SourceMsg::HashReply { file, hash } => self.hear_hash(file, hash),
            SourceMsg::Reannounce {
                old,
                number,
                entry,
                portion: share,
            } => self.hear_again(old, number, entry.into(), share),
            SourceMsg::Aborted { file } => self.withdraw(file),
            SourceMsg::StreamAbandoned { stream } => self.give_up_stream(stream),
            SourceMsg::StreamCount(count) => self.opener.set_wanted(count.into()),
            other => return Some(other),
        }
        None
    }

    /// Waits for the data of all announced entries. Then makes hard links, removes extra entries, and sets
    /// the metadata of directories.
    fn complete(&self, mut site: Site<'_>, mut from: Connection) -> Result<()> {
        let listening = self.clone();
        threads::spawn(move || {
            while let Ok(Some(order)) = message::read::<SourceMsg>(&mut from)
                && listening.hear_of_data(order).is_none()
            {}
            listening.shared.update(|state| state.source_gone = true);
        })?;
        self.shared
            .wait_until(|state| state.only_links_are_left() || state.source_gone);
        if !self.shared.read(State::only_links_are_left) {
            bail!("the source went away");
        }
        for (number, entry) in std::mem::take(&mut site.links) {
            self.place(&mut site, number, entry, Portion::Whole);
        }
        let failed = self.tally.snapshot().failed;
        let removed = match self.options.delete {
            true => self.remove_extras(site.extras, site.filter, site.unread),
            false => 0,
        };
        // Other workers still write in these directories; the session after all extents sets their metadata.
        let directories = match self.task {
            Task::Extents | Task::Gather(Pass::Data) => Vec::new(),
            _ => site.placer.finish(),
        };
        self.tally.update(|now| now.removed += removed);
        let to_sync = site.to_sync || removed > 0;
        for (path, applied) in directories {
            if let Err(failure) = applied {
                let path = path.map_or(".".to_owned(), |path| path.to_string());
                self.fail(format!("{path}: {failure}"));
            }
        }
        if to_sync && !self.options.dry_run {
            self.sync();
        }
        if site.not_taken > 0 {
            let what = match site.not_taken {
                1 => "1 device or fifo was left out".to_owned(),
                count => format!("{count} devices and fifos were left out"),
            };
            self.reporter.send_problem(format!(
                "{what} (--no-devices, --no-special; the default for a source at a site)"
            ));
        }
        let failed = self.tally.snapshot().failed - failed;
        // Streams that end from now on are not opened again.
        self.opener.stop();
        self.answers.put(TargetMsg::Finished { removed, failed });
        // The source closes its connection after that message.
        self.shared.wait_until(|state| state.source_gone);
        Ok(())
    }

    /// Makes names of directories, links and removals durable. This waits for data that others have written
    /// there too; files alone are durable already and do not need it.
    fn sync(&self) {
        if let Ok(top) = self.root.open_dir(None)
            && let Err(error) = rustix::fs::syncfs(&top)
        {
            self.fail(format!("cannot make directories durable: {error}"));
        }
    }

    fn hear_of(
        &self,
        site: &mut Site<'_>,
        number: u64,
        mut entry: Entry,
        share: Portion,
    ) -> Result<()> {
        entry.path = self.here(entry.path)?;
        entry.kind = of_pieces(entry.kind, &share);
        self.preserve.reduce(&mut entry);
        if let Kind::HardLink { to } = &mut entry.kind {
            *to = self.here(to.clone())?;
            entry.metadata = Metadata::default();
        }
        if entry.kind == Kind::Directory {
            site.of_directories += attributes::xattr_bytes(&entry.metadata);
        }
        self.tally.update(|now| now.entries += 1);
        let taken = self.takes(site, &entry);
        let link = taken && matches!(entry.kind, Kind::HardLink { .. });
        let too_much = self.shared.update_silent(|state| {
            state.unsettled += 1;
            state.links += u64::from(link);
            state.attributes.add(number, &entry.metadata);
            state.announced_too_much()
        });
        ensure!(
            !too_much && site.of_directories <= OF_DIRECTORIES_MAX,
            "the source announces more than it may"
        );
        site.extras.see(&entry);
        match entry.kind {
            _ if !taken => {
                site.not_taken += 1;
                self.settle(number, &entry.path, Outcome::LeftOut);
            }
            Kind::HardLink { .. } => site.links.push((number, entry)),
            _ => self.place(site, number, entry, share),
        }
        Ok(())
    }

    /// Returns whether the entry is of a kind made here, and not a further name of a refused entry.
    fn takes(&self, site: &mut Site<'_>, entry: &Entry) -> bool {
        if let Kind::HardLink { to } = &entry.kind {
            return site.untaken.is_empty() || !site.untaken.contains(&digest(to));
        }
        let takes = self.preserve.takes(&entry.kind);
        if !takes && site.untaken.len() < UNTAKEN_MAX {
            site.untaken.insert(digest(&entry.path));
        }
        takes
    }

    /// Replaces a requested file that changed at the source by its new number and version.
    fn hear_again(&self, old: u64, number: u64, mut entry: Entry, share: Portion) {
        // First, so that the copy does not look finished between the two steps.
        self.shared.update(|state| {
            state.unsettled += 1;
            state.attributes.add(number, &entry.metadata);
        });
        self.withdraw(old);
        match self.here(entry.path.clone()) {
            Ok(path) if !path.is_own() => {
                entry.path = path;
                entry.kind = of_pieces(entry.kind, &share);
                self.preserve.reduce(&mut entry);
                self.want(number, entry, share);
            }
            _ => {
                let why = format!("{}: no name for a file", entry.path);
                self.settle(number, &entry.path, Outcome::Failed(why));
            }
        }
    }

    /// Returns the path of an entry at the target.
    fn here(&self, path: RelPath) -> Result<RelPath> {
        if let Some(dir) = &self.imagined {
            return Ok(dir.join_path(&path)?);
        }
        let Some(name) = &self.renamed else {
            return Ok(path);
        };
        let rest: Vec<&[u8]> = path.components().skip(1).collect();
        match rest.is_empty() {
            true => Ok(name.clone()),
            false => Ok(name.join_path(&RelPath::parse(&rest.join(&b'/'))?)?),
        }
    }

    fn place(&self, site: &mut Site<'_>, number: u64, entry: Entry, share: Portion) {
        let named = self.is_named(&entry);
        if named && self.root.stat(&entry.path).is_err() {
            // On failure the directory is made below without the record, which is then added.
            let _ = origin::make(&self.root, &entry.path, &self.options.origin);
        }
        let placed = site.placer.place(&entry);
        if matches!(placed, Ok((Placed::Changed | Placed::Wanted, _))) && !self.options.dry_run {
            self.say_denied(&mut site.denied, &entry);
        }
        if named && placed.is_ok() {
            self.note_origin(&entry.path);
        }
        let placed = placed.map(|placed| self.say_barred(&mut site.denied, placed));
        let outcome = match placed {
            Ok((Placed::Unchanged, _)) if self.options.dry_run => Outcome::Same,
            Ok((placed @ (Placed::Changed | Placed::Wanted), _)) if self.options.dry_run => {
                self.plan(&entry, &placed)
            }
            Ok((Placed::Unchanged, _)) => {
                site.to_sync |= !matches!(entry.kind, Kind::File { .. });
                self.is_there(&entry)
            }
            Ok((Placed::Newer, _)) => Outcome::Newer,
            Ok((Placed::Changed, left_out)) => {
                site.to_sync = true;
                made(said(&left_out))
            }
            Ok((Placed::Compare, _)) => match site.placer.make_room(&entry.path) {
                Ok(()) => {
                    // Its metadata may be changed later.
                    site.to_sync = true;
                    return self.compare(number, entry);
                }
                Err(failure) => Outcome::Failed(failure.to_string()),
            },
            Ok((Placed::Wanted, _)) => match self.is_kept(&entry, &share) {
                Some(outcome) => outcome,
                None => return self.want(number, entry, share),
            },
            Err(failure) => Outcome::Failed(failure.to_string()),
        };
        self.settle(number, &entry.path, outcome);
    }

    /// Reports metadata that this user may not set: once for each kind, not for each of thousands of files.
    fn say_denied(&self, said: &mut BTreeSet<&'static str>, entry: &Entry) {
        for what in entry.metadata.denied() {
            let why = match what {
                What::Owner => {
                    "owners are not set, which only root may: what is made here belongs to the user who writes it"
                }
                What::Group => "groups are not set that the user who writes here is not in",
                What::SetId => "set-id bits are not set where the owner or the group is another",
                _ => "attributes trusted.* and capabilities are not set, which only root may",
            };
            if said.insert(why) {
                self.reporter.send_problem(why.to_owned());
            }
        }
    }

    /// Reports metadata of entries that belong to another user: also once.
    fn say_barred(
        &self,
        said: &mut BTreeSet<&'static str>,
        (placed, left_out): (Placed, Vec<LeftOut>),
    ) -> (Placed, Vec<LeftOut>) {
        let (barred, left_out): (Vec<_>, Vec<_>) = left_out
            .into_iter()
            .partition(|left| left.what == What::OfAnother);
        let why = "permissions and times are not set of what belongs to another user here";
        if !barred.is_empty() && said.insert(why) {
            self.reporter.send_problem(why.to_owned());
        }
        (placed, left_out)
    }

    /// Returns whether an entry is the directory that gets the name of the whole copy.
    fn is_named(&self, entry: &Entry) -> bool {
        let whole = self.renamed.as_ref() == Some(&entry.path);
        whole && entry.kind == Kind::Directory && !self.options.dry_run
    }

    /// Records the command that made a directory, so that the same command finds it again.
    fn note_origin(&self, path: &RelPath) {
        if let Err(error) = origin::note(&self.root, path, &self.options.origin) {
            self.reporter.send_problem(format!(
                "{path}: {error}; the same command again would copy into it"
            ));
        }
    }

    fn give_up_stream(&self, stream: u64) {
        if let Some(blocks) = self.shared.update(|state| state.give_up_stream(stream)) {
            self.answers.put(TargetMsg::StreamEnded { stream, blocks });
        }
    }
}

fn digest(path: &RelPath) -> [u8; 16] {
    let mut digest = [0; 16];
    digest.copy_from_slice(&blake3::hash(path.as_bytes()).as_bytes()[..16]);
    digest
}
