// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a connection, its record, and those of a tunnel before its end.

use crate::{
    config::listener::Kind,
    faults::fault::Fault,
    records::journal::Journal,
    session::{CutReason, Session, open_records::TunnelRequest},
    transfer::{End, Side},
};
use jiff::Timestamp;
use longhaul_admin::relay_record::{ConnectionRecord, EndReason, Record};
use longhaul_transport::transport::TransportStream;
use std::{sync::atomic::Ordering::Relaxed, time::Instant};
use tracing::{Level, debug, enabled};

/// Closes a connection and writes its record when dropped, however the connection ends.
pub(crate) struct CloseGuard<'a> {
    pub(crate) session: &'a Session,
    pub(crate) end: End,
}

impl Drop for CloseGuard<'_> {
    fn drop(&mut self) {
        let Self { session, end } = self;
        if session.relay.sampler.is_enabled() {
            let sample = session.sample(&session.upstream());
            session
                .relay
                .sampler
                .record_final(sample, &session.records.final_sample_taken);
        }
        session.close(end);
        if session.was_idle_pooled(end) {
            return;
        }
        let duration = session.activity.started.elapsed();
        session.listener.counters.times.duration.add(duration);
        session.log(end);
        session.end_open_records();
        let journals = session.journals();
        let mut enabled = journals.into_iter().filter(|journal| journal.is_enabled());
        if let Some(first) = enabled.next() {
            let record = session.record(describe(end));
            enabled.for_each(|second| second.put(record.clone()));
            first.put(record);
        }
    }
}

impl Session {
    /// Counts a failure and returns it as the end.
    pub(crate) fn fail(&self, fault: impl Into<Fault>) -> End {
        let fault = fault.into();
        self.listener.counters.count_failure(fault.failure);
        End::Failed(fault)
    }

    /// Returns the access log, unless there is none or it leaves this client out.
    pub(crate) fn access_log(&self) -> Option<&Journal> {
        let (log, client) = (&self.relay.access_log, self.client.address.ip());
        let mut left_out = self.setup.config.access_log_except.iter();
        (log.is_enabled() && !left_out.any(|network| network.contains(client))).then_some(log)
    }

    /// Returns the files that get the connection's record. The access log has a record of each HTTP request instead.
    fn journals(&self) -> Vec<&Journal> {
        let access_log = self.access_log();
        let access_log = access_log.filter(|_| !self.records.requests_logged.load(Relaxed));
        std::iter::once(&self.relay.journal)
            .chain(access_log)
            .collect()
    }

    /// Closes both legs.
    ///
    /// Invariant: an abnormal end never becomes a clean FIN. A failed connection got an error
    /// message if its protocol has one. Otherwise it ends by RST, as all connections do whose end
    /// was not passed on.
    fn close(&self, end: &End) {
        if matches!(end, End::Finished) {
            return self.close_cleanly();
        }
        if matches!(end, End::Broken(..) | End::Cut) {
            if let Some(bundle) = self.client_bundle() {
                bundle.reset_on_close();
            }
            self.client.stream.reset_on_close();
        }
        let upstream = self.lock_upstream();
        if let Some(transport) = &upstream.transport {
            transport.reset_on_close();
            if let Some(bundle) = upstream.bundle() {
                bundle.reset_on_close();
            }
        }
    }

    /// Closes all legs by FIN: all bytes have been delivered.
    fn close_cleanly(&self) {
        let upstream = self.upstream();
        self.client.stream.fin_on_close();
        if let Some(transport) = &upstream.transport {
            transport.fin_on_close();
        }
        for bundle in upstream.bundle().into_iter().chain(self.client_bundle()) {
            bundle.fin_on_close();
        }
    }

    /// Returns whether this was a pooled connection of a peer without a request; such a connection
    /// is not recorded.
    fn was_idle_pooled(&self, end: &End) -> bool {
        let finished = matches!(
            (&self.setup.listener_config.kind, end),
            (Kind::Convert, End::Finished)
        );
        finished && self.lock_upstream().destination.is_none()
    }

