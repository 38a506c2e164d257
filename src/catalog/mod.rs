//! The configuration in memory: one immutable [`Snapshot`], swapped whole.
//!
//! Requests keep the snapshot they began with. An edit made in this process is live when it returns;
//! other processes, and hand-written SQL, are noticed within two seconds by the version that triggers
//! count. A configuration that does not hold together is never taken: the old one stays, and
//! [`Catalog::problems`] says why.

mod build;
mod check;
mod edit;
mod export;
mod hosts;
mod records;
mod settings;
mod snapshot;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use forebay_engine::breaker::BreakerState;
use forebay_engine::policy::Routing;
use forebay_engine::{Capability, Clock, Directory, GroupKey, ModelId, Pool, State};
use forebay_wire::import::Problem;
use tokio::task::JoinHandle;

use crate::auth::secrets::{KeyRing, Place};
use crate::store::{Store, StoreError};

pub use crate::store::config::{ConfigRow, Configuration};
use crate::store::config::{KeyOf, StoredKey};
pub(crate) use build::last_four;
pub use edit::{Author, Change, Difference};
pub use export::export;
pub(crate) use export::export_row;
pub use settings::Settings;
pub use snapshot::{Caller, Credential, ModelTarget, PoolConfig, Provider, Snapshot, Target, TokenRow};

/// How often the version is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Checks a provider's or a model's URL as far as it can be checked when it is saved: (URL, whether
/// the provider allows its private network) → why it is refused.
pub type UrlGuard = Arc<dyn Fn(&str, bool) -> Result<(), String> + Send + Sync>;

/// Why the configuration could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// It does not hold together; nothing was changed.
    #[error("{}", list(.0))]
    Invalid(Vec<Problem>),
    /// The row is needed by others.
    #[error("{what} is in use by {}", .by.join(", "))]
    InUse {
        /// The row.
        what: String,
        /// What uses it.
        by: Vec<String>,
    },
    /// There is no such row.
    #[error("{0} does not exist")]
    Missing(String),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for CatalogError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

fn list(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The configuration, live.
pub struct Catalog {
    store: Store,
    keys: KeyRing,
    state: Arc<dyn State>,
    clock: Arc<dyn Clock>,
    guard: Option<UrlGuard>,
    snapshot: ArcSwap<Snapshot>,
    routing: ArcSwap<Routing>,
    problems: Mutex<Vec<Problem>>,
    /// One reload or edit at a time.
    turn: tokio::sync::Mutex<()>,
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalog").field("version", &self.snapshot.load().version).finish_non_exhaustive()
    }
}

impl Catalog {
    /// Reads the configuration. `guard` checks URLs when they are saved.
    ///
    /// # Errors
    /// When the database fails, or the configuration does not hold together.
    pub async fn open(
        store: Store,
        keys: KeyRing,
        state: Arc<dyn State>,
        clock: Arc<dyn Clock>,
        guard: Option<UrlGuard>,
    ) -> Result<Arc<Self>, CatalogError> {
        let catalog = Self {
            store,
            keys,
            state,
            clock,
            guard,
            snapshot: ArcSwap::from_pointee(Snapshot::default()),
            routing: ArcSwap::from_pointee(Routing::default()),
            problems: Mutex::new(Vec::new()),
            turn: tokio::sync::Mutex::new(()),
        };
        let turn = catalog.turn.lock().await;
        catalog.load().await?;
        drop(turn);
        Ok(Arc::new(catalog))
    }

    /// The configuration of now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Why the newest configuration in the database was not taken; empty when it was.
    pub fn problems(&self) -> Vec<Problem> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes the newest configuration, if it holds together.
    ///
    /// # Errors
    /// Why the old one stays.
    pub async fn reload(&self) -> Result<(), CatalogError> {
        let _turn = self.turn.lock().await;
        self.load().await
    }

