//! The public HTTP surface: /api/generate, /api/tasks, /v1/*, health.

mod answer;
mod error;
mod generate;
mod health;
mod journal;
mod keys;
mod models;
mod openapi;
mod request;
mod results;
mod run;
mod speech;
mod stream;
mod tasks;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use axum::routing::get;
use forebay_engine::Engine;
use tokio::sync::{Notify, watch};

use self::error::{ApiError, Dialect};
use self::keys::Keys;
use crate::catalog::{Caller, Catalog, Snapshot};
use crate::exchange::ModelUpstream;
use crate::ledger::Ledger;
use crate::results::Results;
use crate::telemetry::{Events, Metrics};

/// What the public surface stands on; clones share it.
pub struct Gateway<U> {
    engine: Engine,
    upstream: Arc<U>,
    ledger: Ledger,
    catalog: Arc<Catalog>,
    metrics: Arc<Metrics>,
    events: Events,
    results: Results,
    keys: Arc<Keys>,
    draining: Arc<AtomicBool>,
    work: Arc<Work>,
}

impl<U> Clone for Gateway<U> {
    fn clone(&self) -> Self {
        Self {
            engine: self.engine.clone(),
            upstream: self.upstream.clone(),
            ledger: self.ledger.clone(),
            catalog: self.catalog.clone(),
            metrics: self.metrics.clone(),
            events: self.events.clone(),
            results: self.results.clone(),
            keys: self.keys.clone(),
            draining: self.draining.clone(),
            work: self.work.clone(),
        }
    }
}

impl<U> std::fmt::Debug for Gateway<U> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").finish_non_exhaustive()
    }
}

impl<U: ModelUpstream> Gateway<U> {
    /// Over these parts. While `draining` is set, /readyz says 503 and new work is refused.
    #[expect(clippy::too_many_arguments, reason = "its parts, each of another type, wired in one place")]
    pub fn new(
        engine: Engine,
        upstream: Arc<U>,
        ledger: Ledger,
        catalog: Arc<Catalog>,
        metrics: Arc<Metrics>,
        events: Events,
        results: Results,
        draining: Arc<AtomicBool>,
        work: Arc<Work>,
    ) -> Self {
        Self {
            engine,
            upstream,
            ledger,
            catalog,
            metrics,
            events,
            results,
            keys: Arc::default(),
            draining,
            work,
        }
    }

    /// Its routes.
    pub fn routes(self) -> Router {
        generate::routes::<U>()
            .fold(Router::new(), |router, (path, handler)| router.route(path, handler))
            .route("/api/openapi.json", get(openapi::show))
            .route("/v1/models", get(models::list::<U>))
            .route("/api/tasks", get(tasks::list::<U>))
            .route("/api/tasks/{id}", get(tasks::show::<U>))
            .route("/healthz", get(health::alive))
            .route("/readyz", get(health::ready::<U>))
            .route("/v1/{*rest}", axum::routing::any(unknown_v1))
            .route("/api/{*rest}", axum::routing::any(unknown_api))
            .method_not_allowed_fallback(wrong_method)
            .with_state(self)
    }

    /// The caller behind a request, and the configuration that it is served by.
    fn caller(&self, headers: &HeaderMap) -> Result<(Arc<Caller>, Arc<Snapshot>), ApiError> {
        let snapshot = self.catalog.snapshot();
        let now_ms = self.engine.clock().now().as_millis() as i64;
        let caller = request::caller_of(headers, &snapshot, now_ms)?;
        Ok((caller, snapshot))
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }
}

/// The tasks in flight, as a stopping server waits for them.
#[derive(Debug, Default)]
pub struct Work {
    tasks: AtomicUsize,
    ended: Notify,
    cut: watch::Sender<bool>,
}

impl Work {
    /// How many there are.
    pub fn in_flight(&self) -> usize {
        self.tasks.load(Ordering::Acquire)
    }

