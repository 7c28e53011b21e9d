// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lab's pages in a real browser.

use super::{downloads::Downloads, html, made_up};
use crate::page::in_browser::assert_good;

#[test]
fn a_page_with_every_kind_of_figure_is_good_on_a_desk_and_on_a_phone() {
    assert_good(&html(&made_up::every_figure(), &Downloads::default()), 3);
}

#[test]
fn a_page_of_a_scenario_that_asks_for_none_is_good_too() {
    assert_good(&html(&made_up::download(), &Downloads::default()), 5);
}
