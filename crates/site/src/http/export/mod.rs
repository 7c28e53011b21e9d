// SPDX-License-Identifier: MIT OR Apache-2.0
//! View of an export for WebDAV: files, directories, uploads, and whole trees.

pub(super) mod attributes;
pub(super) mod files;
pub(super) mod meta;
pub(super) mod tree;
pub(super) mod upload;
