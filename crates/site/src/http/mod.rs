// SPDX-License-Identifier: MIT OR Apache-2.0
//! A site's exports over HTTP and WebDAV, for programs that know nothing of longhaul: `/EXPORT/PATH`.
//!
//! Each listener has a process of its own (`process`), so that what a request does to it takes no copy along. hyper
//! speaks HTTP; who may is `access`; what a request is checked for before dav-server has it is `dav`.

mod access;
mod answer;
mod audit;
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
pub(super) mod process;
mod properties;
mod protection;
mod replacement;
pub(super) mod request;
mod room;
mod server;
