// SPDX-License-Identifier: MIT OR Apache-2.0
//! What programs of the kernel give to the sockets of others: options ([`profile`]), the first window
//! ([`initial_window`]) and a bound on it ([`window_cap`]).

pub mod initial_window;
pub mod profile;
pub mod window_cap;
