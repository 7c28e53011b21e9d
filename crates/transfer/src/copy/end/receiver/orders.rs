// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that hears what the source has, makes what needs no data, and asks for the rest.

use super::{
    block_set::of_pieces,
    large::{made, said},
    state::State,
    target::Target,
};
use crate::{
    copy::end::limits as attributes,
    protocol::{
        message::{self, Answer, Order, Outcome, Share},
        order::{Pass, Task},
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

/// Bytes of all directories' attributes, at most: 256 of each of four million.
const OF_DIRECTORIES_MAX: u64 = 1 << 30;

const CONTENTS_FOR_ONE: &str =
    "the source copies what is in a directory, where one thing was to get a name";

/// Devices and fifos that are not taken and whose further names are known: 32 MB. Those of others are said to fail.
const UNTAKEN_MAX: usize = 1 << 20;

/// What this thread keeps for the end.
struct Site<'a> {
    placer: Placer<'a>,
    extras: Extras<'a>,
    filter: &'a Filter,
    /// Hard links: the file must be there first.
    links: Vec<(u64, Entry)>,
    unread: u64,
    /// Devices and fifos that are not wanted, with their further names; and digests of their first names.
    not_taken: u64,
    untaken: HashSet<[u8; 16]>,
    /// Bytes of the attributes that directories get at the end.
    of_directories: u64,
    /// Whether there is anything that is no file's data: directories, links, metadata. What is as it should be was
    /// made a moment ago perhaps, by another copy or one that was killed.
    to_sync: bool,
    /// What was said of metadata that this user may not set.
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
        let mut gauge = self.tally.gauges.of_thread(Stage::Resting, None);
        loop {
            gauge.begin(Stage::Resting);
            let order = message::read::<Order>(&mut from)?;
            gauge.begin(Stage::Looking);
            let order = order.context("the source went away")?;
            match self.hear_of_data(order) {
                None => {}
                Some(Order::Entry {
                    number,
                    entry,
                    share,
                }) => self.hear_of(&mut site, number, entry.into(), share)?,
                // What is around the place of a thing that gets a name here is none of a source's affairs.
                Some(Order::Top(_)) if self.renamed.is_some() => {
                    return Err(Refusal::usage(CONTENTS_FOR_ONE));
                }
                Some(Order::Top(metadata)) => {
                    let mut metadata = metadata.into();
                    self.preserve.reduce_metadata(&mut metadata, true);
                    site.placer.top(metadata);
                    // In a directory that is not there, nothing is too much.
                    if self.imagined.is_none() {
                        site.extras.top();
                    }
                }
                Some(Order::Spared(path)) => site.extras.spare(&self.here(path)?),
                Some(Order::Unread) => site.unread += 1,
                Some(Order::ScanEnded) => break,
                Some(_) => bail!("an order out of order"),
            }
        }
        drop(gauge);
        self.complete(site, from)
    }

    /// What `--exclude` spares here, too.
    fn filter(&self, from: &mut Connection) -> Result<Filter> {
        let Some(Order::Tops(tops)) = message::read(from)? else {
            bail!("the source does not say what it copies");
        };
        if self.renamed.is_some() && tops.len() != 1 {
            return Err(Refusal::usage(CONTENTS_FOR_ONE));
        }
        let here = tops.into_iter().map(|top| self.here(top));
        let tops: Vec<RelPath> = here.collect::<Result<_>>()?;
        Ok(self.options.filter()?.with_tops(tops.iter()))
    }

    /// What is said of data under way; anything else comes back.
    fn hear_of_data(&self, order: Order) -> Option<Order> {
        match order {
            Order::Sealed { file, hash } => self.shared.change(|state| {
                if let Some(large) = state.large.get(&file) {
                    large.seal(hash);
                }
            }),
            Order::Hashed { file, hash } => self.hear_hash(file, hash),
            Order::Again {
                old,
                number,
                entry,
                share,
            } => self.hear_again(old, number, entry.into(), share),
            Order::Withdrawn { file } => self.withdraw(file),
            Order::Gone { stream } => self.give_up_stream(stream),
            Order::Streams(count) => self.opener.want(count.into()),
            other => return Some(other),
        }
        None
    }

    /// All was announced; what is still to come are blocks and what is said of them.
    fn complete(&self, mut site: Site<'_>, mut from: Connection) -> Result<()> {
        let listening = self.clone();
        threads::begin(move || {
            while let Ok(Some(order)) = message::read::<Order>(&mut from)
                && listening.hear_of_data(order).is_none()
            {}
            listening.shared.change(|state| state.source_gone = true);
        })?;
        self.shared
            .wait_until(|state| state.only_links_are_left() || state.source_gone);
        if !self.shared.look(State::only_links_are_left) {
            bail!("the source went away");
        }
        for (number, entry) in std::mem::take(&mut site.links) {
            self.place(&mut site, number, entry, Share::Whole);
        }
        let failed = self.tally.now().failed;
        let removed = match self.options.delete {
            true => self.remove_extras(site.extras, site.filter, site.unread),
            false => 0,
        };
        // Others put things into them, too; the conversation after all extents puts them right.
        let directories = match self.task {
            Task::Extents | Task::Gather(Pass::Data) => Vec::new(),
            _ => site.placer.finish(),
        };
        self.tally.add(|now| now.removed += removed);
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
            self.reporter.problem(format!(
                "{what} (--no-devices, --no-special; the default for a source at a site)"
            ));
        }
        let failed = self.tally.now().failed - failed;
        // Streams that end after that are not to be opened again.
        self.opener.end();
        self.answers.put(Answer::Over { removed, failed });
        // It has heard that, and went.
        self.shared.wait_until(|state| state.source_gone);
        Ok(())
    }

    /// The names of directories, links and removals, too, survive a power loss. What others left to be written there is
    /// waited for, too: files alone, which are durable already, don't need it.
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
        share: Share,
    ) -> Result<()> {
        entry.path = self.here(entry.path)?;
        entry.kind = of_pieces(entry.kind, &share);
        self.preserve.reduce(&mut entry);
        if let Kind::HardLink { to } = &mut entry.kind {
            *to = self.here(to.clone())?;
            entry.metadata = Metadata::default();
        }
        if entry.kind == Kind::Directory {
            site.of_directories += attributes::bytes(&entry.metadata);
        }
        self.tally.add(|now| now.entries += 1);
        let taken = self.takes(site, &entry);
        let link = taken && matches!(entry.kind, Kind::HardLink { .. });
        let too_much = self.shared.note(|state| {
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
                self.settle(number, &entry.path, Outcome::NotTaken);
            }
            Kind::HardLink { .. } => site.links.push((number, entry)),
            _ => self.place(site, number, entry, share),
        }
        Ok(())
    }

    /// Whether this is of a kind that is made here, and no further name of something that is not.
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

    /// A file that was wanted already; it goes on under another number.
    fn hear_again(&self, old: u64, number: u64, mut entry: Entry, share: Share) {
        // First: nothing must look finished between the two.
        self.shared.change(|state| {
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

    /// A path as it is called here.
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

    fn place(&self, site: &mut Site<'_>, number: u64, entry: Entry, share: Share) {
        let named = self.is_named(&entry);
        if named && self.root.stat(&entry.path).is_err() {
            // If this fails, it is made below without a note, and noted then.
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
                    // Maybe: its metadata may be put right.
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

    /// What this user may not set is the same for thousands of files.
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
                self.reporter.problem(why.to_owned());
            }
        }
    }

    /// What belongs to another is the same for thousands of files, too.
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
            self.reporter.problem(why.to_owned());
        }
        (placed, left_out)
    }

    /// Whether it is a directory that the copy as a whole is called by.
    fn is_named(&self, entry: &Entry) -> bool {
        let whole = self.renamed.as_ref() == Some(&entry.path);
        whole && entry.kind == Kind::Directory && !self.options.dry_run
    }

    /// So that the same command means the same directory again.
    fn note_origin(&self, path: &RelPath) {
        if let Err(error) = origin::note(&self.root, path, &self.options.origin) {
            self.reporter.problem(format!(
                "{path}: {error}; the same command again would copy into it"
            ));
        }
    }

    fn give_up_stream(&self, stream: u64) {
        if let Some(blocks) = self.shared.change(|state| state.give_up_stream(stream)) {
            self.answers.put(Answer::Ended { stream, blocks });
        }
    }
}

fn digest(path: &RelPath) -> [u8; 16] {
    let mut digest = [0; 16];
    digest.copy_from_slice(&blake3::hash(path.as_bytes()).as_bytes()[..16]);
    digest
}
