//! Exact ranges of numbers: the numbers that bounds, multiples and lists of values allow, and the grammars of their
//! texts.
//!
//! llguidance has bounds in double precision and multiples in 32 bits. A range that it represents exactly is left to
//! it. Any other range becomes an [expression](Written::Exact) of the texts of its numbers.

use super::decimal::{Bound, Decimal, MAX_DIGITS, added, not_above, not_below, remainder};
use llguidance::derivre::RegexAst;
use serde_json::{Map, Value, json};

/// The largest integer that all programs read exactly: section 6 of RFC 8259.
pub(super) const EXACT: i128 = (1 << 53) - 1;

/// The largest factor of `multipleOf` besides powers of ten: derivre stores remainders, times ten, in 32 bits.
const MAX_FACTOR: u128 = 400_000_000;

/// The maximum number of decimal places of `multipleOf`.
const MAX_PLACES: i64 = 8;

/// The maximum number of multiples that are listed one by one.
const MAX_LISTED: usize = 1000;

/// Numbers within bounds.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Range {
    pub integers: bool,
    pub least: Option<Bound>,
    pub most: Option<Bound>,
    pub multiples: Vec<Decimal>,
    /// The text of the only number, as in the schema.
    pub only: Option<String>,
}

/// How a range is written.
#[derive(Debug, PartialEq)]
pub(super) enum Written {
    /// A schema that llguidance enforces exactly.
    Plain(Value),
    /// Expressions that must all match, and factors: see [`expression`].
    Exact(String),
}

impl Written {
    pub fn is_exact(&self) -> bool {
        matches!(self, Self::Exact(_))
    }
}

impl Range {
    /// A single number.
    pub fn of(value: &Decimal, text: &str) -> Self {
        let bound = || Some(Bound { value: value.clone(), open: false });
        Self {
            integers: value.is_integer(),
            least: bound(),
            most: bound(),
            only: Some(text.to_owned()),
            ..Self::default()
        }
    }

    pub fn between(least: Decimal, most: Decimal) -> Self {
        let bound = |value| Some(Bound { value, open: false });
        Self { least: bound(least), most: bound(most), ..Self::default() }
    }

    /// The intersection of both.
    pub fn and(&self, other: &Self) -> Self {
        let tighter = |one: &Option<Bound>, other: &Option<Bound>, upper: bool| match (one, other) {
            (Some(one), Some(other)) => {
                let order = if upper { other.value.cmp(&one.value) } else { one.value.cmp(&other.value) };
                let takes_one = order.is_gt() || order.is_eq() && one.open;
                Some(if takes_one { one.clone() } else { other.clone() })
            }
            (one, other) => one.clone().or_else(|| other.clone()),
        };
        let mut multiples = self.multiples.clone();
        multiples.extend(other.multiples.iter().filter(|of| !self.multiples.contains(of)).cloned());
        Self {
            integers: self.integers || other.integers,
            least: tighter(&self.least, &other.least, false),
            most: tighter(&self.most, &other.most, true),
            multiples,
            only: self.only.clone().or_else(|| other.only.clone()),
        }
    }

    /// The same with its ends rounded to integers, if it is a range of integers.
    fn rounded(&self) -> Self {
        if !self.integers {
            return self.clone();
        }
        let least = self.least.as_ref().map(|Bound { value, open }| match (value.ceiling(), *open) {
            (whole, true) if whole == *value => whole.plus(1),
            (whole, _) => whole,
        });
        let most = self.most.as_ref().map(|Bound { value, open }| match (value.floor(), *open) {
            (whole, true) if whole == *value => whole.plus(-1),
            (whole, _) => whole,
        });
        let closed = |value| Bound { value, open: false };
        Self { least: least.map(closed), most: most.map(closed), ..self.clone() }
    }

