//! Rows of configuration, the whole of it, the settings, and the audit log.

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, put};
use forebay_wire::import::{self, Section};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Admin;
use super::body::Body;
use super::error::AdminError;
use super::operator::{Administrator, Viewer};
use super::times::rfc3339;
use crate::catalog::Author;

impl Admin {
    async fn put_json(
        &self,
        by: &str,
        section: Section,
        name: &str,
        row: &Value,
    ) -> Result<Json<Value>, AdminError> {
        let difference = self.put_row(by, section, name, row).await?;
        let snapshot = self.catalog.snapshot();
        let row = snapshot.rows.find(section, name);
        let shown = row.map(|row| crate::catalog::export_row(section, row, &snapshot.rows));
        let warnings = self.catalog.warnings(&difference).await;
        Ok(Json(json!({ (section.one()): shown, "changes": difference.changes, "warnings": warnings })))
    }

    async fn delete_row(&self, by: &str, section: Section, name: &str) -> Result<Json<Value>, AdminError> {
        self.catalog.remove(section, name, Author(by)).await?;
        Ok(Json(json!({ "deleted": name })))
    }
}

/// The PUT and DELETE of the rows of a section.
pub(super) fn rows(section: Section) -> MethodRouter<Admin> {
    put(
        move |by: Administrator,
              State(admin): State<Admin>,
              Path(name): Path<String>,
              Body(row): Body<Value>| async move { admin.put_json(&by.name, section, &name, &row).await },
    )
    .delete(move |by: Administrator, State(admin): State<Admin>, Path(name): Path<String>| async move {
        admin.delete_row(&by.name, section, &name).await
    })
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DryRun {
    dry_run: Option<String>,
}

impl DryRun {
    fn is_on(&self) -> bool {
        self.dry_run.as_deref().is_some_and(|value| !matches!(value, "0" | "false" | ""))
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    cursor: Option<String>,
    limit: Option<u32>,
}

/// GET /config: an import file; keys are masked.
pub(super) async fn export(_: Viewer, State(admin): State<Admin>) -> Json<Value> {
    Json(admin.catalog.export())
}

/// PUT /config: an import file, JSON or YAML; whole or nothing. `${NAME}` reads no environment here: the
/// server's is nobody's to look at.
pub(super) async fn import(
    by: Administrator,
    State(admin): State<Admin>,
    query: Result<Query<DryRun>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Value>, AdminError> {
    let body = body.map_err(AdminError::bytes)?;
    if body.trim_ascii().is_empty() {
        return Err(AdminError::invalid("", "the body is empty; send an import file"));
    }
    let Query(dry_run) = query.map_err(AdminError::query)?;
    let text = std::str::from_utf8(&body).map_err(|_| AdminError::invalid("", "the body must be UTF-8"))?;
    let document = import::parse(text, &|_| None).map_err(AdminError::Invalid)?;
    let difference = admin.catalog.import(&document, Author(&by.name), dry_run.is_on()).await?;
    let warnings = admin.catalog.warnings(&difference).await;
    Ok(Json(json!({ "dry_run": dry_run.is_on(), "changes": difference.changes, "warnings": warnings })))
}

/// GET /settings
pub(super) async fn settings(_: Viewer, State(admin): State<Admin>) -> Json<Value> {
    Json(admin.catalog.snapshot().settings.to_json())
}

/// PUT /settings: what is mentioned changes; null = back to the default.
pub(super) async fn put_settings(
    by: Administrator,
    State(admin): State<Admin>,
    Body(settings): Body<Value>,
) -> Result<Json<Value>, AdminError> {
    let settings: BTreeMap<String, Value> = import::parse_settings(&settings).map_err(AdminError::Invalid)?;
    admin.catalog.set_settings(settings, Author(&by.name)).await?;
    Ok(Json(admin.catalog.snapshot().settings.to_json()))
}

/// GET /audit
pub(super) async fn audit(
    _: Viewer,
    State(admin): State<Admin>,
    query: Result<Query<Page>, QueryRejection>,
) -> Result<impl IntoResponse, AdminError> {
    let Query(page) = query.map_err(AdminError::query)?;
    let limit = AdminError::page_limit(page.limit, 50)?;
    let mut entries = admin.catalog.audit_log(page.cursor.as_deref(), limit + 1).await?;
    let more = entries.len() > limit as usize;
    entries.truncate(limit as usize);
    let next = entries.last().filter(|_| more).map(|entry| entry.id.clone());
    let parsed = |text: &Option<String>| -> Value {
        text.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    };
    let entries: Vec<Value> = entries
        .iter()
        .map(|entry| {
            json!({
                "at": rfc3339(entry.at), "actor": entry.actor, "action": entry.action, "object": entry.object,
                "before": parsed(&entry.before), "after": parsed(&entry.after),
            })
        })
        .collect();
    Ok(Json(json!({ "entries": entries, "next_cursor": next })))
}
