// SPDX-License-Identifier: MIT OR Apache-2.0
//! Line chart over a parameter as SVG: measured lines, reference values dashed, a model's values dashed without marks.
//!
//! Positions are percentages, and lines are in an inner SVG that stretches. So text, marks and strokes keep their size
//! on a phone and on paper. A table below has the same data.

use crate::table::table;
use indexmap::IndexSet;
use maud::{Markup, html};
use std::fmt::Write;

/// Number of styles of measured lines. Each of four colours has its own shape of mark, and three variants: solid line
/// and filled mark, dashed and hollow, dotted and grey.
const STYLE_COUNT: usize = 12;
/// Minimum distance of two names at the ends of lines, as a share of the height (18 of 280 px).
const NAME_GAP: f64 = 0.065;
/// Distance from the end of a line to its name.
const NAME_DX_PX: f64 = 12.0;
/// Width of the frame on a desktop and on a phone, and the maximum width of a character of a label.
const WIDE_PX: f64 = 700.0;
const NARROW_PX: f64 = 250.0;
const CHARACTER_PX: f64 = 8.5;
/// Size of the inner SVG in its own units.
const VIEW_BOX_SIZE: f64 = 1000.0;

/// Line chart, without a heading.
#[derive(Debug, Default)]
pub struct Lines {
    /// Title for screen readers: the finding.
    pub title: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Lines, in the order of the legend.
    pub series: Vec<Series>,
    /// Horizontal reference lines with labels, at shares of the height.
    pub reference_lines: Vec<Tick>,
}

/// Axis; its labels have the unit.
#[derive(Debug, Default)]
pub struct Axis {
    /// Name of the axis, with its unit.
    pub name: String,
    /// Positions with a label.
    pub ticks: Vec<Tick>,
}

/// Label at a position of an axis.
#[derive(Debug, Clone, Default)]
pub struct Tick {
    /// Position, from 0 (start of the axis) to 1 (its end).
    pub at: f64,
    /// Label.
    pub text: String,
}

/// Style of a line, by the source of its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineStyle {
    /// The nth line of measured values.
    Measured(usize),
    /// Reference values.
    Reference,
    /// Values of a formula or of the simulator.
    Model,
}

/// Line of the chart.
#[derive(Debug)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Style of the line.
    pub style: LineStyle,
    /// Points, from left to right.
    pub points: Vec<Point>,
    /// True if each point has a mark; a distribution has none.
    pub marked: bool,
}

/// Point; `x` to `high` are shares of the axes.
#[derive(Debug, Clone, Default)]
pub struct Point {
    /// Horizontal position, 0 to 1.
    pub x: f64,
    /// Vertical position, 0 to 1.
    pub y: f64,
    /// Lower end of the range, 0 to 1.
    pub low: f64,
    /// Upper end of the range, 0 to 1.
    pub high: f64,
    /// Text of the x value; points with the same text share a row of the table.
    pub x_text: String,
    /// Text of the value: "937 Mbit/s [900 Mbit/s – 940 Mbit/s]".
    pub text: String,
}

impl Lines {
    /// Renders the chart with its points as a table.
    pub fn render(&self) -> Markup {
        self.render_with_table(&self.table())
    }

    /// Renders the chart with a given table below it.
    pub fn render_with_table(&self, table: &Markup) -> Markup {
        html! {
            div.lines {
                (self.svg())
                (self.legend())
                details { summary { "Data of this chart" } (table) }
            }
        }
    }

    fn svg(&self) -> Markup {
        html! {
            svg.xy role="img" aria-label=(self.title) {
                @for tick in &self.y.ticks { (draw_y_tick(tick)) }
                @for (tick, visibility) in self.x.ticks.iter().zip(label_visibility(&self.x.ticks)) { (draw_x_tick(tick, visibility)) }
                text.small x="50%" y="100%" dy="42" text-anchor="middle" { (self.x.name) }
                text.small x="0" y="-10" dx="-8" text-anchor="end" { (self.y.name) }
                @for (line, bottom) in self.reference_lines.iter().zip(reference_name_bottoms(&self.reference_lines)) { (draw_reference_line(line, bottom)) }
                svg viewBox={ "0 0 " (VIEW_BOX_SIZE) " " (VIEW_BOX_SIZE) } preserveAspectRatio="none" width="100%" height="100%" {
                    @for series in &self.series {
                        path class={ "line " (class(series.style)) } d=(path_data(&series.points)) {}
                    }
                }
                @for series in &self.series { (draw_marks(series)) }
                @for (series, y) in self.positioned_names() {
                    text class={ "end " (class(series.style)) } x=(percent(series.points.last().map_or(1.0, |point| point.x))) y=(percent(1.0 - y)) dx=(NAME_DX_PX) dy="5" { (series.name) }
                }
            }
        }
    }

