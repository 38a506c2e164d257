//! An OpenAI-compatible upstream with switchable faults, for the demo and the tests.
//!
//! A model behaves as its name says (`flaky-30`, `cut-content`; any other name is `ok`), or as
//! `PUT /control/{model} {"behaviour": "500"}` last said. `GET /control` tells what each model was
//! asked; `POST /control/refuse {"ms": 5000}` closes the listener for a while.

mod answer;
pub mod behaviour;
mod capability;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::Response;
use axum::response::IntoResponse;
use axum::routing::{get, post, put};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use self::behaviour::Behaviour;

/// What one simulated model was asked so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Visits {
    /// Requests in all.
    pub requests: u64,
    /// Those under way.
    pub open: u64,
    /// Those whose caller left before the end.
    pub left: u64,
    /// The most that were under way at once.
    pub peak: u64,
}

/// A running simulator; dropping it stops it.
#[derive(Debug)]
pub struct Simulator {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    models: Mutex<BTreeMap<String, Model>>,
    changed: watch::Sender<()>,
    refuse_for: Mutex<Duration>,
    refuse: Notify,
}

#[derive(Debug, Default)]
struct Model {
    behaviour: Option<Behaviour>,
    visits: Visits,
    last_key: Option<String>,
    /// The body of the last request; a form's fields.
    last_request: Value,
    /// What it says instead of anything else: status, headers, body.
    recorded: Option<Recorded>,
    /// How often each `user` was asked for: a test marks its requests with it.
    users: HashMap<String, u32>,
}

/// An answer as some provider was seen to give it.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The status.
    pub status: u16,
    /// Names and values.
    pub headers: Vec<(String, String)>,
    /// JSON, or a text that is sent as it is.
    pub body: Value,
}

impl Simulator {
    /// Listens on `address`; port 0 takes a free one.
    pub async fn start(address: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            models: Mutex::default(),
            changed: watch::Sender::new(()),
            refuse_for: Mutex::default(),
            refuse: Notify::new(),
        });
        let server = tokio::spawn(serve(listener, address, shared.clone()));
        Ok(Self { address, shared, server })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What a provider's `base_url` must be.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Switches how a model behaves.
    pub fn set(&self, model: &str, behaviour: Behaviour) {
        self.shared.models().entry(model.to_owned()).or_default().behaviour = Some(behaviour);
    }

    /// What a model was asked so far.
    pub fn visits(&self, model: &str) -> Visits {
        self.shared.models().get(model).map(|model| model.visits.clone()).unwrap_or_default()
    }

    /// The bearer token of a model's last request.
    pub fn last_key(&self, model: &str) -> Option<String> {
        self.shared.models().get(model)?.last_key.clone()
    }

    /// The body of a model's last request, or the fields of its form.
    pub fn last_request(&self, model: &str) -> Value {
        self.shared.models().get(model).map(|model| model.last_request.clone()).unwrap_or_default()
    }

    /// From now on a model gives this answer, whatever it is asked; `None` ends that.
    pub fn record(&self, model: &str, recorded: Option<Recorded>) {
        self.shared.models().entry(model.to_owned()).or_default().recorded = recorded;
    }

    /// How often each `user` field came, at whichever model.
    pub fn users(&self) -> HashMap<String, u32> {
        let mut users = HashMap::new();
        for model in self.shared.models().values() {
            for (user, count) in &model.users {
                *users.entry(user.clone()).or_default() += count;
            }
        }
        users
    }

    /// Waits until what a model was asked is as `wanted` says.
    pub async fn until(&self, model: &str, wanted: impl Fn(&Visits) -> bool) -> Visits {
        let mut changed = self.shared.changed.subscribe();
        loop {
            let visits = self.visits(model);
            if wanted(&visits) || changed.changed().await.is_err() {
                return visits;
            }
        }
    }

    /// Waits until it ends, which it does only when it can't listen any more.
    pub async fn join(mut self) {
        let _ = (&mut self.server).await;
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Shared {
    fn models(&self) -> MutexGuard<'_, BTreeMap<String, Model>> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(self: &Arc<Self>, model: &str, key: Option<String>, request: &Value) -> (Behaviour, Visit) {
        let mut models = self.models();
        let known = models.entry(model.to_owned()).or_default();
        let user = request["user"].as_str();
        known.last_request = request.clone();
        known.visits.requests += 1;
        known.visits.open += 1;
        known.visits.peak = known.visits.peak.max(known.visits.open);
        known.last_key = key;
        if let Some(user) = user {
            *known.users.entry(user.to_owned()).or_default() += 1;
        }
        let behaviour = known.behaviour.or_else(|| model.parse().ok()).unwrap_or_default();
        if matches!(behaviour, Behaviour::Once(_)) {
            known.behaviour = Some(Behaviour::Ok);
        }
        drop(models);
        self.changed.send_replace(());
        (behaviour, Visit { shared: self.clone(), model: model.to_owned(), done: false.into() })
    }
}

