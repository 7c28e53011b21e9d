// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks traces in Mahimahi's format: a trace reads back, and a link that follows it sends no packet early or out of
//! order.

use longhaul_netem::transmitter::trace::{Trace, TraceClock};
use longhaul_units::Time;
use std::sync::Arc;

pub(crate) fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let Ok(trace) = text.parse::<Trace>() else {
        return;
    };
    assert_eq!(trace.to_string().parse(), Ok(trace.clone()));
    assert!(trace.mean_rate().bits() > 0 && trace.period() > Time::ZERO);
    check_departures(trace);
}

fn check_departures(trace: Trace) {
    let period = trace.period();
    let mut clock = TraceClock::new(Arc::new(trace));
    let mut last = Time::ZERO;
    for turn in 0..32_u64 {
        // Packets alternate between a backlog, a pause of part of a period and a pause of several periods.
        let ready = last.max(Time::from_nanos(period.as_nanos() / 7 * (turn % 5) * turn));
        let departure = clock.transmit(ready, 40 + 300 * turn as u32);
        assert!(departure >= ready && departure >= last);
        last = departure;
    }
}
