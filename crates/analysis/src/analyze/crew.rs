// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that share what is to be done, so that two cores are busy whether a capture has one flow
//! or a million.
//!
//! A *load* is read by one thread at a time, in order; the thread that read it also spreads it, while
//! another may read the next. A *shard* takes the loads in order, one thread at a time; when all have
//! had a load, it is *collected*, again in order. Whoever is free takes whatever may be done next. So
//! what a shard sees and what is collected, and with it the result, never depends on how many threads
//! there are or on which of them is faster.

use anyhow::Result;
use std::sync::{
    Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

/// Loads in memory at most: what is read ahead of the slowest shard.
pub(super) const LOADS: usize = 12;
/// Shards: a constant, because each has its share of what is bounded.
pub(super) const SHARDS: usize = 16;
/// With fewer loads than this under way reading comes first, so that nobody runs dry.
const EAGER: u64 = 3;

/// What is done with loads.
pub(super) trait Work: Sync {
    /// Who reads.
    type Reader: Send;
    /// What is read; recycled.
    type Load: Send + Sync;
    /// Who takes it.
    type Shard: Send;
    /// Who gathers what shards left in it.
    type Collector: Send;

    /// Fills a load. False if there was nothing any more.
    fn read(&self, reader: &mut Self::Reader, load: &mut Self::Load) -> Result<bool>;
    /// Prepares it for the shards. Says who has something to do with it, bit by bit.
    fn spread(&self, load: &mut Self::Load) -> u32;
    /// A shard's part.
    fn run(&self, number: usize, shard: &mut Self::Shard, load: &Self::Load);
    /// What is to be gathered when all shards have done theirs.
    fn collect(&self, collector: &mut Self::Collector, load: &Self::Load) -> Result<()>;
}

/// What is left when all is done.
pub(super) type Done<W> = (
    <W as Work>::Reader,
    <W as Work>::Collector,
    Vec<<W as Work>::Shard>,
);

/// Everything that threads share. The locks around reader, loads and shards are never waited for: the
/// board says whose turn it is.
pub(super) struct Crew<'a, W: Work> {
    work: &'a W,
    reader: Mutex<W::Reader>,
    loads: [RwLock<W::Load>; LOADS],
    shards: [Mutex<W::Shard>; SHARDS],
    collector: Mutex<W::Collector>,
    board: Mutex<Board>,
    changed: Condvar,
}

impl<'a, W: Work> Crew<'a, W> {
    /// Nothing is read yet.
    pub(super) fn new(
        work: &'a W,
        reader: W::Reader,
        collector: W::Collector,
        mut load: impl FnMut() -> W::Load,
        mut shard: impl FnMut() -> W::Shard,
    ) -> Self {
        Self {
            work,
            reader: Mutex::new(reader),
            loads: std::array::from_fn(|_| RwLock::new(load())),
            shards: std::array::from_fn(|_| Mutex::new(shard())),
            collector: Mutex::new(collector),
            board: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Reads to the end, runs every shard over all of it and collects, on `threads` threads.
    ///
    /// # Errors
    /// What [`Work::read`] or [`Work::collect`] said.
    pub(super) fn go(self, threads: usize) -> Result<Done<W>> {
        let outcome = std::thread::scope(|scope| {
            let others = (1..threads).map(|_| scope.spawn(|| self.labour()));
            let others: Vec<_> = others.collect();
            let own = self.labour();
            let join = |thread: std::thread::ScopedJoinHandle<'_, Result<()>>| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            others.into_iter().map(join).fold(own, Result::and)
        });
        outcome?;
        let shards = self.shards.into_iter().map(inner).collect();
        Ok((inner(self.reader), inner(self.collector), shards))
    }

    fn labour(&self) -> Result<()> {
        let _alarm = Alarm(self);
        let mut last = 0;
        loop {
            match self.next(last) {
                Task::Read(number) => self.read(number)?,
                Task::Run { shard, load } => {
                    last = shard;
                    self.run(shard, load);
                }
                Task::Collect(number) => self.collect(number)?,
                Task::End => return Ok(()),
            }
        }
    }

    /// What to do next; waits while there is nothing.
    fn next(&self, last: usize) -> Task {
        let mut board = self.board();
        loop {
            if let Some(task) = board.take(last) {
                return task;
            }
            board.waiting += 1;
            board = self
                .changed
                .wait(board)
                .unwrap_or_else(PoisonError::into_inner);
            board.waiting -= 1;
        }
    }

    fn read(&self, number: u64) -> Result<()> {
        let mut load = write(&self.loads[slot(number)]);
        let outcome = self.work.read(&mut lock(&self.reader), &mut load);
        self.change(|board| board.was_read(matches!(outcome, Ok(true))));
        if outcome? {
            let takers = self.work.spread(&mut load);
            drop(load);
            self.change(|board| board.was_spread(number, takers));
        }
        Ok(())
    }

    fn run(&self, shard: usize, load: u64) {
        let content = read(&self.loads[slot(load)]);
        self.work
            .run(shard, &mut lock(&self.shards[shard]), &content);
        drop(content);
        self.change(|board| board.was_run(shard));
    }

    fn collect(&self, number: u64) -> Result<()> {
        let load = read(&self.loads[slot(number)]);
        let outcome = self.work.collect(&mut lock(&self.collector), &load);
        drop(load);
        self.change(|board| board.was_collected(outcome.is_ok()));
        outcome
    }

    fn change(&self, how: impl FnOnce(&mut Board)) {
        let mut board = self.board();
        how(&mut board);
        if board.waiting > 0 {
            self.changed.notify_all();
        }
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        lock(&self.board)
    }
}

/// Nobody waits for a thread that panicked.
struct Alarm<'a, 'b, W: Work>(&'a Crew<'b, W>);

impl<W: Work> Drop for Alarm<'_, '_, W> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.change(|board| board.broken = true);
        }
    }
}

