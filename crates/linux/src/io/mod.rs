// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes between descriptors: through pipes and buffers, and out of files with secrets; waiting for descriptors.

pub mod pipe_pool;
pub mod private_file;
pub mod splice;
pub mod transfer_buffer;
pub mod wait;
