//! A bench for the engine: a pool made of words, a scripted upstream, and a journal that remembers.

mod record;
mod script;

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_engine::attempt::AttemptKind;
use forebay_engine::clock::{Moment, TokioClock};
use forebay_engine::limits::Rate;
use forebay_engine::policy::{BreakerPolicy, PoolPolicy, Routing};
use forebay_engine::random::SeededRandom;
use forebay_engine::task::{Job, Route, Served, Stop, Unserved};
use forebay_engine::{
    Account, AccountId, Binding, Capability, Clock, Costs, Directory, Engine, Features, GroupKey, LocalState,
    Member, ModelId, Needs, Pool, Priority, State, Usage, Weight,
};

pub(crate) use record::{Heard, Record};
pub(crate) use script::{Beat, Play, Script, cut, fail, fail_after, rate_limited, too_long};

/// The bench's only pool.
pub(crate) const POOL: &str = "main_text";

pub(crate) const INITIAL: AttemptKind = AttemptKind::Initial;
pub(crate) const RETRY: AttemptKind = AttemptKind::Retry;
pub(crate) const FALLBACK: AttemptKind = AttemptKind::Fallback;

/// A member as a test describes it.
#[derive(Clone)]
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    pub(crate) weight: i64,
    pub(crate) priority: i64,
    pub(crate) max_concurrency: Option<u32>,
    /// Labels; a label that several members name is one shared account.
    pub(crate) accounts: Vec<&'static str>,
    pub(crate) features: Features,
    pub(crate) costs: Costs,
    pub(crate) region: Option<&'static str>,
}

pub(crate) fn member(name: &'static str) -> Spec {
    Spec {
        name,
        weight: 1,
        priority: 0,
        max_concurrency: Some(10),
        accounts: Vec::new(),
        features: Features::default(),
        costs: Costs::default(),
        region: None,
    }
}

impl Spec {
    pub(crate) fn weight(self, weight: i64) -> Self {
        Self { weight, ..self }
    }
    pub(crate) fn priority(self, priority: i64) -> Self {
        Self { priority, ..self }
    }
    pub(crate) fn room(self, max_concurrency: u32) -> Self {
        Self { max_concurrency: Some(max_concurrency), ..self }
    }
    pub(crate) fn accounts(self, accounts: &[&'static str]) -> Self {
        Self { accounts: accounts.to_vec(), ..self }
    }
    pub(crate) fn features(self, features: Features) -> Self {
        Self { features, ..self }
    }
    pub(crate) fn context(self, tokens: u64) -> Self {
        self.features(Features { max_context: Some(tokens), ..Features::default() })
    }
    pub(crate) fn costs(self, costs: Costs) -> Self {
        Self { costs, ..self }
    }
    pub(crate) fn region(self, region: &'static str) -> Self {
        Self { region: Some(region), ..self }
    }
}

/// An account as a test describes it.
#[derive(Clone, Copy)]
pub(crate) struct AccountSpec {
    pub(crate) rps: Option<f64>,
    pub(crate) max_concurrency: Option<u32>,
    pub(crate) max_tpm: Option<u64>,
    pub(crate) daily_limit: Option<u64>,
    pub(crate) region: Option<&'static str>,
    /// Of its bindings.
    pub(crate) priority: i64,
    pub(crate) key_revision: u64,
    pub(crate) is_enabled: bool,
}

impl Default for AccountSpec {
    fn default() -> Self {
        Self {
            rps: None,
            max_concurrency: None,
            max_tpm: None,
            daily_limit: None,
            region: None,
            priority: 0,
            key_revision: 1,
            is_enabled: true,
        }
    }
}

/// The configuration of the bench; an edit applies at once.
pub(crate) struct Config {
    pub(crate) state: Arc<LocalState>,
    pool: Mutex<Option<Arc<Pool>>>,
    /// Each member as a pool of itself alone.
    alone: Mutex<HashMap<ModelId, Arc<Pool>>>,
    /// Whoever may serve in place of a model; `None` = nobody may even ask.
    candidates: Mutex<Option<Vec<&'static str>>>,
    routing: Mutex<Arc<Routing>>,
}

impl Directory for Config {
    fn pool(&self, key: &GroupKey) -> Option<Arc<Pool>> {
        self.pool.lock().expect("no test panics here").clone().filter(|pool| pool.key == *key)
    }
    fn model(&self, model: &ModelId) -> Option<Arc<Pool>> {
        self.alone.lock().expect("unpoisoned").get(model).cloned()
    }
    fn candidates(&self, _: &ModelId, _: Capability) -> Vec<Arc<Pool>> {
        let names = self.candidates.lock().expect("unpoisoned").clone();
        let names = names.expect("nobody looks for candidates here");
        names.into_iter().filter_map(|name| self.model(&ModelId(name.into()))).collect()
    }
    fn routing(&self) -> Arc<Routing> {
        self.routing.lock().expect("no test panics here").clone()
    }
}

/// A finished task, in short.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    Served(String),
    Stopped(&'static str),
}

/// The bench.
pub(crate) struct Bench {
    pub(crate) config: Arc<Config>,
    pub(crate) clock: Arc<TokioClock>,
    pub(crate) script: Arc<Script>,
    pub(crate) engine: Engine,
    pub(crate) heard: Arc<Heard>,
    specs: Mutex<Vec<Spec>>,
    accounts: Mutex<HashMap<&'static str, AccountSpec>>,
    policy: Mutex<PoolPolicy>,
    capability: Mutex<Capability>,
}

impl Bench {
    pub(crate) fn new(specs: impl IntoIterator<Item = Spec>) -> Self {
        Self::with(specs, PoolPolicy::default(), 7)
    }