    /// Looks every second whether the configuration has changed, and takes it.
    pub fn watch(self: &Arc<Self>) -> JoinHandle<()> {
        let catalog = self.clone();
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(LOOK);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            let mut seen = catalog.snapshot().version;
            loop {
                ticks.tick().await;
                match catalog.store.config_version().await {
                    Ok(version) if version == seen || version == catalog.snapshot().version => seen = version,
                    Ok(version) => {
                        seen = version;
                        if let Err(error) = catalog.reload().await {
                            tracing::error!(%error, version, "the changed configuration is not taken; the old one stays");
                        } else {
                            tracing::info!(version = catalog.snapshot().version, "configuration reloaded");
                        }
                    }
                    Err(error) => tracing::warn!(%error, "the configuration's version could not be read"),
                }
            }
        })
    }

    /// Under the turn: reads, seals what is in the clear, checks, builds, swaps.
    async fn load(&self) -> Result<(), CatalogError> {
        let mut configuration = self.store.configuration().await?;
        if self.seal(&configuration).await? {
            configuration = self.store.configuration().await?;
        }
        let problems = check::problems(&configuration);
        *self.problems.lock().unwrap_or_else(PoisonError::into_inner) = problems.clone();
        if !problems.is_empty() {
            return Err(CatalogError::Invalid(problems));
        }
        let old = self.snapshot();
        let new = build::snapshot(&configuration, &self.keys, &*self.state, &old);
        let new = match new {
            Ok(new) => new,
            Err(problem) => {
                *self.problems.lock().unwrap_or_else(PoisonError::into_inner) = vec![problem.clone()];
                return Err(CatalogError::Invalid(vec![problem]));
            }
        };
        self.start_closed(&old, &new);
        self.routing.store(new.settings.routing.clone());
        self.snapshot.store(Arc::new(new));
        // Whoever waits for room may find some by the new configuration.
        self.state.room().open();
        Ok(())
    }

    /// A model that becomes a member anew, or active again, starts with a closed breaker.
    fn start_closed(&self, old: &Snapshot, new: &Snapshot) {
        if old.version == 0 {
            return;
        }
        let before: HashSet<&ModelId> = members(old).collect();
        let now = self.clock.now();
        for model in members(new).filter(|model| !before.contains(model)) {
            let state = self.state.model(model, Default::default());
            if state.breaker.view(now).state != BreakerState::Closed {
                state.breaker.reset(now);
            }
        }
    }

    /// Seals the keys that hand-written SQL left in the clear; `true` when there were any.
    async fn seal(&self, configuration: &Configuration) -> Result<bool, CatalogError> {
        let mut found = false;
        for account in &configuration.accounts {
            let Some(key) = account.key.as_ref().filter(|key| key.version == 0 && !key.text.is_empty())
            else {
                continue;
            };
            let (sealed, version) = self.keys.seal(account_key(&account.id), &key.text);
            self.store.seal_key(KeyOf::Account, &account.id, &key.text, &sealed, version).await?;
            tracing::info!(account = %account.name, "sealed a key that was stored in the clear");
            found = true;
        }
        for own in configuration.models.iter().flat_map(|model| &model.own_keys) {
            if own.key.version == 0 && !own.key.text.is_empty() {
                let (sealed, version) = self.keys.seal(own_key(&own.id), &own.key.text);
                self.store.seal_key(KeyOf::Model, &own.id, &own.key.text, &sealed, version).await?;
                found = true;
            }
        }
        Ok(found)
    }
}

fn members(snapshot: &Snapshot) -> impl Iterator<Item = &ModelId> {
    snapshot.pools.values().flat_map(|pool| pool.members().map(|member| &member.model))
}

/// Where an account's key is sealed.
pub(crate) const fn account_key(account_id: &str) -> Place<'_> {
    Place { table: "ai_model_api_accounts", row: account_id, column: "account_key" }
}

