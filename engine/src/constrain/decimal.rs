//! Decimal numbers of any length, compared exactly, and the regular expressions of numbers within a bound.
//!
//! llguidance stores bounds in double precision, which has no integer between 2^53 and 2^53 + 2. Here a number is
//! stored as digits.

use std::cmp::Ordering;

/// The maximum number of digits before, and after, the decimal point of a number.
pub(super) const MAX_DIGITS: usize = 100;

/// The largest exponent that is accepted.
const LARGEST_EXPONENT: i64 = 1000;

/// An exact number: the integer with these digits, times a power of ten. The digits have no leading or trailing zeros;
/// those of zero are empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decimal {
    negative: bool,
    digits: String,
    exponent: i64,
}

impl From<i128> for Decimal {
    fn from(value: i128) -> Self {
        Self::normal(value < 0, &value.unsigned_abs().to_string(), 0)
    }
}

impl From<u128> for Decimal {
    fn from(value: u128) -> Self {
        Self::normal(false, &value.to_string(), 0)
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.sign(), other.sign()) {
            (-1, -1) => other.magnitude().cmp(&self.magnitude()),
            (1, 1) => self.magnitude().cmp(&other.magnitude()),
            (mine, others) => mine.cmp(&others),
        }
    }
}

impl std::fmt::Display for Decimal {
    /// The JSON form without an exponent.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, fraction) = self.parts();
        let sign = if self.negative { "-" } else { "" };
        match fraction.is_empty() {
            true => write!(f, "{sign}{whole}"),
            false => write!(f, "{sign}{whole}.{fraction}"),
        }
    }
}

impl Decimal {
    fn normal(negative: bool, digits: &str, exponent: i64) -> Self {
        let digits = digits.trim_start_matches('0');
        let kept = digits.trim_end_matches('0');
        let exponent = if kept.is_empty() { 0 } else { exponent + (digits.len() - kept.len()) as i64 };
        Self { negative: negative && !kept.is_empty(), digits: kept.to_owned(), exponent }
    }

    /// Parses a number of JSON; `None` if it is not a number, or if its exponent is beyond ±1000.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
            None => (rest, 0),
        };
        // Checked before any computation, because requests are untrusted.
        if exponent.unsigned_abs() > LARGEST_EXPONENT.unsigned_abs() {
            return None;
        }
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}");
        let is_number = !whole.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| Self::normal(negative, &digits, exponent - fraction.len() as i64))
    }

    pub fn sign(&self) -> i8 {
        match (self.digits.is_empty(), self.negative) {
            (true, _) => 0,
            (_, true) => -1,
            (_, false) => 1,
        }
    }

    /// The number of digits before the point, and the digits: ordered like the numbers.
    fn magnitude(&self) -> (i64, &str) {
        (self.digits.len() as i64 + self.exponent, &self.digits)
    }

    pub fn negated(&self) -> Self {
        Self { negative: !self.negative && !self.digits.is_empty(), ..self.clone() }
    }

    pub fn is_integer(&self) -> bool {
        self.exponent >= 0
    }

    /// The number of digits before and after its point.
    pub fn lengths(&self) -> (usize, usize) {
        let (whole, _) = self.magnitude();
        (whole.max(0) as usize, (-self.exponent).max(0) as usize)
    }

    /// The digits before and after the point.
    fn parts(&self) -> (String, String) {
        let (point, _) = self.magnitude();
        match point {
            ..=0 if self.digits.is_empty() => ("0".to_owned(), String::new()),
            ..=0 => ("0".to_owned(), format!("{}{}", "0".repeat(-point as usize), self.digits)),
            _ if self.exponent >= 0 => {
                (format!("{}{}", self.digits, "0".repeat(self.exponent as usize)), String::new())
            }
            _ => {
                let (whole, fraction) = self.digits.split_at(point as usize);
                (whole.to_owned(), fraction.to_owned())
            }
        }
    }

    /// The largest integer not above it.
    pub fn floor(&self) -> Self {
        if self.is_integer() {
            return self.clone();
        }
        let whole = Self::normal(self.negative, &self.parts().0, 0);
        if self.negative { whole.plus(-1) } else { whole }
    }

    /// The smallest integer not below it.
    pub fn ceiling(&self) -> Self {
        self.negated().floor().negated()
    }

    /// An integer plus or minus one.
    pub fn plus(&self, one: i8) -> Self {
        let digits = self.parts().0;
        let (negative, made) = match (self.sign(), one.signum()) {
            (0, one) => (one < 0, "1".to_owned()),
            (sign, one) if sign == one => (sign < 0, added(&digits, 1)),
            (sign, _) => (sign < 0, less_one(&digits)),
        };
        Self::normal(negative, &made, 0)
    }

    /// The digits, and how many zeros follow them or, if negative, how many of them follow the point.
    pub fn coefficient(&self) -> (&str, i64) {
        (&self.digits, self.exponent)
    }

    /// The digits of its absolute value times a power of ten that makes it an integer.
    pub fn scaled(&self, places: usize) -> String {
        let zeros = (self.exponent + places as i64).max(0) as usize;
        format!("{}{}", self.digits, "0".repeat(zeros))
    }
}

