// SPDX-License-Identifier: MIT OR Apache-2.0
//! State and layout of the screen, and its keys. It draws to any `ratatui` backend.

use super::flow_sampler::Snapshot;
use super::history::{
    DisplayRow, FlowId, HISTORY_SECONDS, History, SortKey, format_packets_per_ack, format_rate,
    format_rtt,
};
use longhaul_flow::bin::Bin;
use longhaul_units::{Bytes, Time};
use ratatui::{
    Frame,
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
    layout::{Constraint, Layout, Rect},
    style::{Modifier, Style},
    text::{Line, Text},
    widgets::{Block, Cell, Paragraph, Sparkline, Table, TableState},
};

/// State of the screen.
pub(super) struct Screen {
    history: History,
    /// History that is shown while paused.
    paused: Option<History>,
    filter: String,
    sort_key: SortKey,
    selected: Option<FlowId>,
    /// True if only the selected flow is shown.
    detail_view: bool,
}

/// Columns between the flow's name and its last minute, the most important first.
const COLUMNS: [Column; 6] = [
    Column::Data,
    Column::Acks,
    Column::PerAck,
    Column::Retransmissions,
    Column::Rtt,
    Column::InFlight,
];
/// Limits of the width of the column of endpoints: two IPv4 addresses without ports, and two IPv6 addresses.
const FLOW_WIDTH_MIN: u16 = 20;
const FLOW_WIDTH_MAX: u16 = 70;
const KEY_HELP: &str = "q quit  s sort  p pause  ↑↓ select  enter one flow";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Data,
    Acks,
    PerAck,
    Retransmissions,
    Rtt,
    InFlight,
}

impl Column {
    const fn heading(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Acks => "ACK/s",
            Self::PerAck => "per ACK",
            Self::Retransmissions => "retr.",
            Self::Rtt => "RTT",
            Self::InFlight => "in flight",
        }
    }

    /// Returns the width, including the mark of the sort column.
    const fn width(self) -> u16 {
        match self {
            Self::Data => 11,
            Self::Acks | Self::PerAck | Self::Retransmissions => 7,
            Self::Rtt => 9,
            Self::InFlight => 10,
        }
    }

    /// Returns the sort key of this column, if it has one.
    const fn sort_key(self) -> Option<SortKey> {
        match self {
            Self::Data => Some(SortKey::Rate),
            Self::Acks => Some(SortKey::Acks),
            Self::PerAck => None,
            Self::Retransmissions => Some(SortKey::Retransmissions),
            Self::Rtt => Some(SortKey::Rtt),
            Self::InFlight => Some(SortKey::InFlight),
        }
    }

    fn format(self, bin: &Bin) -> String {
        match self {
            Self::Data => format_rate(bin.data_bytes),
            Self::Acks => bin.acks.to_string(),
            Self::PerAck => format_packets_per_ack(bin),
            Self::Retransmissions => bin.retransmissions.to_string(),
            Self::Rtt => format_rtt(bin),
            Self::InFlight => Bytes::new(bin.in_flight_max).to_string(),
        }
    }
}

/// Layout of the table. Columns that do not fit are left out.
struct TableLayout {
    /// Width of the column of endpoints.
    flow_width: u16,
    columns: Vec<Column>,
    /// Width of the column of the last minute; 0 if there is no space for it.
    minute_width: u16,
}

impl TableLayout {
    fn new(width: u16, flows: &[String]) -> Self {
        let longest = flows.iter().map(|flow| flow.chars().count()).max();
        let flow_width = (longest.unwrap_or(0) as u16).clamp(FLOW_WIDTH_MIN, FLOW_WIDTH_MAX);
        let mut left = width.saturating_sub(flow_width);
        let mut columns = Vec::new();
        for column in COLUMNS {
            let Some(remaining) = left.checked_sub(1 + column.width()) else {
                break;
            };
            left = remaining;
            columns.push(column);
        }
        Self {
            flow_width,
            columns,
            minute_width: left.saturating_sub(1).min(HISTORY_SECONDS as u16),
        }
    }

    fn widths(&self) -> impl Iterator<Item = Constraint> {
        let columns = self.columns.iter().map(|column| column.width());
        let all = std::iter::once(self.flow_width).chain(columns);
        all.chain([self.minute_width]).map(Constraint::Length)
    }
}

