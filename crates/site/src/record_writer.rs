// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output of records: JSON on standard output, or lines of the log.

use super::record::Record;
use longhaul_command::line_writer::LineWriter;
use tracing::{error, info, warn};

static STDOUT: LineWriter = LineWriter::stdout(|count| json(&Record::RecordsLost { count }));

/// Waits until all lines on standard output are written, but at most a second.
pub(super) fn flush() {
    STDOUT.flush();
}

/// Output of records.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordWriter {
    /// Whether records go to standard output as JSON instead of the log.
    pub(super) json: bool,
}

impl RecordWriter {
    /// Writes a record. Never waits for a reader.
    pub(super) fn write(self, record: &Record) {
        if self.json {
            STDOUT.queue(&json(record));
        } else {
            log(record);
        }
    }
}

fn json(record: &Record) -> String {
    serde_json::to_string(record).unwrap_or_default() + "\n"
}

fn log(record: &Record) {
    match record {
        Record::HttpExited { .. } => error!("{record}"),
        Record::Refused { .. } | Record::Lagging { .. } | Record::RecordsLost { .. } => {
            warn!("{record}");
        }
        _ => info!("{record}"),
    }
}
