// SPDX-License-Identifier: MIT OR Apache-2.0
//! Running `longhaul relay`, with clients and origin servers on real sockets.

mod clients;
mod payload;
mod process;

pub use crate::timeouts::{TEST_TIMEOUT, set_timeouts};
pub use clients::{
    accept, assert_connect_reset, assert_reset, connect, convert_answer, dial, http_head,
    http_status, origin, read_array, refusing_address,
};
pub use payload::{exchange, half_close, receive, send};
pub use process::Relay;

/// Whether this process is root, and may create namespaces. If not, the test fails, or is skipped with ALLOW_SKIP=1.
pub fn may_use_namespaces() -> bool {
    longhaul_testbed::skip::unless(
        rustix::process::geteuid().is_root(),
        "root (CAP_NET_ADMIN and CAP_SYS_ADMIN)",
    )
}