impl Screen {
    pub(super) fn new(interfaces: &[String], filter: &str) -> Self {
        Self {
            history: History::new(interfaces),
            paused: None,
            filter: filter.to_owned(),
            sort_key: SortKey::Rate,
            selected: None,
            detail_view: false,
        }
    }

    pub(super) fn add(&mut self, snapshot: Snapshot) {
        self.history.add(snapshot);
    }

    /// Handles a key. Returns false to quit.
    pub(super) fn handle_key(&mut self, key: KeyEvent) -> bool {
        match key.code {
            KeyCode::Char('q') => return false,
            // In raw mode, Control-C sends no signal.
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Char('s') => self.sort_key = self.sort_key.next(),
            KeyCode::Char('p') => self.pause(),
            KeyCode::Up | KeyCode::Char('k') => self.move_selection(|at| at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.move_selection(|at| at + 1),
            KeyCode::Enter => self.detail_view = !self.detail_view,
            KeyCode::Esc => self.detail_view = false,
            _ => {}
        }
        true
    }

    fn pause(&mut self) {
        self.paused = match self.paused {
            Some(_) => None,
            None => Some(self.history.clone()),
        };
    }

    fn displayed_history(&self) -> &History {
        self.paused.as_ref().unwrap_or(&self.history)
    }

    fn move_selection(&mut self, to: impl FnOnce(usize) -> usize) {
        let rows = self.displayed_history().rows(self.sort_key);
        let at = to(self.selected_index(&rows)).min(rows.len().saturating_sub(1));
        self.selected = rows.get(at).map(|row| row.id);
    }

    /// Returns the index of the selected flow, or 0 if it is gone.
    fn selected_index(&self, rows: &[DisplayRow<'_>]) -> usize {
        let is_selected = |row: &DisplayRow<'_>| Some(row.id) == self.selected;
        rows.iter().position(is_selected).unwrap_or(0)
    }

    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let lines = [
            Constraint::Length(1),
            Constraint::Min(0),
            Constraint::Length(1),
        ];
        let [head, middle, foot] = Layout::vertical(lines).areas(frame.area());
        let rows = self.displayed_history().rows(self.sort_key);
        frame.render_widget(self.title_line(&rows), head);
        match rows.get(self.selected_index(&rows)) {
            Some(row) if self.detail_view => draw_flow(frame, row, middle),
            _ => self.draw_table(frame, &rows, middle),
        }
        frame.render_widget(Line::from(KEY_HELP).style(dim_style()), foot);
    }

    fn title_line(&self, rows: &[DisplayRow<'_>]) -> Line<'static> {
        let history = self.displayed_history();
        let bytes = rows.iter().map(|row| row.now.data_bytes).sum();
        let acks: u64 = rows.iter().map(|row| u64::from(row.now.acks)).sum();
        let filter = match self.filter.as_str() {
            "" => String::new(),
            filter => format!(" ({filter})"),
        };
        let dropped = match history.dropped() {
            0 => String::new(),
            dropped => format!("  {dropped} DROPPED by the kernel"),
        };
        let paused = if self.paused.is_some() {
            "  PAUSED"
        } else {
            ""
        };
        Line::from(format!(
            "{}{filter}  {} flows  {}  {acks} ACK/s{dropped}{paused}",
            history.interfaces.join(" "),
            rows.len(),
            format_rate(bytes),
        ))
        .style(Style::new().add_modifier(Modifier::BOLD))
    }

    fn draw_table(&self, frame: &mut Frame<'_>, rows: &[DisplayRow<'_>], area: Rect) {
        let show_interface = self.history.interfaces.len() > 1;
        let flows: Vec<String> = rows
            .iter()
            .map(|row| flow_label(row, show_interface))
            .collect();
        let layout = TableLayout::new(area.width, &flows);
        let lines = rows
            .iter()
            .zip(flows)
            .map(|(row, flow)| flow_row(row, flow, &layout));
        let table = Table::new(lines, layout.widths())
            .header(self.headings(&layout))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        let selected = (!rows.is_empty()).then(|| self.selected_index(rows));
        let mut state = TableState::default().with_selected(selected);
        frame.render_stateful_widget(table, area, &mut state);
    }

    fn headings(&self, layout: &TableLayout) -> ratatui::widgets::Row<'static> {
        let mut headings = vec![Cell::from("flow")];
        for column in &layout.columns {
            let sorted = column.sort_key() == Some(self.sort_key);
            let marker = if sorted { "▼" } else { "" };
            headings.push(right_aligned(format!("{marker}{}", column.heading())));
        }
        let heading = "last minute";
        if usize::from(layout.minute_width) >= heading.len() {
            headings.push(Cell::from(heading));
        }
        ratatui::widgets::Row::new(headings).style(dim_style())
    }
}

fn dim_style() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn flow_label(row: &DisplayRow<'_>, show_interface: bool) -> String {
    let interface = if show_interface {
        format!("{} ", row.interface)
    } else {
        String::new()
    };
    format!("{interface}{} → {}", row.sender, row.receiver)
}

fn flow_row(
    row: &DisplayRow<'_>,
    flow: String,
    layout: &TableLayout,
) -> ratatui::widgets::Row<'static> {
    let mut cells = vec![Cell::from(flow)];
    let columns = layout.columns.iter().map(|column| column.format(&row.now));
    cells.extend(columns.map(right_aligned));
    cells.push(Cell::from(sparkline(
        &row.minute,
        layout.minute_width.into(),
    )));
    ratatui::widgets::Row::new(cells)
}