/// The remainder of a number given by its digits.
pub(super) fn remainder(digits: &str, of: u128) -> u128 {
    digits.bytes().fold(0, |rest, digit| (rest * 10 + u128::from(digit - b'0')) % of)
}

/// The sum of a number given by its digits and a small number.
pub(super) fn added(digits: &str, more: u128) -> String {
    let (mut carry, mut sum) = (more, Vec::new());
    for digit in digits.bytes().rev() {
        carry += u128::from(digit - b'0');
        sum.push(b'0' + (carry % 10) as u8);
        carry /= 10;
    }
    while carry > 0 {
        sum.push(b'0' + (carry % 10) as u8);
        carry /= 10;
    }
    sum.iter().rev().map(|digit| char::from(*digit)).collect()
}

/// A positive integer minus one.
fn less_one(digits: &str) -> String {
    let kept = digits.trim_end_matches('0');
    let nines = "9".repeat(digits.len() - kept.len());
    let Some((last, before)) = kept.as_bytes().split_last() else { return nines };
    format!("{}{}{nines}", String::from_utf8_lossy(before), char::from(last - 1))
}

/// The end of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bound {
    pub value: Decimal,
    /// Whether the value itself is excluded.
    pub open: bool,
}

/// The expression of the numbers not below a bound, integers only or all.
pub(super) fn not_below(bound: &Bound, integers: bool) -> String {
    let amount = |value: Decimal| Bound { value, open: bound.open };
    match bound.value.sign() {
        -1 => format!("{}|-(?:{})", any(integers), amounts_to(&amount(bound.value.negated()), integers, integers)),
        0 if !bound.open => any(integers),
        _ => amounts_from(bound, integers),
    }
}

/// The expression of the numbers not above a bound.
pub(super) fn not_above(bound: &Bound, integers: bool) -> String {
    let negated = || Bound { value: bound.value.negated(), open: bound.open };
    match bound.value.sign() {
        -1 => format!("-(?:{})", amounts_from(&negated(), integers)),
        0 if bound.open => format!("-(?:{})", amounts_from(bound, integers)),
        _ => format!("-(?:{})|{}", any(integers), amounts_to(bound, integers, false)),
    }
}

/// The optional fraction of a number.
const FRACTION: &str = "(?:[.][0-9]{1,100})?";

fn fraction(integers: bool) -> &'static str {
    if integers { "" } else { FRACTION }
}

/// Numbers that are not negative.
fn any(integers: bool) -> String {
    format!("(?:0|[1-9][0-9]{{0,{}}}){}", MAX_DIGITS - 1, fraction(integers))
}

/// Numbers from a positive bound, or from zero.
fn amounts_from(bound: &Bound, integers: bool) -> String {
    let ((whole, rest), any_fraction) = (bound.value.parts(), fraction(integers));
    let mut options = Vec::new();
    for (at, digit) in whole.bytes().enumerate().filter(|(_, digit)| *digit < b'9') {
        let left = whole.len() - at - 1;
        options.push(format!("{}[{}-9][0-9]{{{left}}}{any_fraction}", &whole[..at], char::from(digit + 1)));
    }
    if whole.len() < MAX_DIGITS {
        options.push(format!("[1-9][0-9]{{{},{}}}{any_fraction}", whole.len(), MAX_DIGITS - 1));
    }
    match (integers, bound.open, rest.is_empty()) {
        (true, false, true) => options.push(whole),
        (true, ..) => {}
        (false, false, true) => options.push(format!("{whole}{FRACTION}")),
        (false, true, true) => options.push(format!("{whole}[.][0-9]{{0,99}}[1-9][0-9]{{0,99}}")),
        (false, open, false) => {
            for (at, digit) in rest.bytes().enumerate().filter(|(_, digit)| *digit < b'9') {
                options.push(format!("{whole}[.]{}[{}-9][0-9]{{0,99}}", &rest[..at], char::from(digit + 1)));
            }
            let digits = if open { "[0-9]{0,99}[1-9][0-9]{0,99}" } else { "[0-9]{0,99}" };
            options.push(format!("{whole}[.]{rest}{digits}"));
        }
    }
    format!("(?:{})", options.join("|"))
}

