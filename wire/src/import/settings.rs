//! The global settings: which there are, and what each may hold.

use std::collections::BTreeMap;

use forebay_engine::{Capability, GroupKey};
use serde_json::{Map, Value};

use super::Problem;
use super::fields::DAY_MS;
use super::values::{real, text, whole, word};

/// What a setting may hold, by its dotted name.
fn setting(name: &str, value: &Value) -> Result<Value, String> {
    if value.is_null() {
        return known_setting(name).then_some(Value::Null).ok_or_else(|| "is unknown".to_owned());
    }
    let parts: Vec<&str> = name.split('.').collect();
    let number = |min, max| whole(value, min, max).map(Value::from);
    match parts.as_slice() {
        ["default_pool", capability] if capability.parse::<Capability>().is_ok() => {
            let key = value.as_str().unwrap_or_default();
            key.parse::<GroupKey>().map(|key| key.as_str().into()).map_err(|error| error.to_string())
        }
        ["routing", "max_models"] => number(1, 3),
        ["routing", "max_requests"] => number(1, 5),
        ["routing", "retry_budget"] => real(value, 0.0, 10.0).map(Value::from),
        ["routing", capability, field] if capability.parse::<Capability>().is_ok() => match *field {
            "retries" => number(0, 4),
            "attempt_ms" | "stream_attempt_ms" | "total_ms" => number(100, DAY_MS),
            "waits_ms" => {
                let waits = value.as_array().ok_or("must be a list of milliseconds")?;
                let waits = waits.iter().map(|wait| whole(wait, 0, 3_600_000).map(Value::from));
                waits.collect::<Result<Vec<_>, _>>().map(Value::Array)
            }
            _ => Err("is unknown; it has retries, waits_ms, attempt_ms, stream_attempt_ms, total_ms".into()),
        },
        ["cooldown", field] if COOLDOWNS.contains(field) => number(0, 604_800),
        ["connect_timeout_ms"] => number(10, 600_000),
        ["pool_idle_per_host"] => number(0, 100_000),
        ["body_limit"] => number(1_024, 1 << 30),
        ["drain_seconds" | "drain_delay_seconds"] => number(0, 3_600),
        ["task_types", _] => {
            let fields = value.as_object().ok_or("must be a map: {capability, operation}")?;
            for (field, value) in fields {
                match field.as_str() {
                    "capability" => word::<Capability>(value).map(drop)?,
                    "operation" => text(value, 64).map(drop)?,
                    _ => return Err(format!("{field} is unknown; it has capability, operation")),
                }
            }
            Ok(value.clone())
        }
        _ => Err("is unknown".into()),
    }
}

const COOLDOWNS: [&str; 6] = [
    "rate_limited_seconds",
    "auth_seconds",
    "auth_max_seconds",
    "connect_seconds",
    "quota_seconds",
    "misconfigured_seconds",
];

fn known_setting(name: &str) -> bool {
    // A setting is known if some value of it is accepted: numbers, lists, a key and a map cover all.
    [
        Value::from(1),
        Value::from(1_024),
        Value::from("a"),
        Value::Array(Vec::new()),
        Value::Object(Map::new()),
    ]
    .iter()
    .any(|value| setting(name, value).is_ok())
}

pub(super) fn flatten(
    value: &Value,
    at: String,
    found: &mut BTreeMap<String, Value>,
    problems: &mut Vec<Problem>,
) {
    let is_map_setting = at.strip_prefix("task_types.").is_some_and(|rest| !rest.is_empty());
    match value {
        Value::Object(fields) if !is_map_setting => {
            for (name, value) in fields {
                let at = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
                flatten(value, at, found, problems);
            }
        }
        _ if at.is_empty() => problems.push(Problem::new("settings", "", "must be a map")),
        value => match setting(&at, value) {
            Ok(value) => drop(found.insert(at, value)),
            Err(remedy) => problems.push(Problem::new("settings", at, remedy)),
        },
    }
}