    pub(crate) fn with(specs: impl IntoIterator<Item = Spec>, policy: PoolPolicy, seed: u64) -> Self {
        let config = Arc::new(Config {
            state: Arc::new(LocalState::new()),
            pool: Mutex::new(None),
            alone: Mutex::default(),
            candidates: Mutex::new(None),
            routing: Mutex::default(),
        });
        let clock = Arc::new(TokioClock::starting_at(Moment::from_millis(1_700_000_000_000)));
        let heard = Arc::new(Heard::default());
        let random = Arc::new(SeededRandom::new(seed));
        let bench = Self {
            engine: Engine::new(config.clone(), clock.clone(), random, heard.clone()),
            script: Arc::new(Script::default()),
            specs: Mutex::new(specs.into_iter().collect()),
            accounts: Mutex::default(),
            policy: Mutex::new(policy),
            capability: Mutex::new(Capability::Text),
            config,
            clock,
            heard,
        };
        bench.apply();
        bench
    }

    /// Edits the members.
    pub(crate) fn edit(&self, change: impl FnOnce(&mut Vec<Spec>)) {
        change(&mut self.specs.lock().expect("unpoisoned"));
        self.apply();
    }

    pub(crate) fn set_policy(&self, change: impl FnOnce(&mut PoolPolicy)) {
        change(&mut self.policy.lock().expect("unpoisoned"));
        self.apply();
    }

    pub(crate) fn set_account(&self, label: &'static str, spec: AccountSpec) {
        self.accounts.lock().expect("unpoisoned").insert(label, spec);
        self.apply();
    }

    pub(crate) fn set_routing(&self, change: impl FnOnce(&mut Routing)) {
        let mut routing = self.config.routing.lock().expect("unpoisoned");
        change(Arc::make_mut(&mut routing));
    }

    pub(crate) fn set_capability(&self, capability: Capability) {
        *self.capability.lock().expect("unpoisoned") = capability;
        self.apply();
    }

