//! A bench for the engine: a pool made of words, a scripted upstream, and a journal that remembers.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_engine::attempt::{AttemptEnded, AttemptKind, AttemptSent};
use forebay_engine::clock::{Moment, TokioClock};
use forebay_engine::events::{BreakerMoved, Observer};
use forebay_engine::limits::Rate;
use forebay_engine::policy::{BreakerPolicy, PoolPolicy, Routing};
use forebay_engine::random::SeededRandom;
use forebay_engine::stream::{EventSource, Piece};
use forebay_engine::task::{Job, Route, Served, Stop, Unserved};
use forebay_engine::upstream::{Order, Whole};
use forebay_engine::{
    Account, AccountId, Binding, Capability, Class, Clock, Directory, Engine, Failure, Features, GroupKey,
    Journal, LocalState, Member, ModelId, Needs, Pool, Priority, State, Upstream, Weight,
};

/// The bench's only pool.
pub(crate) const POOL: &str = "main_text";

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
}

pub(crate) fn member(name: &'static str) -> Spec {
    Spec {
        name,
        weight: 1,
        priority: 0,
        max_concurrency: Some(10),
        accounts: Vec::new(),
        features: Features::default(),
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
}

/// Limits of an account: rate a second, concurrency, key revision.
#[derive(Clone, Copy)]
pub(crate) struct AccountSpec {
    pub(crate) rps: Option<f64>,
    pub(crate) max_concurrency: Option<u32>,
    pub(crate) key_revision: u64,
    pub(crate) is_enabled: bool,
}

impl Default for AccountSpec {
    fn default() -> Self {
        Self { rps: None, max_concurrency: None, key_revision: 1, is_enabled: true }
    }
}

/// The configuration of the bench; an edit applies at once.
pub(crate) struct Config {
    pub(crate) state: Arc<LocalState>,
    pool: Mutex<Option<Arc<Pool>>>,
    routing: Mutex<Arc<Routing>>,
}

impl Directory for Config {
    fn pool(&self, key: &GroupKey) -> Option<Arc<Pool>> {
        self.pool.lock().expect("no test panics here").clone().filter(|pool| pool.key == *key)
    }
    fn model(&self, _: &ModelId) -> Option<Arc<Pool>> {
        None
    }
    fn routing(&self) -> Arc<Routing> {
        self.routing.lock().expect("no test panics here").clone()
    }
}

/// What the upstream does with one call.
#[derive(Clone)]
pub(crate) enum Play {
    Serve,
    Fail(Failure),
    /// Sends, then never answers.
    Hang,
    /// Never connects.
    HangBeforeSending,
    /// Answers after a while.
    After(Duration),
    /// Fails after a while.
    FailAfter(Duration, Class),
    Panic,
    /// Streams these pieces, then ends; `Err` ends it badly.
    Stream(Vec<Result<Beat, Failure>>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Beat {
    Role,
    Text(&'static str),
    Wait(u64),
    Quiet,
}

/// Plays a script for each member: one entry a call, the last one for ever.
#[derive(Default)]
pub(crate) struct Script {
    plays: Mutex<HashMap<String, VecDeque<Play>>>,
    calls: Mutex<Vec<(String, Option<String>)>>,
    open: Mutex<HashMap<String, (u32, u32)>>,
}

impl Script {
    pub(crate) fn set(&self, member: &str, plays: impl IntoIterator<Item = Play>) {
        self.plays.lock().expect("unpoisoned").insert(member.into(), plays.into_iter().collect());
    }
    /// Whom it was asked of, with which account.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.calls.lock().expect("unpoisoned").iter().map(|(member, _)| member.clone()).collect()
    }
    pub(crate) fn accounts_used(&self) -> Vec<Option<String>> {
        self.calls.lock().expect("unpoisoned").iter().map(|(_, account)| account.clone()).collect()
    }
    /// The most calls of a member or an account that were open at once.
    pub(crate) fn peak(&self, name: &str) -> u32 {
        self.open.lock().expect("unpoisoned").get(name).map_or(0, |(_, peak)| *peak)
    }
    pub(crate) fn open(&self, name: &str) -> u32 {
        self.open.lock().expect("unpoisoned").get(name).map_or(0, |(open, _)| *open)
    }

    fn enter<R>(&self, order: &Order<'_, R>) -> (Play, Vec<Visit<'_>>) {
        let member = order.member.name.to_string();
        let account = order.account.map(|account| account.label.to_string());
        let visits = [Some(&member), account.as_ref()].into_iter().flatten().map(|name| {
            let mut open = self.open.lock().expect("unpoisoned");
            let entry = open.entry(name.clone()).or_default();
            entry.0 += 1;
            entry.1 = entry.1.max(entry.0);
            Visit { script: self, name: name.clone() }
        });
        let visits = visits.collect();
        let mut plays = self.plays.lock().expect("unpoisoned");
        let play = match plays.get_mut(&member) {
            None => Play::Serve,
            Some(script) if script.len() > 1 => script.pop_front().expect("more than one"),
            Some(script) => script.front().cloned().unwrap_or(Play::Serve),
        };
        drop(plays);
        self.calls.lock().expect("unpoisoned").push((member, account));
        (play, visits)
    }
}

struct Visit<'a> {
    script: &'a Script,
    name: String,
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        if let Ok(mut open) = self.script.open.lock()
            && let Some(entry) = open.get_mut(&self.name)
        {
            entry.0 -= 1;
        }
    }
}

#[derive(Debug)]
pub(crate) struct Beats(VecDeque<Result<Beat, Failure>>);

impl EventSource for Beats {
    type Event = &'static str;

    async fn next(&mut self) -> Result<Option<Piece<&'static str>>, Failure> {
        match self.0.pop_front() {
            None => Ok(None),
            Some(Err(failure)) => Err(failure),
            Some(Ok(Beat::Role)) => Ok(Some(Piece::Other("role", 10))),
            Some(Ok(Beat::Quiet)) => Ok(Some(Piece::Quiet)),
            Some(Ok(Beat::Text(text))) => Ok(Some(Piece::Content(text))),
            Some(Ok(Beat::Wait(ms))) => {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                Ok(Some(Piece::Quiet))
            }
        }
    }
}

