// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses how many legs of a bundle the sender uses, again and again.

use crate::{
    faults::limited_leg::ReportLimited,
    leg::window::SendWindow,
    stripe::{bundle::Bundle, demand::Demand},
};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// Shortest and longest time between two looks at the legs of a bundle. It grows while nothing is acknowledged.
const INTERVAL_MIN: Duration = Duration::from_millis(50);
const INTERVAL_MAX: Duration = Duration::from_millis(400);

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
    let (mut acked, mut interval) = (0, INTERVAL_MIN);
    loop {
        let infos = bundle.tcp_info();
        if bundle.uses_all_legs()
            && let Some(limited) = window.report(&infos, &first.leg)
        {
            report_limited(&limited);
        }
        let legs = if is_automatic {
            demand.legs(&infos, bundle.legs_in_use(), Instant::now())
        } else {
            usize::MAX
        };
        bundle.use_legs(legs.max(1));
        let now_acked: u64 = infos.iter().map(|info| info.acked_bytes).sum();
        interval = if std::mem::replace(&mut acked, now_acked) == now_acked {
            (interval * 2).min(INTERVAL_MAX)
        } else {
            INTERVAL_MIN
        };
        sleep(interval).await;
    }
}