/// Where a model's own key is sealed.
pub(crate) const fn own_key(key_id: &str) -> Place<'_> {
    Place { table: "ai_model_api_keys", row: key_id, column: "api_key" }
}

/// Where the text of a task is sealed.
const fn task_content(task_id: &str) -> Place<'_> {
    Place { table: "ai_tasks", row: task_id, column: "request_summary" }
}

impl Catalog {
    /// Seals the text of a task's request, for a pool that keeps it; JSON of what [`Self::open_content`]
    /// opens.
    pub fn seal_content(&self, task_id: &str, text: &str) -> serde_json::Value {
        let (sealed, version) = self.keys.seal(task_content(task_id), text);
        serde_json::json!({ "sealed": sealed, "version": version })
    }

    /// The text of a task's request, where it was kept and its key is still there.
    pub fn open_content(&self, task_id: &str, content: &serde_json::Value) -> Option<String> {
        let (sealed, version) = (content["sealed"].as_str()?, content["version"].as_i64()?);
        let text = self.keys.open(task_content(task_id), sealed, version).ok()?;
        Some(secrecy::ExposeSecret::expose_secret(&text).to_owned())
    }
}

/// What became of keys that an older master key had sealed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rotated {
    /// Sealed anew.
    pub resealed: usize,
    /// Changed by somebody meanwhile, or sealed with the newest key already.
    pub left: usize,
    /// Could not be opened: whose they are.
    pub lost: Vec<String>,
}

impl Catalog {
    /// Seals every upstream key with the newest master key: one by one, each only if nobody changed it
    /// meanwhile, so that it may be stopped and run again.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn rotate_keys(&self) -> Result<Rotated, CatalogError> {
        let rows = self.store.configuration().await?;
        let mut rotated = Rotated::default();
        for account in &rows.accounts {
            let Some(key) = account.key.as_ref().filter(|key| !key.text.is_empty()) else { continue };
            let whose = || format!("account {}", account.name);
            if let Some((sealed, version)) = self.anew(account_key(&account.id), key, whose, &mut rotated) {
                let done = self.store.reseal_key(KeyOf::Account, &account.id, key, &sealed, version).await?;
                rotated.count(done);
            }
        }
        for model in &rows.models {
            for own in &model.own_keys {
                let whose = || format!("a key of model {}", model.name);
                if let Some((sealed, version)) = self.anew(own_key(&own.id), &own.key, whose, &mut rotated) {
                    let done =
                        self.store.reseal_key(KeyOf::Model, &own.id, &own.key, &sealed, version).await?;
                    rotated.count(done);
                }
            }
        }
        Ok(rotated)
    }

    /// The key sealed with the newest master key, if that is another one.
    fn anew(
        &self,
        place: Place<'_>,
        key: &StoredKey,
        whose: impl FnOnce() -> String,
        rotated: &mut Rotated,
    ) -> Option<(String, i64)> {
        if key.version == self.keys.newest() {
            rotated.left += 1;
            return None;
        }
        match self.keys.open(place, &key.text, key.version) {
            Ok(clear) => Some(self.keys.seal(place, secrecy::ExposeSecret::expose_secret(&clear))),
            Err(_) => {
                rotated.lost.push(whose());
                None
            }
        }
    }
}

impl Rotated {
    fn count(&mut self, resealed: bool) {
        if resealed {
            self.resealed += 1;
        } else {
            self.left += 1;
        }
    }
}

impl Directory for Catalog {
    fn pool(&self, key: &GroupKey) -> Option<Arc<Pool>> {
        self.snapshot.load().pools.get(key).cloned()
    }

    fn model(&self, model: &ModelId) -> Option<Arc<Pool>> {
        self.snapshot.load().alone.get(model).cloned()
    }

    fn candidates(&self, model: &ModelId, capability: Capability) -> Vec<Arc<Pool>> {
        self.snapshot.load().candidates(model, capability)
    }

    fn routing(&self) -> Arc<Routing> {
        self.routing.load_full()
    }
}
