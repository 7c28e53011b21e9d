// SPDX-License-Identifier: MIT OR Apache-2.0
//! Running `longhaul relay`, with clients and origin servers on real sockets.

mod clients;
mod payload;
mod process;

pub use crate::namespace::may_use_namespaces;
pub use crate::timeouts::{TEST_TIMEOUT, set_timeouts};
pub use clients::{
    accept, assert_connect_reset, assert_reset, connect, dial, listen_as_origin, parse_http_status,
    read_array, read_convert_answer, read_http_head, refusing_address,
};
pub use payload::{half_close, receive, receive_bytes, send, send_bytes, transfer_both_ways};
pub use process::Relay;
