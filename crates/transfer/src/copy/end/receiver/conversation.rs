// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end that writes: it says what it lacks of what the source announces, puts blocks where they belong as they come,
//! makes them durable in batches, and only then counts them.
//!
//! A thread hears orders, one a stream receives, checks and writes, one makes durable what was written and gives files
//! their names, one reads again what an earlier run brought. The source's thread that hears answers always does, so nothing waits in a circle.

use super::{place, state::Room, target::Target};
use crate::{
    copy::end::{
        meeting::{Lines, Opener, Streams, meet},
        reach::Reach,
        reports::{Reporter, Tally, end_with_standard_input, get_ready},
    },
    protocol::{message::Answer, order::Begin, report::Progress},
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
    get_ready(&mut begin, reach, reporter)?;
    threads::begin(end_with_standard_input)?;
    serve(&begin, reach, identity, reporter)
}

/// Once it is known where the other end is.
pub(crate) fn serve(
    begin: &Begin,
    reach: &Reach,
    identity: &Identity,
    reporter: &Reporter,
) -> Result<Progress> {
    // Without more, fewer files are open at once.
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
        tally: Tally::default(),
        reporter: reporter.clone(),
        opener: Arc::default(),
    });
    target.shared.note(|state| state.room = room);
    let shares = begin.shares.iter().cloned().map(Into::into);
    target.note_shares(&shares.collect::<Vec<_>>())?;
    let outcome = target.converse(begin, identity, sender);
    target.shared.change(|state| state.over = true);
    target.opener.conclude(outcome)?;
    Ok(target.tally.now())
}

impl Target {
    /// Until all is done.
    fn converse(
        self: &Arc<Self>,
        begin: &Begin,
        identity: &Identity,
        sender: Sender<Answer>,
    ) -> Result<()> {
        let Lines { orders, answers } = meet(begin, identity, &self.reporter, self.clone())?;
        threads::begin(move || sender.run(answers))?;
        self.tally.tell(self.reporter.clone())?;
        if begin.options.checksum {
            self.begin_comparing()?;
        }
        if !begin.options.dry_run {
            let committing = self.clone();
            threads::begin(move || committing.commit_all())?;
            let checking = self.clone();
            threads::begin(move || checking.check_all())?;
        }
        self.obey(orders)
    }
}

impl Streams for Target {
    fn carry(&self, number: u64, stream: Connection) {
        let Ok(handle) = stream.handle() else { return };
        if !self
            .shared
            .change(|state| state.begin_stream(number, handle))
        {
            return;
        }
        if let Err(error) = self.receive(number, stream)
            && !self.is_over()
        {
            tracing::debug!("stream {number}: {error:#}");
        }
        if let Some(blocks) = self.shared.change(|state| state.end_stream(number)) {
            self.answers.put(Answer::Ended {
                stream: number,
                blocks,
            });
        }
    }

    fn is_over(&self) -> bool {
        self.shared.is_over()
    }

    fn opener(&self) -> &Opener {
        &self.opener
    }
}
