//! The global settings: which there are, and what each may hold.

use std::collections::BTreeMap;

use forebay_engine::{Capability, GroupKey};
use serde_json::{Map, Value};

use super::Problem;
use super::fields::DAY_MS;
use super::values::{real, text, url, whole, word};

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
        ["routing", "retry_budget"] => real(value, 0.0, 1.0).map(Value::from),
        ["routing", capability, field] if capability.parse::<Capability>().is_ok() => match *field {
            "retries" => number(0, 4),
            "attempt_ms" | "stream_attempt_ms" | "total_ms" => number(100, DAY_MS),
            "waits_ms" => waits(value),
            _ => Err("is unknown; it has retries, waits_ms, attempt_ms, stream_attempt_ms, total_ms".into()),
        },
        ["postprocess", "waits_ms"] => waits(value),
        ["retention", "tasks_days" | "events_days" | "results_days" | "audit_days"] => number(1, 3_650),
        // Null, which is accepted above, switches one off.
        ["webhooks", "alerts" | "daily_report"] => url(value).map(Value::from),
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

fn waits(value: &Value) -> Result<Value, String> {
    const REMEDY: &str = "must be a list of milliseconds, each at most an hour: [1000, 3000]";
    let waits = value.as_array().filter(|waits| waits.len() <= 100).ok_or(REMEDY)?;
    waits
        .iter()
        .map(|wait| whole(wait, 0, 3_600_000).map(Value::from).map_err(|_| REMEDY.to_owned()))
        .collect()
}

/// A name under which there are settings, or may be.
fn is_group(at: &str) -> bool {
    match at.split_once('.') {
        None => ["routing", "cooldown", "default_pool", "task_types", "postprocess", "retention", "webhooks"]
            .contains(&at),
        Some((group, capability)) => group == "routing" && capability.parse::<Capability>().is_ok(),
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
    // A setting is known if some value of it is accepted: these cover all.
    [
        Value::from(1),
        Value::from(1_024),
        Value::from("a"),
        Value::from("http://a"),
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
    match value {
        Value::Object(fields) if at.is_empty() || is_group(&at) => {
            for (name, value) in fields {
                let at = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
                flatten(value, at, found, problems);
            }
        }
        _ if at.is_empty() => problems.push(Problem::new("settings", "", "must be a map")),
        _ if is_group(&at) => problems.push(Problem::new("settings", at, "must be a map of settings")),
        value => match setting(&at, value) {
            Ok(_) if found.contains_key(&at) => {
                problems.push(Problem::new("settings", at, "is there twice, nested and with a dotted name"));
            }
            Ok(value) => drop(found.insert(at, value)),
            Err(remedy) => problems.push(Problem::new("settings", at, remedy)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse_settings;
    use super::*;

    #[test]
    fn settings_may_be_nested_or_dotted() {
        let nested =
            serde_json::json!({ "routing": { "text": { "waits_ms": [1000] } }, "cooldown.auth_seconds": 5 });
        let settings = parse_settings(&nested).expect("both are right");
        assert_eq!(settings.keys().collect::<Vec<_>>(), ["cooldown.auth_seconds", "routing.text.waits_ms"]);
        assert!(parse_settings(&serde_json::json!({ "routing.text.retries": null })).is_ok());
        assert!(parse_settings(&serde_json::json!({ "routing.txt.retries": null })).is_err());
        let twice = serde_json::json!({ "cooldown": { "auth_seconds": 1 }, "cooldown.auth_seconds": 2 });
        assert!(parse_settings(&twice).is_err());
    }

    #[test]
    fn an_unknown_key_in_a_map_of_settings_is_refused_by_name() {
        let unknown = |settings: Value| {
            let problems = parse_settings(&settings).expect_err("it is unknown");
            problems.iter().map(|problem| problem.field.clone()).collect::<Vec<_>>()
        };
        let json = serde_json::json!({
            "routing": { "zz": 1, "yy": {}, "xx": null, "text": { "zz": {} } }, "nonsense": {}, "webhooks": null,
            "connect_timeout_ms": { "zz": 1 }, "cooldown": 7, "retention": { "zz": 1 },
        });
        let fields = [
            "routing.zz",
            "routing.yy",
            "routing.xx",
            "routing.text.zz",
            "nonsense",
            "webhooks",
            "connect_timeout_ms",
            "cooldown",
            "retention.zz",
        ];
        assert_eq!(unknown(json), fields);
    }

    #[test]
    fn settings_have_their_bounds() {
        let right = serde_json::json!({
            "routing": { "retry_budget": 1 },
            "postprocess": { "waits_ms": [2000, 5000, 15000, 60000, 300000] },
            "retention": { "tasks_days": 90, "events_days": 30, "results_days": 1, "audit_days": 3650 },
            "webhooks": { "alerts": "https://hook.example/x?token=1", "daily_report": null },
        });
        assert_eq!(parse_settings(&right).map(|settings| settings.len()), Ok(8));
        for wrong in [
            serde_json::json!({ "routing.retry_budget": 1.01 }),
            serde_json::json!({ "routing.retry_budget": -0.1 }),
            serde_json::json!({ "postprocess.waits_ms": 2000 }),
            serde_json::json!({ "postprocess.waits_ms": [-1] }),
            serde_json::json!({ "retention.tasks_days": 0 }),
            serde_json::json!({ "retention.audit_days": 3651 }),
            serde_json::json!({ "webhooks.alerts": "ftp://x" }),
            serde_json::json!({ "webhooks.daily_report": "https://name:password@host" }),
        ] {
            assert_eq!(parse_settings(&wrong).map_err(|problems| problems.len()), Err(1), "{wrong}");
        }
    }
}
