// SPDX-License-Identifier: MIT OR Apache-2.0
//! What several hosts have together, before anything of it is copied: two things of one name that are not the same would
//! overwrite each other, and of a file in pieces one may be missing.
//!
//! Each host says what it has in the order of a scan, so that two of one name meet and nothing of it has to be kept but
//! pieces.

use crate::{
    copy::{
        progress::monitor::{CopyMonitor, SessionSink as _},
        session::{
            endpoint_process::{EndpointProcess, LOG_HINT},
            job::Job,
        },
    },
    protocol::{
        control::{Role, Task},
        entry::Kind,
        report::{FoundEntry, Report},
        spread::Share,
    },
};
use anyhow::{Result, bail};
use longhaul_command::exit::Refusal;
use longhaul_store::blocks::Blocks;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Range,
};

/// What one host says, and where it is in that.
struct HostScan {
    /// The host, as it was given.
    name: String,
    far: EndpointProcess,
    found: VecDeque<FoundEntry>,
    shares: Vec<Share>,
    finished: bool,
}

/// Where something is in the order of a scan: by source, then by the names on its way.
type SortKey = (u32, Vec<Vec<u8>>);

/// Pieces of one file, each with its host.
type Pieces = Vec<(usize, FoundEntry)>;

/// Looks at all hosts; how many files can't be whole, which is said of each. Refused where hosts have different things of one
/// name.
pub(super) fn scan_hosts(job: &Job<'_>, hearing: &CopyMonitor) -> Result<u64> {
    let hosts = 0..job.config.sources.first().map_or(0, Vec::len);
    let begin = |host| {
        let survey = HostScan::start(job, host);
        survey.map_err(|error| error.context(job.source_name(host)))
    };
    let mut surveys: Vec<HostScan> = hosts.map(begin).collect::<Result<_>>()?;
    let mut union = MergedScan::default();
    for host in 0..surveys.len() {
        union.advance(&mut surveys, host)?;
    }
    while let Some((key, host, found)) = union.next() {
        if let Some(other) = union.find_conflict(&key, host, &found) {
            return Err(Refusal::usage(format!(
                "{}: {} and {} have different things of this name: one is from before a change, and --apart target --delete from the source removes it",
                found.path,
                job.source_name(other),
                job.source_name(host),
            )));
        }
        union.last = Some((key, host, found));
        union.advance(&mut surveys, host)?;
    }
    let mut missing = 0;
    let all: Vec<&Share> = surveys.iter().flat_map(|survey| &survey.shares).collect();
    for why in missing_shares(&all) {
        hearing.print_note(&why);
        missing += 1;
    }
    for pieces in union.pieces.values() {
        if let Some(why) = piece_problem(pieces, |host| job.source_name(host)) {
            hearing.print_note(&why);
            missing += 1;
        }
    }
    Ok(missing)
}

impl HostScan {
    fn start(job: &Job<'_>, host: usize) -> Result<Self> {
        Ok(Self {
            name: job.source_name(host),
            far: job.start_alone(job.pair_of(host, host), Role::Source, Task::Scan)?,
            found: VecDeque::new(),
            shares: Vec::new(),
            finished: false,
        })
    }

    fn next(&mut self) -> Result<Option<FoundEntry>> {
        while self.found.is_empty() && !self.finished {
            let name = &self.name;
            match self.far.receive_report()? {
                Some(Report::Found(found)) => self.found.extend(found),
                Some(Report::Shares(shares)) => self.shares = shares,
                Some(Report::Finished(_)) => self.finished = true,
                Some(Report::Refused(why)) => {
                    return Err(Refusal::usage(format!("{name}: {why}")));
                }
                Some(Report::Broken(why)) => bail!("{name}: {why}"),
                Some(_) => {}
                None => bail!("{name}: the end of the copy there went away; {LOG_HINT}"),
            }
        }
        Ok(self.found.pop_front())
    }
}

/// Streams of what was found, as one.
#[derive(Default)]
struct MergedScan {
    /// The next thing of each host.
    next_entries: BTreeMap<(SortKey, usize), FoundEntry>,
    last: Option<(SortKey, usize, FoundEntry)>,
    pieces: BTreeMap<SortKey, Pieces>,
}

