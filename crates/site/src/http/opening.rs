// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening of exports. An export may be on a host that does not respond, which must not block the others.

use super::{access::Access, audit::ChangeCounter, export::files::Files};
use std::time::Duration;
use tokio::time::timeout;

/// Opens an export for a request and inspects it on a blocking thread. Returns `None` if that fails or takes longer
/// than `limit`.
pub(super) async fn open<T: Send + 'static>(
    access: Access,
    changes: ChangeCounter,
    limit: Duration,
    inspect: impl FnOnce(Files) -> T + Send + 'static,
) -> Option<T> {
    let opened = async {
        let permit = access.budget.acquire_open(&access.export).await?;
        let opened = tokio::task::spawn_blocking(move || {
            // The permit is held while the thread runs, even if the request has timed out.
            let _permit = permit;
            Files::of(access, changes).map(inspect).ok()
        });
        opened.await.ok()?
    };
    timeout(limit, opened).await.ok()?
}
