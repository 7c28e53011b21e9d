// SPDX-License-Identifier: MIT OR Apache-2.0
//! Worker pool of an analysis. It keeps all cores busy whether a capture has one flow or a million.
//!
//! A *batch* is read by one thread at a time, in order. The thread that read it also *partitions* it, while
//! another thread may read the next. A *shard* processes the batches in order, one thread at a time. After all
//! shards have processed a batch, it is *collected*, again in order. A free thread takes any task that is
//! possible. A shard's input and the order of collecting never depend on the number or speed of the threads,
//! so the result does not, either.

use anyhow::Result;
use std::sync::{
    Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

/// Maximum number of batches in memory: the read-ahead of the slowest shard.
pub(super) const BATCH_SLOTS: usize = 12;
/// Number of shards. Constant, because each has its share of the memory.
pub(super) const SHARDS: usize = 16;
/// With fewer batches in memory than this, reading comes first, so that no thread runs out of work.
const READ_AHEAD_MIN: u64 = 3;

/// Stages of the pipeline that the pool runs.
pub(super) trait Pipeline: Sync {
    /// State of the reading stage.
    type Reader: Send;
    /// Batch of input; its memory is recycled.
    type Batch: Send + Sync;
    /// State of one shard.
    type Shard: Send;
    /// State of the collecting stage.
    type Collector: Send;

    /// Fills a batch. Returns false at the end of the input.
    ///
    /// # Errors
    /// The input cannot be read.
    fn read(&self, reader: &mut Self::Reader, batch: &mut Self::Batch) -> Result<bool>;
    /// Partitions a batch among the shards. Returns a bit mask of the shards that have items in it.
    fn partition(&self, batch: &mut Self::Batch) -> u32;
    /// Processes a shard's part of a batch.
    fn process(&self, number: usize, shard: &mut Self::Shard, batch: &Self::Batch);
    /// Collects the output of all shards for a batch.
    ///
    /// # Errors
    /// The output cannot be written.
    fn collect(&self, collector: &mut Self::Collector, batch: &Self::Batch) -> Result<()>;
}

/// Final states of the stages.
pub(super) type FinalStates<W> = (
    <W as Pipeline>::Reader,
    <W as Pipeline>::Collector,
    Vec<<W as Pipeline>::Shard>,
);

/// State that the threads share. A thread never waits for the locks around reader, batches and shards: the
/// schedule gives each to one thread at a time.
pub(super) struct WorkerPool<'a, W: Pipeline> {
    pipeline: &'a W,
    reader: Mutex<W::Reader>,
    batches: [RwLock<W::Batch>; BATCH_SLOTS],
    shards: [Mutex<W::Shard>; SHARDS],
    collector: Mutex<W::Collector>,
    schedule: Mutex<Schedule>,
    changed: Condvar,
}

