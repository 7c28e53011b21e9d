// SPDX-License-Identifier: MIT OR Apache-2.0
//! BPF programs that configure sockets of other programs: options ([`profile`]), the initial window
//! ([`initial_window`]) and a cap on the window ([`window_cap`]).

pub mod initial_window;
pub mod profile;
pub mod window_cap;
