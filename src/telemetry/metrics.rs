//! The metrics of the contract, each with labels that only configuration can make: never a caller's text.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use forebay_engine::breaker::BreakerState;
use forebay_engine::events::Noted;
use forebay_engine::policy::Capability;
use forebay_engine::{AccountId, Class, Clock, GroupKey, State as EngineState};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder, SharedString};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use crate::catalog::Catalog;
use crate::ledger::{Ledger, Micros, TaskStatus};

/// Upper bounds of the latency histograms, in seconds.
const SECONDS: [f64; 16] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
/// How often histograms fold what was observed, so that nobody has to scrape for memory to stay flat.
const UPKEEP: Duration = Duration::from_secs(5);

static METADATA: Metadata<'static> = Metadata::new("forebay", Level::INFO, None);

/// All metrics of one server.
pub struct Metrics {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    members: RwLock<Members>,
    /// Credits by pool, and cost by model: a counter is looked up once and then kept.
    credits: Kept,
    cost: Kept,
    tasks: [[Counter; 5]; Capability::ALL.len()],
    dead_letters: Counter,
    ledger_commit: Histogram,
    ledger_queue: Gauge,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// By pool and model's name.
type Members = HashMap<(GroupKey, Arc<str>), Arc<OfMember>>;

/// The series of one model in one pool.
struct OfMember {
    success: Counter,
    failed: Counter,
    unknown: Counter,
    cancelled: Counter,
    latency: Histogram,
    first_content: Histogram,
}

impl Metrics {
    /// Nothing counted yet.
    pub fn new() -> Arc<Self> {
        // The only errors are an empty list of buckets, and ours is not empty.
        let builder = PrometheusBuilder::new();
        let recorder = match builder.set_buckets(&SECONDS) {
            Ok(builder) => builder.build_recorder(),
            Err(_) => PrometheusBuilder::new().build_recorder(),
        };
        let tasks = Capability::ALL.map(|capability| {
            TASK_ENDS.map(|status| {
                counter(
                    &recorder,
                    "tasks_total",
                    &[("capability", capability.as_str()), ("status", status.as_str())],
                )
            })
        });
        for (name, kind, help) in HELP {
            let describe = match kind {
                Kind::Counter => Recorder::describe_counter,
                Kind::Gauge => Recorder::describe_gauge,
                Kind::Histogram => Recorder::describe_histogram,
            };
            describe(&recorder, KeyName::from_const_str(name), None, SharedString::const_str(help));
        }
        gauge(&recorder, "forebay_build_info", &[("version", env!("CARGO_PKG_VERSION"))]).set(1.0);
        gauge(&recorder, "redis_degraded", &[]).set(0.0);
        counter(&recorder, "cache_hits_total", &[]).absolute(0);
        Arc::new(Self {
            dead_letters: counter(&recorder, "dead_letters", &[]),
            handle: recorder.handle(),
            members: RwLock::default(),
            credits: Kept::default(),
            cost: Kept::default(),
            tasks,
            ledger_commit: histogram(&recorder, "ledger_commit_seconds", &[]),
            ledger_queue: gauge(&recorder, "ledger_queue", &[]),
            recorder,
        })
    }

    /// Folds histograms from time to time, for as long as the server lives.
    pub async fn upkeep(self: Arc<Self>) {
        loop {
            tokio::time::sleep(UPKEEP).await;
            self.handle.run_upkeep();
        }
    }

    /// A task ended.
    pub fn task_ended(&self, status: TaskStatus, capability: Capability) {
        if let Some(place) = TASK_ENDS.iter().position(|end| *end == status) {
            self.tasks[capability as usize][place].increment(1);
        }
        if status == TaskStatus::DeadLettered {
            self.dead_letters.increment(1);
        }
    }

    /// A caller paid.
    pub fn charged(&self, pool: Option<&GroupKey>, credits: Micros) {
        let pool = pool.map_or(NO_POOL, GroupKey::as_str);
        let counter = || counter(&self.recorder, "credits_charged_total", &[("pool", pool)]);
        self.credits.of(pool, counter).increment(positive(credits));
    }

    /// An attempt cost something.
    pub fn paid(&self, model: &str, cost: Micros) {
        let counter = || counter(&self.recorder, "platform_cost_total", &[("model", model)]);
        self.cost.of(model, counter).increment(positive(cost));
    }

