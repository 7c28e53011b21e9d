// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log: events of `tracing` as lines on standard error.
//!
//! Level `error` is for something that ended or was lost. `warn` is for an operator: a peer down, a client refused, a
//! limit reached. `info` is for the life of a daemon: listening, reloaded, stopped. `debug` and `trace` are for single
//! connections. At the default level, `info`, no line is written per connection. [`RateLimit`] bounds the lines that
//! remote hosts can cause.

use crate::{console, line_writer::LineWriter};
use std::{env, fmt, io, os::fd::AsFd, str::FromStr, sync::OnceLock};
use tracing::{Event, Level, Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    filter::Targets,
    fmt::{
        FmtContext, FormatEvent, FormatFields, FormattedFields, MakeWriter,
        format::{self, Json, JsonFields, Writer},
        time::{FormatTime, SystemTime as Rfc3339},
    },
    layer::SubscriberExt as _,
    registry::{LookupSpan, Scope},
    util::SubscriberInitExt as _,
};

mod rate_limit;

pub use rate_limit::{Decision, RateLimit};

/// Flags of the log, the same for every command.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Log")]
pub struct Args {
    /// Lowest level to log: error, warn, info, debug, trace or off. A part of the program can have its own:
    /// info,relay::peers=debug [default: info]
    #[arg(long, value_name = "LEVEL", global = true)]
    log_level: Option<Filter>,

    /// Format of log lines: text or json [default: text]
    #[arg(long, value_name = "FORMAT", global = true)]
    log_format: Option<Format>,
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Time, level, target, message and fields, for people.
    #[default]
    Text,
    /// One JSON object per line, for programs.
    Json,
}

/// Lowest level of the log lines that are written, overall or by target.
#[derive(Debug, Clone)]
struct Filter(Targets);

impl Default for Filter {
    fn default() -> Self {
        Self(Targets::new().with_target(CRATE_PREFIX, LevelFilter::INFO))
    }
}

/// Prefix of the targets of longhaul's own events. A target is the name of a crate. Text lines show it without the
/// prefix.
const CRATE_PREFIX: &str = "longhaul";

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut filter = Self::default();
        for directive in text.split(',').map(str::trim) {
            let (target, level) = match directive.split_once('=') {
                Some((target, level)) => (target.trim(), level.trim()),
                None => (CRATE_PREFIX, directive),
            };
            let level = parse_level(level)?;
            // `relay` stands for the crate longhaul_relay. Any other name may be a library's crate.
            for target in [target.to_owned(), format!("{CRATE_PREFIX}_{target}")] {
                filter.0 = filter.0.with_target(target, level);
            }
        }
        Ok(filter)
    }
}

fn parse_level(text: &str) -> Result<LevelFilter, String> {
    let level = text.parse().ok().filter(|_| !text.is_empty());
    level.ok_or_else(|| {
        format!(
            "{text:?} is not a level: use error, warn, info, debug, trace or off, or TARGET=LEVEL"
        )
    })
}

/// Starts the log on standard error. A second call does nothing. If standard error is the systemd journal, each line
/// begins with a priority (sd-daemon(3)), and text lines have no time, because the journal keeps it.
pub fn start(args: &Args) {
    let journald = is_journal(&io::stderr(), env::var("JOURNAL_STREAM").ok().as_deref());
    let filter = args.log_level.clone().unwrap_or_default();
    let format = args.log_format.unwrap_or_default();
    if subscriber(filter, format, journald, || StderrLines)
        .try_init()
        .is_ok()
    {
        let _set_once = LAYOUT.set((format, journald));
    }
}

/// Format of the log, and whether it goes to the journal.
static LAYOUT: OnceLock<(Format, bool)> = OnceLock::new();

static STDERR: LineWriter = LineWriter::stderr(|count| {
    let (format, journald) = LAYOUT.get().copied().unwrap_or_default();
    dropped_lines(count, format, journald)
});

