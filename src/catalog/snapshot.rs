//! The configuration at one version, as requests use it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use forebay_engine::limits::Slots;
use forebay_engine::{AccountId, Capability, GroupKey, ModelId, Pool};
use secrecy::SecretString;

use super::settings::Settings;
use crate::auth::tokens::{self, TokenHash};
use crate::ledger::Prices;
use crate::store::config::Configuration;

/// The whole configuration, immutable.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Counts every change; 0 = nothing was read yet.
    pub version: i64,
    /// Active pools as the engine routes by them.
    pub pools: HashMap<GroupKey, Arc<Pool>>,
    /// Each usable model as a pool of itself alone, for callers that name a model.
    pub alone: HashMap<ModelId, Arc<Pool>>,
    /// Every name that callers may use: pools' keys and aliases first, then models' names and aliases.
    pub names: HashMap<String, Target>,
    /// Every pool, inactive ones too.
    pub configs: BTreeMap<GroupKey, Arc<PoolConfig>>,
    /// Every model, inactive ones too.
    pub models: HashMap<ModelId, Arc<ModelTarget>>,
    /// Every account whose key could be opened.
    pub accounts: HashMap<AccountId, Credential>,
    /// Why an account can't be used at all, by its id.
    pub account_problems: HashMap<AccountId, String>,
    /// Every provider, by key.
    pub providers: BTreeMap<String, Arc<Provider>>,
    /// Every caller that may call, by id.
    pub callers: HashMap<String, Arc<Caller>>,
    /// Who a token belongs to.
    pub tokens: HashMap<TokenHash, TokenRow>,
    /// The global settings.
    pub settings: Settings,
    /// The rows that all of it was made of.
    pub rows: Configuration,
}

/// What a name leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A pool.
    Pool(GroupKey),
    /// A model.
    Model(ModelId),
}

/// A pool's settings beside the engine's.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// The row's id.
    pub id: String,
    /// What callers route by.
    pub key: GroupKey,
    /// For people.
    pub name: String,
    /// Another name that callers may use.
    pub public_alias: Option<String>,
    /// What it generates.
    pub capability: Capability,
    /// Serves callers.
    pub is_active: bool,
    /// What callers pay, in credits.
    pub prices: Prices,
    /// Shorter answers count as bad.
    pub min_content_chars: usize,
    /// Given when every member answered badly.
    pub fallback_template: Option<String>,
    /// Keep the text of requests and answers, sealed.
    pub store_content: bool,
    /// Images that an upstream hands out as an address are fetched and kept.
    pub rehost_results: bool,
    /// The model that `thinking: true` goes to first.
    pub deep_thinking_model: Option<String>,
    /// Preferred where neither request nor caller names a region.
    pub region: Option<String>,
    /// The largest `features.max_output` of its active members; `None` where one declares none.
    pub max_output: Option<u64>,
    /// Milliseconds UTC.
    pub created_at: i64,
}

/// A model as it is called.
#[derive(Clone, Debug)]
pub struct ModelTarget {
    /// Its id.
    pub id: ModelId,
    /// Its name.
    pub name: Arc<str>,
    /// Another name that callers may use.
    pub public_alias: Option<String>,
    /// Who serves it.
    pub provider: Arc<Provider>,
    /// Over the provider's.
    pub base_url: Option<Arc<str>>,
    /// What the provider calls it.
    pub upstream_model: Arc<str>,
    /// What it generates.
    pub capability: Capability,
    /// The pool that it is in.
    pub pool: Option<GroupKey>,
    /// May be used.
    pub is_active: bool,
    /// What we pay.
    pub prices: Prices,
    /// What callers pay who ask for it by name: its pool's price, else its own.
    pub price: Prices,
    /// The most tokens it puts out.
    pub max_output: Option<u64>,
    /// What it calls the voices that callers ask for.
    pub voices: HashMap<String, String>,
    /// Model mode: another model may be tried after a failure.
    pub fallback_on_failure: bool,
    /// Model mode: may serve for another model.
    pub fallback_candidate: bool,
    /// Milliseconds UTC.
    pub updated_at: i64,
}

