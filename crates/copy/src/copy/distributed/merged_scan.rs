// SPDX-License-Identifier: MIT OR Apache-2.0
//! Merged scan of several source hosts, before anything is copied. It finds entries of the same name that differ, which
//! would overwrite each other, and files of which a piece is missing.
//!
//! Each host reports its entries in the order of a scan. Entries of the same name are therefore adjacent in the merged
//! order, and only pieces have to be stored.

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
        report::{FoundEntry, Report},
    },
};
use anyhow::{Result, bail};
use longhaul_command::exit::Refusal;
use longhaul_store::{blocks::Blocks, entry::Kind, tree::spread::TreeShare};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Range,
};

/// Scan of one host, read step by step.
struct HostScan {
    /// Name of the host, as the user gave it.
    name: String,
    process: EndpointProcess,
    found: VecDeque<FoundEntry>,
    shares: Vec<TreeShare>,
    finished: bool,
}

/// Position of an entry in the order of a scan: the source, then the components of the path.
type SortKey = (u32, Vec<Vec<u8>>);

/// Pieces of one file, each with the index of its host.
type Pieces = Vec<(usize, FoundEntry)>;

/// Scans all hosts, prints the files and shares that cannot be complete, and returns their number.
///
/// # Errors
///
/// Refuses the copy if hosts have different entries of the same name.
pub(super) fn scan_hosts(job: &Job<'_>, monitor: &CopyMonitor) -> Result<u64> {
    let hosts = 0..job.config.sources.first().map_or(0, Vec::len);
    let start = |host| {
        let scan = HostScan::start(job, host);
        scan.map_err(|error| error.context(job.source_name(host)))
    };
    let mut scans: Vec<HostScan> = hosts.map(start).collect::<Result<_>>()?;
    let mut merged = MergedScan::default();
    for host in 0..scans.len() {
        merged.advance(&mut scans, host)?;
    }
    while let Some((key, host, found)) = merged.next() {
        if let Some(other) = merged.find_conflict(&key, host, &found) {
            return Err(Refusal::usage(format!(
                "{}: {} and {} have different entries of this name: one is outdated, and --distributed target --delete from the source removes it",
                found.path,
                job.source_name(other),
                job.source_name(host),
            )));
        }
        merged.last = Some((key, host, found));
        merged.advance(&mut scans, host)?;
    }
    let mut missing = 0;
    let all: Vec<&TreeShare> = scans.iter().flat_map(|scan| &scan.shares).collect();
    for why in missing_shares(&all) {
        monitor.print_note(&why);
        missing += 1;
    }
    for pieces in merged.pieces.values() {
        if let Some(why) = piece_problem(pieces, |host| job.source_name(host)) {
            monitor.print_note(&why);
            missing += 1;
        }
    }
    Ok(missing)
}

impl HostScan {
    fn start(job: &Job<'_>, host: usize) -> Result<Self> {
        Ok(Self {
            name: job.source_name(host),
            process: job.start_alone(job.pair_of(host, host), Role::Source, Task::Scan)?,
            found: VecDeque::new(),
            shares: Vec::new(),
            finished: false,
        })
    }

    fn next(&mut self) -> Result<Option<FoundEntry>> {
        while self.found.is_empty() && !self.finished {
            let name = &self.name;
            match self.process.receive_report()? {
                Some(Report::Found(found)) => self.found.extend(found),
                Some(Report::Shares(shares)) => self.shares = shares,
                Some(Report::Finished(_)) => self.finished = true,
                Some(Report::Refused(why)) => {
                    return Err(Refusal::usage(format!("{name}: {why}")));
                }
                Some(Report::Broken(why)) => bail!("{name}: {why}"),
                Some(_) => {}
                None => bail!("{name}: the endpoint exited; {LOG_HINT}"),
            }
        }
        Ok(self.found.pop_front())
    }
}

/// Merged order of the scans of all hosts.
#[derive(Default)]
struct MergedScan {
    /// Next entry of each host.
    next_entries: BTreeMap<(SortKey, usize), FoundEntry>,
    last: Option<(SortKey, usize, FoundEntry)>,
    pieces: BTreeMap<SortKey, Pieces>,
}