    /// Resolves once there are none.
    pub async fn done(&self) {
        loop {
            let ended = self.ended.notified();
            if self.in_flight() == 0 {
                return;
            }
            ended.await;
        }
    }

    /// The drain time is over: what is still under way ends now, and its callers are told.
    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// Resolves when it is cut.
    fn has_been_cut(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut cut = self.cut.subscribe();
        async move {
            // The sender lives as long as the work, and whoever awaits is part of it.
            if cut.wait_for(|cut| *cut).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn is_cut(&self) -> bool {
        *self.cut.borrow()
    }

    fn begin(work: &Arc<Self>) -> WorkGuard {
        work.tasks.fetch_add(1, Ordering::AcqRel);
        WorkGuard(work.clone())
    }
}

/// One task in flight.
#[derive(Debug)]
struct WorkGuard(Arc<Work>);

impl Drop for WorkGuard {
    fn drop(&mut self) {
        if self.0.tasks.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.ended.notify_waiters();
        }
    }
}

/// What a caller is told when a handler panicked.
pub fn panicked() -> Response {
    ApiError::internal().response(Dialect::Forebay)
}

/// One of a caller's `concurrent_tasks`, held until its task has ended.
#[derive(Debug)]
struct CallerSlot(Arc<Caller>);

impl CallerSlot {
    fn take(caller: &Arc<Caller>) -> Result<Self, ApiError> {
        let limit = caller.concurrent_tasks;
        if caller.in_flight.try_take(Some(limit)) {
            Ok(Self(caller.clone()))
        } else {
            Err(ApiError::too_many_concurrent_tasks(limit))
        }
    }
}

impl Drop for CallerSlot {
    fn drop(&mut self) {
        self.0.in_flight.release();
    }
}

/// Every response has a request id: the task's where there is one. What the framework refuses in plain
/// text before a handler sees it (a path that is no UTF-8, say) is said in the shape of its surface.
pub async fn finish(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let dialect = if path.starts_with("/v1") { Dialect::OpenAi } else { Dialect::Forebay };
    let is_api = dialect == Dialect::OpenAi || path.starts_with("/api");
    let mut response = next.run(request).await;
    if is_api && is_plain_refusal(&response) {
        let (head, body) = response.into_parts();
        let text = axum::body::to_bytes(body, PLAIN_CAP).await.unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let message = if text.is_empty() { head.status.to_string() } else { text.into_owned() };
        let code = if head.status == StatusCode::NOT_FOUND { "not_found" } else { "invalid_request" };
        response = ApiError::new(head.status, code, message).response(dialect);
    }
    let headers = response.headers_mut();
    if !headers.contains_key("x-request-id")
        && let Ok(id) = HeaderValue::from_str(&uuid::Uuid::now_v7().to_string())
    {
        headers.insert("x-request-id", id);
    }
    response
}

/// What a plain refusal may say, in bytes.
const PLAIN_CAP: usize = 4_096;

fn is_plain_refusal(response: &Response) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    response.status().is_client_error() && kind.is_none_or(|kind| kind.starts_with("text/plain"))
}

/// Nothing is served at this path.
pub async fn unknown(request: Request) -> Response {
    let dialect = if request.uri().path().starts_with("/v1") { Dialect::OpenAi } else { Dialect::Forebay };
    ApiError::not_found("nothing is served at this path").response(dialect)
}

async fn unknown_v1() -> Response {
    let message = "this endpoint is not served here; GET /v1/models lists what may be asked";
    ApiError::not_found(message).response(Dialect::OpenAi)
}

async fn unknown_api() -> Response {
    ApiError::not_found("there is no such endpoint under /api").response(Dialect::Forebay)
}

async fn wrong_method(request: Request) -> Response {
    let message = format!("{} is not a method of this endpoint", request.method());
    let dialect = if request.uri().path().starts_with("/v1/") { Dialect::OpenAi } else { Dialect::Forebay };
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request", message).response(dialect)
}
