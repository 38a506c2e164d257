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
/// `x-ratelimit-reset-requests` and `-tokens` (`12ms`, `1s`, `6m0s`; see [`reset`]),
/// `x-ratelimit-reset`, Google's `retryDelay`. Nonsense (negative, NaN, over 24 h) is passed over.
pub fn retry_after<'h>(
    header: impl Fn(&str) -> Option<&'h str>,
    body: &Value,
    now: Timestamp,
) -> Option<Duration> {
    header("retry-after-ms")
        .and_then(|text| seconds(text, 0.001))
        .or_else(|| header("retry-after").and_then(|text| seconds(text, 1.0).or_else(|| date(text, now))))
        .or_else(|| reset(&header))
        .or_else(|| span(retry_delay(body)?))
}

/// Requests and tokens have a reset each: the one that is used up counts, both where both are (the later
/// one then), and where neither is known to be, the later one too: a request that needs more tokens than
/// remain is refused while some do.
fn reset<'h>(header: &impl Fn(&str) -> Option<&'h str>) -> Option<Duration> {
    let of = |kind: &str| span(header(&format!("x-ratelimit-reset-{kind}"))?);
    let is_used_up = |kind: &&str| {
        header(&format!("x-ratelimit-remaining-{kind}"))
            .and_then(|text| text.trim().parse::<f64>().ok())
            .is_some_and(|remaining| remaining <= 0.0)
    };
    const KINDS: [&str; 2] = ["requests", "tokens"];
    let used_up = KINDS.into_iter().filter(is_used_up).filter_map(of).max();
    used_up.or_else(|| KINDS.into_iter().filter_map(of).max()).or_else(|| span(header("x-ratelimit-reset")?))
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
        let forms = [
            ("retry-after-ms", "1000"),
            ("retry-after", "2"),
            ("x-ratelimit-reset-requests", "3s"),
            ("x-ratelimit-reset", "4s"),
        ];
        let google = json!({"error": {"details": [{"retryDelay": "5s"}]}});
        for from in 0..=forms.len() {
            let expected = Duration::from_secs(from as u64 + 1);
            assert_eq!(read(&forms[from..], &google), Some(expected), "{:?}", &forms[from..]);
            let mut nonsense = forms;
            for (_, value) in &mut nonsense[..from] {
                *value = "-7";
            }
            assert_eq!(read(&nonsense, &google), Some(expected), "{nonsense:?}");
        }
    }

    #[test]
    fn the_reset_of_what_is_used_up_counts() {
        let resets = [("x-ratelimit-reset-requests", "8m0s"), ("x-ratelimit-reset-tokens", "6s")];
        let with =
            |remaining: &[(&'static str, &'static str)]| read(&[&resets, remaining].concat(), &Value::Null);
        const REQUESTS: &str = "x-ratelimit-remaining-requests";
        const TOKENS: &str = "x-ratelimit-remaining-tokens";
        let (requests, tokens) = (Some(Duration::from_secs(480)), Some(Duration::from_secs(6)));
        assert_eq!(with(&[(REQUESTS, "99"), (TOKENS, "0")]), tokens);
        assert_eq!(with(&[(REQUESTS, "0"), (TOKENS, "5000")]), requests);
        assert_eq!(with(&[(REQUESTS, "0"), (TOKENS, "0")]), requests, "the later of both");
        assert_eq!(with(&[(REQUESTS, "9"), (TOKENS, "10")]), requests, "neither: the later");
        assert_eq!(with(&[]), requests, "nothing known: the later");
        let broken =
            [("x-ratelimit-reset-requests", "5s"), (TOKENS, "0"), ("x-ratelimit-reset-tokens", "soon")];
        assert_eq!(read(&broken, &Value::Null), Some(Duration::from_secs(5)));
    }

    proptest! {
        #[test]
        fn no_text_panics_and_nothing_exceeds_a_day(text in ".{0,20}") {
            for name in ["retry-after-ms", "retry-after", "x-ratelimit-reset-tokens", "x-ratelimit-reset"] {
                prop_assert!(read(&[(name, &text)], &Value::Null).is_none_or(|span| span <= LONGEST));
            }
            let google = json!({"error": {"details": [{"retryDelay": text}]}});
            prop_assert!(read(&[], &google).is_none_or(|span| span <= LONGEST));
        }

        #[test]
        fn whole_numbers_are_read_as_they_were_said(number in 0_u64..=86_400) {
            let expected = Some(Duration::from_secs(number));
            prop_assert_eq!(read(&[("retry-after", &number.to_string())], &Value::Null), expected);
            prop_assert_eq!(read(&[("retry-after-ms", &format!("{number}000"))], &Value::Null), expected);
            let (hours, minutes, seconds) = (number / 3_600, number / 60 % 60, number % 60);
            let span = format!("{hours}h{minutes}m{seconds}s");
            prop_assert_eq!(read(&[("x-ratelimit-reset", &span)], &Value::Null), expected);
        }

        #[test]
        fn a_date_is_read_as_the_time_until_it(seconds in -86_400_i64..=172_800) {
            let now: Timestamp = "2026-01-02T03:04:05Z".parse().expect("a timestamp");
            let at = now + jiff::SignedDuration::from_secs(seconds);
            let date = at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
            let sane = (0..=86_400).contains(&seconds).then(|| Duration::from_secs(seconds as u64));
            prop_assert_eq!(read(&[("retry-after", &date)], &Value::Null), sane);
        }

        #[test]
        fn any_number_is_sane_or_passed_over(number in any::<f64>()) {
            let found = read(&[("retry-after", &number.to_string())], &Value::Null);
            prop_assert_eq!(found.is_some(), (0.0..=86_400.0).contains(&number));
        }
    }
}
