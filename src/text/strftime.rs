//! The template function `strftime_now`, which gives the model the date.

use minijinja::{Error, ErrorKind};
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The current time in UTC, in the format of C's `strftime`.
pub(super) fn now(format: String) -> Result<String, Error> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    strftime(&format, now.as_secs())
}

/// A date of the Gregorian calendar.
struct Date {
    year: u64,
    /// The month, from 1.
    month: u64,
    /// The day of the month, from 1.
    day: u64,
}

/// The date `days` after 1970-01-01 (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn date(days: u64) -> Date {
    // Days since 0000-03-01, in eras of 400 years. Years that begin in March have their leap day at the end.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    Date {
        year: era * 400 + year_of_era + u64::from(month <= 2),
        month,
        day: day_of_year - (153 * from_march + 2) / 5 + 1,
    }
}

fn strftime(format: &str, seconds: u64) -> Result<String, Error> {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let Date { year, month, day } = date(days);
    let (weekday, month_name) = (DAYS[((days + 4) % 7) as usize], MONTHS[(month - 1) as usize]);
    let twelve = (hour + 11) % 12 + 1;
    let mut out = String::new();
    let mut rest = format.chars();
    while let Some(char) = rest.next() {
        if char != '%' {
            out.push(char);
            continue;
        }
        let (code, padded) = match rest.next() {
            Some('-') => (rest.next(), false),
            code => (code, true),
        };
        let mut number = |value: u64| if padded { write!(out, "{value:02}") } else { write!(out, "{value}") };
        let _ = match code {
            Some('Y') => number(year),
            Some('m') => number(month),
            Some('d') => number(day),
            Some('H') => number(hour),
            Some('I') => number(twelve),
            Some('M') => number(minute),
            Some('S') => number(second),
            Some('y') => number(year % 100),
            Some('A') => write!(out, "{weekday}"),
            Some('a') => write!(out, "{}", &weekday[..3]),
            Some('B') => write!(out, "{month_name}"),
            Some('b') => write!(out, "{}", &month_name[..3]),
            Some('p') => write!(out, "{}", if hour < 12 { "AM" } else { "PM" }),
            Some('F') => write!(out, "{year}-{month:02}-{day:02}"),
            Some('T') => write!(out, "{hour:02}:{minute:02}:{second:02}"),
            Some('%') => write!(out, "%"),
            code => {
                let code = code.map(String::from).unwrap_or_default();
                return Err(Error::new(
                    ErrorKind::InvalidOperation,
                    format!("strftime_now does not support `%{code}`"),
                ));
            }
        };
    }
    Ok(out)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::strftime;

    /// The expected texts were made by Python: `datetime.fromtimestamp(t, timezone.utc).strftime(..)`.
    #[test]
    fn known_moments() {
        let all = "%Y-%m-%d %H:%M:%S %I %p %A %a %B %b %y %-d/%-m %F %T 100%%";
        for (seconds, want) in [
            (0, "1970-01-01 00:00:00 12 AM Thursday Thu January Jan 70 1/1 1970-01-01 00:00:00 100%"),
            (951_782_399, "2000-02-28 23:59:59 11 PM Monday Mon February Feb 00 28/2 2000-02-28 23:59:59 100%"),
            (951_782_400, "2000-02-29 00:00:00 12 AM Tuesday Tue February Feb 00 29/2 2000-02-29 00:00:00 100%"),
            (1_767_225_599, "2025-12-31 23:59:59 11 PM Wednesday Wed December Dec 25 31/12 2025-12-31 23:59:59 100%"),
            (4_107_542_400, "2100-03-01 00:00:00 12 AM Monday Mon March Mar 00 1/3 2100-03-01 00:00:00 100%"),
        ] {
            assert_eq!(strftime(all, seconds).unwrap(), want);
        }
    }

    #[test]
    fn an_unknown_code_is_an_error() {
        assert!(strftime("%Q", 0).is_err() && strftime("%", 0).is_err());
    }
}