    /// An attempt ended.
    pub(super) fn attempt_ended(
        &self,
        pool: &GroupKey,
        model: &str,
        end: Noted,
        duration: Duration,
        first_content: Option<Duration>,
    ) {
        let member = self.member(pool, model);
        match end {
            Noted::Success => {
                member.success.increment(1);
                member.latency.record(duration.as_secs_f64());
            }
            Noted::Failed(_) => member.failed.increment(1),
            Noted::Unknown => member.unknown.increment(1),
            Noted::Cancelled => member.cancelled.increment(1),
        }
        if let Some(first_content) = first_content {
            member.first_content.record(first_content.as_secs_f64());
        }
    }

    /// A task went on to another model.
    pub(super) fn switched(&self, pool: &GroupKey, from: &str, to: &str, class: Class) {
        let labels = [("pool", pool.as_str()), ("from", from), ("to", to), ("class", class.as_str())];
        counter(&self.recorder, "model_switch_total", &labels).increment(1);
    }

    /// A breaker changed its state.
    pub(super) fn breaker_moved(&self, model: &str, to: BreakerState) {
        counter(&self.recorder, "breaker_transitions_total", &[("model", model), ("to", to.as_str())])
            .increment(1);
    }

    /// A ledger batch was committed.
    pub fn ledger_committed(&self, took: Duration) {
        self.ledger_commit.record(took.as_secs_f64());
    }

    /// The text of /metrics: what was counted, and the gauges as of now.
    fn render(&self, scraped: &Scraped) -> String {
        let Scraped { catalog, ledger, state, clock } = scraped;
        let now = clock.now();
        for (key, pool) in &catalog.snapshot().pools {
            let pool_label = ("pool", key.as_str());
            gauge(&self.recorder, "active_channels", &[pool_label]).set(pool.active_channels(now) as f64);
            for member in pool.members() {
                let model_label = ("model", &*member.name);
                let error_rate = member.state.recent(now).error_rate();
                gauge(&self.recorder, "model_error_rate", &[pool_label, model_label]).set(error_rate);
                let state = match member.state.breaker.view(now).state {
                    BreakerState::Closed => 0.0,
                    BreakerState::HalfOpen => 1.0,
                    BreakerState::Open => 2.0,
                };
                gauge(&self.recorder, "breaker_state", &[model_label]).set(state);
            }
        }
        for row in &catalog.snapshot().rows.accounts {
            let account = state.account(&AccountId(row.id.as_str().into()), 0);
            let left = now.until(account.cooldown.until()).as_secs_f64();
            gauge(&self.recorder, "account_cooldown", &[("account", &row.name)]).set(left.ceil());
        }
        self.ledger_queue.set(ledger.reading().queue as f64);
        self.handle.render()
    }

