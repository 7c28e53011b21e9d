// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks block headers: a header that parses is written the same, and names a block that a file can have and no more
//! bytes than the receive buffer holds.

use longhaul_copy::protocol::block::{Content, HEADER_LEN, Header};
use longhaul_store::blocks::BLOCK_LEN;

pub(crate) fn check(input: &[u8]) {
    let Some(bytes) = input.first_chunk::<HEADER_LEN>() else {
        return;
    };
    let Ok(header) = Header::parse(bytes) else {
        return;
    };
    assert_eq!(header.encode(), *bytes);
    let end = (header.block + 1).checked_mul(BLOCK_LEN);
    assert!(end.is_some(), "beyond every file");
    if let Content::Data(length) = header.content {
        assert!((1..=BLOCK_LEN).contains(&length.into()));
    }
}
