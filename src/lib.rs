//! The server half of Forebay: the gateway that callers use, the admin API and the console's ports,
//! the ledger, and what they stand on. [`Server::build`] puts them together.

pub mod admin;
pub mod auth;
pub mod catalog;
pub mod cli;
pub mod config;
mod days;
pub mod demo;
pub mod exchange;
pub mod gateway;
pub mod ledger;
mod listen;
pub mod results;
pub mod retention;
pub mod simulator;
pub mod store;
pub mod telemetry;
pub mod upstream;
pub mod web;

use std::fmt;
use std::fs::{File, TryLockError};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use forebay_engine::clock::TokioClock;
use forebay_engine::random::ThreadRandom;
use forebay_engine::{Clock, Engine, LocalState, Random, State};
use secrecy::ExposeSecret;
use tokio::net::TcpListener;
use tower_http::catch_panic::CatchPanicLayer;

use crate::admin::Admin;
use crate::auth::{KeyRing, SecretsError};
use crate::catalog::{Catalog, CatalogError, UrlGuard};
use crate::config::Settings;
use crate::gateway::{Gateway, Work};
use crate::ledger::Ledger;
use crate::results::Results;
use crate::store::events::BreakerEvents;
use crate::store::{Store, StoreError};
use crate::telemetry::{Events, Metrics, Scraped, Telemetry};
use crate::upstream::HttpUpstream;
use crate::web::{Ports, WebOptions};

/// How long answered connections may take to close once everything else has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The keys that seal secrets.
    #[error(transparent)]
    Secrets(#[from] SecretsError),
    /// The configuration in the database.
    #[error("the configuration does not hold together:\n{0}")]
    Catalog(#[from] CatalogError),
    /// The data folder.
    #[error("{path}: {source}")]
    DataDir {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The data folder is another process's.
    #[error("another Forebay uses the data folder {0}; stop it, or set FOREBAY_DATA_DIR")]
    InUse(std::path::PathBuf),
    /// The address.
    #[error("can't listen on {addr}: {source}; another Forebay may be running, or set FOREBAY_ADDR")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
}

/// What a server takes from outside: real in production, chosen by tests.
#[derive(Clone)]
pub struct Outside {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub random: Arc<dyn Random>,
}

impl Default for Outside {
    fn default() -> Self {
        Self { clock: Arc::new(TokioClock::new()), random: Arc::new(ThreadRandom) }
    }
}

impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outside").finish_non_exhaustive()
    }
}

/// A server that is ready to serve.
pub struct Server {
    listener: TcpListener,
    addr: SocketAddr,
    public_url: String,
    router: Router,
    catalog: Arc<Catalog>,
    ledger: Ledger,
    store: Store,
    draining: Arc<AtomicBool>,
    work: Arc<Work>,
    /// Held for as long as the server lives: no other process may be the same node.
    folder: File,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("addr", &self.addr).finish_non_exhaustive()
    }
}

impl Server {
    /// Opens the database, listens, recovers what an earlier process left, and wires the parts.
    pub async fn build(settings: &Settings, outside: Outside) -> Result<Self, StartError> {
        let folder = lock_folder(settings)?;
        let store = Store::open(&settings.database_url, settings.sqlite_sync_full).await?;
        let master_keys = settings.master_keys.as_ref().map(ExposeSecret::expose_secret);
        let keys = KeyRing::load(master_keys, &store)?;
        let state: Arc<dyn State> = Arc::new(LocalState::new());
        let clock = outside.clock.clone();
        let catalog =
            Catalog::open(store.clone(), keys.clone(), state.clone(), clock.clone(), Some(url_guard()))
                .await?;

        let listen = |source| StartError::Listen { addr: settings.addr, source };
        let listener = TcpListener::bind(settings.addr).await.map_err(listen)?;
        let addr = listener.local_addr().map_err(listen)?;
        let public_url = settings.public_url.clone().unwrap_or_else(|| format!("http://{addr}"));

        // Bound: no other process of this node is alive, so what it left behind can be settled.
        let metrics = Metrics::new();
        let node = node_id(settings)?;
        let committed = metrics.clone();
        let options = ledger::Options {
            on_commit: Some(Arc::new(move |commit| committed.ledger_committed(commit.took))),
            time_zone: settings.time_zone.clone(),
            ..ledger::Options::default()
        };
        let ledger = Ledger::start(store.clone(), node.clone(), options).await?;
        let breaker_events = BreakerEvents::start(store.clone(), &node);
        let events = Events::new();
        let telemetry = Arc::new(Telemetry::new(metrics.clone(), breaker_events.clone(), events.clone()));
        let engine = Engine::new(catalog.clone(), clock.clone(), outside.random.clone(), telemetry);

        let draining = Arc::new(AtomicBool::new(false));
        let work = Arc::new(Work::default());
        let upstream = Arc::new(HttpUpstream::new(catalog.clone()));
        let results = Results::new(settings.data_dir.join("results"), keys, &public_url, clock.clone());
        let gateway = Gateway::new(
            engine,
            upstream.clone(),
            ledger.clone(),
            catalog.clone(),
            metrics.clone(),
            events.clone(),
            results.clone(),
            draining.clone(),
            work.clone(),
        );
        let admin = Admin::new(admin::Parts {
            catalog: catalog.clone(),
            ledger: ledger.clone(),
            operators: auth::Operators::new(store.clone()),
            state: state.clone(),
            trial: upstream,
            events,
            clock: clock.clone(),
            random: outside.random.clone(),
            breaker_events,
            time_zone: settings.time_zone.clone(),
            public_url: public_url.clone(),
            trusted_proxies: settings.trusted_proxies.clone(),
        });
        let sessions = auth::sessions::layer(&store, public_url.starts_with("https:"));
        let operators = Router::new()
            .nest("/api/admin", admin.routes())
            .merge(web::console(ports_of(&admin), web_options(settings, &public_url)))
            .layer(sessions);
        let scraped = Scraped {
            catalog: catalog.clone(),
            ledger: ledger.clone(),
            state: state.clone(),
            clock: clock.clone(),
        };
        let token = settings.metrics_token.as_ref().map(ExposeSecret::expose_secret);
        let router = gateway
            .routes()
            .merge(results.routes())
            .merge(operators)
            .merge(telemetry::metrics_routes(metrics.clone(), scraped, token))
            .fallback(gateway::unknown)
            .layer(CatchPanicLayer::custom(|_| gateway::panicked()))
            .layer(axum::middleware::from_fn(gateway::finish));
        days::tell(&catalog, &ledger, &*state, clock.now(), &settings.time_zone).await?;
        tokio::spawn(days::watch(catalog.clone(), ledger.clone(), state, clock, settings.time_zone.clone()));
        tokio::spawn(retention::watch(store.clone(), catalog.clone(), results));
        catalog.watch();
        tokio::spawn(metrics.upkeep());
        if settings.redis_url.is_some() {
            tracing::warn!("REDIS_URL is set, but breakers and limits are kept in each process so far");
        }
        Ok(Self { listener, addr, public_url, router, catalog, ledger, store, draining, work, folder })
    }

