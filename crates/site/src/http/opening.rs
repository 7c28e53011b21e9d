// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens exports. One may be on a host that does not answer: that keeps nobody from the others.

use super::{access::Access, audit::Changes, export::files::Files};
use std::time::Duration;
use tokio::time::timeout;

/// Opens an export for a request, and looks at it, all on a thread for that. None: it can't be opened, or not in time.
pub(super) async fn open<T: Send + 'static>(
    access: Access,
    changes: Changes,
    limit: Duration,
    look: impl FnOnce(Files) -> T + Send + 'static,
) -> Option<T> {
    let opened = async {
        let turn = access.room.opening(&access.export).await?;
        let opened = tokio::task::spawn_blocking(move || {
            // As long as it takes, whoever waits for it.
            let _turn = turn;
            Files::of(access, changes).map(look).ok()
        });
        opened.await.ok()?
    };
    timeout(limit, opened).await.ok()?
}