/// Numbers up to a positive bound, from zero or, after a sign, from one: `-0` is an integer of JSON, but not of
/// programs' integer types.
fn amounts_to(bound: &Bound, integers: bool, from_one: bool) -> String {
    let ((whole, rest), any_fraction) = (bound.value.parts(), fraction(integers));
    let mut options = Vec::new();
    for (at, digit) in whole.bytes().enumerate() {
        let least = if at == 0 && (whole.len() > 1 || from_one) { b'1' } else { b'0' };
        let left = whole.len() - at - 1;
        if digit > least {
            let (least, most) = (char::from(least), char::from(digit - 1));
            options.push(format!("{}[{least}-{most}][0-9]{{{left}}}{any_fraction}", &whole[..at]));
        }
    }
    if whole.len() > 1 {
        let zero = if from_one { "" } else { "0|" };
        options.push(format!("(?:{zero}[1-9][0-9]{{0,{}}}){any_fraction}", whole.len() - 2));
    }
    // The integer part itself, with fractions that do not exceed the bound's.
    match (integers, bound.open, rest.is_empty()) {
        (true, ..) if whole == "0" && from_one => {}
        (true, false, true) => options.push(whole),
        (true, true, true) | (false, true, true) => {}
        (true, _, false) => options.push(whole),
        (false, false, true) => options.push(format!("{whole}(?:[.]0{{1,100}})?")),
        (false, open, false) => {
            let mut fractions = Vec::new();
            for (at, digit) in rest.bytes().enumerate().filter(|(_, digit)| *digit > b'0') {
                fractions.push(format!("{}[0-{}][0-9]{{0,99}}", &rest[..at], char::from(digit - 1)));
            }
            fractions.extend((1..rest.len()).map(|end| rest[..end].to_owned()));
            fractions.extend((!open).then(|| format!("{rest}0{{0,99}}")));
            options.push(format!("{whole}(?:[.](?:{}))?", fractions.join("|")));
        }
    }
    if options.is_empty() {
        return "[0--0]".to_owned(); // nothing
    }
    format!("(?:{})", options.join("|"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Bound, Decimal, added, not_above, not_below, remainder};
    use regex_syntax::hir::Hir;

    fn decimal(text: &str) -> Decimal {
        Decimal::parse(text).unwrap()
    }

    #[test]
    fn numbers_are_compared_by_their_digits() {
        let sorted =
            ["-1e30", "-12.5", "-12.49", "-0.001", "0", "1e-3", "0.0011", "9", "10", "9007199254740993", "1e20"];
        for (at, text) in sorted.iter().enumerate() {
            for (other, larger) in sorted.iter().enumerate() {
                assert_eq!(decimal(text).cmp(&decimal(larger)), at.cmp(&other), "{text} {larger}");
            }
        }
        assert_eq!(decimal("1200e-2"), decimal("12.0"));
        assert_eq!(decimal("-0.0"), decimal("0"));
        let extreme = ["1.5e-9223372036854775808", "10e9223372036854775807", "1e99999999999999999999"];
        for text in ["", "-", ".5", "1e", "1e9999", "0x3", "1.2.3"].into_iter().chain(extreme) {
            assert_eq!(Decimal::parse(text), None, "{text}");
        }
    }

    #[test]
    fn integers_beside_a_number() {
        for (text, floor, ceiling) in
            [("2.5", "2", "3"), ("-2.5", "-3", "-2"), ("7", "7", "7"), ("0.2", "0", "1"), ("-0.2", "-1", "0")]
        {
            assert_eq!(decimal(text).floor(), decimal(floor), "{text}");
            assert_eq!(decimal(text).ceiling(), decimal(ceiling), "{text}");
        }
        assert_eq!(decimal("99999999999999999999").plus(1), decimal("1e20"));
        assert_eq!(decimal("1e20").plus(-1), decimal("99999999999999999999"));
        assert_eq!((decimal("0").plus(-1), decimal("-1").plus(1)), (decimal("-1"), decimal("0")));
        assert_eq!(
            (remainder("100000000000000000001", 7), added("999", 3)),
            (10u128.pow(20) % 7 + 1, "1002".to_owned())
        );
        assert_eq!(decimal("1.5e3").to_string(), "1500");
        assert_eq!(decimal("-1.5e-3").to_string(), "-0.0015");
    }

    /// Whether an expression matches a whole text.
    fn matches(expression: &str, text: &str) -> bool {
        let parsed: Hir = regex_syntax::parse(expression).unwrap();
        ends(&parsed, text.as_bytes(), vec![0]).contains(&text.len())
    }

    /// The ends of matches that begin at these positions of a text.
    fn ends(part: &Hir, text: &[u8], from: Vec<usize>) -> Vec<usize> {
        use regex_syntax::hir::{Class, HirKind};
        let mut found: Vec<usize> = match part.kind() {
            HirKind::Empty | HirKind::Look(_) => from,
            HirKind::Literal(literal) => {
                let fits = |at: &usize| text[*at..].starts_with(&literal.0);
                from.into_iter().filter(fits).map(|at| at + literal.0.len()).collect()
            }
            HirKind::Class(class) => {
                let has = |byte: u8| match class {
                    Class::Unicode(class) => {
                        class.ranges().iter().any(|r| (r.start()..=r.end()).contains(&char::from(byte)))
                    }
                    Class::Bytes(class) => class.ranges().iter().any(|r| (r.start()..=r.end()).contains(&byte)),
                };
                from.into_iter().filter(|at| text.get(*at).is_some_and(|byte| has(*byte))).map(|at| at + 1).collect()
            }
            HirKind::Repetition(repeated) => {
                let (mut now, mut all) = (from, Vec::new());
                for count in 0..=repeated.max.unwrap_or(u32::MAX) {
                    if count >= repeated.min {
                        all.extend(now.iter().copied());
                    }
                    now = ends(&repeated.sub, text, now);
                    if now.is_empty() {
                        break;
                    }
                }
                all
            }
            HirKind::Capture(group) => ends(&group.sub, text, from),
            HirKind::Concat(parts) => parts.iter().fold(from, |from, part| ends(part, text, from)),
            HirKind::Alternation(parts) => parts.iter().flat_map(|part| ends(part, text, from.clone())).collect(),
        };
        found.sort_unstable();
        found.dedup();
        found
    }

    /// For every number and every bound, the expression agrees with the comparison.
    #[test]
    fn expressions_are_exact() {
        let bounds = [
            "-9007199254740993",
            "-120.05",
            "-7",
            "-0.5",
            "0",
            "0.05",
            "0.5",
            "7",
            "9.99",
            "10",
            "100",
            "120.05",
            "999",
            "9007199254740993",
            "123456789012345678901234567890",
            "1e20",
        ];
        let texts = [
            "-9007199254740994",
            "-9007199254740993",
            "-9007199254740992",
            "-121",
            "-120.06",
            "-120.05",
            "-120.0500",
            "-120.049",
            "-120",
            "-8",
            "-7",
            "-6",
            "-1",
            "-0.51",
            "-0.5",
            "-0.4",
            "0",
            "0.0",
            "0.04",
            "0.05",
            "0.050",
            "0.0501",
            "0.06",
            "0.1",
            "0.5",
            "0.49",
            "1",
            "6.9",
            "7",
            "7.0",
            "7.01",
            "8",
            "9",
            "9.9",
            "9.98",
            "9.99",
            "9.991",
            "10",
            "10.0",
            "11",
            "99",
            "99.9",
            "100",
            "101",
            "120",
            "120.05",
            "120.0",
            "120.051",
            "120.1",
            "998",
            "999",
            "1000",
            "9007199254740992",
            "9007199254740993",
            "9007199254740994",
            "99999999999999999999",
            "100000000000000000000",
            "100000000000000000001",
            "123456789012345678901234567889",
            "123456789012345678901234567890",
            "123456789012345678901234567891",
            "999999999999999999999999999999",
        ];
        for bound in bounds {
            for open in [false, true] {
                let bound = Bound { value: decimal(bound), open };
                for integers in [false, true] {
                    let (below, above) = (not_below(&bound, integers), not_above(&bound, integers));
                    for text in texts.iter().filter(|text| !integers || !text.contains('.')) {
                        let order = decimal(text).cmp(&bound.value);
                        let is = |wanted: bool| wanted || order.is_eq() && !open;
                        assert_eq!(matches(&below, text), is(order.is_gt()), "{text} >= {bound:?}: {below}");
                        assert_eq!(matches(&above, text), is(order.is_lt()), "{text} <= {bound:?}: {above}");
                    }
                }
            }
        }
        let whole = not_above(&Bound { value: decimal("12"), open: false }, true);
        assert!(!matches(&whole, "012") && !matches(&whole, "1.0") && !matches(&whole, "+1") && !matches(&whole, ""));
    }
}
