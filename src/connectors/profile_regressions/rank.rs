//! The two-sided Mann-Whitney U test with the exact distribution, corrected for autocorrelation.
//!
//! The test asks whether the values of one group tend to be larger than those of the other. It
//! needs no assumption about the distribution of the values, only independent windows.

/// Largest autocorrelation that the correction assumes. Beyond it, the variance of a mean of 30
/// windows cannot be estimated from these windows.
const MAX_CORRELATION: f64 = 0.8;

/// Relative variance below which values are equal: shares have single precision, about 1e-7.
const ROUNDING: f64 = 1e-12;

/// Cumulative distribution of U below its mean, for two group sizes without ties.
pub(super) struct RankTest {
    before: usize,
    after: usize,
    /// Probability of each value of U or less, up to the mean.
    tail: Vec<f64>,
}

impl RankTest {
    /// Computes the distribution for groups of these sizes. The coefficients of the Gaussian
    /// binomial are the numbers of arrangements for each U.
    pub(super) fn new(before: usize, after: usize) -> Self {
        let middle = before * after / 2;
        let mut counts = vec![0.0; middle + 1];
        counts[0] = 1.0;
        for factor in 1..=before {
            for u in (factor + after..=middle).rev() {
                counts[u] -= counts[u - factor - after];
            }
            for u in factor..=middle {
                counts[u] += counts[u - factor];
            }
        }
        // All arrangements: the binomial coefficient.
        let arrangements = (1..=before).fold(1.0, |product, factor| {
            product * (after + factor) as f64 / factor as f64
        });
        let mut sum = 0.0;
        let tail = counts.into_iter().map(|count| {
            sum += count;
            sum / arrangements
        });
        RankTest {
            before,
            after,
            tail: tail.collect(),
        }
    }

    /// Returns the two-sided p-value. `values` holds the values of the first group and then those
    /// of the second group, each in the order of time. Ties make the p-value larger.
    pub(super) fn p_value(&self, values: &[f64]) -> f64 {
        let (before, after) = values.split_at(self.before.min(values.len()));
        let mean = (self.before * self.after) as f64 / 2.0;
        let deviation = (u_statistic(before, after) - mean).abs();
        let u = (mean - deviation).ceil().max(0.0) as usize;
        let tail = self.tail.get(u).copied().unwrap_or(0.5);
        // The logarithm of a small p-value is proportional to the number of independent windows,
        // and autocorrelation makes that number smaller.
        (2.0 * tail).min(1.0).powf(1.0 / inflation(before, after))
    }
}

/// Returns the number of pairs in which the second value is larger; equal pairs count half.
fn u_statistic(before: &[f64], after: &[f64]) -> f64 {
    let mut sorted = before.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let pairs = after.iter().map(|value| {
        let less = sorted.partition_point(|other| other < value);
        let not_greater = sorted.partition_point(|other| other <= value);
        (less + not_greater) as f64 / 2.0
    });
    pairs.sum()
}

/// Returns the factor by which autocorrelation increases the variance of a mean, as in a process
/// with memory of one window: (1 + r) / (1 - r).
fn inflation(before: &[f64], after: &[f64]) -> f64 {
    let (mut products, mut squares, mut sizes) = (0.0, 0.0, 0.0);
    for group in [before, after] {
        let mean = group.iter().sum::<f64>() / group.len().max(1) as f64;
        sizes += group.iter().map(|x| x.powi(2)).sum::<f64>();
        squares += group.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
        let pairs = group.iter().zip(group.iter().skip(1));
        products += pairs.map(|(x, y)| (x - mean) * (y - mean)).sum::<f64>();
    }
    // Values that differ only by rounding do not depend on each other.
    if squares <= ROUNDING * sizes {
        return 1.0;
    }
    // The estimate is too small by about 1/n in a group of n windows.
    let bias = 2.0 / (before.len() + after.len()) as f64;
    let correlation = (products / squares + bias).clamp(0.0, MAX_CORRELATION);
    (1.0 + correlation) / (1.0 - correlation)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn u_is_at_most(test: &RankTest, u: usize) -> f64 {
        test.tail[u]
    }

    #[test]
    fn distribution_matches_published_tables() {
        // All arrangements of 2 and 3 values: U = 0..6 occurs 1, 1, 2, 2, 2, 1, 1 times.
        let test = RankTest::new(2, 3);
        let tail: Vec<f64> = (0..=3).map(|u| u_is_at_most(&test, u) * 10.0).collect();
        assert!(
            tail.iter()
                .zip([1.0, 2.0, 4.0, 6.0])
                .all(|(a, b)| (a - b).abs() < 1e-12)
        );
        // Mann and Whitney's table: the critical value for 10 and 10 at 0.05, two-sided, is 23.
        let test = RankTest::new(10, 10);
        assert!(2.0 * u_is_at_most(&test, 23) <= 0.05);
        assert!(2.0 * u_is_at_most(&test, 24) > 0.05);
        assert!((u_is_at_most(&test, 0) * 184_756.0 - 1.0).abs() < 1e-9);
        // The largest groups that the configuration allows.
        let test = RankTest::new(60, 60);
        assert!(test.tail.windows(2).all(|pair| pair[0] <= pair[1]));
        assert!((test.tail.last().unwrap() - 0.5).abs() < 0.01);
    }

    #[test]
    fn separated_groups_have_a_small_p_value_and_equal_ones_have_1() {
        let random = fastrand::Rng::with_seed(1);
        let mut random = random;
        let mut group = |shift: f64| (0..20).map(|_| shift + random.f64()).collect::<Vec<_>>();
        let test = RankTest::new(20, 20);
        let separated = [group(0.0), group(2.0)].concat();
        assert!(test.p_value(&separated) < 1e-6);
        assert!(test.p_value(&[group(0.0), group(0.0)].concat()) > 0.01);
        assert_eq!(test.p_value(&[1.0; 40]), 1.0);
        let constant = [[0.1; 20], [0.2; 20]].concat();
        assert!(test.p_value(&constant) < 1e-9);
    }

    /// Random walks of short memory: without the correction, twice as many would be significant.
    #[test]
    fn autocorrelated_windows_keep_the_error_rate() {
        let test = RankTest::new(30, 30);
        let mut random = fastrand::Rng::with_seed(7);
        let mut significant = 0;
        for _ in 0..4000 {
            let mut level = 0.0;
            let values: Vec<f64> = (0..60)
                .map(|_| {
                    level = 0.5 * level + random.f64() - 0.5;
                    level
                })
                .collect();
            significant += usize::from(test.p_value(&values) < 0.01);
        }
        assert!(significant <= 80, "{significant} of 4000 at 0.01");
    }
}
