// SPDX-License-Identifier: MIT OR Apache-2.0
//! An export as WebDAV sees it: files, directories, and what is being read and put.

pub(super) mod attributes;
pub(super) mod download;
pub(super) mod files;
pub(super) mod guard;
pub(super) mod meta;
pub(super) mod tree;
pub(super) mod upload;