    /// Where it listens.
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The address that browsers use.
    pub fn public_url(&self) -> &str {
        &self.public_url
    }

    /// Its configuration.
    pub const fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Its ledger.
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Its database.
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// Serves until `stop` resolves, then drains: /readyz says 503 and new work is refused at once;
    /// what is in flight may end within `drain_seconds`.
    pub async fn serve(self, stop: impl Future<Output = ()>) {
        let Self { listener, router, catalog, ledger, draining, work, folder, .. } = self;
        let (close, closed) = tokio::sync::oneshot::channel::<()>();
        let server = tokio::spawn(listen::serve(listener, router, async {
            let _ = closed.await;
        }));
        stop.await;
        let settings = catalog.snapshot().settings.clone();
        tracing::info!(
            in_flight = work.in_flight(),
            "stopping: new work is refused, what is in flight may end"
        );
        draining.store(true, Ordering::Relaxed);
        tokio::time::sleep(settings.drain_delay).await;
        if tokio::time::timeout(settings.drain, work.done()).await.is_err() {
            tracing::warn!(in_flight = work.in_flight(), "the drain time is over; these are ended now");
            work.cut();
            let _ = tokio::time::timeout(LAST_WORDS, work.done()).await;
        }
        drop(close);
        let _ = tokio::time::timeout(LAST_WORDS, server).await;
        ledger.flush().await;
        drop(folder);
    }
}

/// The console's ports are all the operators' side.
fn ports_of(admin: &Admin) -> Ports {
    Ports {
        session: Arc::new(admin.clone()),
        pools: Arc::new(admin.clone()),
        accounts: Arc::new(admin.clone()),
        tasks: Arc::new(admin.clone()),
    }
}

fn web_options(settings: &Settings, public_url: &str) -> WebOptions {
    WebOptions {
        site_root: settings.site_root.clone(),
        public_url: public_url.to_owned(),
        time_zone: settings.time_zone.iana_name().unwrap_or("UTC").to_owned(),
    }
}

/// Checks a URL as it is saved: everything but what its name will resolve to.
pub fn url_guard() -> UrlGuard {
    Arc::new(|url, allow_private| {
        let url = url.parse().map_err(|error| format!("is no URL: {error}"))?;
        upstream::guard::check_url(&url, allow_private).map_err(|refusal| refusal.to_string())
    })
}

/// Takes the data folder for this process. The lock goes with the process, however it ends.
fn lock_folder(settings: &Settings) -> Result<File, StartError> {
    let path = settings.data_dir.join("lock");
    let failed = |source| StartError::DataDir { path: path.clone(), source };
    store::make_private_folder(&settings.data_dir).map_err(failed)?;
    let file = File::create(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StartError::InUse(settings.data_dir.clone())),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// The id of this node: made once, kept in the data folder, so that a restart knows its own.
fn node_id(settings: &Settings) -> Result<String, StartError> {
    let path = settings.data_dir.join("node");
    let failed = |source| StartError::DataDir { path: path.clone(), source };
    match std::fs::read_to_string(&path) {
        Ok(id) if !id.trim().is_empty() => Ok(id.trim().to_owned()),
        Ok(_) | Err(_) => {
            let id = uuid::Uuid::now_v7().to_string();
            std::fs::write(&path, &id).map_err(failed)?;
            Ok(id)
        }
    }
}
