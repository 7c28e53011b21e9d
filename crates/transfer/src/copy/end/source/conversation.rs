// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end that reads: it announces what it finds, and sends what the target says it lacks.
//!
//! A thread scans, one hears the answers, one a stream reads, hashes and sends; the sockets' buffers keep the path busy
//! while it reads. The thread that hears answers never waits for room in the outbox, so nothing can wait in a circle.

use super::{
    extents::{self, Assignment},
    limit::Limit,
    scan,
    share::{incomplete, located, shares},
    state::Source,
    tuning::Tuning,
};
use crate::{
    copy::end::{
        meeting::{Lines, Opener, Streams, meet},
        reach::Reach,
        reports::{Reporter, Tally, end_with_standard_input, get_ready},
    },
    protocol::{
        message::{self, Answer, Need, Order, Outcome},
        order::{Begin, Task},
        report::{Progress, Report},
    },
    transport::{
        connection::Connection,
        outbox::{Sender, outbox},
    },
};
use anyhow::{Result, bail, ensure};
use longhaul_command::threads;
use longhaul_linux::clock;
use longhaul_scheduling::Missing;
use longhaul_store::tree::scan::Scan;
use longhaul_transport::identity::Identity;
use std::{
    ops::Range,
    sync::{Arc, mpsc::Receiver},
    thread::JoinHandle,
};

pub(crate) fn run(
    mut begin: Begin,
    reach: &Reach,
    identity: &Identity,
    reporter: &Reporter,
) -> Result<Progress> {
    let ready = prepare(&begin, reach)?;
    if begin.task == Task::Pieces {
        reporter.say(&Report::Shares(shares(&begin, reach)?));
    }
    reporter.say(&Report::Sources(located(&begin, reach)));
    get_ready(&mut begin, reach, reporter)?;
    let ready = match begin.task {
        Task::Extents => Ready {
            assigned: Some(extents::hear()?),
            ..ready
        },
        _ => {
            threads::begin(end_with_standard_input)?;
            ready
        }
    };
    serve(begin, ready, identity, reporter)
}

/// What a source needs before it is worth that a target begins.
pub(crate) struct Ready {
    scan: Scan,
    /// What the driver assigns, if that is what is copied.
    assigned: Option<Receiver<Assignment>>,
    tuning: Tuning,
    limit: Option<Limit>,
    incomplete: Vec<String>,
}

pub(crate) fn prepare(begin: &Begin, reach: &Reach) -> Result<Ready> {
    Ok(Ready {
        scan: scan::open(begin, reach)?,
        assigned: None,
        tuning: Tuning::prepare(&begin.options)?,
        limit: begin.options.limit.map(Limit::open).transpose()?,
        incomplete: incomplete(begin, reach),
    })
}

/// Once it is known where the other end is.
pub(crate) fn serve(
    begin: Begin,
    ready: Ready,
    identity: &Identity,
    reporter: &Reporter,
) -> Result<Progress> {
    let (orders, sender) = outbox();
    let source = Arc::new(Source {
        shared: Arc::default(),
        orders,
        tally: Tally::default(),
        reporter: reporter.clone(),
        opener: Arc::default(),
        tuning: Arc::new(ready.tuning),
        limit: ready.limit.map(Arc::new),
        hash: begin.options.hash,
        task: begin.task,
        incomplete: ready.incomplete,
    });
    let outcome = source.converse(begin, ready.scan, ready.assigned, identity, sender);
    // First: streams that end now are not to be opened again.
    let outcome = source.opener.conclude(outcome);
    source.shared.change(|state| state.over = true);
    // It has something to tell at the end.
    let _ = outcome?.join();
    // Only the target's word that all is done is an end; this is the source's share of it.
    Ok(source.tally.now())
}

