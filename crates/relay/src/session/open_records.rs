// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of a tunnel in the access log while it is open. The record of its end comes after them all.

use jiff::Timestamp;
use longhaul_admin::relay_record::{EndReason, Record, RequestRecord};
use parking_lot::Mutex;
use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

/// Records of one tunnel while it is open.
#[derive(Debug, Default)]
pub(crate) struct OpenRecords {
    pub(super) timer: RecordTimer,
    /// The HTTP request that made the connection a tunnel, if there was one.
    request: OnceLock<Box<TunnelRequest>>,
}

/// HTTP request that made a connection a tunnel.
#[derive(Debug)]
pub(crate) struct TunnelRequest {
    /// Its record, but for the end.
    pub(crate) record: RequestRecord,
    pub(crate) started: Instant,
    /// Bytes of the connection before it, from and to the client.
    pub(crate) bytes_before: (u64, u64),
}

impl TunnelRequest {
    fn record(&self, (bytes_up, bytes_down): (u64, u64)) -> Record {
        Record::Request(Box::new(RequestRecord {
            time: Timestamp::now(),
            bytes_up: bytes_up - self.bytes_before.0,
            bytes_down: bytes_down - self.bytes_before.1,
            duration_s: self.started.elapsed().as_secs_f64(),
            ended: EndReason::Open,
            ..self.record.clone()
        }))
    }
}

impl OpenRecords {
    /// Stores the HTTP request that makes the connection a tunnel.
    pub(super) fn set_request(&self, request: TunnelRequest) {
        let _ = self.request.set(request.into());
    }

    /// Returns the record of the HTTP request, if there was one, with the bytes of the connection until now.
    pub(super) fn request_record(&self, bytes: (u64, u64)) -> Option<Record> {
        Some(self.request.get()?.record(bytes))
    }
}

/// Timer of the records.
#[derive(Debug, Default)]
pub(super) struct RecordTimer(
    /// Time of the next record; `None` before the tunnel and after its end.
    Mutex<Option<Instant>>,
);

impl RecordTimer {
    /// Starts the timer, unless it runs.
    pub(super) fn start(&self, first: Instant) {
        self.0.lock().get_or_insert(first);
    }

    /// Ends the timer. Waits for a record that is being written.
    pub(super) fn end(&self) {
        *self.0.lock() = None;
    }

    /// Calls `write` if a record is due. Records that were missed are left out.
    pub(super) fn run_if_due(&self, interval: Duration, now: Instant, write: impl FnOnce()) {
        let mut next = self.0.lock();
        let Some(due) = next.as_mut().filter(|due| **due <= now) else {
            return;
        };
        *due += interval;
        if *due <= now {
            *due = now + interval;
        }
        write();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(60);

    fn is_due(timer: &RecordTimer, now: Instant) -> bool {
        let mut is_due = false;
        timer.run_if_due(INTERVAL, now, || is_due = true);
        is_due
    }

    #[test]
    fn records_keep_their_interval_although_they_are_late() {
        let (timer, start) = (RecordTimer::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert!(!is_due(&timer, after(1000)), "not a tunnel yet");
        timer.start(after(60));
        timer.start(after(70));
        assert!(!is_due(&timer, after(59)));
        assert!(is_due(&timer, after(61)) && !is_due(&timer, after(61)));
        assert!(is_due(&timer, after(120)));
    }

    #[test]
    fn missed_records_are_left_out() {
        let (timer, start) = (RecordTimer::default(), Instant::now());
        timer.start(start);
        assert!(is_due(&timer, start + 5 * INTERVAL));
        assert!(!is_due(&timer, start + 5 * INTERVAL + INTERVAL / 2));
    }

    #[test]
    fn no_record_follows_the_end() {
        let (timer, start) = (RecordTimer::default(), Instant::now());
        timer.start(start);
        timer.end();
        assert!(!is_due(&timer, start + INTERVAL));
    }
}