impl MergedScan {
    /// The next thing of a host becomes its head; pieces are set aside.
    fn advance(&mut self, surveys: &mut [HostScan], host: usize) -> Result<()> {
        while let Some(found) = surveys[host].next()? {
            let key = sort_key(&found);
            if found.piece_blocks.is_some() {
                self.pieces.entry(key).or_default().push((host, found));
                continue;
            }
            self.next_entries.insert((key, host), found);
            break;
        }
        Ok(())
    }

    fn next(&mut self) -> Option<(SortKey, usize, FoundEntry)> {
        let ((key, host), found) = self.next_entries.pop_first()?;
        Some((key, host, found))
    }

    /// Who has something else of this name, or a piece of something else.
    fn find_conflict(&self, key: &SortKey, host: usize, found: &FoundEntry) -> Option<usize> {
        let last = self.last.iter().filter(|(last, ..)| last == key);
        let last = last.map(|(_, host, found)| (*host, found));
        let pieces = self.pieces.get(key).into_iter().flatten();
        let pieces = pieces.map(|(host, found)| (*host, found));
        let mut others = last.chain(pieces).filter(|(other, _)| *other != host);
        let differing = others.find(|(_, other)| !is_same_entry(&other.kind, &found.kind));
        differing.map(|(host, _)| host)
    }
}

/// Files are the same if size and time are. What else there is of directories the last host says.
fn is_same_entry(one: &Kind, other: &Kind) -> bool {
    match (one, other) {
        (Kind::File { version: one, .. }, Kind::File { version: other, .. }) => {
            (one.size, one.modified) == (other.size, other.modified)
        }
        (one, other) => one == other,
    }
}

fn sort_key(found: &FoundEntry) -> SortKey {
    let names = found.path.components().map(<[u8]>::to_vec);
    (found.source, names.collect())
}

/// The shares of trees that were spread which none of the hosts has, in words. A tree that was spread more than once is there if all
/// shares of one of these times are.
fn missing_shares(all: &[&Share]) -> Vec<String> {
    let mut times: BTreeMap<_, BTreeMap<&[String], BTreeSet<u16>>> = BTreeMap::new();
    for share in all {
        let tree = times.entry((&share.origin, &share.top)).or_default();
        tree.entry(&share.hosts).or_default().insert(share.rank);
    }
    let said = times.into_values().filter_map(|spreads| {
        let lacks = |(hosts, ranks): &(&[String], BTreeSet<u16>)| {
            (0..).zip(hosts.iter()).filter(|(rank, _)| !ranks.contains(rank)).count()
        };
        let best = spreads.into_iter().min_by_key(lacks)?;
        let (hosts, ranks) = best;
        let numbered = (0..).zip(hosts);
        let missing = numbered.filter(move |(rank, _)| !ranks.contains(rank));
        Some(missing.map(move |(_, host)| {
            let count = hosts.len();
            format!("the share of {host} is missing: this was spread over {count} hosts, {}; name all that have it now", hosts.join(", "))
        }))
    });
    said.flatten().collect()
}

/// Why these pieces are no whole file.
fn piece_problem(pieces: &Pieces, name: impl Fn(usize) -> String) -> Option<String> {
    let (first_host, first) = pieces.first()?;
    let other = pieces
        .iter()
        .find(|(_, one)| !is_same_entry(&one.kind, &first.kind));
    if let Some((host, _)) = other {
        return Some(format!(
            "{}: the pieces on {} and {} are of different versions of it: copy it there again",
            first.path,
            name(*first_host),
            name(*host),
        ));
    }
    let Kind::File { version, .. } = first.kind else {
        return None;
    };
    let count = Blocks::of(version.size).count();
    let held = pieces
        .iter()
        .filter_map(|(_, found)| found.piece_blocks.as_ref());
    let there = count_covered_blocks(held.flatten().cloned().collect());
    (there < count).then(|| {
        format!(
            "{}: {} of its {count} blocks are on none of these hosts",
            first.path,
            count - there
        )
    })
}