fn right_aligned(text: String) -> Cell<'static> {
    Cell::from(Text::from(text).right_aligned())
}

/// Returns bars in eighths of a line's height, relative to the maximum; the last second is at the right.
fn sparkline(minute: &[Bin], width: usize) -> String {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let from = minute.len().saturating_sub(width);
    let max = minute
        .iter()
        .map(|bin| bin.data_bytes)
        .max()
        .unwrap_or(0)
        .max(1);
    let bar = |bin: &Bin| BARS[(u128::from(bin.data_bytes) * 8).div_ceil(max.into()) as usize];
    minute[from..].iter().map(bar).collect()
}

/// Draws one flow: its figures, and its data and ACK rates over time.
fn draw_flow(frame: &mut Frame<'_>, row: &DisplayRow<'_>, area: Rect) {
    let parts = [
        Constraint::Length(5),
        Constraint::Fill(1),
        Constraint::Fill(1),
    ];
    let [figures, data, acks] = Layout::vertical(parts).areas(area);
    frame.render_widget(Paragraph::new(self::figures(row)), figures);
    let max = row
        .minute
        .iter()
        .map(|bin| bin.data_bytes)
        .max()
        .unwrap_or(0);
    let title = format!(
        "data {}, max {}",
        format_rate(row.now.data_bytes),
        format_rate(max)
    );
    draw_minute(frame, &title, row, |bin| bin.data_bytes, data);
    let max = row.minute.iter().map(|bin| bin.acks).max().unwrap_or(0);
    let title = format!("ACKs {}/s, max {max}/s", row.now.acks);
    draw_minute(frame, &title, row, |bin| bin.acks.into(), acks);
}

