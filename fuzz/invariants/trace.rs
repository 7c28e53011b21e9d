// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trace in Mahimahi's format: it reads back, and a link that follows it sends nothing early and
//! nothing out of order.

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
    departs_in_order(trace);
}

fn departs_in_order(trace: Trace) {
    let period = trace.period();
    let mut clock = TraceClock::new(Arc::new(trace));
    let mut last = Time::ZERO;
    for turn in 0..32_u64 {
        // Now a backlog, now a pause of part of a period, now one of several.
        let ready = last.max(Time::from_nanos(period.as_nanos() / 7 * (turn % 5) * turn));
        let departure = clock.transmit(ready, 40 + 300 * turn as u32);
        assert!(departure >= ready && departure >= last);
        last = departure;
    }
}
