//! Rows that hold together, made into a [`Snapshot`].

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use forebay_engine::limits::{Rate, Slots};
use forebay_engine::policy::{BreakerPolicy, ErrorRatePolicy, Invalid, PoolPolicy, Strategy};
use forebay_engine::{
    Account, AccountId, Binding, Capability, Costs, Features, GroupKey, Member, ModelId, Pool, Priority,
    State, Weight,
};
use forebay_wire::import::Problem;
use secrecy::ExposeSecret;
use serde_json::Value;

use super::settings::Settings;
use super::snapshot::{Caller, Credential, ModelTarget, PoolConfig, Provider, Snapshot, Target, TokenRow};
use super::{account_key, export, own_key};
use crate::auth::secrets::KeyRing;
use crate::auth::tokens;
use crate::ledger::{Micros, Prices};
use crate::store::config::{ConfigRow, Configuration};

/// Builds the snapshot of `configuration`, which [`super::check`] has passed. What outlives an edit is
/// taken from `state` and, for callers, from the snapshot before.
pub(super) fn snapshot(
    configuration: &Configuration,
    keys: &KeyRing,
    state: &dyn State,
    old: &Snapshot,
) -> Result<Snapshot, Problem> {
    let mut new = Snapshot {
        version: configuration.version,
        settings: Settings::read(&configuration.settings),
        rows: configuration.clone(),
        ..Snapshot::default()
    };
    for row in &configuration.providers {
        new.providers.insert(row.name.clone(), Arc::new(provider(row)));
    }
    let accounts = accounts(configuration, keys, state, &mut new)?;
    let pools: BTreeMap<&str, (GroupKey, PoolPolicy)> = configuration
        .pools
        .iter()
        .map(|row| Ok((row.id.as_str(), (wrong(row.name.parse(), "pool", row, "group_key")?, policy(row)?))))
        .collect::<Result<_, Problem>>()?;
    let mut bindings: HashMap<&str, Vec<(&str, i64)>> = HashMap::new();
    for binding in &configuration.bindings {
        bindings.entry(&binding.model_id).or_default().push((&binding.account_id, binding.priority));
    }
    let mut members: HashMap<&str, Vec<Member>> = HashMap::new();
    for row in &configuration.models {
        let pool = row.group_id.as_deref().and_then(|id| pools.get(id));
        let price =
            row.group_id.as_deref().and_then(|id| configuration.pools.iter().find(|pool| pool.id == id));
        let target = model(row, pool.map(|(key, _)| key.clone()), price, &new.providers)?;
        if target.is_active && target.provider.is_enabled {
            let mut policy = pool.map(|(_, policy)| policy.clone()).unwrap_or_default();
            policy.fallback_on_failure = target.fallback_on_failure;
            let bound = bindings.get(row.id.as_str()).map_or(&[][..], Vec::as_slice);
            let own = own_accounts(row, keys, state, &mut new);
            let member = || member(row, &target, bound, &accounts, &own, policy.breaker, state);
            let key = alone_key(&row.id);
            let alone = Pool::new(key, target.capability, policy.clone(), vec![member()?], state);
            new.alone.insert(target.id.clone(), Arc::new(alone));
            if let Some(group_id) = row.group_id.as_deref() {
                members.entry(group_id).or_default().push(member()?);
            }
        }
        new.models.insert(target.id.clone(), Arc::new(target));
    }
    for row in &configuration.pools {
        let Some((key, policy)) = pools.get(row.id.as_str()) else {
            continue;
        };
        let members = members.remove(row.id.as_str()).unwrap_or_default();
        let config = pool_config(row, key, &members, &new.models)?;
        if config.is_active {
            let pool = Pool::new(key.clone(), config.capability, policy.clone(), members, state);
            new.pools.insert(key.clone(), Arc::new(pool));
        }
        new.configs.insert(key.clone(), Arc::new(config));
    }
    names(&mut new);
    callers(configuration, old, &mut new);
    Ok(new)
}