/// Returns the line that reports dropped lines. It is not an event of `tracing`: the writer's thread creates it while
/// it holds the lock of the buffer, which an event would take, too.
fn dropped_lines(count: u64, format: Format, journald: bool) -> String {
    let priority = if journald { "<4>" } else { "" };
    let message = format!("{count} log lines were dropped: they were not read in time");
    match format {
        Format::Text => format!("{priority}{message}\n"),
        Format::Json => format!("{priority}{{\"level\":\"WARN\",\"message\":\"{message}\"}}\n"),
    }
}

/// Returns what an error line of the program begins with: its priority, if it goes to the journal.
pub(crate) fn error_priority() -> &'static str {
    match LAYOUT.get() {
        Some((_, true)) => "<3>",
        _ => "",
    }
}

/// Waits until all lines of the log are written, for at most a second.
pub fn flush() {
    STDERR.flush();
}

/// Passes each line to [`STDERR`]. The formatter writes whole lines.
struct StderrLines;

impl io::Write for StderrLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        STDERR.queue(&String::from_utf8_lossy(line));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn subscriber<W>(
    filter: Filter,
    format: Format,
    journald: bool,
    writer: W,
) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let registry = tracing_subscriber::registry().with(filter.0);
    let layer = tracing_subscriber::fmt::layer().with_writer(writer);
    match format {
        Format::Text => Box::new(registry.with(layer.event_format(TextLine { journald }))),
        Format::Json => {
            let layer = layer.fmt_fields(JsonFields::new());
            Box::new(registry.with(layer.event_format(JsonLine::new(journald))))
        }
    }
}

/// Returns whether `file` is the stream to the journal. `JOURNAL_STREAM` has the device and inode of that stream
/// (systemd.exec(5)). A standard error that was redirected since then differs from it.
fn is_journal(file: &impl AsFd, journal_stream: Option<&str>) -> bool {
    let identity =
        || rustix::fs::fstat(file).map(|stat| format!("{}:{}", stat.st_dev, stat.st_ino));
    journal_stream.is_some_and(|stream| identity().is_ok_and(|own| own == stream))
}

/// Returns the priority of a level in the journal (syslog(3)).
const fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// Formatter of text lines: `2026-11-26T08:15:02.123456Z WARN relay::peers: peer is down peer="tokyo"`.
struct TextLine {
    journald: bool,
}

impl<S, N> FormatEvent<S, N> for TextLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = *event.metadata().level();
        if self.journald {
            write!(out, "<{}>", priority(level))?;
        } else {
            Rfc3339.format_time(&mut out)?;
            write!(out, " {level} ")?;
        }
        let mut fields = String::new();
        context.format_fields(Writer::new(&mut fields), event)?;
        let target = event.metadata().target();
        let target = target.strip_prefix("longhaul_").unwrap_or(target);
        // Fields may contain text from another host.
        write!(out, "{target}: ")?;
        for span in context.event_scope().into_iter().flat_map(Scope::from_root) {
            let extensions = span.extensions();
            let own = extensions.get::<FormattedFields<N>>();
            let own = own.map_or("", |fields| fields.as_str());
            write!(out, "{}{{{}}}: ", span.name(), console::escape(own))?;
        }
        writeln!(out, "{}", console::escape(&fields))
    }
}

/// Formatter of JSON lines. For the journal, each line begins with a priority.
struct JsonLine {
    journald: bool,
    json: format::Format<Json>,
}

impl JsonLine {
    fn new(journald: bool) -> Self {
        let json = format::Format::default()
            .json()
            .flatten_event(true)
            .with_current_span(false);
        Self { journald, json }
    }
}