    /// Logs the end at level `debug`: one line per connection.
    fn log(&self, end: &End) {
        if !enabled!(Level::DEBUG) {
            return;
        }
        let destination = || self.lock_upstream().destination.clone().unwrap_or_default();
        let (bytes_up, bytes_down) = self.traffic.read();
        let (_, cause) = describe(end);
        debug!(
            client = %self.client.address,
            listener = %self.listener.address,
            destination = destination(),
            bytes_up,
            bytes_down,
            "connection ended: {}",
            cause.as_deref().unwrap_or("finished")
        );
    }

    fn record(&self, (ended, cause): (EndReason, Option<String>)) -> Record {
        let upstream = self.lock_upstream();
        let (bytes_up, bytes_down) = self.traffic.read();
        let cause = cause.or(self.cut_cause());
        let transport = upstream.transport.as_ref();
        let (client_bundle, bundle) = (self.client_bundle(), upstream.bundle());
        Record::Connection(Box::new(ConnectionRecord {
            time: Timestamp::now(),
            kind: self.setup.listener_config.kind.to_string(),
            listener: self.listener.address,
            client: self.client.address,
            user: upstream.user.clone(),
            destination: upstream.destination.clone(),
            next_hop: upstream.next_hop,
            bytes_up,
            bytes_down,
            duration_s: self.activity.started.elapsed().as_secs_f64(),
            ended,
            cause,
            downstream: self.client.stream.tcp_info(),
            upstream: transport.and_then(TransportStream::tcp_info),
            downstream_streams: client_bundle
                .map(|bundle| bundle.tcp_info())
                .unwrap_or_default(),
            upstream_streams: bundle.map(|bundle| bundle.tcp_info()).unwrap_or_default(),
        }))
    }

    /// Stores the HTTP request that makes the connection a tunnel, if the tunnel has records while it is open.
    pub(crate) fn set_tunnel_request(&self, request: impl FnOnce() -> TunnelRequest) {
        if self.setup.config.access_log_interval.is_some() {
            self.records.open.set_request(request());
        }
    }

    /// Writes a record of the open tunnel to the access log, if one is due.
    pub(crate) fn record_if_due(&self, now: Instant) {
        let (interval, access_log) = (self.setup.config.access_log_interval, self.access_log());
        if let (Some(interval), Some(access_log)) = (interval, access_log) {
            let put = || access_log.put(self.open_record());
            self.records.open.timer.run_if_due(interval, now, put);
        }
    }

    fn open_record(&self) -> Record {
        let request = self.records.open.request_record(self.traffic.read());
        request.unwrap_or_else(|| self.record((EndReason::Open, None)))
    }

    /// Ends the records of the open tunnel, since that of the end follows.
    pub(crate) fn end_open_records(&self) {
        self.records.open.timer.end();
    }

    /// Returns the reason for which the relay has cut this connection alone.
    pub(crate) fn cut_cause(&self) -> Option<String> {
        self.activity.cut_reason.get().map(ToString::to_string)
    }

    /// Stores the reason of a cut for the record.
    pub(crate) fn set_cut_reason(&self, reason: CutReason) {
        let _ = self.activity.cut_reason.set(reason);
    }
}

/// Returns the reason and the cause of an end, for records.
pub(crate) fn describe(end: &End) -> (EndReason, Option<String>) {
    match end {
        End::Finished => (EndReason::Finished, None),
        End::Broken(Side::Downstream, error) => (EndReason::ClientAborted, Some(error.to_string())),
        End::Broken(Side::Upstream, error) => {
            (EndReason::DestinationAborted, Some(error.to_string()))
        }
        End::Failed(fault) => (EndReason::Failed, Some(fault.to_string())),
        End::Cut => (EndReason::ResetByRelay, None),
        End::Joined(_) => unreachable!("a leg of another connection has no record"),
    }
}
