//! Whom a request goes to: a pool, a model, or the default pool of its capability.

use forebay_engine::policy::Capability;
use forebay_engine::task::Route;

use crate::catalog::{Caller, Snapshot};
use crate::gateway::error::ApiError;
use crate::ledger::Prices;

/// A pool or a model that the caller may ask.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) route: Route,
    /// The pool's key or the model's name.
    pub(super) asked: String,
    /// The name that the caller used.
    pub(super) alias: String,
    pub(super) capability: Capability,
    pub(super) prices: Prices,
    pub(super) min_content_chars: usize,
    pub(super) max_output: Option<u64>,
    /// Where it is preferred to be served.
    pub(super) region: Option<String>,
    /// The model that `thinking` goes to first.
    pub(super) deep_thinking_model: Option<String>,
}

/// Whom the three fields of /api/generate name. `model_group` wins over `ai_model_id` if its pool is
/// there and active; `model` stands alone; with none of them `capability`'s default pool serves.
pub(super) fn of_fields(
    snapshot: &Snapshot,
    caller: &Caller,
    [group, model_id, model]: [Option<&str>; 3],
    capability: Option<Capability>,
) -> Result<Target, ApiError> {
    let named = |param: &str, error| ApiError { param: Some(param.to_owned()), ..error };
    if model.is_some() && (group.is_some() || model_id.is_some()) {
        let remedy = "stands instead of model_group and ai_model_id, not beside them";
        return Err(ApiError::invalid("model", remedy));
    }
    match (group, model_id, model) {
        (Some(group), None, _) => pool(snapshot, caller, group).map_err(|error| named("model_group", error)),
        (Some(group), Some(id), _) => pool(snapshot, caller, group)
            .or_else(|_| self::model(snapshot, caller, id).map_err(|error| named("ai_model_id", error))),
        (None, Some(id), _) => self::model(snapshot, caller, id).map_err(|error| named("ai_model_id", error)),
        (None, None, Some(name)) => either(snapshot, caller, name),
        (None, None, None) => default_pool(snapshot, caller, capability.unwrap_or(Capability::Text)),
    }
}

/// The pool or model of that name; a pool wins.
pub(super) fn either(snapshot: &Snapshot, caller: &Caller, name: &str) -> Result<Target, ApiError> {
    pool(snapshot, caller, name).or_else(|_| model(snapshot, caller, name)).map_err(|_| ApiError {
        param: Some("model".into()),
        ..ApiError::not_found(format!("there is no pool or model '{name}'"))
    })
}

fn pool(snapshot: &Snapshot, caller: &Caller, name: &str) -> Result<Target, ApiError> {
    let missing = || ApiError::not_found(format!("there is no pool '{name}'"));
    let config = snapshot.pool_named(name).ok_or_else(missing)?;
    if !caller.may_use(&config.key) {
        return Err(missing());
    }
    Ok(Target {
        route: Route::Pool(config.key.clone()),
        asked: config.key.to_string(),
        alias: name.to_owned(),
        capability: config.capability,
        prices: config.prices.clone(),
        min_content_chars: config.min_content_chars,
        max_output: config.max_output,
        region: config.region.clone(),
        deep_thinking_model: config.deep_thinking_model.clone(),
    })
}

/// A model may be asked for by callers who may use its pool, or any pool.
fn model(snapshot: &Snapshot, caller: &Caller, name: &str) -> Result<Target, ApiError> {
    let missing = || ApiError::not_found(format!("there is no model '{name}'"));
    let model = snapshot.model_named(name).ok_or_else(missing)?;
    let allowed = match &model.pool {
        Some(pool) => caller.may_use(pool),
        None => caller.pools.is_none(),
    };
    if !allowed {
        return Err(missing());
    }
    Ok(Target {
        route: Route::Model(model.id.clone()),
        asked: model.name.to_string(),
        alias: name.to_owned(),
        capability: model.capability,
        prices: model.price.clone(),
        min_content_chars: 1,
        max_output: model.max_output,
        region: None,
        deep_thinking_model: None,
    })
}

fn default_pool(snapshot: &Snapshot, caller: &Caller, capability: Capability) -> Result<Target, ApiError> {
    let key = snapshot.settings.default_pool.get(capability.as_str()).ok_or_else(|| {
        let remedy = format!("is missing, and no default pool is set for {capability}; name a pool");
        ApiError::invalid("model_group", &remedy)
    })?;
    pool(snapshot, caller, key)
}