    /// The same with the missing bounds of a range of integers: those of integers that every program reads exactly or,
    /// if no integer of the range lies within them, the next larger ones in use.
    pub fn bounded(&self) -> Self {
        let mut range = self.rounded();
        if !range.integers {
            return range;
        }
        let closed = |value| Some(Bound { value, open: false });
        if range.most.is_none() {
            let with = |most| Self { most: closed(most), ..range.clone() };
            range = range.first_with_value(with);
        }
        if range.least.is_none() {
            let with = |most: Decimal| Self { least: closed(most.negated()), ..range.clone() };
            range = range.first_with_value(with);
        }
        range
    }

    /// The same with the smallest limit on absolute values that leaves an integer.
    fn first_with_value(&self, with: impl Fn(Decimal) -> Self) -> Self {
        let bounds = self.least.iter().chain(&self.most).map(|bound| bound.value.lengths().0);
        let longest = bounds.max().unwrap_or(0);
        // A multiple of a number is never further from a bound than the number itself.
        let factor = self.factor().ok().flatten().map_or(0, |factor| factor.lengths().0);
        let nines = |count: usize| Decimal::parse(&"9".repeat(count));
        let programs = [EXACT, i64::MAX.into(), u64::MAX.into()].map(Decimal::from).into_iter();
        let mut limits = programs.chain(nines(longest)).chain(nines(longest.max(factor) + 1));
        limits.find_map(|most| Some(with(most)).filter(|range| !range.is_empty())).unwrap_or_else(|| with(EXACT.into()))
    }

    /// Whether it contains no number.
    pub fn is_empty(&self) -> bool {
        let range = self.rounded();
        if let (Some(least), Some(most)) = (&range.least, &range.most) {
            match least.value.cmp(&most.value) {
                std::cmp::Ordering::Greater => return true,
                std::cmp::Ordering::Equal if least.open || most.open => return true,
                _ => {}
            }
        }
        match range.factor() {
            Ok(Some(factor)) => range.has_no_multiple(&factor),
            _ => false,
        }
    }

    /// The common factor of all numbers; `None` if there is none.
    ///
    /// # Errors
    /// If there are several factors with too many digits.
    fn factor(&self) -> Result<Option<Decimal>, String> {
        let mut multiples = self.multiples.clone();
        let [first, rest @ ..] = &mut multiples[..] else { return Ok(None) };
        let mut all = first.clone();
        let one = Decimal::from(1i128);
        for other in rest.iter().chain(self.integers.then_some(&one)) {
            if *other == one && all.is_integer() {
                continue;
            }
            let places = all.lengths().1.max(other.lengths().1);
            let wide = |of: &Decimal| of.scaled(places).parse::<u64>().ok();
            let (Some(a), Some(b)) = (wide(&all), wide(other)) else {
                return Err("`multipleOf`: several numbers with too many digits apply together".to_owned());
            };
            let least = u128::from(a) / u128::from(divisor(a, b)) * u128::from(b);
            all = Decimal::parse(&format!("{least}e-{places}")).unwrap_or(all);
        }
        Ok(Some(all))
    }

    /// The multiples of a number in it as absolute values, beginning with the one nearest to zero. `None` if zero is
    /// among them, or if that is unknown.
    fn first_multiple(&self, factor: &Decimal) -> Option<(String, Option<String>, u128, usize)> {
        let (least, most) = (self.least.as_ref(), self.most.as_ref());
        let (near, far) = match (least, most) {
            (Some(least), most) if least.value.sign() > 0 || least.value.sign() == 0 && least.open => {
                (least.clone(), most.cloned())
            }
            (least, Some(most)) if most.value.sign() < 0 || most.value.sign() == 0 && most.open => {
                let negated = |bound: &Bound| Bound { value: bound.value.negated(), open: bound.open };
                (negated(most), least.map(negated))
            }
            _ => return None,
        };
        let places = [Some(&near.value), far.as_ref().map(|far| &far.value), Some(factor)]
            .into_iter()
            .flatten()
            .map(|of| of.lengths().1);
        let places = places.max().unwrap_or(0);
        let step = factor.scaled(places).parse::<u128>().ok().filter(|step| *step > 0 && *step < u128::MAX / 20)?;
        let start = near.value.scaled(places);
        let rest = remainder(&start, step);
        let more = if rest == 0 && !near.open { 0 } else { step - rest };
        let end = far.map(|far| {
            let end = Decimal::parse(&far.value.scaled(places)).unwrap_or(far.value.clone());
            if far.open { end.plus(-1).to_string() } else { end.to_string() }
        });
        Some((added(&start, more), end, step, places))
    }

