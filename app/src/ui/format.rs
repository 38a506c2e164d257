//! Numbers and durations as text, the same on server and browser and in every language.

/// Milliseconds, to three digits at most: `840 ms`, `1.25 s`, `2 min 03 s`, `1 h 20 min`.
pub(crate) fn duration(ms: i64) -> String {
    match ms {
        i64::MIN..0 => "0 ms".to_owned(),
        0..1_000 => format!("{ms} ms"),
        1_000..10_000 => format!("{}.{:02} s", ms / 1_000, ms % 1_000 / 10),
        10_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        _ => seconds(ms / 1_000),
    }
}

/// Whole seconds: `42 s`, `2 min 03 s`, `5 min`, `1 h 20 min`, `2 d 4 h`.
pub(crate) fn seconds(s: i64) -> String {
    match s {
        i64::MIN..60 => format!("{} s", s.max(0)),
        60..3_600 if s % 60 == 0 => format!("{} min", s / 60),
        60..3_600 => format!("{} min {:02} s", s / 60, s % 60),
        3_600..86_400 => format!("{} h {:02} min", s / 3_600, s % 3_600 / 60),
        _ => format!("{} d {} h", s / 86_400, s % 86_400 / 3_600),
    }
}

/// What is left of `left_ms` after `age` seconds, rounded up: it reaches 0 s no sooner than the thing itself.
pub(crate) fn seconds_left(left_ms: i64, age: u32) -> i64 {
    (left_ms - i64::from(age) * 1_000 + 999).max(0) / 1_000
}

/// A share as a percentage with one decimal below 10: `0.4 %`, `12 %`; a dash where there is nothing to divide.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".to_owned();
    }
    let tenths = (u128::from(part) * 1_000 + u128::from(whole) / 2) / u128::from(whole);
    match tenths {
        0 if part > 0 => "< 0.1 %".to_owned(),
        0 => "0 %".to_owned(),
        1..100 if !tenths.is_multiple_of(10) => format!("{}.{} %", tenths / 10, tenths % 10),
        _ => format!("{} %", (tenths + 5) / 10),
    }
}

/// A share as a length for SVG, `12.5%`; integers, so that the bundle needs no float printing.
pub(crate) fn length(share: f64) -> String {
    // Casts saturate, and NaN becomes 0.
    let tenths = (share.clamp(0.0, 1.0) * 1_000.0) as u32;
    format!("{}.{}%", tenths / 10, tenths % 10)
}

/// Thousandths as a decimal without trailing zeros: 6000 → `6`, 5250 → `5.25`.
pub(crate) fn milli(thousandths: u64) -> String {
    let (whole, rest) = (thousandths / 1_000, thousandths % 1_000);
    if rest == 0 {
        return count(whole);
    }
    format!("{}.{}", count(whole), format!("{rest:03}").trim_end_matches('0'))
}

/// A count with its thousands set apart: `12,345`.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// JSON with line breaks; what is no JSON as it is. Done by the server: the bundle needs no JSON
/// writer for it.
#[cfg(feature = "ssr")]
pub(crate) fn pretty(json: &str) -> String {
    serde_json::from_str::<serde_json::Value>(json)
        .and_then(|value| serde_json::to_string_pretty(&value))
        .unwrap_or_else(|_| json.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_keep_three_digits() {
        let texts = [0, 840, 1_250, 12_345, 59_999, 123_000, 4_800_000, 187_200_000].map(duration);
        assert_eq!(
            texts,
            ["0 ms", "840 ms", "1.25 s", "12.3 s", "59.9 s", "2 min 03 s", "1 h 20 min", "2 d 4 h"]
        );
    }

    #[test]
    fn a_countdown_never_ends_early() {
        assert_eq!(seconds_left(1_001, 0), 2);
        assert_eq!(seconds_left(1_000, 1), 0);
        assert_eq!(seconds_left(500, 9), 0);
    }

    #[test]
    fn shares_are_rounded_once() {
        assert_eq!(percent(0, 0), "–");
        assert_eq!(percent(0, 9), "0 %");
        assert_eq!(percent(1, 5_000), "< 0.1 %");
        assert_eq!(percent(4, 1_000), "0.4 %");
        assert_eq!(percent(1, 20), "5 %");
        assert_eq!(percent(2, 3), "67 %");
        assert_eq!(percent(u64::MAX, u64::MAX), "100 %");
    }

    #[test]
    fn lengths_stay_inside() {
        assert_eq!(
            [-1.0, 0.0, 0.125, 1.0, 7.0, f64::NAN].map(length),
            ["0.0%", "0.0%", "12.5%", "100.0%", "100.0%", "0.0%"]
        );
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(count(0), "0");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(milli(6_000), "6");
        assert_eq!(milli(5_250), "5.25");
        assert_eq!(milli(40), "0.04");
    }
}
