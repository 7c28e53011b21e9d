// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the binary's copy commands, with real sockets, files and processes, and the committed corpora of its fuzz targets.

#[path = "../../../../fuzz/invariants/block.rs"]
mod block;
mod copy_bad_disks;
mod copy_changes;
mod copy_changing_tree;
mod copy_checksum;
mod copy_crashes;
mod copy_deletion;
mod copy_deltas;
mod copy_distributed;
mod copy_dry_run;
mod copy_faults;
mod copy_file_systems;
mod copy_limits;
mod copy_links;
mod copy_local;
mod copy_reachability;
mod copy_reports;
mod copy_shared_directories;
mod copy_sources;
mod copy_targets;
mod copy_testbed;
mod copy_through_ssh;
mod copy_verify;
#[cfg(feature = "leases")]
mod copy_workers;
#[path = "../../../../fuzz/invariants/message.rs"]
mod message;
#[path = "../../../../fuzz/invariants/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn block_headers_round_trip() {
    replay("block", block::check);
}

#[test]
fn messages_round_trip() {
    replay("message", message::check);
}
