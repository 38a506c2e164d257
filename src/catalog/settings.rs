//! The global settings, with their defaults.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_engine::Capability;
use forebay_engine::policy::{CooldownPolicy, RetryPolicy, Routing};
use serde_json::{Map, Value, json};

/// The settings of the whole installation; live.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Retries, waits, limits and cooldowns, as the engine obeys them.
    pub routing: Arc<Routing>,
    /// The pool that serves where a request names none, by capability.
    pub default_pool: BTreeMap<String, String>,
    /// Until a connection to an upstream is made.
    pub connect_timeout: Duration,
    /// Idle connections kept to one upstream host.
    pub pool_idle_per_host: usize,
    /// Bytes of a request's body at most.
    pub body_limit: usize,
    /// How long requests in flight may go on when the server stops.
    pub drain: Duration,
    /// How long the server says that it is not ready before it stops taking requests.
    pub drain_delay: Duration,
    /// Waits before a result that was made is fetched again.
    pub postprocess_waits: Vec<Duration>,
    /// How long what is kept.
    pub retention: Retention,
    /// Who is told of what: `alerts`, `daily_report`. Kept for the parts that will send them.
    pub webhooks: BTreeMap<String, String>,
    /// What an old caller's `task_type` means: capability and operation.
    pub task_types: BTreeMap<String, Value>,
}

/// How long what is kept, in days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Finished tasks and their attempts.
    pub tasks_days: u32,
    /// Breaker events.
    pub events_days: u32,
    /// Images and speech.
    pub results_days: u32,
    /// The audit log.
    pub audit_days: u32,
}

impl Default for Retention {
    fn default() -> Self {
        Self { tasks_days: 90, events_days: 30, results_days: 7, audit_days: 365 }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            routing: Arc::default(),
            default_pool: BTreeMap::new(),
            connect_timeout: Duration::from_millis(5_000),
            pool_idle_per_host: 100,
            body_limit: 25 * 1_024 * 1_024,
            drain: Duration::from_secs(30),
            drain_delay: Duration::ZERO,
            postprocess_waits: [2, 5, 15, 60, 300].map(Duration::from_secs).into(),
            retention: Retention::default(),
            webhooks: BTreeMap::new(),
            task_types: BTreeMap::new(),
        }
    }
}

impl Settings {
    /// The defaults, with what `rows` says over them. `rows` have been checked.
    pub(super) fn read(rows: &BTreeMap<String, Value>) -> Self {
        let mut settings = Self::default();
        let mut routing = Routing::default();
        for (name, value) in rows {
            settings.read_one(&mut routing, name, value);
        }
        settings.routing = Arc::new(routing);
        settings
    }

    fn read_one(&mut self, routing: &mut Routing, name: &str, value: &Value) {
        let number = value.as_u64().unwrap_or_default();
        let small = u32::try_from(number).unwrap_or(u32::MAX);
        let ms = Duration::from_millis(number);
        let seconds = Duration::from_secs(number);
        let parts: Vec<&str> = name.split('.').collect();
        match parts.as_slice() {
            ["default_pool", capability] => {
                let key = value.as_str().unwrap_or_default();
                self.default_pool.insert((*capability).to_owned(), key.to_owned());
            }
            ["routing", "max_models"] => routing.max_models = small,
            ["routing", "max_requests"] => routing.max_requests = small,
            ["routing", "retry_budget"] => routing.retry_budget = value.as_f64().unwrap_or_default(),
            ["routing", capability, field] => {
                let Ok(capability) = capability.parse::<Capability>() else {
                    return;
                };
                let mut policy = routing.retry(capability).clone();
                match *field {
                    "retries" => policy.retries = small,
                    "waits_ms" => policy.waits = waits(value),
                    "attempt_ms" => policy.attempt = ms,
                    "stream_attempt_ms" => policy.stream_attempt = ms,
                    "total_ms" => policy.total = ms,
                    _ => {}
                }
                routing.set_retry(capability, policy);
            }
            ["cooldown", field] => {
                let cooldown = &mut routing.cooldown;
                match *field {
                    "rate_limited_seconds" => cooldown.rate_limited = seconds,
                    "auth_seconds" => cooldown.auth = seconds,
                    "auth_max_seconds" => cooldown.auth_max = seconds,
                    "connect_seconds" => cooldown.connect = seconds,
                    "quota_seconds" => cooldown.quota = seconds,
                    "misconfigured_seconds" => cooldown.misconfigured = seconds,
                    _ => {}
                }
            }
            ["connect_timeout_ms"] => self.connect_timeout = ms,
            ["pool_idle_per_host"] => self.pool_idle_per_host = number as usize,
            ["body_limit"] => self.body_limit = number as usize,
            ["drain_seconds"] => self.drain = seconds,
            ["drain_delay_seconds"] => self.drain_delay = seconds,
            ["webhooks", what] => {
                if let Some(url) = value.as_str() {
                    self.webhooks.insert((*what).to_owned(), url.to_owned());
                }
            }
            ["retention", "tasks_days"] => self.retention.tasks_days = small,
            ["retention", "events_days"] => self.retention.events_days = small,
            ["retention", "results_days"] => self.retention.results_days = small,
            ["retention", "audit_days"] => self.retention.audit_days = small,
            ["postprocess", "waits_ms"] => self.postprocess_waits = waits(value),
            ["task_types", name] => drop(self.task_types.insert((*name).to_owned(), value.clone())),
            _ => {}
        }
    }

