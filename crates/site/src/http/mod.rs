// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exports over HTTP and WebDAV as `/EXPORT/PATH`, for programs that know nothing of longhaul.
//!
//! Each listener has a process of its own (`process`), so that a crash on a request ends no copy. hyper implements
//! HTTP, `access` authenticates, and `dav` executes requests.

mod access;
mod audit;
mod budget;
mod claims;
mod dav;
mod dav_request;
mod digests;
mod export;
mod get;
mod index;
mod listing;
mod lock;
pub(super) mod locks;
mod page;
pub(super) mod process;
mod properties;
mod put;
mod replacement;
pub(super) mod request;
mod response;
mod server;