    fn member(&self, pool: &GroupKey, model: &str) -> Arc<OfMember> {
        let name = (pool.clone(), Arc::from(model));
        let known = self.members.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(member) = known.get(&name) {
            return member.clone();
        }
        drop(known);
        let labels = [("pool", pool.as_str()), ("model", model)];
        let invocations = |status| {
            let labels = [labels[0], labels[1], ("status", status)];
            counter(&self.recorder, "model_invocation_total", &labels)
        };
        let made = Arc::new(OfMember {
            success: invocations("success"),
            failed: invocations("failed"),
            unknown: invocations("unknown"),
            cancelled: invocations("cancelled"),
            latency: histogram(&self.recorder, "model_latency_seconds", &labels),
            first_content: histogram(&self.recorder, "model_first_content_seconds", &labels),
        });
        self.members.write().unwrap_or_else(PoisonError::into_inner).insert(name, made.clone());
        made
    }
}

/// Counters by the value of their one label.
#[derive(Default)]
struct Kept(RwLock<HashMap<Arc<str>, Counter>>);

impl Kept {
    fn of(&self, label: &str, make: impl FnOnce() -> Counter) -> Counter {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(counter) = known.get(label) {
            return counter.clone();
        }
        drop(known);
        let made = make();
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(label.into(), made.clone());
        made
    }
}

/// What is counted for callers who named a model, and so no pool.
const NO_POOL: &str = "-";

fn positive(amount: Micros) -> u64 {
    u64::try_from(amount.0).unwrap_or_default()
}

/// What a metric is.
#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// What each metric says.
const HELP: [(&str, Kind, &str); 18] = [
    (
        "model_invocation_total",
        Kind::Counter,
        "Upstream requests by how they ended: success, failed, unknown, cancelled",
    ),
    ("model_error_rate", Kind::Gauge, "Share of failed upstream requests in the last five minutes"),
    ("model_latency_seconds", Kind::Histogram, "Duration of upstream requests that succeeded"),
    ("model_first_content_seconds", Kind::Histogram, "Until a stream's first content"),
    ("active_channels", Kind::Gauge, "Members of the pool that could be picked now"),
    ("model_switch_total", Kind::Counter, "Tasks that went on to another model, by the class of the failure"),
    ("breaker_state", Kind::Gauge, "0 closed, 1 half-open, 2 open"),
    ("breaker_transitions_total", Kind::Counter, "Changes of a breaker's state"),
    ("account_cooldown", Kind::Gauge, "Seconds until the account is used again; 0 when it is not set aside"),
    ("tasks_total", Kind::Counter, "Tasks that ended, by capability and status"),
    ("dead_letters", Kind::Counter, "Asynchronous tasks that no member could serve"),
    ("ledger_commit_seconds", Kind::Histogram, "Duration of the ledger's commits"),
    ("ledger_queue", Kind::Gauge, "Commands that wait for their commit"),
    ("cache_hits_total", Kind::Counter, "Answers given from the cache"),
    ("credits_charged_total", Kind::Counter, "What callers paid, in micro-units: 1 is 0.000001 credits"),
    ("platform_cost_total", Kind::Counter, "What upstream requests cost, in micro-units: 1 is 0.000001"),
    ("redis_degraded", Kind::Gauge, "1 while Redis is configured and can't be reached"),
    ("forebay_build_info", Kind::Gauge, "Always 1; its label is the version"),
];

/// How a task can end, in the order of its counters.
const TASK_ENDS: [TaskStatus; 5] = [
    TaskStatus::Succeeded,
    TaskStatus::Failed,
    TaskStatus::OutcomeUnknown,
    TaskStatus::DeadLettered,
    TaskStatus::Cancelled,
];

fn key(name: &'static str, labels: &[(&'static str, &str)]) -> Key {
    let labels: Vec<_> = labels.iter().map(|(name, value)| Label::new(*name, (*value).to_owned())).collect();
    Key::from_parts(name, labels)
}

fn counter(recorder: &PrometheusRecorder, name: &'static str, labels: &[(&'static str, &str)]) -> Counter {
    recorder.register_counter(&key(name, labels), &METADATA)
}

fn gauge(recorder: &PrometheusRecorder, name: &'static str, labels: &[(&'static str, &str)]) -> Gauge {
    recorder.register_gauge(&key(name, labels), &METADATA)
}

fn histogram(
    recorder: &PrometheusRecorder,
    name: &'static str,
    labels: &[(&'static str, &str)],
) -> Histogram {
    recorder.register_histogram(&key(name, labels), &METADATA)
}

/// What gauges are read from.
#[derive(Clone)]
pub struct Scraped {
    /// Pools and accounts.
    pub catalog: Arc<Catalog>,
    /// The queue.
    pub ledger: Ledger,
    /// Cooldowns.
    pub state: Arc<dyn EngineState>,
    /// Now.
    pub clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Scraped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scraped").finish_non_exhaustive()
    }
}

/// What /metrics is answered from.
#[derive(Clone)]
struct Scrape {
    metrics: Arc<Metrics>,
    scraped: Scraped,
    token: Option<Arc<str>>,
}

/// GET /metrics: with `token` to whoever bears it, without one to loopback callers only, and to
/// nothing that came through a proxy.
pub fn metrics_routes(metrics: Arc<Metrics>, scraped: Scraped, token: Option<&str>) -> Router {
    let scrape = Scrape { metrics, scraped, token: token.map(Arc::from) };
    Router::new()
        .route("/metrics", get(show))
        .method_not_allowed_fallback(async || (StatusCode::METHOD_NOT_ALLOWED, "metrics can only be read\n"))
        .with_state(scrape)
}

async fn show(
    State(scrape): State<Scrape>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
) -> Response {
    let headers = request.headers();
    let allowed = match &scrape.token {
        Some(token) => bearer(headers) == Some(token),
        None => peer.ip().to_canonical().is_loopback() && !is_proxied(headers),
    };
    if !allowed {
        let message = "metrics need FOREBAY_METRICS_TOKEN as a bearer token; without one only this machine may read them\n";
        return (StatusCode::FORBIDDEN, message).into_response();
    }
    let text = scrape.metrics.render(&scrape.scraped);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

fn is_proxied(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| {
        let name = name.as_str();
        name.starts_with("x-forwarded") || ["forwarded", "x-real-ip", "via"].contains(&name)
    })
}