enum Task {
    Read(u64),
    Run { shard: usize, load: u64 },
    Collect(u64),
    End,
}

/// Who has done what.
#[derive(Default)]
struct Board {
    /// How many loads were read.
    read: u64,
    reading: bool,
    over: bool,
    /// Somebody can't go on, so nobody shall.
    broken: bool,
    /// How many loads were collected, and so may be read into again.
    collected: u64,
    collecting: bool,
    /// Which load stands ready in each slot, and whom it concerns.
    ready: [Option<(u64, u32)>; LOADS],
    shards: [Turn; SHARDS],
    /// Threads that have nothing to do.
    waiting: usize,
}

/// A shard's state.
#[derive(Default)]
struct Turn {
    /// The load that it takes next.
    next: u64,
    busy: bool,
}

impl Board {
    fn take(&mut self, last: usize) -> Option<Task> {
        if self.broken {
            return Some(Task::End);
        }
        let under_way = self.read - self.collected;
        let may_read = !self.over && !self.reading && under_way < LOADS as u64;
        if may_read && under_way < EAGER {
            return Some(self.take_reading());
        }
        self.take_collecting()
            .or_else(|| self.take_run(last))
            .or_else(|| may_read.then(|| self.take_reading()))
            .or_else(|| (self.over && under_way == 0).then_some(Task::End))
    }

    fn take_reading(&mut self) -> Task {
        self.reading = true;
        Task::Read(self.read)
    }

    fn take_collecting(&mut self) -> Option<Task> {
        let shards_had_it = || self.shards.iter().all(|shard| shard.next > self.collected);
        if self.collecting || self.collected == self.read || !shards_had_it() {
            return None;
        }
        self.collecting = true;
        Some(Task::Collect(self.collected))
    }

    /// The shard that this thread ran last, if it can go on, has its state in this core's cache.
    fn take_run(&mut self, last: usize) -> Option<Task> {
        let shard = (0..SHARDS)
            .map(|step| (last + step) % SHARDS)
            .find(|&shard| !self.shards[shard].busy && self.concerns(shard))?;
        let turn = &mut self.shards[shard];
        turn.busy = true;
        Some(Task::Run {
            shard,
            load: turn.next,
        })
    }

    /// Whether the shard's next load is there.
    fn concerns(&self, shard: usize) -> bool {
        let next = self.shards[shard].next;
        self.ready[slot(next)].is_some_and(|(number, _)| number == next)
    }

    fn was_read(&mut self, any: bool) {
        self.reading = false;
        self.over |= !any;
        self.read += u64::from(any);
    }

    fn was_spread(&mut self, number: u64, takers: u32) {
        self.ready[slot(number)] = Some((number, takers));
        (0..SHARDS).for_each(|shard| self.pass_over(shard));
    }

    fn was_run(&mut self, shard: usize) {
        let turn = &mut self.shards[shard];
        turn.busy = false;
        turn.next += 1;
        self.pass_over(shard);
    }

    fn was_collected(&mut self, well: bool) {
        self.collecting = false;
        self.collected += 1;
        self.broken |= !well;
    }

    /// Loads that have nothing for a shard are done without it.
    fn pass_over(&mut self, shard: usize) {
        let turn = &mut self.shards[shard];
        while !turn.busy
            && self.ready[slot(turn.next)]
                .is_some_and(|(number, takers)| number == turn.next && takers & 1 << shard == 0)
        {
            turn.next += 1;
        }
    }
}