    fn has_no_multiple(&self, factor: &Decimal) -> bool {
        let Some((first, Some(end), ..)) = self.first_multiple(factor) else { return false };
        match (Decimal::parse(&first), Decimal::parse(&end)) {
            (Some(first), Some(end)) => first > end,
            _ => false,
        }
    }

    /// Whether llguidance represents a bound exactly: it reads it as a double, and compares the digits of its text.
    fn is_plain(&self) -> bool {
        let small = |bound: &Bound| {
            let (whole, places) = bound.value.lengths();
            let largest = Decimal::from(EXACT + 1);
            let amount = if bound.value.sign() < 0 { bound.value.negated() } else { bound.value.clone() };
            if places == 0 { amount <= largest } else { whole + places <= 15 }
        };
        let factor = match &self.multiples[..] {
            [] => true,
            [only] => only.is_integer() && *only <= Decimal::from(MAX_FACTOR as i128),
            _ => false,
        };
        factor && self.least.iter().chain(&self.most).all(small)
    }

    /// The grammars of its numbers, with a bound on the digits of integers; in several parts if zero lies within.
    ///
    /// # Errors
    /// The reason why it cannot be enforced, in terms of JSON Schema.
    pub fn written(&self) -> Result<Vec<Written>, String> {
        let range = self.bounded();
        if range.is_empty() {
            return Ok(Vec::new());
        }
        if let Some(text) = &range.only
            && !range.is_plain()
        {
            return Ok(vec![Written::Exact(literal(text))]);
        }
        if !range.is_plain() {
            return Ok(vec![Written::Exact(range.expression()?)]);
        }
        if !range.is_divided() {
            return Ok(vec![Written::Plain(range.plain())]);
        }
        let (zero, one) = (Decimal::from(0i128), Decimal::from(-1i128));
        // `-0` is an integer of JSON, but not of programs' integer types.
        let closed = |value: &Decimal| Some(Bound { value: value.clone(), open: false });
        let below = Self { most: closed(&one), ..range.clone() };
        let above = Self { least: closed(&zero), ..range };
        Ok([above, below].iter().filter(|part| !part.is_empty()).map(|part| Written::Plain(part.plain())).collect())
    }

    /// Whether its numbers are integers on both sides of zero, which are written separately.
    pub fn is_divided(&self) -> bool {
        let sign = |bound: &Option<Bound>, sign: i8| bound.as_ref().map_or(sign, |bound| bound.value.sign());
        self.integers && sign(&self.least, -1) < 0 && sign(&self.most, 1) >= 0
    }

    /// As a schema.
    fn plain(&self) -> Value {
        let mut keywords = Map::new();
        keywords.insert("type".to_owned(), if self.integers { "integer" } else { "number" }.into());
        for (bound, closed, open) in
            [(&self.least, "minimum", "exclusiveMinimum"), (&self.most, "maximum", "exclusiveMaximum")]
        {
            let Some(bound) = bound else { continue };
            let key = if bound.open { open } else { closed };
            keywords.insert(key.to_owned(), plain_number(&bound.value));
        }
        if let [factor] = &self.multiples[..] {
            keywords.insert("multipleOf".to_owned(), plain_number(factor));
        }
        Value::Object(keywords)
    }

