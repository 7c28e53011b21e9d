// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a site, told to all that it does.

use tokio::sync::watch;

/// Who decides.
#[derive(Debug, Default)]
pub(super) struct Stop(watch::Sender<bool>);

/// Who obeys.
#[derive(Debug, Clone)]
pub(super) struct Stopped(watch::Receiver<bool>);

impl Stop {
    pub(super) fn watch(&self) -> Stopped {
        Stopped(self.0.subscribe())
    }

    pub(super) fn now(&self) {
        self.0.send_replace(true);
    }
}

impl Stopped {
    /// Returns when it is to stop; also if whoever decides is gone.
    pub(super) async fn reached(&mut self) {
        let _ = self.0.wait_for(|stopped| *stopped).await;
    }
}
