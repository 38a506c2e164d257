//! When an upstream says to come back, in all the forms that upstreams use.

use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use serde_json::Value;

/// Longer than this is nonsense.
const LONGEST: Duration = Duration::from_secs(24 * 3_600);

/// The time to wait, from the headers (`header` finds one by its lower-case name) and the body of an
/// error; `now` is the wall clock's time, which dates are measured against.
///
/// In this order: `retry-after-ms`, `retry-after` (seconds, decimals, or an HTTP date),
/// `x-ratelimit-reset-requests`, `x-ratelimit-reset-tokens`, `x-ratelimit-reset` (`12ms`, `1s`,
/// `6m0s`), Google's `retryDelay`. Nonsense (negative, NaN, over 24 h) is passed over.
pub fn retry_after<'h>(
    header: impl Fn(&str) -> Option<&'h str>,
    body: &Value,
    now: Timestamp,
) -> Option<Duration> {
    header("retry-after-ms")
        .and_then(|text| seconds(text, 0.001))
        .or_else(|| header("retry-after").and_then(|text| seconds(text, 1.0).or_else(|| date(text, now))))
        .or_else(|| {
            ["x-ratelimit-reset-requests", "x-ratelimit-reset-tokens", "x-ratelimit-reset"]
                .into_iter()
                .find_map(|name| span(header(name)?))
        })
        .or_else(|| span(retry_delay(body)?))
}

fn seconds(text: &str, scale: f64) -> Option<Duration> {
    sane(text.trim().parse::<f64>().ok()? * scale)
}

fn sane(seconds: f64) -> Option<Duration> {
    (0.0..=LONGEST.as_secs_f64()).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}

fn date(text: &str, now: Timestamp) -> Option<Duration> {
    let at = rfc2822::DateTimeParser::new().parse_timestamp(text.trim()).ok()?;
    sane(now.until(at).ok()?.total(jiff::Unit::Second).ok()?)
}

/// `12ms`, `1s`, `6m0s`, `1h2m3.5s`.
fn span(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    let mut sum = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        let unit_end = rest[digits..]
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .map_or(rest.len(), |length| digits + length);
        sum += number
            * match &rest[digits..unit_end] {
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3_600.0,
                _ => return None,
            };
        rest = &rest[unit_end..];
    }
    sane(sum)
}

/// `error.details[].retryDelay` of Google's `google.rpc.RetryInfo`.
fn retry_delay(body: &Value) -> Option<&str> {
    let error = body.get("error").or_else(|| body.get(0)?.get("error"))?;
    error.get("details")?.as_array()?.iter().find_map(|detail| detail.get("retryDelay")?.as_str())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read(headers: &[(&str, &str)], body: &Value) -> Option<Duration> {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().expect("a timestamp");
        retry_after(
            |name| headers.iter().find(|(known, _)| *known == name).map(|(_, value)| *value),
            body,
            now,
        )
    }

    #[test]
    fn every_form_is_understood() {
        let cases: [(&str, &str, Option<f64>); 14] = [
            ("retry-after-ms", "1500", Some(1.5)),
            ("retry-after", "107", Some(107.0)),
            ("retry-after", "0.25", Some(0.25)),
            ("retry-after", "Fri, 02 Jan 2026 03:05:05 GMT", Some(60.0)),
            ("retry-after", "Fri, 02 Jan 2026 03:03:05 GMT", None),
            ("x-ratelimit-reset-requests", "12ms", Some(0.012)),
            ("x-ratelimit-reset-tokens", "6m0s", Some(360.0)),
            ("x-ratelimit-reset", "1h2m3.5s", Some(3_723.5)),
            ("retry-after", "-1", None),
            ("retry-after", "NaN", None),
            ("retry-after", "inf", None),
            ("retry-after", "86401", None),
            ("retry-after", "soon", None),
            ("x-ratelimit-reset", "12", None),
        ];
        for (name, value, expected) in cases {
            let found = read(&[(name, value)], &Value::Null);
            assert_eq!(found, expected.map(Duration::from_secs_f64), "{name}: {value}");
        }
        let google = json!({"error": {"details": [{"@type": "x"}, {"retryDelay": "34s"}]}});
        assert_eq!(read(&[], &google), Some(Duration::from_secs(34)));
    }

    #[test]
    fn the_first_form_that_makes_sense_wins() {
        let headers = [("retry-after-ms", "-5"), ("retry-after", "2"), ("x-ratelimit-reset", "9s")];
        assert_eq!(read(&headers, &Value::Null), Some(Duration::from_secs(2)));
    }

    proptest! {
        #[test]
        fn no_text_panics_and_nothing_exceeds_a_day(text in ".{0,20}") {
            for name in ["retry-after-ms", "retry-after", "x-ratelimit-reset"] {
                prop_assert!(read(&[(name, &text)], &Value::Null).is_none_or(|span| span <= LONGEST));
            }
        }
    }
}