    /// Returns the name of every line with its height at the end of the line, moved so that names do not touch.
    fn positioned_names(&self) -> Vec<(&Series, f64)> {
        let mut by_end: Vec<(&Series, &Point)> = self
            .series
            .iter()
            .filter_map(|series| Some((series, series.points.last()?)))
            .collect();
        by_end.sort_by(|(_, a), (_, b)| a.x.total_cmp(&b.x));
        let mut names = Vec::new();
        let mut overlapping: Vec<(&Series, f64)> = Vec::new();
        let mut right_edge = f64::NEG_INFINITY;
        for (series, end) in by_end {
            let from = end.x * WIDE_PX;
            if from > right_edge {
                names.extend(separate_names(std::mem::take(&mut overlapping)));
            }
            let width = series.name.chars().count() as f64 * CHARACTER_PX + NAME_DX_PX;
            right_edge = right_edge.max(from + width);
            overlapping.push((series, end.y));
        }
        names.extend(separate_names(overlapping));
        names
    }

    /// Returns the legend, for screens without space for names beside the lines.
    fn legend(&self) -> Markup {
        html! {
            ul.keys {
                @for series in &self.series {
                    li {
                        svg.key width="36" height="14" aria-hidden="true" {
                            path class={ "line " (class(series.style)) } d="M0 7H36" {}
                            @if series.marked { svg x="18" y="7" overflow="visible" { (mark_shape(series.style)) } }
                        }
                        (series.name)
                    }
                }
            }
        }
    }

    fn table(&self) -> Markup {
        let mut all: Vec<&Point> = self
            .series
            .iter()
            .flat_map(|series| &series.points)
            .collect();
        all.sort_by(|a, b| a.x.total_cmp(&b.x));
        let rows: IndexSet<&str> = all.iter().map(|point| point.x_text.as_str()).collect();
        let value = |series: &Series, row: &str| {
            let found = series.points.iter().find(|point| point.x_text == row);
            found.map_or("–".to_owned(), |point| point.text.clone())
        };
        let names = self.series.iter().map(|series| &series.name);
        let columns = std::iter::once(&self.x.name).chain(names);
        let row = |row| {
            html! { tr {
                th scope="row" { (row) }
                @for series in &self.series { td { (value(series, row)) } }
            } }
        };
        table(&self.data_label(), columns, rows.into_iter().map(row))
    }

    /// Returns the name of the table for screen readers.
    pub fn data_label(&self) -> String {
        format!("Data: {}", self.title)
    }
}

/// Moves names at one horizontal position apart: upwards from the lowest, then down from the top of the frame.
fn separate_names<T>(mut names: Vec<(T, f64)>) -> Vec<(T, f64)> {
    names.sort_by(|a, b| a.1.total_cmp(&b.1));
    for n in 1..names.len() {
        names[n].1 = names[n].1.max(names[n - 1].1 + NAME_GAP);
    }
    let mut top = 1.0;
    for (_, height) in names.iter_mut().rev() {
        *height = height.min(top);
        top = *height - NAME_GAP;
    }
    names
}

fn percent(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}

fn draw_y_tick(tick: &Tick) -> Markup {
    let y = percent(1.0 - tick.at);
    html! {
        line.grid x1="0" x2="100%" y1=(y) y2=(y) {}
        text.small x="0" y=(y) dx="-8" dy="5" text-anchor="end" { (tick.text) }
    }
}

/// Visibility of a label by the width of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LabelVisibility {
    Always,
    /// Visible on a desktop and on paper, not on a phone.
    WideScreens,
    Hidden,
}

/// Returns the visibility of labels: from the left, each that does not touch the one before. A hidden label keeps its
/// grid line, and the table has its value.
fn label_visibility(ticks: &[Tick]) -> Vec<LabelVisibility> {
    let [wide, narrow] = [WIDE_PX, NARROW_PX].map(|width| labels_that_fit(ticks, width));
    let visibility = |(wide, narrow)| match (wide, narrow) {
        (_, true) => LabelVisibility::Always,
        (true, false) => LabelVisibility::WideScreens,
        (false, false) => LabelVisibility::Hidden,
    };
    wide.into_iter().zip(narrow).map(visibility).collect()
}

