// SPDX-License-Identifier: MIT OR Apache-2.0
//! Property tests with any segments: the analysis does not panic, and bins and records agree.

use crate::scripted::script::{Results, ScriptSegment, client, key, server, settings};
use longhaul_flow::segment::{CapturePoint, CapturedSegment};
use longhaul_flow::{Flows, Settings};
use longhaul_packet::capture::Verdict;
use proptest::prelude::*;

/// Segments with related numbers, as those of a connection, and with many irregularities.
fn related_segment() -> impl Strategy<Value = ScriptSegment> {
    let numbers = (0u32..40, 0u32..40, 0u64..3_000_000, any::<bool>());
    let content = (0u32..4, 1u16..4, any::<u8>(), 0u16..3);
    let options = (
        prop::option::of((0u32..20, 0u32..20)),
        prop::collection::vec((0u32..40, 0u32..40), 0..=4),
    );
    (numbers, content, options).prop_map(
        |((seq, ack, at, from_client), (length, segments, flags, window), (stamps, sack))| {
            let blocks: Vec<_> = sack.iter().map(|&(l, r)| (l * 500, r * 500)).collect();
            let end = if from_client { client } else { server };
            let mut seg = end(at, seq * 500, ack * 500)
                .data(length * 500)
                .segments(segments)
                .window(window)
                .sack(&blocks)
                // RST and SYN are rare, so that flows have other segments between them.
                .flags(if flags < 12 { flags } else { 0x10 | flags & 1 })
                .emulator_record(u32::from(flags), Verdict::Lost);
            if let Some((tsval, tsecr)) = stamps {
                seg = seg.stamps(tsval, tsecr);
            }
            seg
        },
    )
}

/// Jumps of the numbers, mostly zero.
fn number_jump() -> impl Strategy<Value = u32> {
    prop_oneof![12 => Just(0), 1 => (1u32..16).prop_map(|quarters| quarters << 28), 1 => any::<u32>()]
}

/// Segments with unrelated random fields.
fn random_segment() -> impl Strategy<Value = ScriptSegment> {
    let numbers = (any::<u32>(), any::<u32>(), any::<u64>(), any::<bool>());
    let content = (any::<u32>(), any::<u16>(), any::<u8>(), any::<u16>());
    let options = (
        any::<u8>(),
        any::<u16>(),
        any::<[(u32, u32); 4]>(),
        any::<u8>(),
    );
    (numbers, content, options).prop_map(
        |(
            (seq, ack, at, from_client),
            (payload, segments, flags, window),
            (scale, mss, sack, sacks),
        )| {
            let end = if from_client { client } else { server };
            let mut seg = end(at, seq, ack)
                .window(window)
                .flags(flags)
                .stamps(seq, ack);
            seg.segment.payload = payload % 70_000;
            seg.segment.wire_bytes = payload;
            seg.segment.wire_segments = segments;
            seg.segment.window_scale = scale;
            seg.segment.mss = mss;
            seg.segment.sack = sack;
            seg.segment.sack_blocks = sacks;
            seg
        },
    )
}

fn analyse_script(segments: &[ScriptSegment], isn: u32, tables_max_bytes: usize) -> Results {
    let settings = Settings {
        bin_widths_ns: vec![1_000, 100_000],
        flows_max: 2,
        tables_max_bytes,
        unacked_max: 5,
        ranges_max: 3,
        timestamps_max: 3,
        time_series_bins_max: 8,
        ..Settings::default()
    };
    let (mut flows, mut results) = (Flows::new(settings), Results::default());
    for (number, seg) in segments.iter().enumerate() {
        let mut segment = seg.segment;
        segment.seq = segment.seq.wrapping_add(isn);
        segment.ack = segment.ack.wrapping_add(isn);
        let capture_point = CapturePoint(u32::from(seg.port % 2));
        flows.process_segment(
            number as u64,
            capture_point,
            &key(seg.port),
            &segment,
            &mut results,
        );
    }
    flows.finish(&mut results);
    for flow in &results.flows {
        assert!(
            flow.upload.time_series.bins.len() <= 8 && flow.download.time_series.bins.len() <= 8
        );
        assert!(flow.first_ns <= flow.last_ns);
    }
    let packets: u64 = (results.flows.iter())
        .map(|flow| flow.upload.data.packets + flow.download.data.packets)
        .sum();
    assert_eq!(packets, segments.len() as u64);
    results
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn consistent_for_related_segments(mut segments in prop::collection::vec(related_segment(), 1..150), isn: u32) {
        segments.sort_by_key(|seg| seg.segment.at_ns);
        analyse_script(&segments, isn, 100_000).check_consistency(2);
    }

    #[test]
    fn consistent_for_segments_out_of_time_order(segments in prop::collection::vec(related_segment(), 1..100), isn: u32, bytes in 0usize..6_000) {
        analyse_script(&segments, isn, bytes).check_consistency(2);
    }

    /// Numbers jump by up to 4 GiB, for one segment or for all later ones.
    #[test]
    fn consistent_around_capture_gaps(
        mut segments in prop::collection::vec((related_segment(), number_jump(), any::<bool>()), 1..150),
        isn: u32,
    ) {
        segments.sort_by_key(|(seg, ..)| seg.segment.at_ns);
        let mut from = 0u32;
        let jumped = segments.into_iter().map(|(mut seg, jump, stays)| {
            let at = from.wrapping_add(jump);
            from = if stays { at } else { from };
            seg.segment.seq = seg.segment.seq.wrapping_add(at);
            seg.segment.ack = seg.segment.ack.wrapping_add(at);
            seg
        });
        analyse_script(&jumped.collect::<Vec<_>>(), isn, 100_000).check_consistency(2);
    }

    #[test]
    fn survives_random_segments(segments in prop::collection::vec((random_segment(), 0u16..4), 1..60)) {
        let segments: Vec<_> = segments.into_iter().map(|(seg, port)| seg.port(port)).collect();
        analyse_script(&segments, 0, 100_000);
    }

    /// Flows that reopen, end early and share their slots, in batches of any length.
    #[test]
    fn batches_equal_single_segments(
        segments in prop::collection::vec((random_segment(), 0u16..5), 1..80),
        length in 1usize..30,
    ) {
        let items: Vec<_> = segments.into_iter().enumerate().map(item).collect();
        let settings = Settings { flows_max: 3, ..settings() };
        let (mut flows, mut one_by_one) = (Flows::new(settings.clone()), Results::default());
        for CapturedSegment { number, capture_point, key, segment } in &items {
            flows.process_segment(*number, *capture_point, key, segment, &mut one_by_one);
        }
        flows.finish(&mut one_by_one);
        let (mut flows, mut batches) = (Flows::new(settings), Results::default());
        for batch in items.chunks(length) {
            flows.process_segments(batch, &mut batches);
        }
        flows.finish(&mut batches);
        prop_assert_eq!(sorted_by_flow(one_by_one), sorted_by_flow(batches));
    }
}

fn item((number, (seg, port)): (usize, (ScriptSegment, u16))) -> CapturedSegment {
    CapturedSegment {
        number: number as u64,
        capture_point: CapturePoint(u32::from(port % 2)),
        key: key(port),
        segment: seg.segment,
    }
}

fn sorted_by_flow(mut results: Results) -> Results {
    results
        .bins
        .sort_by_key(|bin| (bin.flow, bin.width, bin.upload));
    results.flows.sort_by_key(|flow| flow.number);
    results
}
