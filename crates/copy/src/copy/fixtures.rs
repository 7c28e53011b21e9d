// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entries that tests announce.

use longhaul_store::{
    entry::{Entry, Kind, Version},
    metadata::{Metadata, Time},
    path::RelPath,
};

pub(super) fn entry(path: &str, kind: Kind) -> Entry {
    let metadata = Metadata {
        mode: 0o644,
        uid: longhaul_linux::process::user(),
        gid: 0,
        modified: Time {
            seconds: 7,
            nanos: 7,
        },
        accessed: Time {
            seconds: 7,
            nanos: 7,
        },
        xattrs: Vec::new(),
    };
    Entry {
        path: RelPath::parse(path.as_bytes()).unwrap(),
        kind,
        metadata,
    }
}

/// Returns a file of this size in bytes.
pub(super) fn file(size: u64) -> Kind {
    let time = Time {
        seconds: 7,
        nanos: 7,
    };
    Kind::File {
        version: Version {
            size,
            modified: time,
            changed: time,
            inode: 1,
            device: 1,
        },
        sparse: true,
    }
}