impl MergedScan {
    /// Reads the next entry of a host, and collects pieces on the way.
    fn advance(&mut self, scans: &mut [HostScan], host: usize) -> Result<()> {
        while let Some(found) = scans[host].next()? {
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

    /// Returns the host that has a different entry of this name, or a piece of a different file.
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

/// Whether two entries are the same. Files are compared by size and modification time. For the metadata of directories,
/// the last host decides.
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

/// Describes the shares of distributed trees that no host has. A tree that was distributed several times is complete if
/// all shares of one distribution are present.
fn missing_shares(all: &[&TreeShare]) -> Vec<String> {
    let mut distributions: BTreeMap<_, BTreeMap<&[String], BTreeSet<u16>>> = BTreeMap::new();
    for share in all {
        let tree = distributions
            .entry((&share.origin, &share.top))
            .or_default();
        tree.entry(&share.hosts).or_default().insert(share.rank);
    }
    let messages = distributions.into_values().filter_map(|host_sets| {
        let lacks = |(hosts, ranks): &(&[String], BTreeSet<u16>)| {
            (0..).zip(hosts.iter()).filter(|(rank, _)| !ranks.contains(rank)).count()
        };
        let best = host_sets.into_iter().min_by_key(lacks)?;
        let (hosts, ranks) = best;
        let numbered = (0..).zip(hosts);
        let missing = numbered.filter(move |(rank, _)| !ranks.contains(rank));
        Some(missing.map(move |(_, host)| {
            let count = hosts.len();
            format!("the share of {host} is missing: this was distributed over {count} hosts, {}; name all that have it now", hosts.join(", "))
        }))
    });
    messages.flatten().collect()
}

/// Describes why these pieces do not form a whole file.
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
    let count = Blocks::new(version.size).count();
    let ranges_of_pieces = pieces
        .iter()
        .filter_map(|(_, found)| found.piece_blocks.as_ref());
    let present = count_covered_blocks(ranges_of_pieces.flatten().cloned().collect());
    (present < count).then(|| {
        format!(
            "{}: {} of its {count} blocks are on none of these hosts",
            first.path,
            count - present
        )
    })
}

/// Counts the blocks that are in at least one of the ranges.
fn count_covered_blocks(mut ranges: Vec<Range<u64>>) -> u64 {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut end = 0;
    ranges.iter().fold(0, |blocks, range| {
        let new = range.end.saturating_sub(range.start.max(end));
        end = end.max(range.end);
        blocks + new
    })
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::single_range_in_vec_init,
        reason = "a vector of one range of blocks is intended"
    )]
    use super::*;
    use crate::copy::fixtures::file;
    use longhaul_store::path::RelPath;

    fn found(path: &str, size: u64, ranges_of_pieces: Option<Vec<Range<u64>>>) -> FoundEntry {
        FoundEntry {
            source: 0,
            path: RelPath::parse(path.as_bytes()).unwrap(),
            kind: file(size),
            piece_blocks: ranges_of_pieces,
        }
    }

    #[test]
    fn counts_overlapping_ranges_once() {
        assert_eq!(count_covered_blocks(vec![4..9, 0..2, 1..3, 5..6]), 8);
        assert_eq!(count_covered_blocks(Vec::new()), 0);
    }

    #[test]
    fn names_the_shares_that_no_host_has() {
        let share = |origin: u8, rank, hosts: &[&str]| TreeShare {
            origin: [origin; 32],
            top: None,
            rank,
            hosts: hosts.iter().map(ToString::to_string).collect(),
        };
        let missing = |all: &[TreeShare]| missing_shares(&all.iter().collect::<Vec<_>>());
        let (two, three) = (["b1", "b2"], ["b1", "b2", "b3"]);
        assert_eq!(missing(&[]), [""; 0]);
        let messages = missing(&[share(1, 0, &three), share(1, 2, &three)]);
        assert_eq!(messages.len(), 1);
        assert!(
            messages[0].starts_with("the share of b2 is missing"),
            "{messages:?}"
        );
        assert_eq!(missing(&[share(1, 0, &two), share(1, 1, &two)]), [""; 0]);
        // Distributed again over fewer hosts: the third host has an old share.
        let redistributed = [share(1, 0, &two), share(1, 1, &two), share(1, 2, &three)];
        assert_eq!(missing(&redistributed), [""; 0]);
        let others = [share(1, 0, &two), share(2, 1, &two)];
        assert_eq!(missing(&others).len(), 2);
        // Hosts may report invalid shares.
        assert_eq!(missing(&[share(1, 9, &two)]).len(), 2);
    }

    #[test]
    fn names_missing_blocks_and_differing_versions() {
        let size = 10 * longhaul_store::blocks::BLOCK_LEN;
        let name = |host: usize| format!("a{host}");
        let piece = |host, size, ranges_of_pieces: Range<u64>| {
            (host, found("f", size, Some(vec![ranges_of_pieces])))
        };
        let problem = |pieces: Pieces| piece_problem(&pieces, name);
        assert_eq!(
            problem(vec![piece(0, size, 0..6), piece(1, size, 6..10)]),
            None
        );
        let few = problem(vec![piece(0, size, 0..6), piece(1, size, 5..8)]).unwrap();
        assert!(few.contains("2 of its 10 blocks"), "{few}");
        let other = problem(vec![piece(0, size, 0..6), piece(1, size + 1, 6..10)]).unwrap();
        assert!(other.contains("a0 and a1"), "{other}");
    }

    /// A scan enters a directory before it continues with the next name.
    #[test]
    fn keys_sort_in_the_order_of_a_scan() {
        let scanned = ["a/b", "a/c/d", "a-b", "b"];
        let keys: Vec<SortKey> = scanned.map(|path| sort_key(&found(path, 1, None))).into();
        assert!(keys.is_sorted());
    }

    #[test]
    fn finds_conflicting_entries_of_the_same_name() {
        let mut merged = MergedScan::default();
        let (file, larger) = (found("f", 1, None), found("f", 2, None));
        merged.last = Some((sort_key(&file), 0, file.clone()));
        assert_eq!(merged.find_conflict(&sort_key(&file), 1, &file), None);
        assert_eq!(merged.find_conflict(&sort_key(&file), 1, &larger), Some(0));
        let link = FoundEntry {
            kind: Kind::Fifo,
            ..file.clone()
        };
        assert_eq!(merged.find_conflict(&sort_key(&file), 1, &link), Some(0));
        merged.last = None;
        let piece = found("f", 2, Some(vec![0..1]));
        merged.pieces.insert(sort_key(&piece), vec![(2, piece)]);
        assert_eq!(merged.find_conflict(&sort_key(&file), 1, &file), Some(2));
        assert_eq!(merged.find_conflict(&sort_key(&larger), 1, &larger), None);
    }
}
