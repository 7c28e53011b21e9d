// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is done beside serving, on the thread that started the relay: looking after connections, the service manager,
//! reloads, and the answers of the admin endpoint.

pub(crate) mod overview;
pub(crate) mod reload;
pub(crate) mod rounds;
pub(crate) mod service_manager;
pub(crate) mod watch;
