// SPDX-License-Identifier: MIT OR Apache-2.0
//! Warnings about a capture file: parts of it that were analysed otherwise than they are written.

use super::batch::CutOptions;
use longhaul_packet::capture::OddTimes;
use longhaul_report::count::counted;

/// Returns a sentence for each kind of oddity. `beyond_frame` is the number of packets whose IP length reaches beyond
/// their frame, `cut` are those without all of their TCP options.
pub(super) fn warnings(times: OddTimes, beyond_frame: u64, cut: CutOptions) -> Vec<String> {
    let mut warnings = time_warnings(times);
    if beyond_frame > 0 {
        warnings.push(format!(
            "{} with an IP length beyond the end of the frame, as if cut before the capture; the IP length was taken",
            counted(beyond_frame, "packet")
        ));
    }
    if cut.packets > 0 {
        warnings.push(format!(
            "{} with TCP options cut by the snaplen of {} bytes: timestamps, SACK and other options behind it are unknown; a snaplen of 128 bytes would keep them",
            counted(cut.packets, "packet"),
            cut.snaplen
        ));
    }
    warnings
}

fn time_warnings(times: OddTimes) -> Vec<String> {
    let OddTimes {
        in_nanoseconds,
        long_fractions,
        far_off,
    } = times;
    let mut warnings = Vec::new();
    if in_nanoseconds {
        warnings.push(
            "the file says that its times have microseconds, but they have nanoseconds and were read so".to_owned(),
        );
    }
    if long_fractions > 0 {
        warnings.push(format!(
            "{} with a fraction of a second that is a second or more; it was added to the time",
            counted(long_fractions, "packet")
        ));
    }
    if far_off > 0 {
        warnings.push(format!(
            "{} with a date more than a day from the packets before and after; a time by theirs was taken, and no round trip is measured there",
            counted(far_off, "packet")
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_files_have_no_warnings() {
        assert!(warnings(OddTimes::default(), 0, CutOptions::default()).is_empty());
    }

    #[test]
    fn each_oddity_has_a_warning_with_its_count() {
        let times = OddTimes {
            in_nanoseconds: true,
            long_fractions: 1,
            far_off: 1200,
        };
        let cut = CutOptions {
            packets: 9,
            snaplen: 68,
        };
        let warnings = warnings(times, 3, cut);
        let starts = [
            "the file says",
            "1 packet with a fraction",
            "1200 packets with a date",
            "3 packets with an IP",
            "9 packets with TCP options cut by the snaplen of 68 bytes",
        ];
        assert_eq!(warnings.len(), starts.len());
        for (warning, start) in warnings.iter().zip(starts) {
            assert!(warning.starts_with(start), "{warning}");
        }
    }
}