impl Upstream for Script {
    type Request = ();
    type Answer = String;
    type Stream = Beats;

    async fn whole(&self, order: Order<'_, ()>) -> Result<Whole<String>, Failure> {
        let (play, _visits) = self.enter(&order);
        if matches!(play, Play::HangBeforeSending) {
            std::future::pending::<()>().await;
        }
        let unsent = matches!(&play, Play::Fail(failure) if failure.class == Class::NotSent);
        if !unsent {
            order.sent.set();
        }
        match play {
            Play::Fail(failure) => return Err(failure),
            Play::Hang => std::future::pending().await,
            Play::After(wait) => tokio::time::sleep(wait).await,
            Play::FailAfter(wait, class) => {
                tokio::time::sleep(wait).await;
                return Err(Failure::new(class, "scripted"));
            }
            Play::Panic => panic!("the adapter panics, as the test wants it to"),
            _ => tokio::task::yield_now().await,
        }
        let answer = order.member.name.to_string();
        Ok(Whole { answer, usage: None, provider_task_id: None })
    }

    async fn stream(&self, order: Order<'_, ()>) -> Result<Beats, Failure> {
        let (play, _visits) = self.enter(&order);
        order.sent.set();
        match play {
            Play::Stream(beats) => Ok(Beats(beats.into())),
            Play::Fail(failure) => Err(failure),
            Play::Hang => std::future::pending().await,
            _ => Ok(Beats(VecDeque::from([Ok(Beat::Text("hello"))]))),
        }
    }
}

/// What the journal was told.
#[derive(Clone, Default)]
pub(crate) struct Record(Arc<Mutex<Recorded>>);

#[derive(Default)]
pub(crate) struct Recorded {
    pub(crate) sent: Vec<AttemptSent>,
    pub(crate) ended: Vec<AttemptEnded>,
}

impl Record {
    pub(crate) fn kinds(&self) -> Vec<AttemptKind> {
        self.0.lock().expect("unpoisoned").sent.iter().map(|sent| sent.kind).collect()
    }
    pub(crate) fn waits(&self) -> Vec<Duration> {
        self.0.lock().expect("unpoisoned").sent.iter().map(|sent| sent.waited).collect()
    }
    pub(crate) fn reasons(&self) -> Vec<String> {
        self.0.lock().expect("unpoisoned").sent.iter().map(|sent| sent.reason.clone()).collect()
    }
    pub(crate) fn ended(&self) -> Vec<AttemptEnded> {
        self.0.lock().expect("unpoisoned").ended.clone()
    }
}

