// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transfer of bytes between descriptors through pipes and buffers, reading of files with secrets, and waiting for
//! descriptors.

pub mod pipe_pool;
pub mod private_file;
pub mod splice;
pub mod transfer_buffer;
pub mod wait;
