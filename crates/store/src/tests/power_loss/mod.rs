// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests the guarantees of this crate on a disk that loses power at any moment (see
//! [`crate::vfs::simulated`]). State reported as durable survives. Nothing is trusted that is
//! not on the disk bit by bit. A final name only ever refers to a complete file.

use crate::{
    blocks::{Blocks, FileHash, tests::hash_of},
    escape::Escaped,
    manifest::{FileRecord, Manifest},
    part::{OpenOutcome, Part, SourceInfo, journal::Version},
    small::{self, SmallFile},
    vfs::{
        Directory,
        simulated::{SimRng, SimulatedDir, SimulatedDisk, SimulatedFile},
    },
};
use std::{collections::BTreeSet, fmt::Debug};

mod piece_guarantees;

const BLOCK: u64 = 1024;
const CASES: u64 = 800;
const STEPS: usize = 250;
const SLICES_OPENED_MAX: usize = 3;
/// States of a source. A source may return to an earlier one, like a file system with snapshots.
const VERSIONS_MAX: usize = 4;

/// The power failed during an operation.
struct PowerLoss;

type Step<T = ()> = Result<T, PowerLoss>;

/// File of the source, and the guarantees given for its copy.
struct Source {
    name: Vec<u8>,
    dir: SimulatedDir,
    /// Contents that the source had. The final name may still have any of them.
    versions: Vec<Vec<u8>>,
    version: usize,
    /// Metadata tag that the copy was last given.
    tag: u64,
    part: Option<Part<SimulatedDir>>,
    /// Slices that write the file instead. They may overlap.
    slices: Vec<Part<SimulatedDir>>,
    /// Blocks that were reported as durable.
    promised_blocks: BTreeSet<u64>,
    /// Blocks that the part had when it was kept as a piece.
    promised_piece: Option<BTreeSet<u64>>,
    /// The manifest has the file.
    finished: bool,
}

struct Simulation {
    disk: SimulatedDisk,
    rng: SimRng,
    root: SimulatedDir,
    other_dir: SimulatedDir,
    manifest: Option<Manifest<SimulatedDir>>,
    sources: Vec<Source>,
    counts: Counts,
}

/// Counts events, so that a test that tests nothing is noticed.
#[derive(Debug, Default)]
struct Counts {
    crashes: u64,
    kept_blocks: u64,
    kept_by_slices: u64,
    completed_by_journal: u64,
    finished: u64,
    kept_pieces: u64,
    held_blocks: u64,
    small: u64,
    compacted: u64,
}

/// Random bytes of a file, with holes; often at most one block.
fn content(rng: &mut SimRng) -> Vec<u8> {
    let max = [BLOCK, 6 * BLOCK, 16 * BLOCK][rng.below(3)];
    let len = rng.below(max as usize + 1);
    let mut bytes: Vec<u8> = (0..len).map(|_| rng.next() as u8).collect();
    for block in bytes.chunks_mut(BLOCK as usize) {
        if rng.chance(20) {
            block.fill(0);
        }
    }
    bytes
}

fn hash(content: &[u8]) -> FileHash {
    FileHash(*blake3::hash(content).as_bytes())
}

impl Source {
    fn new(number: usize, dir: &SimulatedDir, rng: &mut SimRng) -> Self {
        Self {
            name: format!("file {number}").into_bytes(),
            dir: dir.clone(),
            versions: vec![content(rng)],
            version: 0,
            tag: 0,
            part: None,
            slices: Vec::new(),
            promised_blocks: BTreeSet::new(),
            promised_piece: None,
            finished: false,
        }
    }

    fn content(&self) -> &Vec<u8> {
        &self.versions[self.version]
    }

    fn source_info(&self, sparse: bool) -> SourceInfo {
        let size = self.content().len() as u64;
        let mtime = (self.version as i64, 0);
        SourceInfo {
            version: Version {
                size,
                mtime,
                ..Version::default()
            },
            length: size,
            sparse,
        }
    }

    fn blocks(&self) -> Blocks {
        Blocks::with_block_len(self.content().len() as u64, BLOCK)
    }

    fn hash(&self) -> FileHash {
        hash_of(self.blocks(), self.content())
    }