impl<'a, W: Pipeline> WorkerPool<'a, W> {
    /// Creates a pool that has read nothing yet.
    pub(super) fn new(
        pipeline: &'a W,
        reader: W::Reader,
        collector: W::Collector,
        mut batch: impl FnMut() -> W::Batch,
        mut shard: impl FnMut() -> W::Shard,
    ) -> Self {
        Self {
            pipeline,
            reader: Mutex::new(reader),
            batches: std::array::from_fn(|_| RwLock::new(batch())),
            shards: std::array::from_fn(|_| Mutex::new(shard())),
            collector: Mutex::new(collector),
            schedule: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Reads all input, processes it in every shard and collects the output, on `threads` threads.
    ///
    /// # Errors
    /// The error of [`Pipeline::read`] or [`Pipeline::collect`].
    pub(super) fn run(self, threads: usize) -> Result<FinalStates<W>> {
        let result = std::thread::scope(|scope| {
            let other_threads = (1..threads).map(|_| scope.spawn(|| self.run_worker()));
            let other_threads: Vec<_> = other_threads.collect();
            let own_result = self.run_worker();
            let join = |thread: std::thread::ScopedJoinHandle<'_, Result<()>>| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            other_threads
                .into_iter()
                .map(join)
                .fold(own_result, Result::and)
        });
        result?;
        let shards = self.shards.into_iter().map(into_inner).collect();
        Ok((into_inner(self.reader), into_inner(self.collector), shards))
    }

    fn run_worker(&self) -> Result<()> {
        let _guard = PanicGuard(self);
        let mut last = 0;
        loop {
            match self.next_task(last) {
                Task::Read(number) => self.read(number)?,
                Task::Run { shard, batch } => {
                    last = shard;
                    self.process_batch(shard, batch);
                }
                Task::Collect(number) => self.collect(number)?,
                Task::End => return Ok(()),
            }
        }
    }

    /// Returns the next task; waits while there is none.
    fn next_task(&self, last: usize) -> Task {
        let mut schedule = self.lock_schedule();
        loop {
            if let Some(task) = schedule.next_task(last) {
                return task;
            }
            schedule.waiting += 1;
            schedule = self
                .changed
                .wait(schedule)
                .unwrap_or_else(PoisonError::into_inner);
            schedule.waiting -= 1;
        }
    }

    fn read(&self, number: u64) -> Result<()> {
        let mut batch = write(&self.batches[slot(number)]);
        let outcome = self.pipeline.read(&mut lock(&self.reader), &mut batch);
        self.update_schedule(|schedule| schedule.finish_read(matches!(outcome, Ok(true))));
        if outcome? {
            let shard_mask = self.pipeline.partition(&mut batch);
            drop(batch);
            self.update_schedule(|schedule| schedule.finish_partition(number, shard_mask));
        }
        Ok(())
    }

    fn process_batch(&self, shard: usize, batch: u64) {
        let content = read(&self.batches[slot(batch)]);
        self.pipeline
            .process(shard, &mut lock(&self.shards[shard]), &content);
        drop(content);
        self.update_schedule(|schedule| schedule.finish_process(shard));
    }

    fn collect(&self, number: u64) -> Result<()> {
        let batch = read(&self.batches[slot(number)]);
        let outcome = self.pipeline.collect(&mut lock(&self.collector), &batch);
        drop(batch);
        self.update_schedule(|schedule| schedule.finish_collect(outcome.is_ok()));
        outcome
    }

    fn update_schedule(&self, change: impl FnOnce(&mut Schedule)) {
        let mut schedule = self.lock_schedule();
        change(&mut schedule);
        if schedule.waiting > 0 {
            self.changed.notify_all();
        }
    }

    fn lock_schedule(&self) -> MutexGuard<'_, Schedule> {
        lock(&self.schedule)
    }
}

/// Guard that stops the other threads if this one panics.
struct PanicGuard<'a, 'b, W: Pipeline>(&'a WorkerPool<'b, W>);

impl<W: Pipeline> Drop for PanicGuard<'_, '_, W> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.update_schedule(|schedule| schedule.failed = true);
        }
    }
}

enum Task {
    Read(u64),
    Run { shard: usize, batch: u64 },
    Collect(u64),
    End,
}

/// Progress of all stages, from which the next task is chosen.
#[derive(Default)]
struct Schedule {
    /// Number of batches read.
    read: u64,
    reading: bool,
    input_ended: bool,
    /// A stage failed, so all threads stop.
    failed: bool,
    /// Number of batches collected, whose slots are free again.
    collected: u64,
    collecting: bool,
    /// Number and shard mask of the partitioned batch in each slot.
    ready: [Option<(u64, u32)>; BATCH_SLOTS],
    shards: [ShardProgress; SHARDS],
    /// Number of threads without a task.
    waiting: usize,
}

/// Progress of a shard.
#[derive(Default)]
struct ShardProgress {
    /// Number of the next batch to process.
    next: u64,
    busy: bool,
}

