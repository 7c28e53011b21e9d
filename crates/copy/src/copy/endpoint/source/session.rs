// SPDX-License-Identifier: MIT OR Apache-2.0
//! Session of the source. It announces what it finds, and sends what the target lacks.
//!
//! One thread scans, one reads the target's messages, and one per stream reads, hashes and sends. The
//! sockets' buffers keep the path busy while a thread reads. The thread that reads messages never waits for
//! room in the send queue, so no deadlock is possible.

use super::{
    extents::{self, Assignment},
    portion::{describe_incomplete, recorded_shares, source_locations},
    rate_limit::RateLimit,
    scan,
    state::Source,
    tuning::StreamTuning,
};
use crate::{
    connection::{Connection, QueueSender, send_queue},
    copy::endpoint::{
        access_scope::AccessScope,
        rendezvous::{ControlConnections, connect_endpoints},
        reports::{Counters, Reporter, exit_at_stdin_eof, report_ready},
    },
    protocol::{
        control::{Begin, Task},
        message::{self, MissingBlocks, Outcome, SourceMsg, TargetMsg},
        report::{Progress, Report},
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
use tracing::debug;

pub(crate) fn run(
    mut begin: Begin,
    scope: &AccessScope,
    identity: &Identity,
    reporter: &Reporter,
) -> Result<Progress> {
    let prepared = prepare(&begin, scope)?;
    if begin.task == Task::Pieces {
        reporter.send(&Report::Shares(recorded_shares(&begin, scope)?));
    }
    reporter.send(&Report::Sources(source_locations(&begin, scope)));
    report_ready(&mut begin, scope, reporter)?;
    let prepared = match begin.task {
        Task::Extents => PreparedSource {
            assigned: Some(extents::receive_assignments()?),
            ..prepared
        },
        _ => {
            threads::spawn(exit_at_stdin_eof)?;
            prepared
        }
    };
    run_session(begin, prepared, identity, reporter)
}

/// Prepared source. Preparation comes first, so that no target starts for a source that cannot be read.
pub(crate) struct PreparedSource {
    scan: Scan,
    /// Scan for the names alone.
    plan: Option<Scan>,
    /// Assignments of the coordinator, if extents are copied.
    assigned: Option<Receiver<Assignment>>,
    tuning: StreamTuning,
    limit: Option<RateLimit>,
    incomplete: Vec<String>,
}

pub(crate) fn prepare(begin: &Begin, scope: &AccessScope) -> Result<PreparedSource> {
    let (scan, missing) = scan::open(begin, scope)?;
    let missing = missing.iter().map(ToString::to_string);
    Ok(PreparedSource {
        scan,
        plan: scan::open_plan(begin, scope)?,
        assigned: None,
        tuning: StreamTuning::prepare(&begin.options)?,
        limit: begin.options.limit.map(RateLimit::open).transpose()?,
        incomplete: missing.chain(describe_incomplete(begin, scope)).collect(),
    })
}

/// Runs the session, once the address of the peer is known.
pub(crate) fn run_session(
    begin: Begin,
    prepared: PreparedSource,
    identity: &Identity,
    reporter: &Reporter,
) -> Result<Progress> {
    let (to_target, sender) = send_queue();
    let source = Arc::new(Source {
        shared: Arc::default(),
        to_target,
        counters: Counters::default(),
        reporter: reporter.clone(),
        opener: Arc::default(),
        tuning: Arc::new(prepared.tuning),
        limit: prepared.limit.map(Arc::new),
        hash: begin.options.hash,
        task: begin.task,
        incomplete: prepared.incomplete,
    });
    let outcome = source.connect_and_run(
        begin,
        prepared.scan,
        prepared.plan,
        prepared.assigned,
        identity,
        sender,
    );
    // First, so that streams that end now are not opened again.
    let outcome = source.opener.finish(outcome);
    source.shared.update(|state| state.over = true);
    // That thread sends a report at the end.
    let _ = outcome?.join();
    // Only the target's report ends the copy; these counters are the source's part.
    Ok(source.counters.snapshot())
}

impl Source {
    /// Runs the session until all is done; returns the thread that monitors the streams.
    fn connect_and_run(
        self: &Arc<Self>,
        begin: Begin,
        scan: Scan,
        plan: Option<Scan>,
        assigned: Option<Receiver<Assignment>>,
        identity: &Identity,
        sender: QueueSender<SourceMsg>,
    ) -> Result<JoinHandle<()>> {
        let ControlConnections {
            source_messages,
            target_messages,
        } = connect_endpoints(&begin, identity, &self.reporter, self.clone())?;
        threads::spawn(move || sender.run(source_messages))?;
        let announcer = self.clone();
        threads::spawn(move || match assigned {
            None => announcer.announce_all(scan, plan),
            Some(assigned) => announcer.announce_assigned(scan.sources(), &assigned),
        })?;
        if begin.options.checksum {
            self.start_hashing()?;
        }
        let retrier = self.clone();
        threads::spawn(move || retrier.reannounce_all())?;
        self.counters.start_reporting(self.reporter.clone())?;
        let monitored = self.clone();
        let monitor = threads::spawn(move || monitored.monitor_streams(&begin))?;
        self.handle_messages(target_messages)?;
        Ok(monitor)
    }

    /// Handles the target's messages until all is done.
    fn handle_messages(&self, mut from: Connection) -> Result<()> {
        while let Some(message) = message::read::<TargetMsg>(&mut from)? {
            match message {
                TargetMsg::Request { file, missing } => self.handle_request(file, missing)?,
                TargetMsg::HashRequest { file } => {
                    self.shared.update(|state| state.queue_hash(file));
                }
                TargetMsg::EntryDone { number, outcome } => self.handle_completed(number, &outcome),
                TargetMsg::Received { stream, blocks } => self
                    .shared
                    .update(|state| state.ledger.confirm(stream, blocks, clock::now()))?,
                TargetMsg::StreamEnded { stream, blocks } => self.shared.update(|state| {
                    let lost = state.ledger.close(stream, blocks, clock::now())?;
                    debug!(
                        stream,
                        blocks,
                        lost = lost.len(),
                        "stream ended; others send what was lost"
                    );
                    state.requeue(lost);
                    anyhow::Ok(())
                })?,
                TargetMsg::Durable { bytes } => {
                    self.counters.update(|progress| progress.durable += bytes);
                }
                TargetMsg::Finished { removed, failed } => {
                    self.counters.update(|progress| {
                        progress.removed = removed;
                        progress.failed += failed;
                    });
                    return Ok(());
                }
            }
        }
        bail!("the target closed the connection")
    }

    /// Handles a request for a file. A second request is an error: it would only cost memory.
    fn handle_request(&self, file: u64, missing: MissingBlocks) -> Result<()> {
        let (ranges, known) = match missing {
            MissingBlocks::Whole(len) => (Err(len), Vec::new()),
            MissingBlocks::Blocks(ranges) => (Ok(ranges), Vec::new()),
            MissingBlocks::Changed { blocks, known } => (Ok(blocks), known),
        };
        let (missing, count) = match ranges {
            Err(len) => (Missing::Whole(len), 1),
            Ok(ranges) => {
                let length = |range: &Range<u64>| range.end.saturating_sub(range.start);
                let count = ranges.iter().map(length).fold(0, u64::saturating_add);
                self.count_present(file, &ranges);
                (Missing::Blocks(ranges), count)
            }
        };
        let is_new = self
            .shared
            .update(|state| state.request(file, missing, count, known));
        ensure!(is_new, "the target requested a file twice");
        Ok(())
    }

    /// Counts the bytes that an earlier copy sent: all but the missing blocks.
    fn count_present(&self, file: u64, missing: &[Range<u64>]) {
        let file = self
            .shared
            .read(|state| state.announced.get(&file).cloned().flatten());
        let Some(file) = file else { return };
        let blocks = file.blocks();
        // Only the last block of a file is shorter than the others.
        let end = |index: u64| {
            blocks
                .file_len()
                .min(index.saturating_mul(blocks.block_len()))
        };
        let bytes = |range: &Range<u64>| end(range.end).saturating_sub(end(range.start));
        let missing_bytes: u64 = missing.iter().map(bytes).sum();
        self.counters
            .update(|progress| progress.present += file.bytes().saturating_sub(missing_bytes));
    }

    /// Removes a completed entry and counts its outcome. The target reports the outcome to the coordinator
    /// itself.
    fn handle_completed(&self, number: u64, outcome: &Outcome) {
        let Some(file) = self.shared.update(|state| state.complete(number)) else {
            return;
        };
        let bytes = file.as_ref().map_or(0, |file| file.bytes());
        self.counters.update(|progress| {
            progress.count(outcome);
            if matches!(outcome, Outcome::Unchanged | Outcome::Newer) {
                progress.present += bytes;
            }
        });
        let failed = match outcome {
            Outcome::Failed(why) => Some(why.clone()),
            _ => None,
        };
        self.complete_file(file.as_deref(), failed);
    }
}