/// The state of a model that is asked for by name has a queue of its own under this key.
fn alone_key(model_id: &str) -> GroupKey {
    format!("model:{model_id}").parse().unwrap_or_else(|_| GroupKey::none())
}

fn provider(row: &ConfigRow) -> Provider {
    Provider {
        key: row.name.as_str().into(),
        name: row.text("name").to_owned(),
        protocol: row.text("protocol").to_owned(),
        base_url: row.text("base_url").into(),
        proxy_url: row.optional_text("proxy_url").map(Into::into),
        tier: row.text("tier").to_owned(),
        region: row.optional_text("region").map(str::to_owned),
        allow_private_network: row.flag("allow_private_network"),
        is_enabled: row.flag("is_enabled"),
    }
}

fn accounts(
    configuration: &Configuration,
    keys: &KeyRing,
    state: &dyn State,
    new: &mut Snapshot,
) -> Result<HashMap<String, Arc<Account>>, Problem> {
    let mut accounts = HashMap::new();
    for row in &configuration.accounts {
        let id = AccountId(row.id.as_str().into());
        let label: Arc<str> = row.name.as_str().into();
        let (text, version, revision) =
            row.key.as_ref().map_or(("", 0, 1), |key| (key.text.as_str(), key.version, key.revision));
        let key_revision = u64::try_from(revision).unwrap_or_default();
        let problem = match keys.open(account_key(&row.id), text, version) {
            _ if text.is_empty() => Some("it has no key: enter one".to_owned()),
            Ok(key) => {
                let credential = Credential { key, key_revision, label: label.clone() };
                new.accounts.insert(id.clone(), credential);
                None
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(problem) = &problem {
            tracing::warn!(account = %row.name, %problem, "account can't be used");
            new.account_problems.insert(id.clone(), problem.clone());
        }
        let headroom = row.real("headroom").unwrap_or_default();
        let rate = row.real("max_rps").map(|rps| Rate::try_new(rps, headroom)).transpose();
        let account = Account {
            state: state.account(&id, key_revision),
            id,
            label,
            rate: wrong(rate, "account", row, "max_rps")?,
            max_concurrency: less_headroom(row.whole("max_concurrency"), headroom)
                .map(|limit| u32::try_from(limit).unwrap_or(u32::MAX)),
            max_tpm: less_headroom(row.whole("max_tpm"), headroom),
            daily_limit: less_headroom(row.whole("daily_limit"), headroom),
            region: row.optional_text("region").map(Into::into),
            is_enabled: row.flag("is_enabled") && problem.is_none(),
            key_revision,
        };
        accounts.insert(row.id.clone(), Arc::new(account));
    }
    Ok(accounts)
}

/// A model's own keys as accounts that nothing limits, in their order.
fn own_accounts(row: &ConfigRow, keys: &KeyRing, state: &dyn State, new: &mut Snapshot) -> Vec<Arc<Account>> {
    let mut own = Vec::new();
    for (place, stored) in row.own_keys.iter().enumerate() {
        let id = AccountId(stored.id.as_str().into());
        let label: Arc<str> = format!("{} key {}", row.name, place + 1).into();
        let opened = keys.open(own_key(&stored.id), &stored.key.text, stored.key.version);
        let is_open = opened.is_ok();
        match opened {
            Ok(key) => drop(
                new.accounts.insert(id.clone(), Credential { key, key_revision: 1, label: label.clone() }),
            ),
            Err(error) => {
                tracing::warn!(model = %row.name, key = place + 1, problem = %error, "key can't be used");
                new.account_problems.insert(id.clone(), error.to_string());
            }
        }
        own.push(Arc::new(Account {
            state: state.account(&id, 1),
            id,
            label,
            rate: None,
            max_concurrency: None,
            max_tpm: None,
            daily_limit: None,
            region: None,
            is_enabled: stored.is_enabled && is_open,
            key_revision: 1,
        }));
    }
    own
}

/// A limit less its headroom, but never none at all.
fn less_headroom(limit: Option<i64>, headroom: f64) -> Option<u64> {
    let limit = u64::try_from(limit?).unwrap_or_default();
    Some((limit - (limit as f64 * headroom).ceil() as u64).max(1))
}

fn model(
    row: &ConfigRow,
    pool: Option<GroupKey>,
    pool_row: Option<&ConfigRow>,
    providers: &BTreeMap<String, Arc<Provider>>,
) -> Result<ModelTarget, Problem> {
    let provider = providers.get(row.text("provider")).cloned();
    let own = prices(row, "model", "prices")?;
    let routing = export::routing(row);
    let upstream = row.optional_text("upstream_model").filter(|name| !name.is_empty()).unwrap_or(&row.name);
    Ok(ModelTarget {
        id: ModelId(row.id.as_str().into()),
        name: row.name.as_str().into(),
        public_alias: row.optional_text("public_alias").map(str::to_owned),
        provider: wrong(provider.ok_or(Invalid("must name a provider")), "model", row, "provider")?,
        base_url: row.optional_text("base_url").map(Into::into),
        upstream_model: upstream.into(),
        capability: wrong(row.text("capability").parse(), "model", row, "capability")?,
        pool,
        is_active: row.flag("is_active"),
        price: pool_row.map_or_else(|| Ok(own.clone()), |pool| prices(pool, "pool", "price"))?,
        prices: own,
        max_output: feature(row, "max_output").as_u64(),
        voices: serde_json::from_value(feature(row, "voices")).unwrap_or_default(),
        fallback_on_failure: routing["fallback_on_failure"] == true,
        fallback_candidate: routing["fallback_candidate"] == true,
        updated_at: row.updated_at,
    })
}

fn member(
    row: &ConfigRow,
    target: &ModelTarget,
    bound: &[(&str, i64)],
    accounts: &HashMap<String, Arc<Account>>,
    own: &[Arc<Account>],
    breaker: BreakerPolicy,
    state: &dyn State,
) -> Result<Member, Problem> {
    let model_state = state.model(&target.id, breaker);
    let mut bindings = Vec::new();
    for (account, priority) in bound {
        let Some(account) = accounts.get(*account) else {
            continue;
        };
        bindings.push(Binding {
            cooldown: model_state.binding_cooldown(&account.id),
            account: account.clone(),
            priority: wrong(Priority::try_new(*priority), "model", row, "accounts")?,
        });
    }
    if bound.is_empty() {
        for (place, account) in own.iter().enumerate() {
            bindings.push(Binding {
                cooldown: model_state.binding_cooldown(&account.id),
                account: account.clone(),
                priority: wrong(Priority::try_new(place as i64), "model", row, "api_keys")?,
            });
        }
    }
    Ok(Member {
        model: target.id.clone(),
        name: target.name.clone(),
        provider: target.provider.key.clone(),
        weight: wrong(Weight::try_new(row.whole("weight").unwrap_or(1)), "model", row, "weight")?,
        priority: wrong(
            Priority::try_new(row.whole("priority").unwrap_or_default()),
            "model",
            row,
            "priority",
        )?,
        max_concurrency: row.whole("max_concurrency").map(|limit| u32::try_from(limit).unwrap_or(u32::MAX)),
        features: features(row),
        costs: costs(&target.prices),
        region: target.provider.region.as_deref().map(Into::into),
        needs_account: target.provider.needs_account(),
        accounts: bindings,
        state: model_state,
    })
}

/// What a model declares; what it does not declare restricts nothing.
fn features(row: &ConfigRow) -> Features {
    let declared: Value = serde_json::from_str(row.text("features")).unwrap_or_default();
    let defaults = Features::default();
    let flag = |name: &str, default: bool| declared[name].as_bool().unwrap_or(default);
    let texts = |name: &str| {
        let texts = declared[name].as_array()?.iter().filter_map(Value::as_str);
        Some(texts.map(Into::into).collect())
    };
    let small = |value: &Value| value.as_u64().map(|count| u32::try_from(count).unwrap_or(u32::MAX));
    Features {
        stream: flag("stream", defaults.stream),
        tools: flag("tools", defaults.tools),
        structured: flag("structured", defaults.structured),
        thinking: flag("thinking", defaults.thinking),
        vision: flag("vision", defaults.vision),
        image_edit: flag("image_edit", defaults.image_edit),
        // A number for every kind of material, or one a kind.
        max_references: small(&declared["max_references"])
            .or_else(|| small(&declared["max_references"]["image"])),
        ratios: texts("ratios"),
        resolutions: texts("resolutions"),
        durations: declared["durations"].as_array().map(|all| all.iter().filter_map(small).collect()),
        voices: declared["voices"]
            .as_object()
            .map(|all| all.keys().map(|name| name.as_str().into()).collect()),
        max_context: declared["max_context"].as_u64(),
        max_output: declared["max_output"].as_u64(),
    }
}

/// A model's prices as `lowest_cost` compares them.
fn costs(prices: &Prices) -> Costs {
    let micros = |price: Option<Micros>| u64::try_from(price.unwrap_or_default().0).unwrap_or_default();
    Costs {
        per_request: micros(prices.per_request),
        input: micros(prices.input_per_1m),
        cached_input: prices.cached_input_per_1m.map(|price| micros(Some(price))),
        output: micros(prices.output_per_1m),
        per_image: micros(prices.per_image),
        per_audio_second: micros(prices.per_audio_second),
        per_1k_characters: micros(prices.per_1k_characters),
        per_rerank_unit: micros(prices.per_rerank_unit),
    }
}

fn feature(row: &ConfigRow, name: &str) -> Value {
    let features: Value = serde_json::from_str(row.text("features")).unwrap_or_default();
    features.get(name).cloned().unwrap_or_default()
}

fn policy(row: &ConfigRow) -> Result<PoolPolicy, Problem> {
    let whole = |column: &str| u32::try_from(row.whole(column).unwrap_or_default()).unwrap_or(u32::MAX);
    let ms = |column: &str| {
        Duration::from_millis(u64::try_from(row.whole(column).unwrap_or_default()).unwrap_or_default())
    };
    let seconds = |column: &str| Duration::from_secs(whole(column).into());
    let error_rate = (row.text("breaker_policy") == "error_rate").then(|| ErrorRatePolicy {
        threshold: row.real("error_rate_threshold").unwrap_or(0.5),
        window: seconds("error_rate_window_seconds"),
        min_calls: whole("error_rate_min_calls"),
        open: seconds("error_rate_open_seconds"),
        probes: whole("half_open_probes"),
        success_rate: row.real("half_open_success_rate").unwrap_or(0.9),
    });
    Ok(PoolPolicy {
        strategy: wrong(row.text("strategy").parse::<Strategy>(), "pool", row, "strategy")?,
        dynamic_weights: row.flag("dynamic_weights"),
        latency_target: row.whole("latency_target_ms").map(|_| ms("latency_target_ms")),
        fallback_on_failure: false,
        breaker: BreakerPolicy {
            failure_threshold: whole("circuit_failure_threshold").max(1),
            recovery: seconds("circuit_recovery_seconds"),
            backoff: row.flag("recovery_backoff"),
            error_rate,
        },
        switch_first: row.flag("switch_first"),
        // Only a sentence may be paid twice: for other capabilities the switch has no effect.
        retry_unknown: row.flag("retry_unknown") && row.text("capability") == Capability::Text.as_str(),
        queue_timeout: ms("queue_timeout_ms"),
        queue_max: row.whole("queue_max").map(|max| u32::try_from(max).unwrap_or(u32::MAX)),
        first_packet_timeout: ms("first_packet_timeout_ms"),
        idle_timeout: ms("idle_timeout_ms"),
        content_timeout: ms("content_timeout_ms"),
    })
}

fn pool_config(
    row: &ConfigRow,
    key: &GroupKey,
    members: &[Member],
    models: &HashMap<ModelId, Arc<ModelTarget>>,
) -> Result<PoolConfig, Problem> {
    let outputs = members.iter().map(|member| models.get(&member.model).and_then(|model| model.max_output));
    let outputs: Option<Vec<u64>> = outputs.collect();
    Ok(PoolConfig {
        id: row.id.clone(),
        key: key.clone(),
        name: row.text("name").to_owned(),
        public_alias: row.optional_text("public_alias").map(str::to_owned),
        capability: wrong(row.text("capability").parse(), "pool", row, "capability")?,
        is_active: row.flag("is_active"),
        prices: prices(row, "pool", "price")?,
        min_content_chars: usize::try_from(row.whole("min_content_chars").unwrap_or(1)).unwrap_or_default(),
        fallback_template: row.optional_text("fallback_template").map(str::to_owned),
        store_content: row.flag("store_content"),
        rehost_results: row.flag("rehost_results"),
        deep_thinking_model: row.optional_text("deep_thinking_model").map(str::to_owned),
        region: row.optional_text("region").map(str::to_owned),
        max_output: outputs.and_then(|outputs| outputs.into_iter().max()),
        created_at: row.created_at,
    })
}

/// Models first, so that pools overwrite what they share.
fn names(new: &mut Snapshot) {
    for model in new.models.values() {
        let target = Target::Model(model.id.clone());
        if let Some(alias) = &model.public_alias {
            new.names.insert(alias.clone(), target.clone());
        }
        new.names.insert(model.name.to_string(), target);
    }
    for config in new.configs.values().filter(|config| config.is_active) {
        let target = Target::Pool(config.key.clone());
        if let Some(alias) = &config.public_alias {
            new.names.insert(alias.clone(), target.clone());
        }
        new.names.insert(config.key.to_string(), target);
    }
}

fn callers(configuration: &Configuration, old: &Snapshot, new: &mut Snapshot) {
    for row in configuration.callers.iter().filter(|row| row.flag("is_enabled")) {
        let plan = row.plan.clone().unwrap_or_default();
        let pools =
            (!plan.pools.is_empty()).then(|| plan.pools.iter().filter_map(|key| key.parse().ok()).collect());
        let caller = Caller {
            id: row.id.as_str().into(),
            name: row.name.as_str().into(),
            pools,
            concurrent_tasks: u32::try_from(plan.concurrent_tasks).unwrap_or_default(),
            region: row.optional_text("region").map(str::to_owned),
            in_flight: old
                .callers
                .get(&row.id)
                .map_or_else(|| Arc::new(Slots::new()), |old| old.in_flight.clone()),
        };
        new.callers.insert(row.id.clone(), Arc::new(caller));
    }
    for token in &configuration.tokens {
        if let (Some(hash), Some(caller)) = (tokens::unhex(&token.hash), new.callers.get(&token.caller_id)) {
            new.tokens.insert(hash, TokenRow { caller: caller.clone(), expires_at: token.expires_at });
        }
    }
}

fn prices(row: &ConfigRow, kind: &str, column: &str) -> Result<Prices, Problem> {
    Prices::parse(row.text(column))
        .map_err(|error| Problem::new(format!("{kind} {}", row.name), column, error.to_string()))
}

fn wrong<T>(value: Result<T, Invalid>, kind: &str, row: &ConfigRow, field: &str) -> Result<T, Problem> {
    value.map_err(|error| Problem::new(format!("{kind} {}", row.name), field, error.to_string()))
}

/// The last characters of an account's key, as operators see them.
pub(crate) fn last_four(snapshot: &Snapshot, id: &AccountId) -> Option<String> {
    let key = snapshot.accounts.get(id)?.key.expose_secret();
    let count = key.chars().count();
    (count >= 12).then(|| key.chars().skip(count - 4).collect())
}
