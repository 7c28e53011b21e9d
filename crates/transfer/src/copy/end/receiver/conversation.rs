// SPDX-License-Identifier: MIT OR Apache-2.0
//! Session of the target. It requests what it lacks of what the source announces, writes blocks to their
//! places as they arrive, makes them durable in batches, and only then counts them.
//!
//! One thread handles messages of the source. One thread per stream receives, checks and writes. One makes
//! written data durable and renames files. One verifies data that an earlier run wrote. The source always
//! reads the target's messages, so no deadlock is possible.

use super::{place, state::Room, target::Target};
use crate::{
    copy::end::{
        meeting::{ControlConnections, StreamHandler, StreamOpener, connect_endpoints},
        reach::Reach,
        reports::{Counters, Reporter, end_with_standard_input, report_ready},
    },
    protocol::{control::Begin, message::TargetMsg, report::Progress},
    transport::{
        connection::Connection,
        outbox::{Sender, outbox},
    },
};
use anyhow::Result;
use longhaul_command::threads;
use longhaul_scheduling::streams::STREAMS_MAX;
use longhaul_transport::identity::Identity;
use std::sync::Arc;

pub(crate) fn run(
    mut begin: Begin,
    reach: &Reach,
    identity: &Identity,
    reporter: &Reporter,
) -> Result<Progress> {
    report_ready(&mut begin, reach, reporter)?;
    threads::spawn(end_with_standard_input)?;
    serve(&begin, reach, identity, reporter)
}

/// Runs the session, once the address of the peer is known.
pub(crate) fn serve(
    begin: &Begin,
    reach: &Reach,
    identity: &Identity,
    reporter: &Reporter,
) -> Result<Progress> {
    // With few descriptors, fewer files are open at once.
    let streams = begin.options.streams_fixed().map(usize::from);
    let (descriptors, _) = longhaul_linux::descriptors::limits();
    let room = Room::within(descriptors, streams.unwrap_or(STREAMS_MAX));
    let path = begin.paths.first().map_or(&b"."[..], Vec::as_slice);
    let (root, renamed, imagined) = place::find(reach, path, begin)?;
    let (answers, sender) = outbox();
    let target = Arc::new(Target {
        root: Arc::new(root),
        renamed,
        imagined,
        preserve: Arc::new(begin.options.preserve.clone().into()),
        options: Arc::new(begin.options.clone()),
        task: begin.task,
        shared: Arc::default(),
        answers,
        tally: Counters::default(),
        reporter: reporter.clone(),
        opener: Arc::default(),
    });
    target.shared.update_silent(|state| state.room = room);
    let shares = begin.shares.iter().cloned().map(Into::into);
    target.note_shares(&shares.collect::<Vec<_>>())?;
    let outcome = target.converse(begin, identity, sender);
    target.shared.update(|state| state.over = true);
    target.opener.finish(outcome)?;
    Ok(target.tally.snapshot())
}

impl Target {
    /// Runs the session until all is done.
    fn converse(
        self: &Arc<Self>,
        begin: &Begin,
        identity: &Identity,
        sender: Sender<TargetMsg>,
    ) -> Result<()> {
        let ControlConnections {
            source_messages: orders,
            target_messages: answers,
        } = connect_endpoints(begin, identity, &self.reporter, self.clone())?;
        threads::spawn(move || sender.run(answers))?;
        self.tally.start_reporting(self.reporter.clone())?;
        if begin.options.checksum {
            self.begin_comparing()?;
        }
        if !begin.options.dry_run {
            let committing = self.clone();
            threads::spawn(move || committing.commit_all())?;
            let checking = self.clone();
            threads::spawn(move || checking.check_all())?;
        }
        self.obey(orders)
    }
}

impl StreamHandler for Target {
    fn handle_stream(&self, number: u64, stream: Connection) {
        let Ok(handle) = stream.handle() else { return };
        if !self
            .shared
            .update(|state| state.begin_stream(number, handle))
        {
            return;
        }
        if let Err(error) = self.receive(number, stream)
            && !self.is_over()
        {
            tracing::debug!("stream {number}: {error:#}");
        }
        if let Some(blocks) = self.shared.update(|state| state.end_stream(number)) {
            self.answers.put(TargetMsg::StreamEnded {
                stream: number,
                blocks,
            });
        }
    }

    fn is_over(&self) -> bool {
        self.shared.is_over()
    }

    fn opener(&self) -> &StreamOpener {
        &self.opener
    }
}
