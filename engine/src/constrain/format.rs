//! The formats that are enforced on strings. In JSON Schema formats are annotations unless a program says otherwise, so
//! formats that are not listed here are accepted and not enforced.
//!
//! The expressions allow what a format's definition allows and programs can read: existing dates, no leap seconds, at
//! most nine digits of a second, and bounded lengths.

use super::schema::add_pattern;
use llguidance::derivre::{RegexAst, RegexBuilder};
use llguidance::{panic_utils, regex_to_lark};
use serde_json::{Map, Value};
use std::panic::AssertUnwindSafe;

/// Years with a 29th of February: those divisible by four, but of the centuries only those divisible by four hundred.
macro_rules! leap_year {
    () => {
        "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
    };
}

/// RFC 3339, `full-date`, without the year 0, which most programs do not support.
macro_rules! date {
    () => {
        concat!(
            "(?:(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)-",
            "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))",
            "|",
            leap_year!(),
            "-02-29)"
        )
    };
}

/// RFC 3339, `full-time`.
macro_rules! time {
    () => {
        "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:[.][0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
    };
}

/// RFC 1123: labels of letters, digits and single hyphens.
macro_rules! hostname {
    () => {
        concat!(label!(), "(?:[.]", label!(), "){0,3}")
    };
}

macro_rules! label {
    () => {
        "(?:[A-Za-z0-9]{1,60}|[A-Za-z0-9]{1,20}(?:-[A-Za-z0-9]{1,12}){1,3})"
    };
}

macro_rules! ipv4 {
    () => {
        "(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])[.]){3}(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
    };
}

/// RFC 4291: eight groups, in which one run of zeros may be omitted.
macro_rules! ipv6 {
    () => {
        concat!(
            "(?:(?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}",
            "|(?:[0-9a-fA-F]{1,4}:){1,6}:[0-9a-fA-F]{1,4}",
            "|(?:[0-9a-fA-F]{1,4}:){1,5}(?::[0-9a-fA-F]{1,4}){1,2}",
            "|(?:[0-9a-fA-F]{1,4}:){1,4}(?::[0-9a-fA-F]{1,4}){1,3}",
            "|(?:[0-9a-fA-F]{1,4}:){1,3}(?::[0-9a-fA-F]{1,4}){1,4}",
            "|(?:[0-9a-fA-F]{1,4}:){1,2}(?::[0-9a-fA-F]{1,4}){1,5}",
            "|[0-9a-fA-F]{1,4}:(?::[0-9a-fA-F]{1,4}){1,6}",
            "|(?:[0-9a-fA-F]{1,4}:){1,6}:",
            "|::(?:[0-9a-fA-F]{1,4}:){0,6}[0-9a-fA-F]{1,4}",
            "|::)"
        )
    };
}

/// RFC 5321, `Dot-string`, of 64 characters at most.
const LOCAL: &str = concat!(
    "(?:[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,64}",
    "|[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,31}[.][A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,32}",
    "|[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}(?:[.][A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}){2})"
);

/// The ports of TCP.
macro_rules! port {
    () => {
        "(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
    };
}

/// RFC 3986 with hosts as above: a path, a query and a fragment after a host, or only a path after a scheme.
const URI: &str = concat!(
    "[A-Za-z][A-Za-z0-9+.-]{0,19}:(?:",
    "//(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2}){1,40}@)?(?:",
    hostname!(),
    "|\\[",
    ipv6!(),
    "\\])(?::",
    port!(),
    ")?(?:/(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*)*",
    "|//(?:/(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*)+",
    "|(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})+(?:/(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*)*",
    ")(?:\\?(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?",
    "(?:#(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?"
);

/// RFC 3339, appendix A.
const DURATION: &str = concat!(
    "P(?:[0-9]{1,9}W|T",
    "(?:[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?|[0-9]{1,9}M(?:[0-9]{1,9}S)?|[0-9]{1,9}S)|",
    "(?:[0-9]{1,9}Y(?:[0-9]{1,9}M(?:[0-9]{1,9}D)?)?|[0-9]{1,9}M(?:[0-9]{1,9}D)?|[0-9]{1,9}D)",
    "(?:T(?:[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?|[0-9]{1,9}M(?:[0-9]{1,9}S)?|[0-9]{1,9}S))?)"
);

/// The expression of a format, if it is enforced.
pub(super) fn expression(name: &str) -> Option<String> {
    Some(match name {
        "date-time" => concat!(date!(), "T", time!()).to_owned(),
        "date" => date!().to_owned(),
        "time" => time!().to_owned(),
        "duration" => DURATION.to_owned(),
        "email" => email(LOCAL),
        "hostname" => hostname!().to_owned(),
        "ipv4" => ipv4!().to_owned(),
        "ipv6" => ipv6!().to_owned(),
        "uri" => URI.to_owned(),
        "uuid" => "[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}".to_owned(),
        _ => return None,
    })
}