fn labels_that_fit(ticks: &[Tick], width_px: f64) -> Vec<bool> {
    let mut end = f64::NEG_INFINITY;
    let fits = |tick: &Tick| {
        let half = tick.text.chars().count() as f64 * CHARACTER_PX / 2.0;
        let (from, to) = (tick.at * width_px - half, tick.at * width_px + half);
        let fits = from > end;
        end = if fits { to + CHARACTER_PX } else { end };
        fits
    };
    ticks.iter().map(fits).collect()
}

fn draw_x_tick(tick: &Tick, visibility: LabelVisibility) -> Markup {
    let x = percent(tick.at);
    html! {
        line.grid x1=(x) x2=(x) y1="0" y2="100%" {}
        @if visibility != LabelVisibility::Hidden {
            text.small.roomy[visibility == LabelVisibility::WideScreens] x=(x) y="100%" dy="20" text-anchor="middle" { (tick.text) }
        }
    }
}

/// Returns the bottoms of the names of reference lines, as shares of the height. A name is above its line. It is below
/// if the next line or name above is too near. It does not overlap another line.
fn reference_name_bottoms(lines: &[Tick]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..lines.len()).collect();
    order.sort_by(|a, b| lines[*b].at.total_cmp(&lines[*a].at));
    let mut bottoms = vec![0.0; lines.len()];
    // Lowest position in use.
    let mut lowest_used = f64::INFINITY;
    for n in &order {
        let at = lines[*n].at;
        let above = at + NAME_GAP <= lowest_used;
        let mut bottom = if above {
            at
        } else {
            at.min(lowest_used) - NAME_GAP
        };
        for other in order.iter().map(|other| lines[*other].at) {
            if bottom < other && other < bottom + NAME_GAP {
                bottom = other - NAME_GAP;
            }
        }
        bottoms[*n] = bottom;
        lowest_used = at.min(bottom);
    }
    bottoms
}

fn draw_reference_line(line: &Tick, bottom: f64) -> Markup {
    let y = percent(1.0 - line.at);
    html! {
        line.reference-line x1="0" x2="100%" y1=(y) y2=(y) {}
        text.reference-line x="0" y=(percent(1.0 - bottom)) dx="6" dy="-6" { (line.text) }
    }
}

fn class(style: LineStyle) -> String {
    match style {
        LineStyle::Measured(n) => format!("style-{}", n % STYLE_COUNT),
        LineStyle::Reference => "reference".to_owned(),
        LineStyle::Model => "model".to_owned(),
    }
}

fn path_data(points: &[Point]) -> String {
    let mut path = String::new();
    for (n, point) in points.iter().enumerate() {
        let command = if n == 0 { 'M' } else { 'L' };
        let (x, y) = (point.x * VIEW_BOX_SIZE, (1.0 - point.y) * VIEW_BOX_SIZE);
        let _ = write!(path, "{command}{x:.1} {y:.1}");
    }
    path
}

/// Draws the mark and the range of each point, with the exact value as a tooltip.
fn draw_marks(series: &Series) -> Markup {
    html! {
        @if series.marked { @for point in &series.points {
            @if point.low < point.high {
                line.whisker x1=(percent(point.x)) x2=(percent(point.x)) y1=(percent(1.0 - point.high)) y2=(percent(1.0 - point.low)) {}
            }
            svg x=(percent(point.x)) y=(percent(1.0 - point.y)) overflow="visible" {
                title { (series.name) ", " (point.x_text) ": " (point.text) }
                (mark_shape(series.style))
            }
        } }
    }
}