/// Who serves models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    /// What it is called in rows and attempts.
    pub key: Arc<str>,
    /// For people.
    pub name: String,
    /// `openai`, `volcengine_ark`, `dashscope`, `ollama`.
    pub protocol: String,
    /// Where it is.
    pub base_url: Arc<str>,
    /// The proxy it is reached through.
    pub proxy_url: Option<Arc<str>>,
    /// `direct`, `preferred`, `other`.
    pub tier: String,
    /// Where it is, in words.
    pub region: Option<String>,
    /// Exactly its host and port may be a private address.
    pub allow_private_network: bool,
    /// May be used.
    pub is_enabled: bool,
}

impl Provider {
    /// Calls to it carry a credential.
    pub fn needs_account(&self) -> bool {
        self.protocol != "ollama"
    }

    /// Lower is tried first: direct, preferred, other.
    fn tier_rank(&self) -> u8 {
        match self.tier.as_str() {
            "direct" => 0,
            "preferred" => 1,
            _ => 2,
        }
    }
}

/// An account's key, opened.
#[derive(Clone, Debug)]
pub struct Credential {
    /// The key.
    pub key: SecretString,
    /// Counts its replacements.
    pub key_revision: u64,
    /// The account's label.
    pub label: Arc<str>,
}

/// A backend team's client.
#[derive(Debug)]
pub struct Caller {
    /// The row's id.
    pub id: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// The pools it may use; `None` = every one.
    pub pools: Option<HashSet<GroupKey>>,
    /// Tasks under way at once.
    pub concurrent_tasks: u32,
    /// Preferred where its request names no region.
    pub region: Option<String>,
    /// Tasks under way; survives every reload.
    pub in_flight: Arc<Slots>,
}

impl Caller {
    /// Whether it may use that pool.
    pub fn may_use(&self, pool: &GroupKey) -> bool {
        self.pools.as_ref().is_none_or(|pools| pools.contains(pool))
    }
}

/// Who a token belongs to.
#[derive(Clone, Debug)]
pub struct TokenRow {
    /// The caller.
    pub caller: Arc<Caller>,
    /// Milliseconds UTC; 0 = never.
    pub expires_at: i64,
}

impl Snapshot {
    /// The caller whose token this is, unless it has expired.
    pub fn caller_of_token(&self, token: &str, now_ms: i64) -> Option<Arc<Caller>> {
        if !token.starts_with(tokens::CALLER) {
            return None;
        }
        let row = self.tokens.get(&tokens::hash(token))?;
        (row.expires_at == 0 || row.expires_at > now_ms).then(|| row.caller.clone())
    }

    /// The active pool of that key or alias.
    pub fn pool_named(&self, name: &str) -> Option<&Arc<PoolConfig>> {
        match self.names.get(name)? {
            Target::Pool(key) => self.configs.get(key).filter(|config| config.is_active),
            Target::Model(_) => None,
        }
    }

    /// The usable model of that id, name or alias.
    pub fn model_named(&self, name: &str) -> Option<&Arc<ModelTarget>> {
        let id = match self.names.get(name) {
            Some(Target::Model(id)) => id.clone(),
            // A pool hides a model of the same name, and nothing hides an id.
            _ => self.model_id(name)?,
        };
        self.models.get(&id).filter(|_| self.alone.contains_key(&id))
    }

    /// The active pools, by key.
    pub fn pool_configs(&self) -> impl Iterator<Item = &Arc<PoolConfig>> {
        self.configs.values().filter(|config| config.is_active)
    }

    /// The models that may serve for `model`, of the same capability: by their provider's tier, then the
    /// newest first.
    pub fn candidates(&self, model: &ModelId, capability: Capability) -> Vec<Arc<Pool>> {
        let mut candidates: Vec<&ModelTarget> = self
            .models
            .values()
            .map(|candidate| &**candidate)
            .filter(|candidate| candidate.fallback_candidate && candidate.capability == capability)
            .filter(|candidate| candidate.id != *model && self.alone.contains_key(&candidate.id))
            .collect();
        candidates.sort_by(|a, b| {
            let key = |of: &ModelTarget| (of.provider.tier_rank(), std::cmp::Reverse(of.updated_at));
            key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
        });
        candidates.into_iter().filter_map(|candidate| self.alone.get(&candidate.id).cloned()).collect()
    }

    /// The id of a model by id, name or alias.
    pub fn model_id(&self, name: &str) -> Option<ModelId> {
        let id = ModelId(name.into());
        if self.models.contains_key(&id) {
            return Some(id);
        }
        let by_name =
            |model: &&Arc<ModelTarget>| &*model.name == name || model.public_alias.as_deref() == Some(name);
        self.models.values().find(by_name).map(|model| model.id.clone())
    }
}