impl Journal for Record {
    type Refusal = &'static str;

    async fn sent(&self, before: Option<AttemptEnded>, next: AttemptSent) -> Result<(), &'static str> {
        let mut recorded = self.0.lock().expect("unpoisoned");
        recorded.ended.extend(before);
        recorded.sent.push(next);
        Ok(())
    }
}

#[derive(Default)]
pub(crate) struct Heard(Mutex<Vec<BreakerMoved>>);

impl Heard {
    pub(crate) fn moves(&self) -> Vec<BreakerMoved> {
        self.0.lock().expect("unpoisoned").clone()
    }
}

impl Observer for Heard {
    fn breaker_moved(&self, moved: &BreakerMoved) {
        self.0.lock().expect("unpoisoned").push(moved.clone());
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
}

impl Bench {
    pub(crate) fn new(specs: impl IntoIterator<Item = Spec>) -> Self {
        Self::with(specs, PoolPolicy::default(), 7)
    }

    pub(crate) fn with(specs: impl IntoIterator<Item = Spec>, policy: PoolPolicy, seed: u64) -> Self {
        let config = Arc::new(Config {
            state: Arc::new(LocalState::new()),
            pool: Mutex::new(None),
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

    pub(crate) fn remove_pool(&self) {
        *self.config.pool.lock().expect("unpoisoned") = None;
    }

    fn apply(&self) {
        let state = &*self.config.state;
        let specs = self.specs.lock().expect("unpoisoned").clone();
        let accounts = self.accounts.lock().expect("unpoisoned").clone();
        let policy = self.policy.lock().expect("unpoisoned").clone();
        let members = specs.into_iter().map(|spec| {
            let model = ModelId(spec.name.into());
            let state_of = state.model(&model, policy.breaker);
            let bindings = spec.accounts.iter().map(|label| {
                let limits = accounts.get(label).copied().unwrap_or_default();
                let id = AccountId((*label).into());
                Binding {
                    priority: Priority::default(),
                    cooldown: state_of.binding_cooldown(&id),
                    account: Arc::new(Account {
                        label: (*label).into(),
                        rate: limits.rps.map(|rps| Rate::try_new(rps, 0.0).expect("a rate")),
                        max_concurrency: limits.max_concurrency,
                        is_enabled: limits.is_enabled,
                        key_revision: limits.key_revision,
                        state: state.account(&id, limits.key_revision),
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
                features: spec.features,
                needs_account: !accounts.is_empty(),
                accounts,
                state: state_of,
                model,
            }
        });
        let key: GroupKey = POOL.parse().expect("a key");
        let members = members.collect();
        let pool = Pool::new(key, Capability::Text, policy, members, state);
        *self.config.pool.lock().expect("unpoisoned") = Some(Arc::new(pool));
        state.room().open();
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
            deadline: None,
            request: (),
        }
    }

    /// Runs a whole task to its end.
    pub(crate) async fn run(&self) -> (End, Record) {
        self.run_job(&self.job(false), std::future::pending()).await
    }

    pub(crate) async fn run_job(&self, job: &Job<()>, cancel: impl Future<Output = ()>) -> (End, Record) {
        let record = Record::default();
        let served = self.engine.run(&*self.script, &record, job, cancel).await;
        let end = match served {
            Ok(Served::Whole { answer, attempt }) => {
                record.0.lock().expect("unpoisoned").ended.push(attempt);
                End::Served(answer)
            }
            Ok(Served::Stream(live)) => End::Served(live.member().name.to_string()),
            Err(Unserved { stop, attempt, .. }) => {
                record.0.lock().expect("unpoisoned").ended.extend(attempt);
                End::Stopped(name_of(&stop))
            }
        };
        (end, record)
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

pub(crate) fn fail(class: Class) -> Play {
    Play::Fail(Failure::new(class, "scripted"))
}

pub(crate) fn quick_breaker() -> BreakerPolicy {
    BreakerPolicy { failure_threshold: 1, ..BreakerPolicy::default() }
}
