//! Values: JSON in, checked cells out, or what would be right.

use std::collections::BTreeMap;

use forebay_engine::limits::Rate;
use forebay_engine::policy::{Invalid, Strategy};
use forebay_engine::{Capability, Priority, Weight};
use serde_json::{Map, Value};

use super::fields::{Cell, Kind, PRICE_UNITS};
use super::{BindingItem, Key, MASK};

const FLAG_FEATURES: [&str; 6] = ["stream", "tools", "structured", "thinking", "vision", "image_edit"];
const COUNT_FEATURES: [&str; 2] = ["max_context", "max_output"];
const OTHER_FEATURES: [&str; 5] = ["max_references", "ratios", "resolutions", "durations", "voices"];

pub(super) fn cell(kind: Kind, value: &Value) -> Result<Cell, String> {
    let none = value.is_null() || value.as_str().is_some_and(|text| text.trim().is_empty());
    match kind {
        Kind::OptionalText(_)
        | Kind::OptionalUrl
        | Kind::OptionalWhole(..)
        | Kind::OptionalRate
        | Kind::OptionalMoney
            if none =>
        {
            Ok(Cell::Null)
        }
        Kind::Text(max) | Kind::OptionalText(max) => text(value, max).map(Cell::Text),
        Kind::Url | Kind::OptionalUrl => url(value).map(Cell::Text),
        Kind::Flag => flag(value).map(|flag| Cell::Whole(flag.into())),
        Kind::Whole(min, max) | Kind::OptionalWhole(min, max) => whole(value, min, max).map(Cell::Whole),
        Kind::Real(min, max) => real(value, min, max).map(Cell::Real),
        Kind::OptionalRate => {
            let rate = real(value, 0.0, 1e9)?;
            Rate::try_new(rate, 0.0).map_err(|error| error.to_string())?;
            Ok(Cell::Real(rate))
        }
        Kind::Choice(words) => match value.as_str() {
            Some(word) if words.contains(&word) => Ok(Cell::Text(word.to_owned())),
            _ => Err(format!("must be one of {}", words.join(", "))),
        },
        Kind::Capability => word::<Capability>(value),
        Kind::Strategy => word::<Strategy>(value),
        Kind::Weight => {
            let weight = whole(value, i64::MIN, i64::MAX)?;
            Weight::try_new(weight).map_err(|error| error.to_string())?;
            Ok(Cell::Whole(weight))
        }
        Kind::Priority => priority(value).map(|priority| Cell::Whole(priority.get().into())),
        Kind::Money | Kind::OptionalMoney => money(value).map(|amount| Cell::Text(decimal(amount))),
        Kind::Prices => prices(value).map(Cell::Text),
        Kind::Features => features(value).map(Cell::Text),
    }
}

pub(super) fn word<T: std::str::FromStr<Err = Invalid>>(value: &Value) -> Result<Cell, String> {
    let word = value.as_str().unwrap_or_default();
    word.parse::<T>().map_err(|error| error.to_string())?;
    Ok(Cell::Text(word.to_owned()))
}

pub(super) fn text(value: &Value, max: usize) -> Result<String, String> {
    let text = match value {
        Value::String(text) => text.clone(),
        // `name: 42` in YAML is a number, and what was meant is clear.
        Value::Number(number) => number.to_string(),
        _ => return Err("must be text".into()),
    };
    if text.chars().count() > max {
        return Err(format!("must be at most {max} characters"));
    }
    if text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t' | '\r')) {
        return Err("must not have control characters".into());
    }
    Ok(text)
}

pub(super) fn optional_text(value: &Value) -> Result<Option<String>, String> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) if text.is_empty() => Ok(None),
        value => text(value, 128).map(Some),
    }
}

fn url(value: &Value) -> Result<String, String> {
    let text = text(value, 2_048)?;
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
    if host.is_empty() || host.starts_with(':') || text.contains(char::is_whitespace) {
        return Err("must be http://host… or https://host…".into());
    }
    if host.contains('@') {
        return Err("must not hold a name or password; use an account".into());
    }
    Ok(text.trim_end_matches('/').to_owned())
}

fn flag(value: &Value) -> Result<bool, String> {
    match value {
        Value::Bool(flag) => Ok(*flag),
        Value::Number(number) if number.as_i64() == Some(0) => Ok(false),
        Value::Number(number) if number.as_i64() == Some(1) => Ok(true),
        _ => Err("must be true or false".into()),
    }
}

pub(super) fn whole(value: &Value, min: i64, max: i64) -> Result<i64, String> {
    let number = value.as_i64().or_else(|| value.as_str().and_then(|text| text.trim().parse().ok()));
    match number {
        Some(number) if (min..=max).contains(&number) => Ok(number),
        _ if max == i64::MAX && min == i64::MIN => Err("must be a whole number".into()),
        _ if max == i64::MAX => Err(format!("must be a whole number of at least {min}")),
        _ => Err(format!("must be a whole number between {min} and {max}")),
    }
}

pub(super) fn real(value: &Value, min: f64, max: f64) -> Result<f64, String> {
    let number = value.as_f64().or_else(|| value.as_str().and_then(|text| text.trim().parse().ok()));
    match number {
        Some(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(format!("must be a number between {min} and {max}")),
    }
}

fn priority(value: &Value) -> Result<Priority, String> {
    Priority::try_new(whole(value, i64::MIN, i64::MAX)?).map_err(|error| error.to_string())
}

/// An amount of at least 0, in micro-units.
pub(super) fn money(value: &Value) -> Result<i64, String> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => return Err("must be a decimal such as \"0.50\"".into()),
    };
    match micros(&text) {
        Ok(amount) if amount >= 0 => Ok(amount),
        Ok(_) => Err("must be at least 0".into()),
        Err(error) => Err(error.to_string()),
    }
}

