// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the lab's pages in a real browser.

use super::{document::html, downloads::Downloads, fixtures};
use longhaul_testprograms::browser::{assert_good, script_output};

#[test]
#[ignore = "needs Chromium: make test-peers"]
fn page_with_every_figure_fits_and_is_accessible() {
    assert_good(&html(&fixtures::every_figure(), &Downloads::default()), 6);
}

#[test]
#[ignore = "needs Chromium: make test-peers"]
fn page_with_default_figures_fits_and_is_accessible() {
    assert_good(&html(&fixtures::download(), &Downloads::default()), 5);
}

/// Script that reports how often the charts draw each label of a link event, and the text above the first chart over
/// time. The event `beforeprint` makes `chart.js` draw all charts, and then again.
const REPORT_LABELS: &str = "<script>
addEventListener('load', () => dispatchEvent(new Event('beforeprint')));
addEventListener('load', () => setTimeout(() => {
  const labels = new Map();
  const originalFillText = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...more) {
    if (text.startsWith('delay')) labels.set(text, (labels.get(text) ?? 0) + 1);
    originalFillText.call(this, text, ...more);
  };
  dispatchEvent(new Event('beforeprint'));
  setTimeout(() => {
    for (const [text, times] of [...labels].sort()) report(`${text}, ${times} times`);
    report(document.querySelector('#figure-over-time .plot').closest('figure').querySelector('figcaption p').textContent);
  }, 100);
}, 100));
</script>";

#[test]
#[ignore = "needs Chromium: make test-peers"]
fn shows_link_events_in_and_above_charts() {
    let page = html(&fixtures::every_figure(), &Downloads::default());
    let Some(reports_by_screen) = script_output(&page, REPORT_LABELS) else {
        return;
    };
    for reports in reports_by_screen {
        assert_eq!(
            reports,
            [
                "delay 38 → 80 ms, 3 times",
                "delay 80 → 38 ms ▸, 3 times",
                "In bins of 100 ms, of one run. At 3 s: delay 38 → 80 ms; at 9.5 s: delay 80 → 38 ms."
            ]
        );
    }
}
