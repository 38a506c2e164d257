//! /api/admin/callers: tokens and credits. The rows themselves are [`super::configuration`]'s.

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use forebay_wire::import::Section;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Admin;
use super::body::{Body, OptionalBody};
use super::error::AdminError;
use super::operator::{Administrator, Viewer};
use super::times::{parse, rfc3339};
use crate::catalog::{Author, export_row};
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

/// GET /callers
pub(super) async fn list(_: Viewer, State(admin): State<Admin>) -> Result<Json<Value>, AdminError> {
    let snapshot = admin.catalog.snapshot();
    let balances = admin.ledger.balances().await?;
    let mut tokens: HashMap<String, Vec<Value>> = HashMap::new();
    for (caller, issued) in admin.catalog.tokens().await? {
        let shown = issued.into_iter().map(|token| {
            json!({
                "prefix": token.prefix,
                "expires_at": rfc3339(token.expires_at),
                "created_at": rfc3339(token.created_at),
            })
        });
        tokens.insert(caller, shown.collect());
    }
    let callers: Vec<Value> = snapshot
        .rows
        .callers
        .iter()
        .map(|row| {
            let mut caller = export_row(Section::Callers, row, &snapshot.rows);
            caller["balance"] = json!(balances.get(&row.id).copied().unwrap_or_default());
            caller["in_flight"] =
                snapshot.callers.get(&row.id).map_or(0, |caller| caller.in_flight.taken()).into();
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
    let grants = admin.ledger.grants(&admin.catalog.caller_id(&name)?, 100).await?;
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
    OptionalBody(wish): OptionalBody<TokenWish>,
) -> Result<(StatusCode, Json<Value>), AdminError> {
    let expires_at =
        wish.expires_at.as_deref().map(|text| parse("expires_at", text, &admin.time_zone)).transpose()?;
    if expires_at.is_some_and(|at| at <= admin.now().as_millis() as i64) {
        return Err(AdminError::invalid(
            "expires_at",
            "lies in the past; leave it out for a token that never ends",
        ));
    }
    let expires_at = expires_at.unwrap_or_default();
    let new = admin.catalog.issue_token(&name, expires_at, Author(&by.name)).await?;
    let answer = json!({ "token": new.token, "prefix": new.prefix, "expires_at": rfc3339(expires_at) });
    Ok((StatusCode::CREATED, Json(answer)))
}

/// DELETE /callers/{name}/tokens/{prefix}
pub(super) async fn delete_token(
    by: Administrator,
    State(admin): State<Admin>,
    Path((name, prefix)): Path<(String, String)>,
) -> Result<Json<Value>, AdminError> {
    let deleted = admin.catalog.revoke_tokens(&name, &prefix, Author(&by.name)).await?;
    Ok(Json(json!({ "deleted": deleted })))
}

/// POST /callers/{name}/credits: gives credits, or with a negative amount takes some back.
pub(super) async fn grant(
    by: Administrator,
    State(admin): State<Admin>,
    Path(name): Path<String>,
    Body(body): Body<Grant>,
) -> Result<Json<Value>, AdminError> {
    let text = match &body.amount {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return Err(AdminError::invalid("amount", "must be a decimal such as \"100\"")),
    };
    let amount: Micros = text
        .parse()
        .map_err(|error: forebay_engine::policy::Invalid| AdminError::invalid("amount", error.0))?;
    if amount == Micros::ZERO || amount.0.unsigned_abs() > 1 << 60 {
        return Err(AdminError::invalid("amount", "must not be 0, and less than 1152921504606"));
    }
    let id = admin.catalog.caller_id(&name)?;
    let balance = admin.ledger.grant(&id, amount, body.reason.as_deref(), &by.name).await?;
    let after = json!({ "amount": amount, "balance": balance, "reason": body.reason }).to_string();
    let object = format!("caller {name}");
    admin.catalog.audit(Author(&by.name), "credits", &object, None, Some(&after)).await?;
    Ok(Json(json!({ "balance": balance })))
}
