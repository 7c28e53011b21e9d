// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses how many legs of a bundle the sender uses, again and again.

use crate::{
    faults::limited_leg::LimitedLeg,
    leg::window::SendWindow,
    stripe::{bundle::Bundle, demand::Demand},
};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// Time between two looks at the legs of a bundle.
const INTERVAL: Duration = Duration::from_millis(50);

/// Reports a leg that a buffer limits.
pub(crate) type ReportLimited<'a> = dyn Fn(&LimitedLeg) + Send + Sync + 'a;

/// Tells the sender how many legs to use, without end: all, or as many as it needs if that is automatic. Reports that
/// even all of them are limited.
pub(crate) async fn choose_legs(
    bundle: &Bundle,
    is_automatic: bool,
    report_limited: &ReportLimited<'_>,
) {
    let first = bundle.first();
    let mut demand = Demand::new(bundle.send_buffer(), Instant::now());
    let mut window = SendWindow::default();
    loop {
        let infos = bundle.tcp_info();
        if bundle.uses_all_legs()
            && let Some(limited) = window.report(&infos, &first.leg)
        {
            report_limited(&limited);
        }
        let legs = match is_automatic {
            true => demand.legs(&infos, bundle.legs_in_use(), Instant::now()),
            false => usize::MAX,
        };
        bundle.use_legs(legs.max(1));
        sleep(INTERVAL).await;
    }
}