    /// Who may serve in place of a model that was asked for by name, in this order.
    pub(crate) fn set_candidates(&self, names: &[&'static str]) {
        *self.config.candidates.lock().expect("unpoisoned") = Some(names.to_vec());
    }

    pub(crate) fn remove_pool(&self) {
        *self.config.pool.lock().expect("unpoisoned") = None;
    }

    fn apply(&self) {
        let state = &*self.config.state;
        let specs = self.specs.lock().expect("unpoisoned").clone();
        let policy = self.policy.lock().expect("unpoisoned").clone();
        let capability = *self.capability.lock().expect("unpoisoned");
        let pool = |key: &str, specs: &[Spec]| {
            let members = specs.iter().map(|spec| self.build(spec, policy.breaker)).collect();
            Arc::new(Pool::new(key.parse().expect("a key"), capability, policy.clone(), members, state))
        };
        let alone = specs.iter().map(|spec| {
            let key = format!("model:{}", spec.name);
            (ModelId(spec.name.into()), pool(&key, std::slice::from_ref(spec)))
        });
        *self.config.alone.lock().expect("unpoisoned") = alone.collect();
        *self.config.pool.lock().expect("unpoisoned") = Some(pool(POOL, &specs));
        state.room().open();
    }

    fn build(&self, spec: &Spec, policy: BreakerPolicy) -> Member {
        let state = &*self.config.state;
        let accounts = self.accounts.lock().expect("unpoisoned").clone();
        let model = ModelId(spec.name.into());
        let state_of = state.model(&model, policy);
        let bindings = spec.accounts.iter().map(|label| {
            let account = accounts.get(label).copied().unwrap_or_default();
            let id = AccountId((*label).into());
            Binding {
                priority: Priority::try_new(account.priority).expect("a priority"),
                cooldown: state_of.binding_cooldown(&id),
                account: Arc::new(Account {
                    label: (*label).into(),
                    rate: account.rps.map(|rps| Rate::try_new(rps, 0.0).expect("a rate")),
                    max_concurrency: account.max_concurrency,
                    max_tpm: account.max_tpm,
                    daily_limit: account.daily_limit,
                    region: account.region.map(Into::into),
                    is_enabled: account.is_enabled,
                    key_revision: account.key_revision,
                    state: state.account(&id, account.key_revision),
                    id,
                }),
            }
        });
        let accounts: Vec<_> = bindings.collect();
        Member {
            name: spec.name.into(),
            provider: "sim".into(),
            weight: Weight::try_new(spec.weight).expect("a weight"),
            priority: Priority::try_new(spec.priority).expect("a priority"),
            max_concurrency: spec.max_concurrency,
            features: spec.features.clone(),
            costs: spec.costs,
            region: spec.region.map(Into::into),
            needs_account: !accounts.is_empty(),
            accounts,
            state: state_of,
            model,
        }
    }

    pub(crate) fn pool(&self) -> Arc<Pool> {
        self.config.pool.lock().expect("unpoisoned").clone().expect("there is a pool")
    }

    pub(crate) fn member(&self, name: &str) -> Arc<Member> {
        self.pool().members().find(|member| &*member.name == name).expect("a member of that name").clone()
    }

    pub(crate) fn job(&self, stream: bool) -> Job<()> {
        Job {
            task: "task".into(),
            route: Route::Pool(POOL.parse().expect("a key")),
            stream,
            needs: Needs { stream, ..Needs::default() },
            expected: Usage::NONE,
            prefer: None,
            region: None,
            deadline: None,
            request: (),
        }
    }

    /// For one model by name.
    pub(crate) fn job_for(&self, model: &str, stream: bool) -> Job<()> {
        Job { route: Route::Model(ModelId(model.into())), ..self.job(stream) }
    }

    /// Runs a whole task to its end.
    pub(crate) async fn run(&self) -> (End, Record) {
        self.run_job(&self.job(false), std::future::pending()).await
    }

    pub(crate) async fn run_on(&self, job: &Job<()>) -> (End, Record) {
        self.run_job(job, std::future::pending()).await
    }

    pub(crate) async fn run_job(&self, job: &Job<()>, cancel: impl Future<Output = ()>) -> (End, Record) {
        let record = Record::default();
        let served = self.engine.run(&*self.script, &record, job, cancel).await;
        let end = match served {
            Ok(Served::Whole { answer, attempt }) => {
                record.end(Some(attempt));
                End::Served(answer)
            }
            Ok(Served::Stream(live)) => End::Served(live.member().name.to_string()),
            Err(Unserved { stop, attempt, .. }) => {
                record.end(attempt);
                End::Stopped(name_of(&stop))
            }
        };
        (end, record)
    }

    /// Failures in a row that the breaker of a member has counted.
    pub(crate) fn failures(&self, name: &str) -> u32 {
        self.member(name).state.breaker.view(self.clock.now()).consecutive_failures
    }

    /// The state of a member's first account.
    pub(crate) fn account_of(&self, name: &str) -> Arc<Account> {
        self.member(name).accounts.first().expect("an account").account.clone()
    }

    pub(crate) fn open(&self, name: &str) {
        let state = &self.member(name).state;
        state.breaker.force_open(self.clock.now() + Duration::from_secs(60), self.clock.now());
    }
}

pub(crate) fn name_of<R>(stop: &Stop<R>) -> &'static str {
    match stop {
        Stop::NotFound => "not_found",
        Stop::Lacks(_) => "unsupported",
        Stop::Congested(_) => "congested",
        Stop::RateLimited(_) => "rate_limited",
        Stop::NoAvailableModel { .. } => "no_available_model",
        Stop::UpstreamFailed(_) => "upstream_failed",
        Stop::CallerAtFault(_) => "invalid_request",
        Stop::OutcomeUnknown => "outcome_unknown",
        Stop::DeadlineExceeded => "deadline_exceeded",
        Stop::Cancelled => "cancelled",
        Stop::Refused(_) => "refused",
    }
}

pub(crate) fn served(by: &str) -> End {
    End::Served(by.into())
}

pub(crate) fn quick_breaker() -> BreakerPolicy {
    BreakerPolicy { failure_threshold: 1, ..BreakerPolicy::default() }
}

/// A member, and another for when it can't serve.
pub(crate) fn two() -> Bench {
    Bench::new([member("a"), member("b").priority(1)])
}

/// Runs `per_second` tasks a second for `span`, at even distances, and waits for the last of them.
pub(crate) async fn load(bench: &Arc<Bench>, per_second: u32, span: Duration) -> Vec<End> {
    let mut tasks = tokio::task::JoinSet::new();
    let every = Duration::from_secs(1) / per_second;
    let start = tokio::time::Instant::now();
    for n in 0..(span.as_millis() / every.as_millis()) as u32 {
        tokio::time::sleep_until(start + every * n).await;
        let bench = bench.clone();
        tasks.spawn(async move { bench.run().await.0 });
    }
    tasks.join_all().await
}
