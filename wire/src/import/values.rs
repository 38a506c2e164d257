//! Values: JSON in, checked cells out, or what would be right.

use std::collections::BTreeMap;

use forebay_engine::limits::Rate;
use forebay_engine::policy::{Invalid, Strategy};
use forebay_engine::{Capability, Priority, Weight};
use serde_json::{Map, Value};

use super::features::{Fault, features};
use super::fields::{Cell, Kind, PRICE_UNITS};
use super::{BindingItem, Key, MASK};

/// Reads a field; a part of it that can't be taken is named beside what would be right.
pub(super) fn cell(kind: Kind, value: &Value) -> Result<Cell, Vec<Fault>> {
    match kind {
        Kind::Prices => prices(value).map(Cell::Text),
        Kind::Features => features(value).map(Cell::Text),
        kind => single(kind, value).map_err(|remedy| vec![(String::new(), remedy)]),
    }
}

fn single(kind: Kind, value: &Value) -> Result<Cell, String> {
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
        Kind::Url | Kind::OptionalUrl => base_url(value).map(Cell::Text),
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
        // Maps; `cell` has read them.
        Kind::Prices | Kind::Features => Err("must be a map".into()),
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

/// `http://…` or `https://…`, without a name and password in it.
pub(super) fn url(value: &Value) -> Result<String, String> {
    let text = text(value, 2_048)?;
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
    if host.is_empty() || host.starts_with(':') || text.contains(char::is_whitespace) {
        return Err("must be http://host… or https://host…".into());
    }
    if host.contains('@') {
        return Err("must not hold a name or password; use an account".into());
    }
    Ok(text)
}

/// A URL that paths are added to: what comes after one would swallow them.
fn base_url(value: &Value) -> Result<String, String> {
    let url = url(value)?;
    if url.contains(['?', '#']) {
        return Err("must end with its path; leave out ?… and #…".into());
    }
    Ok(url.trim_end_matches('/').to_owned())
}

pub(super) fn flag(value: &Value) -> Result<bool, String> {
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

fn prices(value: &Value) -> Result<String, Vec<Fault>> {
    let given = match value {
        Value::Null => return Ok("{}".into()),
        Value::Object(given) => given,
        _ => return Err(vec![(String::new(), "must be a map of prices by unit".into())]),
    };
    let mut faults: Vec<Fault> = given
        .keys()
        .filter(|unit| !PRICE_UNITS.contains(&unit.as_str()))
        .map(|unit| (unit.clone(), format!("is no unit; units are {}", PRICE_UNITS.join(", "))))
        .collect();
    let mut prices = Map::new();
    for unit in PRICE_UNITS {
        match given.get(unit).map(money) {
            None => {}
            Some(Ok(price)) => drop(prices.insert(unit.to_owned(), decimal(price).into())),
            Some(Err(remedy)) => faults.push((unit.to_owned(), remedy)),
        }
    }
    if faults.is_empty() { Ok(Value::Object(prices).to_string()) } else { Err(faults) }
}

pub(super) fn routing(value: &Value) -> Result<BTreeMap<String, bool>, Vec<Fault>> {
    let Value::Object(given) = value else {
        return Err(vec![(String::new(), "must be a map: {fallback_on_failure, fallback_candidate}".into())]);
    };
    let mut switches = BTreeMap::new();
    let mut faults = Vec::new();
    for (name, value) in given {
        let known = ["fallback_on_failure", "fallback_candidate"].contains(&name.as_str());
        let unknown = || Err("is unknown; it has fallback_on_failure, fallback_candidate".to_owned());
        match if known { flag(value) } else { unknown() } {
            Ok(flag) => drop(switches.insert(name.clone(), flag)),
            Err(remedy) => faults.push((name.clone(), remedy)),
        }
    }
    if faults.is_empty() { Ok(switches) } else { Err(faults) }
}

pub(super) fn binding(row: &Value) -> Result<BindingItem, Vec<Fault>> {
    let Value::Object(fields) = row else {
        return Err(vec![(String::new(), "must be a map: {label, priority}".into())]);
    };
    let unknown = fields.keys().filter(|name| *name != "label" && *name != "priority");
    let mut faults: Vec<Fault> =
        unknown.map(|name| (name.clone(), "is unknown; a binding has label, priority".into())).collect();
    let label = fields.get("label").and_then(Value::as_str).filter(|label| !label.is_empty());
    if label.is_none() {
        faults.push(("label".into(), "is missing; it names an account".into()));
    }
    let priority = match fields.get("priority") {
        None | Some(Value::Null) => Priority::default(),
        Some(value) => priority(value).unwrap_or_else(|remedy| {
            faults.push(("priority".into(), remedy));
            Priority::default()
        }),
    };
    match label {
        Some(label) if faults.is_empty() => Ok(BindingItem { label: label.to_owned(), priority }),
        _ => Err(faults),
    }
}

/// A key as it was written: one that is masked means the one that is there.
pub(super) fn key(value: &Value) -> Result<Key, String> {
    let Value::String(key) = value else {
        return Err("must be text".into());
    };
    if key.trim() != key || key.len() > 8_192 || key.chars().any(char::is_control) {
        return Err("must be at most 8192 characters, without spaces around them".into());
    }
    Ok(Key(key.clone()))
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