/// How many blocks are in some of these runs.
fn count_covered_blocks(mut runs: Vec<Range<u64>>) -> u64 {
    runs.sort_unstable_by_key(|run| run.start);
    let mut end = 0;
    runs.iter().fold(0, |blocks, run| {
        let new = run.end.saturating_sub(run.start.max(end));
        end = end.max(run.end);
        blocks + new
    })
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::single_range_in_vec_init,
        reason = "a run of blocks is what is meant"
    )]
    use super::*;
    use crate::copy::fixtures::file;
    use longhaul_store::path::RelPath;

    fn found(path: &str, size: u64, held: Option<Vec<Range<u64>>>) -> FoundEntry {
        FoundEntry {
            source: 0,
            path: RelPath::parse(path.as_bytes()).unwrap(),
            kind: file(size).into(),
            piece_blocks: held,
        }
    }

    #[test]
    fn runs_are_counted_once() {
        assert_eq!(count_covered_blocks(vec![4..9, 0..2, 1..3, 5..6]), 8);
        assert_eq!(count_covered_blocks(Vec::new()), 0);
    }

    #[test]
    fn names_the_shares_that_no_host_has() {
        let share = |origin: u8, rank, hosts: &[&str]| Share {
            origin: [origin; 32],
            top: None,
            rank,
            hosts: hosts.iter().map(ToString::to_string).collect(),
        };
        let missing = |all: &[Share]| missing_shares(&all.iter().collect::<Vec<_>>());
        let (two, three) = (["b1", "b2"], ["b1", "b2", "b3"]);
        assert_eq!(missing(&[]), [""; 0]);
        let said = missing(&[share(1, 0, &three), share(1, 2, &three)]);
        assert_eq!(said.len(), 1);
        assert!(
            said[0].starts_with("the share of b2 is missing"),
            "{said:?}"
        );
        assert_eq!(missing(&[share(1, 0, &two), share(1, 1, &two)]), [""; 0]);
        // Spread again over fewer: what the third one has is of before.
        let again = [share(1, 0, &two), share(1, 1, &two), share(1, 2, &three)];
        assert_eq!(missing(&again), [""; 0]);
        let others = [share(1, 0, &two), share(2, 1, &two)];
        assert_eq!(missing(&others).len(), 2);
        // What a host says may be nonsense.
        assert_eq!(missing(&[share(1, 9, &two)]).len(), 2);
    }

    #[test]
    fn what_is_missing_of_pieces_is_said() {
        let size = 10 * longhaul_store::blocks::BLOCK;
        let name = |host: usize| format!("a{host}");
        let piece = |host, size, held: Range<u64>| (host, found("f", size, Some(vec![held])));
        let wrong = |pieces: Pieces| piece_problem(&pieces, name);
        assert_eq!(
            wrong(vec![piece(0, size, 0..6), piece(1, size, 6..10)]),
            None
        );
        let few = wrong(vec![piece(0, size, 0..6), piece(1, size, 5..8)]).unwrap();
        assert!(few.contains("2 of its 10 blocks"), "{few}");
        let other = wrong(vec![piece(0, size, 0..6), piece(1, size + 1, 6..10)]).unwrap();
        assert!(other.contains("a0 and a1"), "{other}");
    }

    /// As a scan goes: into a directory before what comes after it by name.
    #[test]
    fn files_are_in_the_order_of_a_scan() {
        let scanned = ["a/b", "a/c/d", "a-b", "b"];
        let keys: Vec<SortKey> = scanned.map(|path| sort_key(&found(path, 1, None))).into();
        assert!(keys.is_sorted());
    }

    #[test]
    fn files_of_one_name_are_the_same_or_not() {
        let mut union = MergedScan::default();
        let (file, larger) = (found("f", 1, None), found("f", 2, None));
        union.last = Some((sort_key(&file), 0, file.clone()));
        assert_eq!(union.find_conflict(&sort_key(&file), 1, &file), None);
        assert_eq!(union.find_conflict(&sort_key(&file), 1, &larger), Some(0));
        let link = FoundEntry {
            kind: Kind::Fifo,
            ..file.clone()
        };
        assert_eq!(union.find_conflict(&sort_key(&file), 1, &link), Some(0));
        union.last = None;
        let piece = found("f", 2, Some(vec![0..1]));
        union.pieces.insert(sort_key(&piece), vec![(2, piece)]);
        assert_eq!(union.find_conflict(&sort_key(&file), 1, &file), Some(2));
        assert_eq!(union.find_conflict(&sort_key(&larger), 1, &larger), None);
    }
}