    /// Expressions that must all match, with `&` between them; `*F,S,Z` means `F`·10^-`S` times an integer, followed by
    /// `Z` zeros.
    fn expression(&self) -> Result<String, String> {
        let mut parts = Vec::new();
        for (bound, key) in [(&self.least, "minimum"), (&self.most, "maximum")] {
            let Some(bound) = bound else { continue };
            let (whole, places) = bound.value.lengths();
            if whole > MAX_DIGITS || places > MAX_DIGITS {
                return Err(format!("`{key}`: a number has more than {MAX_DIGITS} digits before or after its point"));
            }
            let of = if key == "minimum" { not_below } else { not_above };
            parts.push(of(bound, self.integers));
        }
        if parts.is_empty() {
            let zero = Bound { value: Decimal::from(0i128), open: false };
            parts.push(format!("-?(?:{})", not_below(&zero, self.integers)));
        }
        let Some(factor) = self.factor()? else { return Ok(parts.join("&")) };
        let (digits, exponent) = factor.coefficient();
        let (places, zeros) = ((-exponent).max(0), exponent.max(0));
        match digits.parse::<u128>() {
            Ok(digits) if digits <= MAX_FACTOR && places <= MAX_PLACES && zeros <= MAX_DIGITS as i64 => {
                parts.push(format!("*{digits},{places},{zeros}"));
                Ok(parts.join("&"))
            }
            _ => self.listed(&factor).ok_or_else(|| {
                format!("`multipleOf`: multiples of {factor} cannot be enforced: it has too many digits")
            }),
        }
    }

    /// A list of its multiples, if they are few.
    fn listed(&self, factor: &Decimal) -> Option<String> {
        let (mut next, end, step, places) = self.first_multiple(factor)?;
        let end = Decimal::parse(&end?)?;
        let is_negative = self.most.as_ref().is_some_and(|most| most.value.sign() <= 0);
        let mut texts = Vec::new();
        while Decimal::parse(&next)? <= end {
            if texts.len() == MAX_LISTED {
                return None;
            }
            let value = Decimal::parse(&format!("{next}e-{places}"))?;
            texts.push(literal(&if is_negative { value.negated() } else { value }.to_string()));
            next = added(&next, step);
        }
        Some(texts.join("|"))
    }
}

/// The greatest common divisor.
fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a.max(1) } else { divisor(b, a % b) }
}

fn plain_number(value: &Decimal) -> Value {
    let text = value.to_string();
    text.parse::<i64>().map_or_else(|_| text.parse::<f64>().map_or(Value::Null, |number| json!(number)), Value::from)
}

/// A number's text as an expression.
fn literal(text: &str) -> String {
    text.replace('.', "[.]").replace('+', "[+]")
}

