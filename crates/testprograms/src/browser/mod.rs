// SPDX-License-Identifier: MIT OR Apache-2.0
//! Headless browser that opens pages for tests.

pub mod axe;
pub mod frame;
mod page;

pub use page::{
    assert_accessible, assert_fits, assert_good, assert_loads_nothing, outline, script_output,
};

use std::{
    process::{Command, Stdio},
    time::Duration,
};

/// Virtual time that a page gets before it is read. Virtual time elapses as fast as the page's work allows. On a busy
/// machine it may be over before the browser has drawn anything. A test that needs drawing must use more.
pub const VIRTUAL_TIME_BUDGET: Duration = Duration::from_secs(5);

/// Page as a browser rendered it.
pub struct RenderedPage {
    /// HTML of the document after its scripts have run.
    pub dom: String,
    /// Lines that scripts or the browser wrote on the console.
    pub console: Vec<String>,
}

/// Opens `url` at a window width; `None` if there is no browser and ALLOW_SKIP=1.
pub fn open(url: &str, width: u32) -> Option<RenderedPage> {
    open_in(url, width, ColourScheme::Light, VIRTUAL_TIME_BUDGET)
}

/// Preferred colour scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "not every test uses both")]
pub enum ColourScheme {
    /// Dark text on a light ground.
    Light,
    /// Light text on a dark ground.
    Dark,
}

/// Opens `url` as [`open`] does, with this colour scheme and this virtual time.
pub fn open_in(
    url: &str,
    width: u32,
    scheme: ColourScheme,
    budget: Duration,
) -> Option<RenderedPage> {
    let program = program()?;
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new(program)
        .args(["--headless=new", "--no-sandbox", "--disable-gpu"])
        .args(["--disable-dev-shm-usage", "--no-first-run", "--mute-audio"])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
        ])
        .args(["--enable-logging=stderr", "--dump-dom"])
        .arg(format!(
            "--blink-settings=preferredColorScheme={}",
            u8::from(scheme == ColourScheme::Light)
        ))
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--window-size={width},900"))
        .arg(format!("--virtual-time-budget={}", budget.as_millis()))
        .arg(url)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{log}");
    // The browser's own pages write to the console, too.
    let is_message = |line: &&str| line.contains("CONSOLE") && !line.contains("source: chrome://");
    Some(RenderedPage {
        dom: String::from_utf8(output.stdout).unwrap(),
        console: log.lines().filter(is_message).map(str::to_owned).collect(),
    })
}

fn program() -> Option<&'static str> {
    let is_installed = |name: &&str| {
        let output = Command::new(name).arg("--version").output();
        output.is_ok_and(|output| output.status.success())
    };
    let found = ["chromium", "chromium-browser"]
        .into_iter()
        .find(is_installed);
    let _ = crate::skip::require(found.is_some(), "chromium (scripts/setup installs it)");
    found
}
