// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guarantees of pieces after a power loss: the blocks that a piece reports exist, and a piece that
//! was kept is not lost.

use super::*;
use crate::{
    entry::{self, Entry, Kind},
    metadata::{Metadata, Time},
    part::{PartError, remove_leftovers},
    path::{PIECE_DATA, RelPath, internal_name},
    piece::held_blocks_with_len,
};

impl Source {
    fn entry(&self, version: usize) -> Entry {
        let modified = Time {
            seconds: version as i64,
            nanos: 0,
        };
        let version = entry::Version {
            size: self.versions[version].len() as u64,
            modified,
            changed: Time::default(),
            inode: 0,
            device: 0,
        };
        Entry {
            path: RelPath::parse(&self.name).unwrap(),
            kind: Kind::File {
                version,
                sparse: true,
            },
            metadata: Metadata::default(),
        }
    }

    fn held(&self, version: usize) -> Result<Option<BTreeSet<u64>>, PartError> {
        let held = held_blocks_with_len(&self.dir, &self.entry(version), BLOCK)?;
        Ok(held.map(|held| held.into_iter().flatten().collect()))
    }

    /// Checks, for every version, that the reported blocks exist. Returns their number.
    pub(super) fn check_held(&self) -> Result<u64, PartError> {
        let mut count = 0;
        for version in 0..self.versions.len() {
            let held = self.held(version)?;
            if let Some(kept) = self
                .promised_piece
                .as_ref()
                .filter(|_| version == self.version)
            {
                let held = held.as_ref().expect("a piece that was kept");
                assert!(held.is_superset(kept), "a promised block is lost");
            }
            count += self.check_bytes(version, &held.unwrap_or_default());
        }
        Ok(count)
    }

    fn check_bytes(&self, version: usize, held: &BTreeSet<u64>) -> u64 {
        let [kept, part] =
            [PIECE_DATA, "part"].map(|kind| self.dir.bytes(&internal_name(&self.name, kind)));
        let part = kept.or(part);
        let (part, content) = (part.unwrap_or_default(), &self.versions[version]);
        let blocks = Blocks::with_block_len(content.len() as u64, BLOCK);
        for index in held {
            let range = blocks.range(*index).unwrap();
            let range = range.start as usize..range.end as usize;
            assert_eq!(part[range.clone()], content[range], "held, but not there");
        }
        held.len() as u64
    }

    fn has(&self, kind: &str) -> bool {
        self.dir.bytes(&internal_name(&self.name, kind)).is_some()
    }
}

impl Simulation {
    pub(super) fn keep(&mut self, at: usize) -> Step {
        let source = &mut self.sources[at];
        let entry = source.entry(source.version);
        let Some(part) = source.part.take() else {
            return Ok(());
        };
        let durable = part.durable().into_iter().map(|(index, _)| index);
        let durable = durable.collect();
        self.fail_only_by_power_loss(part.keep_as_piece(&entry))?;
        self.sources[at].promised_piece = Some(durable);
        self.counts.kept_pieces += 1;
        Ok(())
    }

    /// Discards an unfinished part, or what an earlier process left of it, and all that was
    /// promised about it.
    pub(super) fn discard(&mut self, at: usize) -> Step {
        let source = &mut self.sources[at];
        if source.finished {
            return Ok(());
        }
        source.slices.clear();
        source.promised_blocks.clear();
        source.promised_piece = None;
        let discarded = match source.part.take() {
            Some(part) => part.discard(),
            None => remove_leftovers(&source.dir, &source.name),
        };
        self.fail_only_by_power_loss(discarded)
    }

    /// Keeps a file as a piece. The source then changes to its other version.
    pub(super) fn keep_some_of_another_version(&mut self) -> Step {
        self.open(0)?;
        self.write_all()?;
        self.commit(0)?;
        self.keep(0)?;
        self.change_version()
    }

    fn change_version(&mut self) -> Step {
        let source = &mut self.sources[0];
        source.promised_blocks.clear();
        (source.promised_piece, source.version) = (None, 1);
        Ok(())
    }

    /// Simulation whose first file has two versions of the same length.
    fn with_two_versions(seed: u64) -> Self {
        let mut simulation = Self::new(seed);
        let of = |byte| vec![byte; 3 * BLOCK as usize + 100];
        simulation.sources[0].versions = vec![of(1), of(2)];
        simulation
    }
}