/// The syntax tree of an [expression](Range::expression).
pub(super) fn expression(text: &str) -> RegexAst {
    let part = |part: &str| {
        let numbers = part.strip_prefix('*').map(|of| of.split(',').filter_map(|number| number.parse::<u32>().ok()));
        let Some([factor, places, zeros]) = numbers.and_then(|all| <[u32; 3]>::try_from(all.collect::<Vec<_>>()).ok())
        else {
            return RegexAst::Regex(part.to_owned());
        };
        let of_factor = RegexAst::Concat(vec![
            RegexAst::Regex("-?".to_owned()),
            RegexAst::MultipleOf(factor, places),
            RegexAst::Literal("0".repeat((zeros as usize).min(MAX_DIGITS))),
        ]);
        RegexAst::Or(vec![of_factor, RegexAst::Literal("0".to_owned())])
    };
    let mut parts: Vec<RegexAst> = text.split('&').map(part).collect();
    if parts.len() == 1 { parts.swap_remove(0) } else { RegexAst::And(parts) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::decimal::{Bound, Decimal};
    use super::{Range, Written};

    fn range(integers: bool, least: &str, most: &str, multiples: &[&str]) -> Range {
        let decimal = |text: &str| Decimal::parse(text).unwrap();
        let bound = |text: &str| {
            let (text, open) = text.strip_prefix('!').map_or((text, false), |text| (text, true));
            (!text.is_empty()).then(|| Bound { value: decimal(text), open })
        };
        let multiples = multiples.iter().map(|text| decimal(text)).collect();
        Range { integers, least: bound(least), most: bound(most), multiples, only: None }
    }

    #[test]
    fn ranges_that_are_empty() {
        for (integers, least, most, multiples) in [
            (true, "5", "4", &[][..]),
            (true, "!4", "!5", &[]),
            (false, "1", "!1", &[]),
            (true, "9007199254740993", "9007199254740992", &[]),
            (true, "0.1", "0.9", &[]),
            (true, "1", "6", &["7"]),
            (true, "-6", "-1", &["7"]),
            (false, "0.01", "0.06", &["0.07"]),
            (true, "1", "2", &["1.5"]),
            (true, "100000000000000000001", "100000000000000000006", &["1e1"]),
        ] {
            assert!(range(integers, least, most, multiples).is_empty(), "{least} {most} {multiples:?}");
        }
        for (integers, least, most, multiples) in [
            (false, "0.1", "0.9", &[][..]),
            (true, "1", "7", &["7"]),
            (true, "-7", "-1", &["7"]),
            (false, "0.01", "0.07", &["0.07"]),
            (true, "1", "3", &["1.5"]),
            (true, "!9007199254740992", "!9007199254740994", &[]),
            (true, "100000000000000000001", "100000000000000000010", &["1e1"]),
            (true, "-5", "5", &["1e30"]),
        ] {
            assert!(!range(integers, least, most, multiples).is_empty(), "{least} {most} {multiples:?}");
        }
    }

    #[test]
    fn what_is_left_to_doubles() {
        let is_plain = |range: Range| range.written().unwrap().iter().all(|one| matches!(one, Written::Plain(_)));
        assert!(is_plain(range(true, "", "", &[])) && is_plain(range(false, "0.5", "2", &[])));
        assert!(is_plain(range(true, "-5", "9007199254740992", &["3"])));
        for exact in [
            range(true, "9007199254740993", "", &[]),
            range(false, "1e20", "", &[]),
            range(true, "0", "100", &["500000000"]),
            range(false, "0", "1", &["0.07"]),
            range(true, "", "9223372036854775807", &[]),
        ] {
            assert!(!is_plain(exact.clone()), "{exact:?}");
        }
        // Integers around zero have two parts.
        assert_eq!(range(true, "-5", "5", &[]).written().unwrap().len(), 2);
    }

    #[test]
    fn bounds_that_integers_lack() {
        let ends = |least: &str, most: &str| {
            let range = range(true, least, most, &[]).bounded();
            (range.least.unwrap().value.to_string(), range.most.unwrap().value.to_string())
        };
        let exact = "9007199254740991";
        assert_eq!(ends("", ""), (format!("-{exact}"), exact.to_owned()));
        assert_eq!(ends("1", ""), ("1".to_owned(), exact.to_owned()));
        assert_eq!(ends("9007199254740993", "").1, i64::MAX.to_string());
        assert_eq!(ends("1e19", "").1, u64::MAX.to_string());
        assert_eq!(ends("1e29", "").1, "9".repeat(30));
        assert_eq!(ends("", "-1e29").0, format!("-{}", "9".repeat(30)));
        // If no multiple lies within the default bounds.
        let of_factor = |least: &str, factor: &str| {
            range(true, least, "", &[factor]).bounded().most.map(|most| most.value.to_string())
        };
        assert_eq!(of_factor("1", "10000000000000000"), Some(i64::MAX.to_string()));
        assert_eq!(of_factor("1", "1e25"), Some("9".repeat(27)));
        assert_eq!(of_factor("0", "1e16"), Some(exact.to_owned()), "zero is one");
    }
}
