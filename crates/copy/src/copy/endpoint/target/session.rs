// SPDX-License-Identifier: MIT OR Apache-2.0
//! Session of the target. It requests what it lacks of what the source announces, writes blocks to their
//! places as they arrive, makes them durable in batches, and only then counts them.
//!
//! One thread handles messages of the source. One thread per stream receives, checks and writes. One makes
//! written data durable and renames files. One verifies data that an earlier run wrote. The source always
//! reads the target's messages, so no deadlock is possible.

use super::{
    destination,
    state::{OpenLimits, Target},
};
use crate::{
    connection::{QueueSender, send_queue},
    copy::endpoint::{
        access_scope::AccessScope,
        rendezvous::{ControlConnections, connect_endpoints},
        reports::{Counters, Reporter, exit_at_stdin_eof, report_ready},
    },
    protocol::{control::Begin, message::TargetMsg, report::Progress},
};
use anyhow::Result;
use longhaul_command::threads;
use longhaul_scheduling::streams::STREAMS_MAX;
use longhaul_transport::identity::Identity;
use std::sync::Arc;

pub(crate) fn run(
    mut begin: Begin,
    scope: &AccessScope,
    identity: &Identity,
    reporter: &Reporter,
) -> Result<Progress> {
    report_ready(&mut begin, scope, reporter)?;
    threads::spawn(exit_at_stdin_eof)?;
    run_session(&begin, scope, identity, reporter)
}

/// Runs the session, once the address of the peer is known.
pub(crate) fn run_session(
    begin: &Begin,
    scope: &AccessScope,
    identity: &Identity,
    reporter: &Reporter,
) -> Result<Progress> {
    // With few descriptors, fewer files are open at once.
    let streams = begin.options.streams_fixed().map(usize::from);
    let (descriptors, _) = longhaul_linux::descriptors::limits();
    let open_limits = OpenLimits::for_descriptors(descriptors, streams.unwrap_or(STREAMS_MAX));
    let path = begin.paths.first().map_or(&b"."[..], Vec::as_slice);
    let (root, top_name, planned_directory) = destination::open_destination(scope, path, begin)?;
    let (to_source, sender) = send_queue();
    let target = Arc::new(Target {
        root: Arc::new(root),
        top_name,
        planned_directory,
        preserve: Arc::new(begin.options.preserve.clone()),
        options: Arc::new(begin.options.clone()),
        task: begin.task,
        shared: Arc::default(),
        to_source,
        counters: Counters::default(),
        reporter: reporter.clone(),
        opener: Arc::default(),
    });
    target
        .shared
        .update_silent(|state| state.open_limits = open_limits);
    target.record_shares(&begin.shares)?;
    let outcome = target.connect_and_run(begin, identity, sender);
    target.shared.update(|state| state.over = true);
    target.opener.finish(outcome)?;
    Ok(target.counters.snapshot())
}

impl Target {
    /// Runs the session until all is done.
    fn connect_and_run(
        self: &Arc<Self>,
        begin: &Begin,
        identity: &Identity,
        sender: QueueSender<TargetMsg>,
    ) -> Result<()> {
        let ControlConnections {
            source_messages,
            target_messages,
        } = connect_endpoints(begin, identity, &self.reporter, self.clone())?;
        threads::spawn(move || sender.run(target_messages))?;
        self.counters.start_reporting(self.reporter.clone())?;
        if begin.options.checksum {
            self.start_comparing()?;
        }
        if !begin.options.dry_run {
            let committer = self.clone();
            threads::spawn(move || committer.commit_until_over())?;
            let verifier = self.clone();
            threads::spawn(move || verifier.verify_all())?;
            let hasher = self.clone();
            threads::spawn(move || hasher.hash_other_versions())?;
        }
        self.handle_messages(source_messages)
    }
}