fn prices(value: &Value) -> Result<String, String> {
    let Value::Object(given) = value else {
        return if value.is_null() { Ok("{}".into()) } else { Err("must be a map of prices by unit".into()) };
    };
    if let Some(unit) = given.keys().find(|unit| !PRICE_UNITS.contains(&unit.as_str())) {
        return Err(format!("{unit} is no unit; units are {}", PRICE_UNITS.join(", ")));
    }
    let mut prices = Map::new();
    for unit in PRICE_UNITS {
        if let Some(price) = given.get(unit) {
            let price = money(price).map_err(|remedy| format!("{unit} {remedy}"))?;
            prices.insert(unit.to_owned(), decimal(price).into());
        }
    }
    Ok(Value::Object(prices).to_string())
}

fn features(value: &Value) -> Result<String, String> {
    let Value::Object(given) = value else {
        return if value.is_null() { Ok("{}".into()) } else { Err("must be a map of features".into()) };
    };
    let mut features = Map::new();
    for (name, value) in given {
        let checked = if FLAG_FEATURES.contains(&name.as_str()) {
            flag(value).map(Value::Bool)
        } else if COUNT_FEATURES.contains(&name.as_str()) {
            whole(value, 1, i64::MAX).map(Value::from)
        } else if OTHER_FEATURES.contains(&name.as_str()) {
            Ok(value.clone())
        } else {
            let known = [&FLAG_FEATURES[..], &COUNT_FEATURES[..], &OTHER_FEATURES[..]].concat().join(", ");
            return Err(format!("{name} is no feature; features are {known}"));
        };
        features.insert(name.clone(), checked.map_err(|remedy| format!("{name} {remedy}"))?);
    }
    features.sort_keys();
    Ok(Value::Object(features).to_string())
}

pub(super) fn routing(value: &Value) -> Result<BTreeMap<String, bool>, String> {
    let Value::Object(given) = value else {
        return Err("must be a map".into());
    };
    given
        .iter()
        .map(|(name, value)| match name.as_str() {
            "fallback_on_failure" | "fallback_candidate" => {
                flag(value).map(|flag| (name.clone(), flag)).map_err(|remedy| format!("{name} {remedy}"))
            }
            _ => Err(format!("{name} is unknown; it has fallback_on_failure, fallback_candidate")),
        })
        .collect()
}

pub(super) fn binding(row: &Value) -> Result<BindingItem, (&'static str, String)> {
    let Value::Object(fields) = row else {
        return Err(("label", "must be a map: {label, priority}".into()));
    };
    if fields.keys().any(|name| name != "label" && name != "priority") {
        return Err(("label", "a binding has label and priority only".into()));
    }
    let label = fields.get("label").and_then(Value::as_str).ok_or(("label", "is missing".to_owned()))?;
    let priority = match fields.get("priority") {
        None | Some(Value::Null) => Priority::default(),
        Some(value) => priority(value).map_err(|remedy| ("priority", remedy))?,
    };
    Ok(BindingItem { label: label.to_owned(), priority })
}

/// `None` when the key is masked: keep the one that is there.
pub(super) fn key(value: &Value) -> Result<Option<Key>, String> {
    let Value::String(key) = value else {
        return Err("must be text".into());
    };
    if key.starts_with(MASK) {
        return Ok(None);
    }
    if key.trim() != key || key.len() > 8_192 || key.chars().any(char::is_control) {
        return Err("must be at most 8192 characters, without spaces around them".into());
    }
    Ok(Some(Key(key.clone())))
}

/// What an export shows of a key: never more than its last four characters, and nothing of a short one.
pub fn mask(key: &str) -> String {
    let count = key.chars().count();
    let last: String = if count >= 12 { key.chars().skip(count - 4).collect() } else { String::new() };
    format!("{MASK}{last}")
}

/// Reads a decimal with up to six places as micro-units, without a float in between.
///
/// # Errors
/// When it is none, or does not fit.
pub fn micros(text: &str) -> Result<i64, Invalid> {
    const WRONG: Invalid = Invalid("must be a decimal with at most six places, such as \"0.50\"");
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || fraction.len() > 6 || !is_number(whole) || !is_number(fraction) {
        return Err(WRONG);
    }
    let mut amount: i64 = whole.parse().map_err(|_| WRONG)?;
    for place in 0..6 {
        let digit = fraction.as_bytes().get(place).map_or(0, |byte| i64::from(byte - b'0'));
        amount = amount.checked_mul(10).and_then(|amount| amount.checked_add(digit)).ok_or(WRONG)?;
    }
    Ok(if negative { -amount } else { amount })
}

/// Micro-units as short as they can be said, with two decimals at least: `0.50`.
pub fn decimal(micros: i64) -> String {
    let sign = if micros < 0 { "-" } else { "" };
    let amount = micros.unsigned_abs();
    let mut fraction = format!("{:06}", amount % 1_000_000);
    while fraction.len() > 2 && fraction.ends_with('0') {
        fraction.pop();
    }
    format!("{sign}{}.{fraction}", amount / 1_000_000)
}
