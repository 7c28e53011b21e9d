// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exports over HTTP and WebDAV as `/EXPORT/PATH`, for programs that know nothing of longhaul.
//!
//! Each listener has a process of its own (`process`), so that a crash on a request ends no copy. hyper implements
//! HTTP, `access` authenticates, and `dav` checks requests before dav-server handles them.

mod access;
mod audit;
mod budget;
mod claims;
mod dav;
mod export;
mod get;
mod index;
mod library;
mod listing;
mod lock;
pub(super) mod locks;
mod opening;
mod partial;
mod preconditions;
pub(super) mod process;
mod properties;
mod replacement;
pub(super) mod request;
mod response;
mod server;
mod wanted_digests;