impl Schedule {
    fn next_task(&mut self, last: usize) -> Option<Task> {
        if self.failed {
            return Some(Task::End);
        }
        let in_memory = self.read - self.collected;
        let may_read = !self.input_ended && !self.reading && in_memory < BATCH_SLOTS as u64;
        if may_read && in_memory < READ_AHEAD_MIN {
            return Some(self.start_read());
        }
        self.start_collect()
            .or_else(|| self.start_process(last))
            .or_else(|| may_read.then(|| self.start_read()))
            .or_else(|| (self.input_ended && in_memory == 0).then_some(Task::End))
    }

    fn start_read(&mut self) -> Task {
        self.reading = true;
        Task::Read(self.read)
    }

    fn start_collect(&mut self) -> Option<Task> {
        let shards_had_it = || self.shards.iter().all(|shard| shard.next > self.collected);
        if self.collecting || self.collected == self.read || !shards_had_it() {
            return None;
        }
        self.collecting = true;
        Some(Task::Collect(self.collected))
    }

    /// Starts a shard that has a batch, first the one that this thread ran last: its state is in this core's cache.
    fn start_process(&mut self, last: usize) -> Option<Task> {
        let shard = (0..SHARDS)
            .map(|step| (last + step) % SHARDS)
            .find(|&shard| !self.shards[shard].busy && self.has_next_batch(shard))?;
        let progress = &mut self.shards[shard];
        progress.busy = true;
        Some(Task::Run {
            shard,
            batch: progress.next,
        })
    }

    /// Returns whether the shard's next batch is partitioned.
    fn has_next_batch(&self, shard: usize) -> bool {
        let next = self.shards[shard].next;
        self.ready[slot(next)].is_some_and(|(number, _)| number == next)
    }

    fn finish_read(&mut self, has_input: bool) {
        self.reading = false;
        self.input_ended |= !has_input;
        self.read += u64::from(has_input);
    }

    fn finish_partition(&mut self, number: u64, shard_mask: u32) {
        self.ready[slot(number)] = Some((number, shard_mask));
        (0..SHARDS).for_each(|shard| self.skip_empty_batches(shard));
    }

    fn finish_process(&mut self, shard: usize) {
        let progress = &mut self.shards[shard];
        progress.busy = false;
        progress.next += 1;
        self.skip_empty_batches(shard);
    }

    fn finish_collect(&mut self, succeeded: bool) {
        self.collecting = false;
        self.collected += 1;
        self.failed |= !succeeded;
    }

    /// Skips the batches that have no item for the shard.
    fn skip_empty_batches(&mut self, shard: usize) {
        let progress = &mut self.shards[shard];
        while !progress.busy
            && self.ready[slot(progress.next)].is_some_and(|(number, shard_mask)| {
                number == progress.next && shard_mask & 1 << shard == 0
            })
        {
            progress.next += 1;
        }
    }
}

fn slot(batch: u64) -> usize {
    (batch % BATCH_SLOTS as u64) as usize
}

