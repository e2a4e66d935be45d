//! The template function `strftime_now`, with which templates tell the model the date.

use jiff::Timestamp;
use jiff::fmt::strtime::{BrokenDownTime, Config, PosixCustom};
use minijinja::{Error, ErrorKind};

/// The current time in UTC, in the format of C's `strftime`.
pub(super) fn now(format: String) -> Result<String, Error> {
    strftime(&format, Timestamp::now())
}

fn strftime(format: &str, time: Timestamp) -> Result<String, Error> {
    let config = Config::new().custom(PosixCustom::new());
    let formatted = BrokenDownTime::from(time).to_string_with_config(&config, format);
    formatted.map_err(|error| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {error}")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::strftime;
    use jiff::Timestamp;

    /// The expected texts were made by Python: `datetime.fromtimestamp(t, timezone.utc).strftime(..)`.
    #[test]
    fn known_moments() {
        let all = "%Y-%m-%d %H:%M:%S %I %p %A %a %B %b %y %-d/%-m %F %T 100%%";
        for (seconds, want) in [
            (0, "1970-01-01 00:00:00 12 AM Thursday Thu January Jan 70 1/1 1970-01-01 00:00:00 100%"),
            (951_782_399, "2000-02-28 23:59:59 11 PM Monday Mon February Feb 00 28/2 2000-02-28 23:59:59 100%"),
            (951_782_400, "2000-02-29 00:00:00 12 AM Tuesday Tue February Feb 00 29/2 2000-02-29 00:00:00 100%"),
            (1_767_225_599, "2025-12-31 23:59:59 11 PM Wednesday Wed December Dec 25 31/12 2025-12-31 23:59:59 100%"),
        ] {
            assert_eq!(strftime(all, Timestamp::from_second(seconds).unwrap()).unwrap(), want);
        }
    }

    #[test]
    fn rare_codes() {
        let formatted = strftime("%c, %x, %X, %j", Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(formatted, "Thu Jan  1 00:00:00 1970, 01/01/70, 00:00:00, 001");
    }

    #[test]
    fn an_unknown_code_is_an_error() {
        let now = Timestamp::UNIX_EPOCH;
        assert!(strftime("%!", now).is_err() && strftime("%", now).is_err());
    }
}
