// SPDX-License-Identifier: MIT OR Apache-2.0
//! Target endpoint. It requests what it lacks of what the source announces, writes blocks to their places as
//! they arrive, makes them durable in batches, and only then counts them.

mod block_set;
mod commit;
mod comparison;
pub(super) mod conversation;
mod dry_run;
mod extras;
mod files;
mod large;
mod orders;
mod pieces;
mod place;
mod small;
mod state;
mod stream;
mod target;
