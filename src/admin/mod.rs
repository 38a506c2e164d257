//! The operators' side: the admin API under /api/admin, and the console's ports.
//!
//! Both stand on the same actions here; what differs is the shape of question and answer.

mod accounts;
mod actions;
mod body;
mod breakers;
mod callers;
mod configuration;
mod error;
mod events;
mod operator;
mod pools;
mod tasks;
mod times;
mod trials;

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{delete, get, post, put};
use forebay_engine::{Clock, Moment, Random, State};
use forebay_wire::import::Section;
use jiff::tz::TimeZone;

use crate::auth::Operators;
use crate::auth::throttle::Throttle;
use crate::catalog::Catalog;
use crate::exchange::Trial;
use crate::ledger::{BreakerEvents, Ledger};
use crate::telemetry::Events;

pub use error::AdminError;

/// An import file is never larger.
const BODY_LIMIT: usize = 16 * 1_024 * 1_024;

/// What the operators' side stands on.
pub struct Parts {
    /// The configuration.
    pub catalog: Arc<Catalog>,
    /// Tasks and credits.
    pub ledger: Ledger,
    /// Who may use it.
    pub operators: Operators,
    /// What outlives an edit: breakers, cooldowns, what is in flight.
    pub state: Arc<dyn State>,
    /// Small calls to upstreams.
    pub trial: Arc<dyn Trial>,
    /// What happens, as it happens.
    pub events: Events,
    /// The engine's clock.
    pub clock: Arc<dyn Clock>,
    /// For dry picks.
    pub random: Arc<dyn Random>,
    /// Where changes of breakers are written down.
    pub breaker_events: BreakerEvents,
    /// FOREBAY_TIME_ZONE.
    pub time_zone: TimeZone,
    /// FOREBAY_PUBLIC_URL.
    pub public_url: String,
    /// FOREBAY_TRUSTED_PROXIES.
    pub trusted_proxies: Vec<IpAddr>,
}

/// The operators' side. It implements `SessionPort`, `PoolsPort`, `AccountsPort` and `TasksPort` of the
/// console; clones share everything.
#[derive(Clone)]
pub struct Admin(Arc<Inner>);

struct Inner {
    parts: Parts,
    throttle: Throttle,
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}

impl std::ops::Deref for Admin {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0.parts
    }
}

impl Admin {
    /// Over these parts.
    pub fn new(parts: Parts) -> Self {
        Self(Arc::new(Inner { parts, throttle: Throttle::default() }))
    }

    /// The routes under /api/admin. They want the session layer around them, and the client's address
    /// as `ConnectInfo`.
    pub fn routes(&self) -> Router {
        Router::new()
            .route("/pools", get(pools::list))
            .route("/pools/{name}", get(pools::show).merge(configuration::rows(Section::Pools)))
            .route("/pools/{name}/mock-generate-probe", post(pools::probe))
            .route("/models/{name}", configuration::rows(Section::Models))
            .route("/models/{name}/test", post(trials::model))
            .route("/models/{name}/accounts/{label}", put(accounts::bind).delete(accounts::unbind))
            .route("/providers/{name}", configuration::rows(Section::Providers))
            .route("/accounts/{name}", configuration::rows(Section::Accounts))
            .route("/accounts/{name}/clear-cooldown", post(accounts::clear_cooldown))
            .route("/accounts/{name}/test", post(trials::account))
            .route("/events", get(events::stream))
            .route("/callers", get(callers::list))
            .route("/callers/{name}", configuration::rows(Section::Callers))
            .route("/callers/{name}/tokens", post(callers::create_token))
            .route("/callers/{name}/tokens/{prefix}", delete(callers::delete_token))
            .route("/callers/{name}/credits", get(callers::grants).post(callers::grant))
            .route("/breakers/reset", post(breakers::reset_all))
            .route("/breakers/{name}/reset", post(breakers::reset))
            .route("/breakers/{name}/force-open", post(breakers::force_open))
            .route("/breaker-events", get(breakers::events))
            .route("/tasks", get(tasks::list))
            .route("/tasks/{id}", get(tasks::show))
            .route("/config", get(configuration::export).put(configuration::import))
            .route("/settings", get(configuration::settings).put(configuration::put_settings))
            .route("/audit", get(configuration::audit))
            .fallback(|| async { AdminError::not_found("this path") })
            .method_not_allowed_fallback(|| async { AdminError::method_not_allowed() })
            .layer(DefaultBodyLimit::max(BODY_LIMIT))
            .with_state(self.clone())
    }

    fn now(&self) -> Moment {
        self.clock.now()
    }
}