/// Local parts that match [`ZOD_EMAIL`] too: as in [`LOCAL`], but of fewer characters, and without an apostrophe at the
/// end.
const LOCAL_OF_ZOD: &str = concat!(
    "(?:[A-Za-z0-9_'+-]{0,63}[A-Za-z0-9_+-]",
    "|[A-Za-z0-9_'+-]{1,31}[.][A-Za-z0-9_'+-]{0,31}[A-Za-z0-9_+-]",
    "|[A-Za-z0-9_'+-]{1,20}[.][A-Za-z0-9_'+-]{1,20}[.][A-Za-z0-9_'+-]{0,19}[A-Za-z0-9_+-])"
);

/// The pattern that zod writes next to the format `email`.
const ZOD_EMAIL: &str =
    concat!(r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]", r"@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$");

/// The pattern that zod writes next to the format `duration`.
const ZOD_DURATION: &str =
    r"^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d+)?S)?)?)$";

/// Replaces a format and the known pattern of a library next to it, which cannot be enforced because it looks around,
/// by a pattern whose texts all match both. Listed values may be other such texts, so their pattern stays.
pub(super) fn hold_known_pattern(keywords: &mut Map<String, Value>) {
    if is_fixed(keywords) {
        return;
    }
    let text = |key: &str| keywords.get(key).and_then(Value::as_str);
    let both = match (text("format"), text("pattern")) {
        (Some("email"), Some(ZOD_EMAIL)) => email(LOCAL_OF_ZOD),
        (Some("duration"), Some(ZOD_DURATION)) => DURATION.to_owned(),
        _ => return,
    };
    keywords.shift_remove("format");
    keywords.insert("pattern".to_owned(), whole(&both).into());
}

/// Whether a schema lists its values.
fn is_fixed(keywords: &Map<String, Value>) -> bool {
    ["const", "enum"].iter().any(|key| keywords.contains_key(*key))
}

/// An address with this local part.
fn email(local: &str) -> String {
    format!("{local}@{}[.][A-Za-z]{{2,24}}", hostname!())
}

/// The pattern of texts that an expression matches from beginning to end.
fn whole(expression: &str) -> String {
    format!("^(?:{expression})$")
}

/// The maximum number of steps for finding out whether a format contradicts other keywords: the number that llguidance
/// takes to find out whether any string is valid.
const MAX_STEPS: u64 = 10_000;

/// Whether no string matches both the pattern of a format and the schema's keywords of strings. If that would take too
/// many steps, they count as compatible.
fn is_contradicted(pattern: &str, keywords: &Map<String, Value>) -> bool {
    let own = keywords.get("pattern").and_then(Value::as_str);
    let search = |pattern: &str| RegexAst::SearchRegex(regex_to_lark(pattern, "dw"));
    let mut all: Vec<RegexAst> = own.into_iter().chain([pattern]).map(search).collect();
    let [least, most] = ["minLength", "maxLength"].map(|key| keywords.get(key).and_then(Value::as_u64));
    if least.is_some() || most.is_some() {
        let most = most.map_or_else(String::new, |most| most.to_string());
        all.push(RegexAst::Regex(format!("(?s:.{{{},{most}}})", least.unwrap_or(0))));
    }
    if all.len() == 1 {
        return false;
    }
    let is_empty = || {
        let mut builder = RegexBuilder::new();
        let together = builder.mk(&RegexAst::And(all))?;
        Ok(builder.to_regex_limited(together, MAX_STEPS)?.always_empty())
    };
    panic_utils::catch_unwind(AssertUnwindSafe(is_empty)).unwrap_or(false)
}

/// Replaces a schema's format by its expression. With `const` or `enum` the format is dropped, because the values are
/// fixed. It is also dropped if it contradicts the schema's other keywords, because it is an annotation.
pub(super) fn hold(keywords: &mut Map<String, Value>) {
    let Some(format) = keywords.shift_remove("format") else { return };
    let Some(expression) = format.as_str().and_then(expression).filter(|_| !is_fixed(keywords)) else { return };
    let pattern = whole(&expression);
    if is_contradicted(&pattern, keywords) {
        return;
    }
    if keywords.contains_key("pattern") {
        add_pattern(keywords, pattern);
    } else {
        keywords.insert("pattern".to_owned(), pattern.into());
    }
}