fn slot(load: u64) -> usize {
    (load % LOADS as u64) as usize
}

/// The standard library's lock, poison passed over: with two threads, parking_lot's took 9 % more time for a capture
/// of 200 MB.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

fn inner<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loads are numbers from 0 on; shard `s` wants those that `s + 2` divides.
    struct Numbers {
        count: u64,
        fails_at: Option<u64>,
        fails_to_collect: Option<u64>,
    }

    impl Work for Numbers {
        type Reader = u64;
        type Load = u64;
        type Shard = Vec<u64>;
        type Collector = Vec<u64>;

        fn read(&self, reader: &mut u64, load: &mut u64) -> Result<bool> {
            anyhow::ensure!(Some(*reader) != self.fails_at, "torn at {reader}");
            *load = *reader;
            *reader += 1;
            Ok(*load < self.count)
        }

        fn spread(&self, load: &mut u64) -> u32 {
            let wants = |shard: &u32| load.is_multiple_of(u64::from(*shard) + 2);
            (0..SHARDS as u32)
                .filter(wants)
                .map(|shard| 1 << shard)
                .sum()
        }

        fn run(&self, _: usize, shard: &mut Vec<u64>, load: &u64) {
            shard.push(*load);
        }

        fn collect(&self, collector: &mut Vec<u64>, load: &u64) -> Result<()> {
            anyhow::ensure!(Some(*load) != self.fails_to_collect, "disk full at {load}");
            collector.push(*load);
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
    fn every_shard_sees_its_loads_in_order_with_any_number_of_threads() {
        for threads in [1, 2, 3, 7] {
            for count in [0, 1, LOADS as u64, 1000] {
                let work = numbers(count);
                let crew = Crew::new(&work, 0, Vec::new(), || 0, Vec::new);
                let (_, collected, shards) = crew.go(threads).unwrap();
                assert!(collected.into_iter().eq(0..count));
                for (shard, seen) in shards.iter().enumerate() {
                    let wanted: Vec<_> = (0..count).step_by(shard + 2).collect();
                    assert_eq!(*seen, wanted, "shard {shard}, {threads} threads");
                }
            }
        }
    }

    #[test]
    fn what_can_not_be_read_or_collected_ends_it() {
        let torn = Numbers {
            fails_at: Some(100),
            ..numbers(1000)
        };
        let full = Numbers {
            fails_to_collect: Some(100),
            ..numbers(1000)
        };
        let outcome = |work: &Numbers, threads| {
            let crew = Crew::new(work, 0, Vec::new(), || 0, Vec::new);
            crew.go(threads).map(drop).unwrap_err().to_string()
        };
        for threads in [1, 2, 5] {
            assert_eq!(outcome(&torn, threads), "torn at 100");
            assert_eq!(outcome(&full, threads), "disk full at 100");
        }
    }

    /// A panic of one thread must not leave the others waiting for ever.
    #[test]
    #[should_panic(expected = "a bug")]
    fn a_panic_ends_all_threads() {
        struct Bug;
        impl Work for Bug {
            type Reader = ();
            type Load = ();
            type Shard = ();
            type Collector = ();
            fn read(&self, (): &mut (), (): &mut ()) -> Result<bool> {
                Ok(true)
            }
            fn spread(&self, (): &mut ()) -> u32 {
                1
            }
            fn run(&self, _: usize, (): &mut (), (): &()) {
                panic!("a bug");
            }
            fn collect(&self, (): &mut (), (): &()) -> Result<()> {
                Ok(())
            }
        }
        let _ = Crew::new(&Bug, (), (), || (), || ()).go(3);
    }

    /// Nothing is read further ahead of the slowest shard than there are slots.
    #[test]
    fn reading_waits_for_the_slowest_shard() {
        let mut board = Board::default();
        for number in 0..LOADS as u64 {
            assert!(matches!(board.take_reading(), Task::Read(n) if n == number));
            board.was_read(true);
            board.was_spread(number, 0b10);
        }
        let first = board.take(1);
        assert!(matches!(first, Some(Task::Run { shard: 1, load: 0 })));
        assert!(board.take(1).is_none(), "shard 1 is busy, no slot is free");
        board.was_run(1);
        assert!(matches!(board.take(1), Some(Task::Collect(0))));
        let second = board.take(1);
        assert!(matches!(second, Some(Task::Run { shard: 1, load: 1 })));
        assert!(board.take(1).is_none(), "load 0 is being collected");
        board.was_collected(true);
        assert!(matches!(board.take(0), Some(Task::Read(number)) if number == LOADS as u64));
    }
}