impl Source {
    /// Until all is done; what has watched the streams.
    fn converse(
        self: &Arc<Self>,
        begin: Begin,
        scan: Scan,
        assigned: Option<Receiver<Assignment>>,
        identity: &Identity,
        sender: Sender<Order>,
    ) -> Result<JoinHandle<()>> {
        let Lines { orders, answers } = meet(&begin, identity, &self.reporter, self.clone())?;
        threads::begin(move || sender.run(orders))?;
        let announcing = self.clone();
        threads::begin(move || match assigned {
            None => announcing.announce(scan),
            Some(assigned) => announcing.announce_assigned(scan.sources(), &assigned),
        })?;
        if begin.options.checksum {
            self.begin_hashing()?;
        }
        let trying = self.clone();
        threads::begin(move || trying.try_again())?;
        self.tally.tell(self.reporter.clone())?;
        let watching = self.clone();
        let watcher = threads::begin(move || watching.watch_streams(&begin))?;
        self.hear(answers)?;
        Ok(watcher)
    }

    /// Hears answers until all is done.
    fn hear(&self, mut from: Connection) -> Result<()> {
        while let Some(answer) = message::read::<Answer>(&mut from)? {
            match answer {
                Answer::Need { file, missing } => self.need(file, missing)?,
                Answer::Hash { file } => self.shared.change(|state| state.hash(file)),
                Answer::Settled { number, outcome } => self.settled(number, &outcome),
                Answer::Received { stream, blocks } => self
                    .shared
                    .change(|state| state.ledger.received(stream, blocks, clock::now()))?,
                Answer::Ended { stream, blocks } => self.shared.change(|state| {
                    let lost = state.ledger.ended(stream, blocks, clock::now())?;
                    state.again(lost);
                    anyhow::Ok(())
                })?,
                Answer::Durable { bytes } => self.tally.add(|now| now.durable += bytes),
                Answer::Over { removed, failed } => {
                    self.tally.add(|now| {
                        now.removed = removed;
                        now.failed += failed;
                    });
                    return Ok(());
                }
            }
        }
        bail!("the target went away")
    }

    /// Each file is asked for once: a second time would only cost memory.
    fn need(&self, file: u64, need: Need) -> Result<()> {
        let (missing, count) = match need {
            Need::Whole(len) => (Missing::Whole(len), 1),
            Need::Blocks(ranges) => {
                let length = |range: &Range<u64>| range.end.saturating_sub(range.start);
                let count = ranges.iter().map(length).fold(0, u64::saturating_add);
                self.is_there(file, &ranges);
                (Missing::Blocks(ranges), count)
            }
        };
        let new = self.shared.change(|state| state.need(file, missing, count));
        ensure!(new, "the target asks again for what it has asked for");
        Ok(())
    }

    /// An earlier copy brought all but these blocks.
    fn is_there(&self, file: u64, missing: &[Range<u64>]) {
        let file = self
            .shared
            .look(|state| state.announced.get(&file).cloned().flatten());
        let Some(file) = file else { return };
        let blocks = file.blocks();
        // Only a file's last block is shorter than the others.
        let end = |index: u64| {
            blocks
                .file_len()
                .min(index.saturating_mul(blocks.block_len()))
        };
        let lacks = |range: &Range<u64>| end(range.end).saturating_sub(end(range.start));
        let lacking: u64 = missing.iter().map(lacks).sum();
        self.tally
            .add(|now| now.there += file.bytes().saturating_sub(lacking));
    }

    /// The target reports what becomes of an entry to the driver; here it only is out of the way.
    fn settled(&self, number: u64, outcome: &Outcome) {
        let Some(file) = self.shared.change(|state| state.settle(number)) else {
            return;
        };
        let bytes = file.as_ref().map_or(0, |file| file.bytes());
        self.tally.add(|now| {
            now.count(outcome);
            if matches!(outcome, Outcome::Same | Outcome::Newer) {
                now.there += bytes;
            }
        });
        let failed = match outcome {
            Outcome::Failed(why) => Some(why.clone()),
            _ => None,
        };
        self.count_down(file.as_deref(), failed);
    }
}

impl Streams for Source {
    fn carry(&self, number: u64, stream: Connection) {
        let Ok(handle) = stream.handle() else { return };
        self.tuning.apply(&handle);
        self.shared
            .change(|state| state.streams.insert(number, handle));
        // The far end says how much arrived, however it ended.
        if self.send(number, stream).is_err() {
            self.orders.put(Order::Gone { stream: number });
        }
        self.shared.change(|state| state.streams.remove(&number));
    }

    fn is_over(&self) -> bool {
        self.shared.is_over()
    }

    fn opener(&self) -> &Opener {
        &self.opener
    }
}
