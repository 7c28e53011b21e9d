// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tasks of the thread that started the relay: supervision of connections, the service manager,
//! reloads, and the data of the admin endpoint.

pub(crate) mod admin_source;
pub(crate) mod connection_limits;
pub(crate) mod reload;
pub(crate) mod sampling;
pub(crate) mod service_manager;
pub(crate) mod shared_limits;
