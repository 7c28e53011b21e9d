// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that reads again what an earlier run brought of files, while the rest of them comes.

use super::{Target, arriving::Large, state::Shared};
use longhaul_scheduling::Stage;
use std::sync::Arc;

impl Target {
    pub(super) fn check_all(&self) {
        let mut gauge = self.tally.gauges.of_thread(Stage::Resting, None);
        while let Some(large) = self.shared.next_to_check() {
            gauge.begin(Stage::Looking);
            while large.check_next() && !self.shared.is_over() {}
            gauge.begin(Stage::Resting);
        }
    }
}

impl Shared {
    /// A file that nobody has checked; waits for one. `None`: nothing more comes.
    fn next_to_check(&self) -> Option<Arc<Large>> {
        self.wait_for(|state| match state.over {
            true => Some(None),
            false => state.to_check.pop_front().map(Some),
        })
    }
}
