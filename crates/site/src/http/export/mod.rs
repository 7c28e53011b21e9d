// SPDX-License-Identifier: MIT OR Apache-2.0
//! View of an export for WebDAV: files, directories, downloads and uploads.

pub(super) mod attributes;
pub(super) mod digest;
pub(super) mod download;
pub(super) mod files;
pub(super) mod guard;
pub(super) mod meta;
pub(super) mod terms;
pub(super) mod tree;
pub(super) mod upload;