    /// Every setting with its value of now, nested as the API shows them.
    pub fn to_json(&self) -> Value {
        let CooldownPolicy { rate_limited, auth, auth_max, connect, quota, misconfigured } =
            &self.routing.cooldown;
        let mut routing = Map::new();
        for capability in Capability::ALL {
            let RetryPolicy { retries, waits, attempt, stream_attempt, total } =
                self.routing.retry(capability);
            let shown = json!({
                "retries": retries,
                "waits_ms": waits.iter().map(|wait| millis(*wait)).collect::<Vec<_>>(),
                "attempt_ms": millis(*attempt),
                "stream_attempt_ms": millis(*stream_attempt),
                "total_ms": millis(*total),
            });
            routing.insert(capability.as_str().to_owned(), shown);
        }
        routing.insert("max_models".into(), self.routing.max_models.into());
        routing.insert("max_requests".into(), self.routing.max_requests.into());
        routing.insert("retry_budget".into(), self.routing.retry_budget.into());
        json!({
            "default_pool": self.default_pool,
            "routing": routing,
            "cooldown": {
                "rate_limited_seconds": rate_limited.as_secs(),
                "auth_seconds": auth.as_secs(),
                "auth_max_seconds": auth_max.as_secs(),
                "connect_seconds": connect.as_secs(),
                "quota_seconds": quota.as_secs(),
                "misconfigured_seconds": misconfigured.as_secs(),
            },
            "connect_timeout_ms": millis(self.connect_timeout),
            "pool_idle_per_host": self.pool_idle_per_host,
            "body_limit": self.body_limit,
            "drain_seconds": self.drain.as_secs(),
            "drain_delay_seconds": self.drain_delay.as_secs(),
            "webhooks": {
                "alerts": self.webhooks.get("alerts"),
                "daily_report": self.webhooks.get("daily_report"),
            },
            "retention": {
                "tasks_days": self.retention.tasks_days,
                "events_days": self.retention.events_days,
                "results_days": self.retention.results_days,
                "audit_days": self.retention.audit_days,
            },
            "postprocess": {"waits_ms": self.postprocess_waits.iter().copied().map(millis).collect::<Vec<_>>()},
            "task_types": self.task_types,
        })
    }
}

fn waits(value: &Value) -> Vec<Duration> {
    value.as_array().into_iter().flatten().filter_map(Value::as_u64).map(Duration::from_millis).collect()
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_what_can_be_set() {
        let shown = Settings::default().to_json();
        let rows = forebay_wire::import::parse_settings(&shown).expect("the defaults are right");
        assert_eq!(Settings::read(&rows).to_json(), shown);
        assert!(rows.contains_key("routing.video.total_ms"));
    }

    #[test]
    fn a_row_changes_its_setting_and_no_other() {
        let rows = BTreeMap::from([("routing.text.waits_ms".to_owned(), json!([10]))]);
        let settings = Settings::read(&rows);
        assert_eq!(settings.routing.retry(Capability::Text).waits, [Duration::from_millis(10)]);
        assert_eq!(settings.routing.retry(Capability::Text).retries, 2);
        assert_eq!(settings.body_limit, Settings::default().body_limit);
    }
}