    fn block(&self, index: u64) -> &[u8] {
        let range = self.blocks().range(index).unwrap();
        &self.content()[range.start as usize..range.end as usize]
    }

    /// Checks that the bytes under the final name are those of a version, and of the last one if
    /// that was promised.
    fn check_final(&self, manifest: &Manifest<SimulatedDir>) {
        let copy = self.dir.bytes(&self.name);
        if self.finished {
            assert_eq!(copy.as_ref(), Some(self.content()), "a finished file");
            assert_eq!(self.dir.tag(&self.name), Some(self.tag), "metadata");
            let record = manifest.lookup(&self.name).map(|record| record.hash);
            assert_eq!(record, Some(self.hash()), "the manifest");
        } else if let Some(copy) = copy {
            let whole = self.versions.contains(&copy);
            assert!(whole, "{} is half a file", Escaped(&self.name));
        }
    }

    /// Checks that trusted blocks are correct on the disk, and include all promised ones.
    fn check_durable(&mut self, part: &Part<SimulatedDir>, internal: &[u8]) -> u64 {
        let bytes = self.dir.bytes(internal).unwrap();
        let durable = part.durable();
        for (index, hash) in &durable {
            let range = self.blocks().range(*index).unwrap();
            let kept = &bytes[range.start as usize..range.end as usize];
            assert_eq!(kept, self.block(*index), "trusted, but not on the disk");
            assert_eq!(self.blocks().hash(*index, kept), Ok(*hash));
        }
        let durable: BTreeSet<u64> = durable.into_iter().map(|(index, _)| index).collect();
        let range = part.block_range();
        let promised = self.promised_blocks.range(range).copied().collect();
        assert!(durable.is_superset(&promised), "a promised block is lost");
        let count = durable.len() as u64;
        self.promised_blocks.extend(durable);
        count
    }
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let (disk, mut rng) = (SimulatedDisk::default(), SimRng(seed));
        let (root, below) = (disk.directory(), disk.directory());
        let sources = [&root, &below, &below].into_iter().enumerate();
        let sources = sources.map(|(at, dir)| Source::new(at, dir, &mut rng));
        Self {
            sources: sources.collect(),
            other_dir: disk.directory(),
            disk,
            rng,
            root,
            manifest: None,
            counts: Counts::default(),
        }
    }

    /// Fails the test on any error but a loss of power.
    fn fail_only_by_power_loss<T, E: Debug>(&self, done: Result<T, E>) -> Step<T> {
        match done {
            Ok(value) => Ok(value),
            Err(error) => {
                assert!(self.disk.is_powered_off(), "{error:?}");
                Err(PowerLoss)
            }
        }
    }

    fn run(&mut self) {
        self.schedule_power_loss();
        for _ in 0..STEPS {
            match self.step() {
                Ok(()) => {}
                Err(PowerLoss) if self.rng.chance(30) => self.kill_during_operation(),
                Err(PowerLoss) => self.crash(),
            }
        }
    }

    fn schedule_power_loss(&mut self) {
        let operations = 1 + self.rng.below(40) as u64;
        self.disk.fail_after(operations);
    }

    fn step(&mut self) -> Step {
        let at = self.rng.below(self.sources.len());
        self.open(at)?;
        if self.sources[at].finished && self.rng.chance(40) {
            return self.change(at);
        }
        match self.rng.below(22) {
            0..9 => self.write(at),
            9..13 => self.commit(at),
            13..16 => self.finish(at),
            16..18 => self.change(at),
            18 => self.compact(),
            19 => self.keep(at),
            20 => self.discard(at),
            _ => {
                self.kill_process();
                Ok(())
            }
        }
    }

    /// Opens a file and the manifest unless they are open, and checks the guarantees.
    fn open(&mut self, at: usize) -> Step {
        if self.manifest.is_none() {
            self.manifest = Some(self.fail_only_by_power_loss(Manifest::load(&self.root))?);
        }
        let sparse = self.rng.chance(50);
        let manifest = self.manifest.as_ref().unwrap();
        self.sources[at].check_final(manifest);
        let source = &self.sources[at];
        if source.part.is_some() || !source.slices.is_empty() || source.finished {
            return Ok(());
        }
        let held = self.sources[at].check_held();
        self.counts.held_blocks += self.fail_only_by_power_loss(held)?;
        if self.rng.chance(30) {
            return self.open_slices(at, sparse);
        }
        if self.sources[at].blocks().count() <= 1 && self.rng.chance(50) {
            return self.small(at);
        }
        let source = &self.sources[at];
        let source_info = source.source_info(sparse);
        let opened = Part::open_with_block_len(&source.dir, &source.name, &source_info, BLOCK);
        let opened = self.fail_only_by_power_loss(opened)?;
        self.record_outcome(at, opened)
    }

    /// Opens some slices, of any length.
    fn open_slices(&mut self, at: usize, sparse: bool) -> Step {
        for _ in 0..=self.rng.below(SLICES_OPENED_MAX) {
            let source = &self.sources[at];
            let count = source.blocks().count();
            let first = self.rng.below(count as usize + 1) as u64;
            let range = first..count.min(first + 1 + self.rng.below(8) as u64);
            let source_info = source.source_info(sparse);
            let opened = Part::open_slice_with_block_len(
                &source.dir,
                &source.name,
                &source_info,
                &[range],
                BLOCK,
            );
            match self.fail_only_by_power_loss(opened)? {
                OpenOutcome::Resumed(slice) => {
                    let internal = slice.internal_name().to_vec();
                    let source = &mut self.sources[at];
                    self.counts.kept_by_slices += source.check_durable(&slice, &internal);
                    source.slices.push(slice);
                }
                opened => return self.record_outcome(at, opened),
            }
        }
        Ok(())
    }

    fn record_outcome(&mut self, at: usize, opened: OpenOutcome<SimulatedDir>) -> Step {
        match opened {
            OpenOutcome::Busy => panic!("no other writer exists"),
            OpenOutcome::Fresh(part) => {
                assert_eq!(
                    self.sources[at].promised_blocks,
                    BTreeSet::new(),
                    "all is lost"
                );
                assert_eq!(self.sources[at].promised_piece, None, "a piece is lost");
                self.sources[at].part = Some(part);
            }
            OpenOutcome::Resumed(part) => {
                let internal = part.internal_name().to_vec();
                self.counts.kept_blocks += self.sources[at].check_durable(&part, &internal);
                self.sources[at].part = Some(part);
            }
            OpenOutcome::Renamed(renamed) => {
                self.counts.completed_by_journal += 1;
                let tag = self.new_tag(at);
                let finished = renamed.finish(|file| file.set_tag(tag));
                let finished = self.fail_only_by_power_loss(finished)?;
                self.record(at, finished.hash.unwrap())?;
                self.fail_only_by_power_loss(finished.remove_journal())?;
            }
        }
        Ok(())
    }

    fn write(&mut self, at: usize) -> Step {
        let any = self.rng.below(SLICES_OPENED_MAX);
        let source = &self.sources[at];
        let Some(part) = source.part.as_ref().or(source.slices.get(any)) else {
            return Ok(());
        };
        let missing: Vec<u64> = part.missing().into_iter().flatten().collect();
        if missing.is_empty() {
            return Ok(());
        }
        let index = missing[self.rng.below(missing.len())];
        let bytes = source.block(index);
        let zeros = bytes.iter().all(|byte| *byte == 0);
        let done = if zeros {
            part.write_hole(index)
        } else {
            part.write(index, bytes, source.blocks().hash(index, bytes).ok())
        };
        self.fail_only_by_power_loss(done).map(drop)
    }

    fn commit(&mut self, at: usize) -> Step {
        let any = self.rng.below(SLICES_OPENED_MAX);
        let source = &self.sources[at];
        let Some(part) = source.part.as_ref().or(source.slices.get(any)) else {
            return Ok(());
        };
        let durable = self.fail_only_by_power_loss(part.commit())?;
        self.sources[at].promised_blocks.extend(durable);
        Ok(())
    }

    fn finish(&mut self, at: usize) -> Step {
        // The file can be finished only when all slices are closed.
        self.sources[at].slices.clear();
        let source = &self.sources[at];
        let all = source.promised_blocks.len() as u64 == source.blocks().count();
        let Some(part) = self.sources[at].part.take_if(|_| all) else {
            return Ok(());
        };
        let expected = self.sources[at].hash();
        let tag = self.new_tag(at);
        self.sources[at].promised_piece = None;
        let finished = part.finish(Some(expected), |file| file.set_tag(tag));
        let finished = self.fail_only_by_power_loss(finished)?;
        self.record(at, finished.hash.unwrap())?;
        self.fail_only_by_power_loss(finished.remove_journal())
    }

    fn record(&mut self, at: usize, got: FileHash) -> Step {
        let source = &self.sources[at];
        assert_eq!(got, source.hash());
        let record = FileRecord {
            hash: got,
            size: source.content().len() as u64,
            mtime: (0, 0),
        };
        let name = source.name.clone();
        let manifest = self.manifest.as_mut().unwrap();
        let appended = manifest.append(&[(&name, record)]);
        self.fail_only_by_power_loss(appended)?;
        self.sources[at].finished = true;
        self.sources[at].promised_blocks.clear();
        self.sources[at].promised_piece = None;
        self.counts.finished += 1;
        Ok(())
    }

    fn new_tag(&mut self, at: usize) -> u64 {
        self.sources[at].tag = self.rng.next();
        self.sources[at].tag
    }

    /// Writes a file of one block without a journal, in a batch with files of the same and of other
    /// directories. Some batches are so large that the file system is synced.
    fn small(&mut self, at: usize) -> Step {
        self.sources[at].promised_blocks.clear();
        self.sources[at].promised_piece = None;
        let tag = self.new_tag(at);
        let source = &self.sources[at];
        let (dir, name, content) = (&source.dir, &source.name, source.content());
        let prepare = |file: &SimulatedFile| file.set_tag(tag);
        let small = SmallFile::write(dir, name, content, Some(hash(content)), false, prepare);
        let mut batch = vec![self.fail_only_by_power_loss(small)?];
        for other in 0..[0, 12][self.rng.below(2)] {
            let (dir, name) = (&self.other_dir, format!("{other}"));
            let bytes = hash(name.as_bytes()).0;
            let small = SmallFile::write(
                dir,
                name.as_bytes(),
                &bytes,
                Some(hash(&bytes)),
                false,
                |_| Ok(()),
            );
            batch.push(self.fail_only_by_power_loss(small)?);
        }
        let mut outcomes = small::commit(batch, |_| {}).into_iter();
        let got = self.fail_only_by_power_loss(outcomes.next().unwrap())?;
        outcomes.try_for_each(|outcome| self.fail_only_by_power_loss(outcome).map(drop))?;
        self.counts.small += 1;
        self.record(at, got.unwrap())
    }

    /// Kills the process; the disk keeps its state.
    fn kill_process(&mut self) {
        self.manifest = None;
        self.sources
            .iter_mut()
            .for_each(|source| (source.part, source.slices) = (None, Vec::new()));
    }

    /// Kills the process during an operation.
    fn kill_during_operation(&mut self) {
        self.kill_process();
        self.disk.restore_power();
        self.schedule_power_loss();
    }

    /// Makes the copy outdated: it is removed, or the source changes, or it is copied again without
    /// a reason.
    fn change(&mut self, at: usize) -> Step {
        let rng = &mut self.rng;
        let source = &mut self.sources[at];
        (source.part, source.slices, source.finished) = (None, Vec::new(), false);
        if rng.chance(50) {
            if source.versions.len() < VERSIONS_MAX {
                source.versions.push(content(rng));
            }
            let version = rng.below(source.versions.len());
            if version != std::mem::replace(&mut source.version, version) {
                source.promised_blocks.clear();
                source.promised_piece = None;
            }
        }
        if rng.chance(50) {
            let removed = source.dir.remove(&source.name);
            self.fail_only_by_power_loss(removed)?;
        }
        if self.rng.chance(50) {
            return self.begin_and_fail_soon(at);
        }
        Ok(())
    }

    /// Begins the next copy, which will fail soon.
    fn begin_and_fail_soon(&mut self, at: usize) -> Step {
        let operations = 1 + self.rng.below(10) as u64;
        self.disk.fail_after(operations);
        self.open(at)
    }

    fn compact(&mut self) -> Step {
        let manifest = self.manifest.as_mut().unwrap();
        let compacted = manifest.compact_from(0);
        self.counts.compacted += u64::from(self.fail_only_by_power_loss(compacted)?);
        Ok(())
    }

    fn crash(&mut self) {
        self.counts.crashes += 1;
        self.kill_process();
        self.disk.crash(&mut self.rng);
        let manifest = Manifest::load(&self.root).unwrap();
        for source in &self.sources {
            source.check_final(&manifest);
            self.counts.held_blocks += source.check_held().unwrap();
        }
        self.schedule_power_loss();
    }
}