/// A request under way.
struct Visit {
    shared: Arc<Shared>,
    model: String,
    done: std::sync::atomic::AtomicBool,
}

impl Visit {
    /// Its answer has ended as it should.
    fn finished(&self) {
        self.done.store(true, std::sync::atomic::Ordering::Release);
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let done = *self.done.get_mut();
        if let Some(model) = self.shared.models().get_mut(&self.model) {
            model.visits.open -= 1;
            model.visits.left += u64::from(!done);
        }
        self.shared.changed.send_replace(());
    }
}

async fn serve(listener: TcpListener, address: SocketAddr, shared: Arc<Shared>) {
    let routes = Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/models", get(async || Json(json!({"object": "list", "data": []}))))
        .route("/control", get(overview))
        .route("/control/refuse", post(refuse))
        .route("/control/{model}", put(switch).delete(forget))
        .merge(capability::routes(address))
        .with_state(shared.clone());
    let mut listener = Some(listener);
    loop {
        let bound = match listener.take() {
            Some(bound) => Ok(bound),
            None => TcpListener::bind(address).await,
        };
        let Ok(bound) = bound else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let closing = shared.clone();
        let serving = axum::serve(bound, routes.clone())
            .with_graceful_shutdown(async move { closing.refuse.notified().await });
        let _ = serving.await;
        let wait = *shared.refuse_for.lock().unwrap_or_else(PoisonError::into_inner);
        tokio::time::sleep(wait).await;
    }
}

async fn chat(
    State(shared): State<Arc<Shared>>,
    headers: axum::http::HeaderMap,
    Json(request): Json<Value>,
) -> answer::Made {
    let model = request["model"].as_str().unwrap_or_default().to_owned();
    Ok(shared.serve(&headers, &model, &request, answer::chat).await)
}

impl Shared {
    /// Counts a request, behaves as the model does, and lets `answers` say what is left to say.
    async fn serve(
        self: &Arc<Self>,
        headers: &axum::http::HeaderMap,
        model: &str,
        request: &Value,
        answers: impl FnOnce(&str, Behaviour, &Value, Visit) -> Response<Body>,
    ) -> Response<Body> {
        let key = headers
            .get(axum::http::header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok()?.strip_prefix("Bearer").map(str::to_owned))
            .map(|key| key.trim_start_matches([' ', ';']).to_owned());
        let (behaviour, visit) = self.enter(model, key, request);
        let recorded = self.models().get(model).and_then(|model| model.recorded.clone());
        if let Some(recorded) = recorded {
            visit.finished();
            return answer::recorded(&recorded);
        }
        let behaviour = match behaviour {
            Behaviour::Hang => std::future::pending().await,
            Behaviour::Reset => return answer::reset(),
            Behaviour::Slow(wait) => {
                tokio::time::sleep(wait).await;
                Behaviour::Ok
            }
            Behaviour::Once(status) => Behaviour::Status(status),
            Behaviour::Late(status, wait, after) => {
                tokio::time::sleep(wait).await;
                if status == 429 { Behaviour::RateLimited(after) } else { Behaviour::Status(status) }
            }
            Behaviour::Flaky(percent) if rand::random_range(0..100) < percent => Behaviour::Status(500),
            other => other,
        };
        if let Some(response) = answer::refusal(behaviour) {
            visit.finished();
            return response;
        }
        answers(model, behaviour, request, visit)
    }
}

async fn overview(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let models: serde_json::Map<String, Value> = shared
        .models()
        .iter()
        .map(|(name, model)| {
            let behaviour = model.behaviour.or_else(|| name.parse().ok()).unwrap_or_default();
            (name.clone(), json!({"behaviour": behaviour.to_string(), "visits": model.visits}))
        })
        .collect();
    Json(json!({"models": models}))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Switch {
    behaviour: String,
}

async fn switch(
    State(shared): State<Arc<Shared>>,
    Path(model): Path<String>,
    Json(switch): Json<Switch>,
) -> Response<Body> {
    match switch.behaviour.parse::<Behaviour>() {
        Ok(behaviour) => {
            shared.models().entry(model).or_default().behaviour = Some(behaviour);
            Json(json!({"behaviour": behaviour.to_string()})).into_response()
        }
        Err(unknown) => answer::error(400, "invalid_request", &format!("behaviour: {unknown}")),
    }
}

async fn forget(State(shared): State<Arc<Shared>>, Path(model): Path<String>) -> Json<Value> {
    if let Some(model) = shared.models().get_mut(&model) {
        model.behaviour = None;
    }
    Json(json!({}))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refuse {
    ms: u64,
}

async fn refuse(State(shared): State<Arc<Shared>>, Json(refuse): Json<Refuse>) -> Json<Value> {
    *shared.refuse_for.lock().unwrap_or_else(PoisonError::into_inner) = Duration::from_millis(refuse.ms);
    shared.refuse.notify_one();
    Json(json!({}))
}
