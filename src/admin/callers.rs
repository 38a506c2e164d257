//! /api/admin/callers: tokens and credits. The rows themselves are [`super::configuration`]'s.

use std::collections::HashMap;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use forebay_wire::import::Section;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Admin;
use super::error::AdminError;
use super::operator::{Administrator, Viewer};
use super::times::{parse, rfc3339};
use crate::auth::tokens::{self, NewToken};
use crate::catalog::export_row;
use crate::ledger::Micros;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Grant {
    amount: Value,
    reason: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenWish {
    expires_at: Option<String>,
}

impl Admin {
    async fn caller_id(&self, name: &str) -> Result<String, AdminError> {
        let id = self.store.caller_id(name).await?;
        id.ok_or_else(|| AdminError::not_found(format!("caller {name}")))
    }
}

/// GET /callers
pub(super) async fn list(_: Viewer, State(admin): State<Admin>) -> Result<Json<Value>, AdminError> {
    let snapshot = admin.catalog.snapshot();
    let balances = admin.store.balances().await?;
    let mut tokens: HashMap<String, Vec<Value>> = HashMap::new();
    for (caller, token) in admin.store.caller_tokens().await? {
        tokens.entry(caller).or_default().push(json!({
            "prefix": token.prefix,
            "expires_at": rfc3339(token.expires_at),
            "created_at": rfc3339(token.created_at),
        }));
    }
    let callers: Vec<Value> = snapshot
        .rows
        .callers
        .iter()
        .map(|row| {
            let mut caller = export_row(Section::Callers, row, &snapshot.rows);
            caller["balance"] = json!(Micros(balances.get(&row.id).copied().unwrap_or_default()));
            caller["in_flight"] = snapshot
                .callers
                .get(&row.id)
                .map_or(0, |caller| caller.in_flight.taken())
                .into();
            caller["tokens"] = tokens.remove(&row.id).unwrap_or_default().into();
            caller
        })
        .collect();
    Ok(Json(json!({ "callers": callers })))
}

/// GET /callers/{name}/credits: what it was granted, newest first.
pub(super) async fn grants(
    _: Viewer,
    State(admin): State<Admin>,
    Path(name): Path<String>,
) -> Result<Json<Value>, AdminError> {
    let id = admin.caller_id(&name).await?;
    let grants = admin.store.grants(&id, 100).await?;
    let grants: Vec<Value> = grants
        .into_iter()
        .map(|grant| {
            json!({
                "at": rfc3339(grant.created_at), "kind": grant.kind, "amount": Micros(grant.amount),
                "balance_after": Micros(grant.balance_after), "reason": grant.reason, "by": grant.by_operator,
            })
        })
        .collect();
    Ok(Json(json!({ "grants": grants })))
}

/// POST /callers/{name}/tokens: the token is in this answer and nowhere else.
pub(super) async fn create_token(
    by: Administrator,
    State(admin): State<Admin>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<(StatusCode, Json<Value>), AdminError> {
    let id = admin.caller_id(&name).await?;
    let wish: TokenWish = AdminError::optional_body(&body)?;
    let expires_at = wish
        .expires_at
        .as_deref()
        .map(|text| parse("expires_at", text, &admin.time_zone))
        .transpose()?;
    let expires_at = expires_at.unwrap_or_default();
    let new = NewToken::random(tokens::CALLER);
    admin
        .store
        .add_caller_token(&id, &new.hash, &new.prefix, expires_at)
        .await?;
    let after = json!({ "prefix": new.prefix, "expires_at": rfc3339(expires_at) }).to_string();
    admin
        .store
        .audit(
            &by.name,
            "create token",
            &format!("caller {name}"),
            None,
            Some(&after),
        )
        .await?;
    admin.catalog.reload().await?;
    let answer = json!({ "token": new.token, "prefix": new.prefix, "expires_at": rfc3339(expires_at) });
    Ok((StatusCode::CREATED, Json(answer)))
}

/// DELETE /callers/{name}/tokens/{prefix}
pub(super) async fn delete_token(
    by: Administrator,
    State(admin): State<Admin>,
    Path((name, prefix)): Path<(String, String)>,
) -> Result<Json<Value>, AdminError> {
    let id = admin.caller_id(&name).await?;
    let deleted = admin.store.remove_caller_tokens(&id, &prefix).await?;
    if deleted == 0 {
        return Err(AdminError::not_found(format!(
            "a token {prefix} of caller {name}"
        )));
    }
    let before = json!({ "prefix": prefix }).to_string();
    admin
        .store
        .audit(
            &by.name,
            "delete token",
            &format!("caller {name}"),
            Some(&before),
            None,
        )
        .await?;
    admin.catalog.reload().await?;
    Ok(Json(json!({ "deleted": deleted })))
}

/// POST /callers/{name}/credits: gives credits, or with a negative amount takes some back.
pub(super) async fn grant(
    by: Administrator,
    State(admin): State<Admin>,
    Path(name): Path<String>,
    body: Result<Json<Grant>, axum::extract::rejection::JsonRejection>,
) -> Result<Json<Value>, AdminError> {
    let Json(body) = body.map_err(|error| AdminError::invalid("amount", error.body_text()))?;
    let text = match &body.amount {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return Err(AdminError::invalid("amount", "must be a decimal such as \"100\"")),
    };
    let amount: Micros = text
        .parse()
        .map_err(|error: forebay_engine::policy::Invalid| AdminError::invalid("amount", error.0))?;
    if amount == Micros::ZERO || amount.0.unsigned_abs() > 1 << 60 {
        return Err(AdminError::invalid(
            "amount",
            "must not be 0, and less than 1152921504606",
        ));
    }
    let id = admin.caller_id(&name).await?;
    let balance = admin
        .store
        .grant(&id, amount.0, body.reason.as_deref(), &by.name)
        .await?;
    let after = json!({ "amount": amount, "balance": Micros(balance), "reason": body.reason }).to_string();
    admin
        .store
        .audit(&by.name, "credits", &format!("caller {name}"), None, Some(&after))
        .await?;
    Ok(Json(json!({ "balance": Micros(balance) })))
}