#[test]
fn durable_state_survives_power_losses() {
    let mut total = Counts::default();
    for seed in 0..CASES {
        let mut simulation = Simulation::new(seed);
        let run = std::panic::AssertUnwindSafe(|| simulation.run());
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("with seed {seed}");
            std::panic::resume_unwind(panic);
        }
        total.add(&simulation.counts);
    }
    println!("{total:?}");
    for (what, count) in [
        ("crashes", total.crashes),
        ("blocks kept", total.kept_blocks),
        ("blocks kept by slices", total.kept_by_slices),
        ("finished", total.finished),
        ("pieces", total.kept_pieces),
        ("blocks of pieces", total.held_blocks),
        ("small", total.small),
    ] {
        assert!(count > CASES, "{what}: {total:?}");
    }
    for (what, count) in [
        ("completed by the journal", total.completed_by_journal),
        ("compacted", total.compacted),
    ] {
        assert!(count > CASES / 10, "{what}: {total:?}");
    }
}

/// Random steps seldom do this: a file is begun again where there are leftovers, and the power
/// fails at each operation.
#[test]
fn ignores_leftovers_after_power_loss_during_restart() {
    for operations in 1..=16 {
        for seed in 0..150 {
            restart_with_power_loss(operations, seed, Simulation::copy);
            restart_with_power_loss(operations, seed, Simulation::copy_some_of_another_version);
            restart_with_power_loss(operations, seed, Simulation::keep_some_of_another_version);
        }
    }
}

