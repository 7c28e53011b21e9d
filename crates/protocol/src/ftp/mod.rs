// SPDX-License-Identifier: MIT OR Apache-2.0
//! Control connection of an FTP client (RFC 959): commands, replies, and the lines of a listing. No I/O.
//!
//! Names are bytes: RFC 959 has no character set, and servers hold names in Latin-1, Shift JIS, EUC and others besides
//! UTF-8 (RFC 2640).

mod argument;
mod facts;
mod list_line;
mod passive;
mod reply;

pub use argument::{Argument, ControlCharacter};
pub use list_line::ListLine;
pub use reply::{REPLY_LEN_MAX, Reply, ReplyError};