/// Runs `action` on a file that is kept as a piece, with a power loss at each of its operations in
/// turn. After each restart, `check` examines the file.
fn at_each_operation(action: impl Fn(&mut Simulation) -> Step, check: impl Fn(&Source)) {
    let loses_power =
        |operations, seed: &u64| loses_power_during(*seed, operations, &action, &check);
    let count = |operations| {
        (0..150)
            .filter(|seed| loses_power(operations, seed))
            .count()
    };
    let whole = (1..100).find(|operations| count(*operations) == 0);
    assert!(whole.expect("an end") > 3, "nothing was cut");
}

/// Whether the power failed before the action was done.
fn loses_power_during(
    seed: u64,
    operations: u64,
    action: impl Fn(&mut Simulation) -> Step,
    check: impl Fn(&Source),
) -> bool {
    let mut simulation = Simulation::with_two_versions(seed);
    assert!(simulation.keep_a_piece().is_ok());
    simulation.disk.fail_after(operations);
    let done = action(&mut simulation);
    simulation.crash();
    simulation.disk.restore_power();
    check(&simulation.sources[0]);
    simulation.sources[0].promised_piece = None;
    assert!(simulation.open(0).is_ok(), "{operations}, {seed}");
    done.is_err()
}

impl Simulation {
    fn keep_a_piece(&mut self) -> Step {
        // `open` may pick slices at random. Only a whole part can be kept as a piece.
        while self.sources[0].part.is_none() {
            self.kill_process();
            self.open(0)?;
        }
        self.write_all()?;
        self.commit(0)?;
        self.keep(0)
    }
}

#[test]
fn piece_survives_power_loss_while_kept_again() {
    at_each_operation(Simulation::keep_a_piece, |source| {
        assert_eq!(source.check_held().unwrap(), 4);
    });
}

#[test]
fn piece_header_is_removed_last() {
    let remove = |simulation: &mut Simulation| {
        simulation.sources[0].promised_piece = None;
        simulation.sources[0].promised_blocks.clear();
        let source = &simulation.sources[0];
        let removed = remove_leftovers(&source.dir, &source.name);
        simulation.fail_only_by_power_loss(removed)
    };
    at_each_operation(remove, |source| {
        let rest = source.has(PIECE_DATA) || source.has("part") || source.has("journal");
        assert!(source.has("piece") || !rest, "the rest cannot be found");
    });
}

#[test]
fn completed_piece_is_the_file_or_still_a_piece() {
    let finish = |simulation: &mut Simulation| {
        simulation.open(0)?;
        simulation.finish(0)
    };
    at_each_operation(finish, |source| {
        let there = source.dir.bytes(&source.name).is_some();
        assert!(there || source.check_held().unwrap() == 4);
    });
}

#[test]
fn restarted_part_is_no_piece_until_kept() {
    let begin = |simulation: &mut Simulation| {
        simulation.change_version()?;
        simulation.open(0)
    };
    at_each_operation(begin, |source| {
        let piece_header = source.has("piece");
        let source_info = source.source_info(true);
        let opened = Part::open_with_block_len(&source.dir, &source.name, &source_info, BLOCK);
        let resumed = matches!(opened, Ok(OpenOutcome::Resumed(_)));
        assert!(
            !(resumed && piece_header),
            "a part beside the piece header of another"
        );
    });
}

#[test]
fn refuses_to_keep_a_broken_part() {
    let disk = SimulatedDisk::default();
    let mut source = Source::new(0, &disk.directory(), &mut SimRng(1));
    source.versions = vec![vec![1; BLOCK as usize]];
    let opened =
        Part::open_with_block_len(&source.dir, &source.name, &source.source_info(true), BLOCK);
    let Ok(OpenOutcome::Fresh(part)) = opened else {
        panic!("not fresh");
    };
    let bytes = source.block(0);
    let hash = source.blocks().hash(0, bytes).ok();
    assert!(part.write(0, bytes, hash).unwrap());
    disk.fail_after(1);
    assert!(part.commit().is_err());
    disk.restore_power();
    let refused = part.keep_as_piece(&source.entry(0));
    assert!(matches!(refused, Err(PartError::Broken { .. })));
    assert!(!source.has("piece"));
}
