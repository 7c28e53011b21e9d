// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output of `longhaul tap analyze -o`: `result.json`, the data of the charts, and one HTML file that needs no
//! network.

#[cfg(test)]
pub(crate) mod fixtures;
mod output;
mod page;
mod result;

pub(crate) use output::{CaptureInfo, Output, OutputConfig, Writer};
#[cfg(test)]
pub(crate) use page::browser_tests;
pub(crate) use page::{
    direction::{DirectionView, direction_name},
    html::{STYLE, chart_scripts},
    paired,
};
pub use result::analysis_report::AnalysisReport;
pub(crate) use result::analysis_report::{CHART_SERIES_FILE, RESULT_FILE};
pub(crate) use result::largest_flows::FlowLimits;
pub(crate) use result::largest_udp_flows::LargestUdpFlows;
pub(crate) use result::{Analysis, CaptureFile, CapturePointInfo, DAMAGES_MAX, Damage, SCHEMA};
