//! Times as operators see them: RFC 3339 in the API, FOREBAY_TIME_ZONE on pages.

use forebay_app::port::Moment as Shown;
use forebay_engine::Moment;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde_json::Value;

use super::error::AdminError;

/// Milliseconds UTC as RFC 3339; null for 0, which is "not yet".
pub(super) fn rfc3339(ms: i64) -> Value {
    if ms == 0 { Value::Null } else { format!("{:.3}", timestamp(ms)).into() }
}

/// The engine's moment as RFC 3339; null for "never".
pub(super) fn moment_rfc3339(at: Moment) -> Value {
    if at == Moment::NEVER { Value::Null } else { rfc3339(ms(at)) }
}

/// The engine's moment in milliseconds UTC.
pub(super) fn ms(at: Moment) -> i64 {
    i64::try_from(at.as_millis()).unwrap_or(i64::MAX)
}

/// Milliseconds UTC as the console shows it.
pub(super) fn shown(ms: i64, zone: &TimeZone) -> Shown {
    let at = timestamp(ms);
    Shown {
        ms,
        text: at.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
        utc: format!("{at:.3}"),
    }
}

/// The same, or nothing for 0.
pub(super) fn shown_unless_zero(ms: i64, zone: &TimeZone) -> Option<Shown> {
    (ms != 0).then(|| shown(ms, zone))
}

/// Reads a time of a query: RFC 3339, milliseconds UTC, or a date (and time) in `zone`.
pub(super) fn parse(field: &str, text: &str, zone: &TimeZone) -> Result<i64, AdminError> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at.as_millisecond());
    }
    if let Ok(ms) = text.parse::<i64>() {
        return Ok(ms);
    }
    let local = text.parse::<DateTime>().ok().and_then(|local| local.to_zoned(zone.clone()).ok());
    local.map(|at| at.timestamp().as_millisecond()).ok_or_else(|| {
        AdminError::invalid(field, "must be a time such as 2026-11-30T02:10:00Z, or 2026-11-30T02:10")
    })
}

fn timestamp(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_said_in_its_zone_and_read_back() {
        let zone = TimeZone::fixed(jiff::tz::offset(8));
        let ms = 1_795_975_803_123;
        let shown = shown(ms, &zone);
        assert_eq!(
            (shown.text.as_str(), shown.utc.as_str()),
            ("2026-11-30 02:10:03", "2026-11-29T18:10:03.123Z")
        );
        assert_eq!(parse("from", "2026-11-30T02:10", &zone).expect("a local time"), 1_795_975_800_000);
        assert_eq!(parse("from", &shown.utc, &zone).expect("an instant"), ms);
        assert!(parse("from", "yesterday", &zone).is_err());
        assert_eq!(rfc3339(0), Value::Null);
        assert_eq!(moment_rfc3339(Moment::NEVER), Value::Null);
    }
}