/// Locks a mutex of the standard library and ignores poisoning. With two threads, `parking_lot` took 9 % more time
/// for a capture of 200 MB.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pipeline whose batches are numbers from 0 on; shard `s` takes those that `s + 2` divides.
    struct Numbers {
        count: u64,
        fails_at: Option<u64>,
        fails_to_collect: Option<u64>,
    }

    impl Pipeline for Numbers {
        type Reader = u64;
        type Batch = u64;
        type Shard = Vec<u64>;
        type Collector = Vec<u64>;

        fn read(&self, reader: &mut u64, batch: &mut u64) -> Result<bool> {
            anyhow::ensure!(Some(*reader) != self.fails_at, "torn at {reader}");
            *batch = *reader;
            *reader += 1;
            Ok(*batch < self.count)
        }

        fn partition(&self, batch: &mut u64) -> u32 {
            let wants = |shard: &u32| batch.is_multiple_of(u64::from(*shard) + 2);
            (0..SHARDS as u32)
                .filter(wants)
                .map(|shard| 1 << shard)
                .sum()
        }

        fn process(&self, _: usize, shard: &mut Vec<u64>, batch: &u64) {
            shard.push(*batch);
        }

        fn collect(&self, collector: &mut Vec<u64>, batch: &u64) -> Result<()> {
            anyhow::ensure!(
                Some(*batch) != self.fails_to_collect,
                "disk full at {batch}"
            );
            collector.push(*batch);
            Ok(())
        }
    }

    fn numbers(count: u64) -> Numbers {
        Numbers {
            count,
            fails_at: None,
            fails_to_collect: None,
        }
    }

    #[test]
    fn processes_batches_in_order_with_any_number_of_threads() {
        for threads in [1, 2, 3, 7] {
            for count in [0, 1, BATCH_SLOTS as u64, 1000] {
                let pipeline = numbers(count);
                let pool = WorkerPool::new(&pipeline, 0, Vec::new(), || 0, Vec::new);
                let (_, collected, shards) = pool.run(threads).unwrap();
                assert!(collected.into_iter().eq(0..count));
                for (shard, seen) in shards.iter().enumerate() {
                    let wanted: Vec<_> = (0..count).step_by(shard + 2).collect();
                    assert_eq!(*seen, wanted, "shard {shard}, {threads} threads");
                }
            }
        }
    }

    #[test]
    fn stops_at_read_or_collect_errors() {
        let read_fails = Numbers {
            fails_at: Some(100),
            ..numbers(1000)
        };
        let collect_fails = Numbers {
            fails_to_collect: Some(100),
            ..numbers(1000)
        };
        let outcome = |pipeline: &Numbers, threads| {
            let pool = WorkerPool::new(pipeline, 0, Vec::new(), || 0, Vec::new);
            pool.run(threads).map(drop).unwrap_err().to_string()
        };
        for threads in [1, 2, 5] {
            assert_eq!(outcome(&read_fails, threads), "torn at 100");
            assert_eq!(outcome(&collect_fails, threads), "disk full at 100");
        }
    }

    /// After a panic of one thread, the others do not wait for ever.
    #[test]
    #[should_panic(expected = "a bug")]
    fn stops_all_threads_on_panic() {
        struct Bug;
        impl Pipeline for Bug {
            type Reader = ();
            type Batch = ();
            type Shard = ();
            type Collector = ();
            fn read(&self, (): &mut (), (): &mut ()) -> Result<bool> {
                Ok(true)
            }
            fn partition(&self, (): &mut ()) -> u32 {
                1
            }
            fn process(&self, _: usize, (): &mut (), (): &()) {
                panic!("a bug");
            }
            fn collect(&self, (): &mut (), (): &()) -> Result<()> {
                Ok(())
            }
        }
        let _ = WorkerPool::new(&Bug, (), (), || (), || ()).run(3);
    }

    /// Read-ahead of the slowest shard is limited to the number of slots.
    #[test]
    fn stops_reading_when_all_slots_are_used() {
        let mut schedule = Schedule::default();
        for number in 0..BATCH_SLOTS as u64 {
            assert!(matches!(schedule.start_read(), Task::Read(n) if n == number));
            schedule.finish_read(true);
            schedule.finish_partition(number, 0b10);
        }
        let first = schedule.next_task(1);
        assert!(matches!(first, Some(Task::Run { shard: 1, batch: 0 })));
        assert!(
            schedule.next_task(1).is_none(),
            "shard 1 is busy, no slot is free"
        );
        schedule.finish_process(1);
        assert!(matches!(schedule.next_task(1), Some(Task::Collect(0))));
        let second = schedule.next_task(1);
        assert!(matches!(second, Some(Task::Run { shard: 1, batch: 1 })));
        assert!(
            schedule.next_task(1).is_none(),
            "batch 0 is being collected"
        );
        schedule.finish_collect(true);
        assert!(
            matches!(schedule.next_task(0), Some(Task::Read(number)) if number == BATCH_SLOTS as u64)
        );
    }
}