fn figures(row: &DisplayRow<'_>) -> Vec<Line<'static>> {
    let now = &row.now;
    let window = now.window_min.map_or("–".to_owned(), |window| {
        Bytes::new(window.into()).to_string()
    });
    let min_rtt = match now.rtt_samples {
        0 => "–".to_owned(),
        _ => Time::from_nanos(now.rtt_min_ns).to_string(),
    };
    vec![
        Line::from(format!(
            "{} → {} on {}",
            row.sender, row.receiver, row.interface
        )),
        Line::from(format!(
            "packets {}/s, acknowledged {}, packets per ACK {}, largest AckDiff {}",
            now.data_segments,
            format_rate(now.acked_bytes),
            format_packets_per_ack(now),
            Bytes::new(now.ack_diff_max.into()),
        )),
        Line::from(format!(
            "retransmissions {} ({}), duplicate ACKs {}, with SACK {}",
            now.retransmissions,
            Bytes::new(now.retransmitted_bytes),
            now.duplicate_acks,
            now.sacks,
        )),
        Line::from(format!(
            "RTT {} (min {min_rtt}), in flight {}, window {window}",
            format_rtt(now),
            Bytes::new(now.in_flight_max),
        )),
    ]
}

/// Draws the last minute; each second is as wide as the space allows.
fn draw_minute(
    frame: &mut Frame<'_>,
    title: &str,
    row: &DisplayRow<'_>,
    value: impl Fn(&Bin) -> u64,
    area: Rect,
) {
    let block = Block::bordered().title(title.to_owned());
    let inner_width = block.inner(area).width as usize;
    let columns_per_second = (inner_width / HISTORY_SECONDS).max(1);
    let from = HISTORY_SECONDS.saturating_sub(inner_width / columns_per_second);
    let seconds = row.minute.get(from..).unwrap_or_default();
    let columns = seconds
        .iter()
        .flat_map(|bin| vec![value(bin); columns_per_second]);
    let sparkline = Sparkline::default()
        .data(columns.collect::<Vec<u64>>())
        .block(block);
    frame.render_widget(sparkline, area);
}

#[cfg(test)]
mod tests {
    use super::super::history::tests::{sample, snapshot};
    use super::*;
    use ratatui::{Terminal, backend::TestBackend};

    fn screen() -> Screen {
        let mut screen = Screen::new(&["eth0".to_owned()], "tcp port 5201");
        for second in 0..20 {
            let mut flows = vec![sample(1, 125_000_000 + second * 5_000_000, 40_000)];
            if second > 10 {
                flows.push(sample(2, 250_000_000, 3_000));
            }
            screen.add(snapshot(1_000 + second, flows));
        }
        screen
    }

    fn render(screen: &Screen, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    fn press(screen: &mut Screen, code: KeyCode) -> bool {
        screen.handle_key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn sorts_flows_by_rate() {
        insta::assert_snapshot!(render(&screen(), 140, 7));
    }

    #[test]
    fn sorts_flows_by_acks_on_a_narrow_terminal() {
        let mut screen = screen();
        press(&mut screen, KeyCode::Char('s'));
        insta::assert_snapshot!(render(&screen, 80, 6));
    }

    #[test]
    fn shows_one_flow_over_time() {
        let mut screen = screen();
        press(&mut screen, KeyCode::Down);
        press(&mut screen, KeyCode::Enter);
        insta::assert_snapshot!(render(&screen, 100, 18));
    }

    #[test]
    fn shows_ipv6_and_several_interfaces() {
        let mut screen = Screen::new(&["eth0".to_owned(), "eth1".to_owned()], "");
        let mut flow = sample(1, 1_000_000, 7);
        for (end, last) in flow.endpoints.iter_mut().zip([1, 2]) {
            end.address = [0x2001, 0xdb8, 0, 0, 0, 0, 0, last].into();
        }
        screen.add(snapshot(1_000, vec![flow]));
        insta::assert_snapshot!(render(&screen, 120, 5));
    }

    #[test]
    fn shows_empty_table_without_flows() {
        let mut screen = Screen::new(&["eth0".to_owned(), "eth1".to_owned()], "");
        press(&mut screen, KeyCode::Enter);
        press(&mut screen, KeyCode::Down);
        insta::assert_snapshot!(render(&screen, 80, 5));
    }

    #[test]
    fn draws_at_any_size() {
        let mut screen = screen();
        for alone in [false, true] {
            screen.detail_view = alone;
            for (width, height) in [(1, 1), (2, 9), (30, 3), (400, 2), (500, 100)] {
                assert!(!render(&screen, width, height).is_empty());
            }
        }
    }

    #[test]
    fn pause_freezes_the_screen_and_keeps_sampling() {
        let mut screen = screen();
        press(&mut screen, KeyCode::Char('p'));
        let before = render(&screen, 140, 7);
        assert!(before.contains("PAUSED"));
        screen.add(snapshot(1_020, vec![sample(1, 900_000_000, 9)]));
        assert_eq!(render(&screen, 140, 7), before);
        press(&mut screen, KeyCode::Char('p'));
        assert!(render(&screen, 140, 7).contains("7.2 Gbit/s"));
    }

    #[test]
    fn quits_on_q_and_control_c() {
        let mut screen = screen();
        assert!(!press(&mut screen, KeyCode::Char('q')));
        assert!(press(&mut screen, KeyCode::Char('c')));
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert!(!screen.handle_key(control_c));
    }
}
