//! The positions of values along an axis.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences have equal distances.
    Linear,
    /// Equal ratios have equal distances; for quantities above zero.
    Logarithmic,
}

impl Scale {
    /// The suffix of the axis name.
    pub fn words(self) -> &'static str {
        match self {
            Self::Linear => "",
            Self::Logarithmic => " (logarithmic)",
        }
    }

    /// The position in pixels of each value between the first and the last; a single value is in the middle.
    pub fn over(self, values: &[usize], (left, right): (i32, i32)) -> impl Fn(usize) -> i32 + use<> {
        let along = move |value: usize| match self {
            Self::Linear => value as f64,
            Self::Logarithmic => (value.max(1) as f64).log2(),
        };
        let [first, last] = [values.first(), values.last()].map(|value| value.map_or(0.0, |value| along(*value)));
        move |value| {
            let part = if last > first { (along(value) - first) / (last - first) } else { 0.5 };
            left + (f64::from(right - left) * part).round() as i32
        }
    }
}

/// The distance between the marks of an axis from 0 to a value: 1, 2 or 5 times a power of ten, for 4 to 8 of them.
pub fn steps(most: f64) -> f64 {
    let least = most.max(1e-9) / 8.0;
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|of| of * power).find(|step| *step >= least).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::{Scale, steps};

    #[test]
    fn depths_stand_where_they_belong() {
        let depths = [0, 4096, 16384, 32768];
        assert_eq!(depths.map(Scale::Linear.over(&depths, (100, 900))), [100, 200, 500, 900]);
        let prompts = [64, 512, 4096, 32768];
        assert_eq!(prompts.map(Scale::Logarithmic.over(&prompts, (0, 900))), [0, 300, 600, 900]);
        assert_eq!(Scale::Linear.over(&[4096], (100, 900))(4096), 500);
    }

    #[test]
    fn marks_are_round() {
        for (most, step) in [(341.0, 50.0), (12_429.0, 2000.0), (8.0, 1.0), (0.7, 0.1), (99.0, 20.0)] {
            assert!((steps(most) / step - 1.0).abs() < 1e-9, "{most}: {}", steps(most));
        }
    }
}