/// Returns the shape of a mark: one for each of four colours, so that lines are distinguishable without colour.
fn mark_shape(style: LineStyle) -> Markup {
    const SHAPES: [&str; 4] = [
        "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z",
        "M-4 -4h8v8h-8z",
        "M0 -5.5l5.2 9.5h-10.4z",
        "M0 -5.5l5.5 5.5l-5.5 5.5l-5.5 -5.5z",
    ];
    match style {
        LineStyle::Measured(n) => {
            html! { path class={ "mark " (class(style)) } d=(SHAPES[n % SHAPES.len()]) {} }
        }
        LineStyle::Reference => html! { path.mark.reference d=(SHAPES[0]) {} },
        LineStyle::Model => html! {},
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, y: f64) -> Series {
        let point = |x: f64| Point {
            x,
            y,
            x_text: x.to_string(),
            text: format!("{name}{x}"),
            ..Point::default()
        };
        Series {
            name: name.to_owned(),
            style: LineStyle::Measured(0),
            points: vec![point(0.0), point(1.0)],
            marked: true,
        }
    }

    #[test]
    fn keeps_names_at_different_positions_apart() {
        // Lines of distributions end at different horizontal positions.
        let mut ends = [0.85, 0.9, 0.2].map(|x| (x, series("lh_scalable", 1.0)));
        for (x, series) in &mut ends {
            series.points[1].x = *x;
        }
        let lines = Lines {
            series: ends.map(|(_, series)| series).into(),
            ..Lines::default()
        };
        let mut names = lines.positioned_names();
        names.sort_by(|(a, _), (b, _)| a.points[1].x.total_cmp(&b.points[1].x));
        let heights: Vec<f64> = names.iter().map(|(_, y)| *y).collect();
        assert_eq!(heights[0], 1.0, "nothing is near it");
        assert!((heights[1] - heights[2]).abs() >= NAME_GAP - 1e-9);
    }

    #[test]
    fn keeps_names_of_reference_lines_apart() {
        for heights in [[0.5, 0.52, 0.9], [0.5, 0.52, 0.54], [0.9, 0.5, 0.6]] {
            let tick = |at| Tick {
                at,
                text: "line".to_owned(),
            };
            let found = reference_name_bottoms(&heights.map(tick));
            for (n, bottom) in found.iter().enumerate() {
                let top = bottom + NAME_GAP;
                let crossed = |at: &f64| *at > bottom + 1e-9 && *at < top - 1e-9;
                assert!(!heights.iter().any(crossed), "{heights:?}: {found:?}");
                let touches = |other: &f64| (other - bottom).abs() < NAME_GAP - 1e-9;
                let others = found.iter().enumerate().filter(|(other, _)| *other != n);
                assert!(
                    !others.map(|(_, other)| other).any(touches),
                    "{heights:?}: {found:?}"
                );
            }
        }
        assert_eq!(
            reference_name_bottoms(&[Tick::default()]),
            [0.0],
            "above its line"
        );
    }

    #[test]
    fn keeps_names_at_the_same_height_apart() {
        let lines = Lines {
            series: vec![series("a", 0.5), series("b", 0.5), series("c", 0.9)],
            ..Lines::default()
        };
        let heights: Vec<f64> = lines.positioned_names().iter().map(|(_, y)| *y).collect();
        assert!(heights[1] - heights[0] >= NAME_GAP);
        assert_eq!(heights[2], 0.9);
    }

    #[test]
    fn hides_labels_that_would_touch() {
        let tick = |(at, text): (f64, &str)| Tick {
            at,
            text: text.to_owned(),
        };
        let ticks = [
            (0.0, "512"),
            (0.04, "640"),
            (0.08, "768"),
            (0.3, "1023"),
            (1.0, "9999"),
        ];
        let wanted = [
            LabelVisibility::Always,
            LabelVisibility::Hidden,
            LabelVisibility::WideScreens,
            LabelVisibility::Always,
            LabelVisibility::Always,
        ];
        assert_eq!(label_visibility(&ticks.map(tick)), wanted);
    }

    #[test]
    fn keeps_names_below_the_top() {
        let heights: Vec<f64> = separate_names(vec![((), 0.99), ((), 1.0), ((), 0.98)])
            .into_iter()
            .map(|(_, y)| y)
            .collect();
        let wanted = [1.0 - 2.0 * NAME_GAP, 1.0 - NAME_GAP, 1.0];
        assert!(
            heights
                .iter()
                .zip(wanted)
                .all(|(found, wanted)| (found - wanted).abs() < 1e-9),
            "{heights:?}"
        );
    }

    #[test]
    fn table_has_every_point_with_its_parameter() {
        let mut b = series("b", 0.1);
        b.points.remove(0);
        let lines = Lines {
            series: vec![series("a", 0.5), b],
            ..Lines::default()
        };
        let table = lines.table().into_string();
        assert!(
            table.contains("<th scope=\"row\">0</th><td>a0</td><td>–</td>"),
            "{table}"
        );
        assert!(
            table.contains("<th scope=\"row\">1</th><td>a1</td><td>b1</td>"),
            "{table}"
        );
    }
}
