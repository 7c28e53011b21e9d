// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lab's pages in a real browser.

use super::{document::html, downloads::Downloads, made_up};
use longhaul_testbed::browser::{assert_good, told};

#[test]
fn a_page_with_every_kind_of_figure_is_good_on_a_desk_and_on_a_phone() {
    assert_good(&html(&made_up::every_figure(), &Downloads::default()), 3);
}

#[test]
fn a_page_of_a_scenario_that_asks_for_none_is_good_too() {
    assert_good(&html(&made_up::download(), &Downloads::default()), 5);
}

/// Tells what is written into each chart when all are drawn anew, and what stands above the first.
const WRITTEN: &str = "<script>
addEventListener('load', () => setTimeout(() => {
  const written = new Map();
  const real = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...more) {
    if (text.startsWith('delay')) written.set(text, (written.get(text) ?? 0) + 1);
    real.call(this, text, ...more);
  };
  dispatchEvent(new Event('beforeprint'));
  setTimeout(() => {
    for (const [text, times] of [...written].sort()) tell(`${text}, ${times} times`);
    tell(document.querySelector('.plot').closest('figure').querySelector('figcaption p').textContent);
  }, 100);
}, 100));
</script>";

#[test]
fn what_a_link_did_stands_in_the_charts_and_above_them() {
    let page = html(&made_up::every_figure(), &Downloads::default());
    let Some(seen) = told(&page, WRITTEN) else {
        return;
    };
    for told in seen {
        assert_eq!(
            told,
            [
                "delay 38 → 80 ms, 3 times",
                "delay 80 → 38 ms ▸, 3 times",
                "In bins of 100 ms, of one run. At 3 s: delay 38 → 80 ms; at 9.5 s: delay 80 → 38 ms."
            ]
        );
    }
}
