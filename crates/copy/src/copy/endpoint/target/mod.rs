// SPDX-License-Identifier: MIT OR Apache-2.0
//! Target endpoint. It requests what it lacks of what the source announces, writes blocks to their places as
//! they arrive, makes them durable in batches, and only then counts them.

mod block_set;
mod commit;
mod comparison;
mod deletion_limit;
mod destination;
mod dry_run;
mod extras;
mod file_pieces;
mod large_file;
mod link_hashes;
mod messages;
mod other_version;
pub(super) mod session;
mod small_file;
mod stale_hashes;
mod state;
mod stream;
mod wanted_files;
