// SPDX-License-Identifier: MIT OR Apache-2.0
//! Difference in rate of two clocks, estimated from delays between them: the slope of the nearest line below all
//! points. The method is that of Moon, Skelly and Towsley, "Estimation and removal of clock skew from network delay
//! measurements", INFOCOM 1999. Queues only add to a delay, so the least delays follow the clocks.

/// Returns the slope of that line, for points in order of their first value; `None` for fewer than two points.
pub(super) fn slope_below(points: &[(f64, f64)]) -> Option<f64> {
    let middle = points.iter().map(|point| point.0).sum::<f64>() / points.len() as f64;
    let hull = lower_hull(points);
    let edge = hull.windows(2).find(|edge| edge[1].0 >= middle)?;
    let (time, delay) = (edge[1].0 - edge[0].0, edge[1].1 - edge[0].1);
    (time > 0.0).then_some(delay / time)
}

/// Returns the lower convex hull of `points` (Andrew's monotone chain).
fn lower_hull(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut hull: Vec<(f64, f64)> = Vec::new();
    for point in points {
        while let [.., a, b] = hull[..] {
            let turn = (b.0 - a.0) * (point.1 - a.1) - (b.1 - a.1) * (point.0 - a.0);
            if turn > 0.0 {
                break;
            }
            hull.pop();
        }
        hull.push(*point);
    }
    hull
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_slope_of_least_delays() {
        let queue = [0.0, 4.0, 9.0, 2.0, 0.0, 7.0, 1.0];
        let point = |n: usize| (n as f64, 0.25 * n as f64 + queue[n % 7]);
        let points: Vec<_> = (0..100).map(point).collect();
        assert!((slope_below(&points).unwrap() - 0.25).abs() < 1e-9);
        assert_eq!(slope_below(&points[..1]), None);
        assert_eq!(slope_below(&[]), None);
    }
}
