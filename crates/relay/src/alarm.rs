// SPDX-License-Identifier: MIT OR Apache-2.0
//! A relay that has lost a thread must not go on as if nothing had happened.

use tokio::sync::watch;

/// Raised as soon as a thread that serves has ended, by an error, a panic or in its time.
#[derive(Debug)]
pub(crate) struct Alarm(watch::Sender<bool>);

impl Alarm {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Does `work`, after which the alarm is raised, however it ends.
    pub(crate) fn over<T>(&self, work: impl FnOnce() -> T) -> T {
        let _raised = Raise(&self.0);
        work()
    }

    pub(crate) fn is_raised(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns once it is raised.
    pub(crate) async fn raised(&self) {
        // An error would mean that the sender is gone, but `self` is the sender.
        let _ = self.0.subscribe().wait_for(|raised| *raised).await;
    }
}

struct Raise<'a>(&'a watch::Sender<bool>);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn an_end_is_heard_of_whatever_it_was() {
        let failed = Alarm::new();
        assert!(!failed.is_raised());
        assert_eq!(
            failed.over(|| Err::<(), _>("no descriptors")),
            Err("no descriptors")
        );
        assert!(failed.is_raised());
        let panicked = Alarm::new();
        let work = || panicked.over(|| panic!("a bug"));
        assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
        assert!(panicked.is_raised());
    }
}