impl<S> FormatEvent<S, JsonFields> for JsonLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if self.journald {
            write!(out, "<{}>", priority(*event.metadata().level()))?;
        }
        self.json.format_event(context, out, event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::os::linux::fs::MetadataExt as _;
    use std::{fs, sync::Arc};

    /// Lines that the log wrote in a test.
    #[derive(Debug, Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Lines {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    fn log(level: &str, format: Format, journald: bool, events: impl FnOnce()) -> String {
        let lines = Lines::default();
        let filter: Filter = level.parse().unwrap();
        let subscriber = subscriber(filter, format, journald, lines.clone());
        tracing::subscriber::with_default(subscriber, events);
        let bytes = lines.0.lock().clone();
        String::from_utf8(bytes).unwrap()
    }

    fn peer_down() {
        tracing::warn!(target: "longhaul_relay::peers", peer = "tokyo", "peer is down: {}", "refused\n\x1b[2J\u{202e}");
    }

    #[test]
    fn writes_time_level_target_message_and_fields_in_one_line() {
        let line = log("info", Format::Text, false, peer_down);
        let (time, rest) = line.split_once(' ').unwrap();
        assert_eq!(time.len(), "2026-11-26T08:15:02.123456Z".len(), "{time}");
        assert_eq!(
            rest,
            "WARN relay::peers: peer is down: refused\\n\\x1b[2J\\u{202e} peer=\"tokyo\"\n"
        );
    }

    #[test]
    fn names_the_spans_of_an_event() {
        let event = || {
            let _connection = tracing::debug_span!("connection", id = 7, name = %"a\x1b").entered();
            tracing::debug!("accepted");
        };
        let line = log("debug", Format::Text, false, event);
        assert!(
            line.contains(": connection{id=7 name=a\\u{1b}}: accepted"),
            "{line}"
        );
        let line = log("debug", Format::Json, false, event);
        let object: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(object["spans"][0]["id"], 7, "{line}");
        let line = log("info", Format::Json, false, peer_down);
        let object: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert!(object.get("spans").is_none(), "{line}");
    }

    #[test]
    fn writes_priorities_and_no_time_to_the_journal() {
        let line = log("info", Format::Text, true, peer_down);
        assert!(line.starts_with("<4>relay::peers: peer is down"), "{line}");
        let line = log("info", Format::Json, true, peer_down);
        assert!(line.starts_with("<4>{\""), "{line}");
    }

    #[test]
    fn writes_one_json_object_per_line() {
        let line = log("info", Format::Json, false, peer_down);
        let object: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(object["level"], "WARN");
        assert_eq!(object["target"], "longhaul_relay::peers");
        assert_eq!(
            object["message"],
            "peer is down: refused\n\u{1b}[2J\u{202e}"
        );
        assert_eq!(object["peer"], "tokyo");
    }

    #[test]
    fn reports_dropped_lines_in_the_format_of_the_log() {
        let text = dropped_lines(3, Format::Text, true);
        assert_eq!(
            text,
            "<4>3 log lines were dropped: they were not read in time\n"
        );
        let line = dropped_lines(3, Format::Json, false);
        let object: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(object["level"], "WARN");
    }

    #[test]
    fn filters_by_level_and_target() {
        let events = || {
            tracing::info!(target: "longhaul_site", "1");
            tracing::debug!(target: "longhaul_site", "2");
            tracing::debug!(target: "longhaul_relay::peers", "3");
            tracing::info!(target: "hickory_proto::udp", "4");
        };
        let written = |level| {
            let lines = log(level, Format::Json, false, events);
            let messages = lines
                .lines()
                .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
            messages
                .map(|line| line["message"].as_str().unwrap().to_owned())
                .collect::<String>()
        };
        assert_eq!(written("info"), "1");
        assert_eq!(written("debug"), "123");
        assert_eq!(written("off"), "");
        assert_eq!(written("info,relay=debug"), "13");
        assert_eq!(written("warn,relay::peers=debug,hickory_proto=info"), "34");
    }

    #[test]
    fn rejects_unknown_levels() {
        assert!(
            "loud"
                .parse::<Filter>()
                .unwrap_err()
                .starts_with("\"loud\" is not a level")
        );
        assert!("relay=".parse::<Filter>().is_err());
    }

    #[test]
    fn distinguishes_the_journal_stream_from_other_files() {
        let file = tempfile::tempfile().unwrap();
        let metadata = file.metadata().unwrap();
        let named = format!("{}:{}", metadata.st_dev(), metadata.st_ino());
        assert!(is_journal(&file, Some(&named)));
        assert!(!is_journal(
            &fs::File::open("/dev/null").unwrap(),
            Some(&named)
        ));
        assert!(!is_journal(&file, None));
    }
}