fn restart_with_power_loss(operations: u64, seed: u64, setup: fn(&mut Simulation) -> Step) {
    let mut simulation = Simulation::new(seed);
    let mut content = vec![1; 3 * BLOCK as usize + 100];
    simulation.sources[0].versions = vec![content.clone()];
    content.fill(2);
    simulation.sources[0].versions.push(content);
    assert!(setup(&mut simulation).is_ok());
    simulation.disk.fail_after(operations);
    let _may_lose_power = simulation.open(0);
    simulation.crash();
    simulation.disk.restore_power();
    (
        simulation.sources[0].version,
        simulation.sources[0].finished,
    ) = (0, false);
    assert!(simulation.open(0).is_ok(), "{operations}, {seed}");
}

impl Simulation {
    /// Copies a file, which is then removed.
    fn copy(&mut self) -> Step {
        self.open(0)?;
        self.write_all()?;
        self.commit(0)?;
        self.finish(0)?;
        self.sources[0].finished = false;
        self.fail_only_by_power_loss(self.sources[0].dir.remove(&self.sources[0].name))
    }

    /// Copies a part of a file, whose source then changes, and later changes back.
    fn copy_some_of_another_version(&mut self) -> Step {
        self.open(0)?;
        self.write_all()?;
        self.commit(0)?;
        self.kill_process();
        self.sources[0].promised_blocks.clear();
        self.sources[0].version = 1;
        Ok(())
    }

    fn write_all(&mut self) -> Step {
        (0..4).try_for_each(|_| self.write(0))
    }
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.crashes += other.crashes;
        self.kept_blocks += other.kept_blocks;
        self.kept_by_slices += other.kept_by_slices;
        self.completed_by_journal += other.completed_by_journal;
        self.finished += other.finished;
        self.kept_pieces += other.kept_pieces;
        self.held_blocks += other.held_blocks;
        self.small += other.small;
        self.compacted += other.compacted;
    }
}
