//! POST /models/{name}/test and /accounts/{label}/test: one real small call, past breaker and limits.

use axum::Json;
use axum::extract::{Path, State};
use forebay_engine::AccountId;
use serde_json::{Value, json};

use super::Admin;
use super::error::AdminError;
use super::operator::Administrator;
use crate::catalog::Author;
use crate::exchange::Tried;

/// POST /models/{name}/test
pub(super) async fn model(
    by: Administrator,
    State(admin): State<Admin>,
    Path(name): Path<String>,
) -> Result<Json<Value>, AdminError> {
    let model = admin.model(&name)?;
    let tried = admin.trial.try_model(&model.id, None).await;
    admin.catalog.audit(Author(&by.name), "test", &format!("model {name}"), None, None).await?;
    Ok(Json(shown(json!({"model": name}), tried)))
}

/// POST /accounts/{label}/test: with the first model that the account is bound to.
pub(super) async fn account(
    by: Administrator,
    State(admin): State<Admin>,
    Path(label): Path<String>,
) -> Result<Json<Value>, AdminError> {
    let snapshot = admin.catalog.snapshot();
    let row = snapshot.rows.accounts.iter().find(|row| row.name == label);
    let row = row.ok_or_else(|| AdminError::not_found(format!("account {label}")))?;
    let bound = snapshot.rows.bindings.iter().filter(|binding| binding.account_id == row.id);
    let mut models = bound.filter_map(|binding| {
        let model = snapshot.model_id(&binding.model_id)?;
        snapshot.models.get(&model)
    });
    let model = models.next().ok_or_else(|| {
        AdminError::invalid("account", "is bound to no model; bind it to one, and it can be tried")
    })?;
    let tried = admin.trial.try_model(&model.id, Some(&AccountId(row.id.as_str().into()))).await;
    admin.catalog.audit(Author(&by.name), "test", &format!("account {label}"), None, None).await?;
    Ok(Json(shown(json!({"account": label, "model": &*model.name}), tried)))
}

fn shown(mut of: Value, tried: Tried) -> Value {
    of["latency_ms"] = json!(u64::try_from(tried.took.as_millis()).unwrap_or(u64::MAX));
    match tried.result {
        Ok(result) => {
            of["ok"] = true.into();
            of["result"] = result;
        }
        Err(failure) => {
            of["ok"] = false.into();
            of["class"] = failure.class.as_str().into();
            of["http_status"] = json!(failure.http_status);
            of["message"] = failure.message.into();
        }
    }
    of
}
