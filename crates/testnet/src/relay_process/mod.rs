// SPDX-License-Identifier: MIT OR Apache-2.0
//! A real `longhaul relay`, and clients and origins on real sockets to test it with.

mod clients;
mod payload;
mod process;

pub use crate::patience::{PATIENCE, patient};
pub use clients::{
    accept, assert_reset, assert_turned_away, connect, convert_answer, dial, http_head,
    http_status, origin, read_array, refusing,
};
pub use payload::{exchange, half_close, receive, send};
pub use process::Relay;

/// Root, or the reason to skip; without ALLOW_SKIP=1, a reason to fail.
pub fn may_use_namespaces() -> bool {
    longhaul_testbed::skip::unless(
        rustix::process::geteuid().is_root(),
        "root (CAP_NET_ADMIN and CAP_SYS_ADMIN)",
    )
}
