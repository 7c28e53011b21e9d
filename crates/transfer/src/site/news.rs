// SPDX-License-Identifier: MIT OR Apache-2.0
//! That something may be new in an export, told to whoever copies it on.

use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::Notify;

/// One bell an export. A ring that nobody waits for is heard by who waits next; several are one.
#[derive(Debug)]
pub(super) struct News(BTreeMap<String, Arc<Notify>>);

impl News {
    pub(super) fn of_exports<'a>(names: impl Iterator<Item = &'a String>) -> Self {
        Self(names.map(|name| (name.clone(), Arc::default())).collect())
    }

    /// By this site, something may have come.
    pub(super) fn came(&self, export: &str) {
        if let Some(bell) = self.0.get(export) {
            bell.notify_one();
        }
    }

    /// For one listener.
    pub(super) fn of(&self, export: &str) -> Arc<Notify> {
        self.0.get(export).cloned().unwrap_or_default()
    }
}
