//! Writes to the configuration tables, each inside its caller's transaction.

use forebay_wire::import::{Cell, Section};
use serde_json::Value;
use sqlx::any::AnyArguments;
use sqlx::query::Query;
use sqlx::{Any, AnyConnection, AssertSqlSafe};

use super::super::{exists, new_id};
use super::{OwnKey, Plan, Store, StoreError, Stored, stored, table};

fn bind_cell<'q>(
    query: Query<'q, Any, AnyArguments>,
    section: Section,
    column: &str,
    cell: &Cell,
) -> Query<'q, Any, AnyArguments> {
    let kind = section.fields().iter().find(|field| field.name == column).map(|field| stored(field.kind));
    match (cell, kind) {
        (Cell::Whole(number), _) => query.bind(*number),
        (Cell::Real(number), _) => query.bind(*number),
        (Cell::Text(text), _) => query.bind(text.clone()),
        (Cell::Null, Some(Stored::Whole)) => query.bind(None::<i64>),
        (Cell::Null, Some(Stored::Real)) => query.bind(None::<f64>),
        (Cell::Null, _) => query.bind(None::<String>),
    }
}

/// Inserts a row with the given columns; the others take their defaults. Returns its id.
pub(crate) async fn insert(
    connection: &mut AnyConnection,
    section: Section,
    name: &str,
    cells: &[(&'static str, Cell)],
) -> Result<String, StoreError> {
    let (table, identity) = table(section);
    let mut columns = format!("id, {identity}, created_at, updated_at");
    let mut places = "$1, $2, $3, $3".to_owned();
    for (n, (column, _)) in cells.iter().enumerate() {
        columns.push_str(&format!(", {column}"));
        places.push_str(&format!(", ${}", n + 4));
    }
    let id = new_id();
    let sql = format!("INSERT INTO {table} ({columns}) VALUES ({places})");
    let mut query =
        sqlx::query(AssertSqlSafe(sql)).bind(id.clone()).bind(name.to_owned()).bind(Store::now_ms());
    for (column, cell) in cells {
        query = bind_cell(query, section, column, cell);
    }
    query.execute(connection).await.map_err(exists(format!("{} {name}", section.one())))?;
    Ok(id)
}

/// Changes the given columns of a row.
pub(crate) async fn update(
    connection: &mut AnyConnection,
    section: Section,
    id: &str,
    cells: &[(&'static str, Cell)],
) -> Result<(), StoreError> {
    let mut sets = "updated_at = $1".to_owned();
    for (n, (column, _)) in cells.iter().enumerate() {
        sets.push_str(&format!(", {column} = ${}", n + 3));
    }
    let sql = format!("UPDATE {} SET {sets} WHERE id = $2", table(section).0);
    let mut query = sqlx::query(AssertSqlSafe(sql)).bind(Store::now_ms()).bind(id.to_owned());
    for (column, cell) in cells {
        query = bind_cell(query, section, column, cell);
    }
    query.execute(connection).await?;
    Ok(())
}

/// Deletes a row.
pub(crate) async fn delete(
    connection: &mut AnyConnection,
    section: Section,
    id: &str,
) -> Result<(), StoreError> {
    let sql = format!("DELETE FROM {} WHERE id = $1", table(section).0);
    sqlx::query(AssertSqlSafe(sql)).bind(id).execute(connection).await?;
    Ok(())
}

/// Replaces an account's key; its revision counts up.
pub(crate) async fn set_key(
    connection: &mut AnyConnection,
    account_id: &str,
    sealed: &str,
    version: i64,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE ai_model_api_accounts SET account_key = $1, key_version = $2, key_revision = key_revision + 1
         WHERE id = $3",
    )
    .bind(sealed)
    .bind(version)
    .bind(account_id)
    .execute(connection)
    .await?;
    Ok(())
}

/// Puts a model into a pool, or into none, and sets its metadata.
pub(crate) async fn set_model(
    connection: &mut AnyConnection,
    model_id: &str,
    group_id: Option<&str>,
    metadata: &str,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE ai_models SET group_id = $1, metadata = $2 WHERE id = $3")
        .bind(group_id)
        .bind(metadata)
        .bind(model_id)
        .execute(connection)
        .await?;
    Ok(())
}

/// Replaces all bindings of a model.
pub(crate) async fn set_bindings(
    connection: &mut AnyConnection,
    model_id: &str,
    bindings: &[(String, i64)],
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM ai_model_account_bindings WHERE model_id = $1")
        .bind(model_id)
        .execute(&mut *connection)
        .await?;
    for (account_id, priority) in bindings {
        sqlx::query(
            "INSERT INTO ai_model_account_bindings (model_id, account_id, priority) VALUES ($1, $2, $3)",
        )
        .bind(model_id)
        .bind(account_id)
        .bind(priority)
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

/// Replaces all of a model's own keys; those that stay keep their rows.
pub(crate) async fn set_own_keys(
    connection: &mut AnyConnection,
    model_id: &str,
    keys: &[OwnKey],
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM ai_model_api_keys WHERE model_id = $1")
        .bind(model_id)
        .execute(&mut *connection)
        .await?;
    for (position, own) in keys.iter().enumerate() {
        sqlx::query(
            "INSERT INTO ai_model_api_keys (id, model_id, api_key, key_version, position, is_enabled)
             VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .bind(&own.id)
        .bind(model_id)
        .bind(&own.key.text)
        .bind(own.key.version)
        .bind(position as i64)
        .bind(i64::from(own.is_enabled))
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

/// Replaces a caller's plan and allow-list.
pub(crate) async fn set_plan(
    connection: &mut AnyConnection,
    caller_id: &str,
    plan: &Plan,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO member_plans (caller_id, concurrent_tasks, monthly_credits) VALUES ($1, $2, $3)
         ON CONFLICT (caller_id) DO UPDATE SET concurrent_tasks = excluded.concurrent_tasks,
             monthly_credits = excluded.monthly_credits",
    )
    .bind(caller_id)
    .bind(plan.concurrent_tasks)
    .bind(plan.monthly_credits)
    .execute(&mut *connection)
    .await?;
    sqlx::query("DELETE FROM caller_pools WHERE caller_id = $1")
        .bind(caller_id)
        .execute(&mut *connection)
        .await?;
    for pool in &plan.pools {
        sqlx::query("INSERT INTO caller_pools (caller_id, group_key) VALUES ($1, $2)")
            .bind(caller_id)
            .bind(pool)
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

/// Sets a setting; null = back to the default.
pub(crate) async fn set_setting(
    connection: &mut AnyConnection,
    name: &str,
    value: &Value,
) -> Result<(), StoreError> {
    if value.is_null() {
        sqlx::query("DELETE FROM settings WHERE key = $1").bind(name).execute(connection).await?;
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO settings (key, value, updated_at) VALUES ($1, $2, $3)
         ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at",
    )
    .bind(name)
    .bind(value.to_string())
    .bind(Store::now_ms())
    .execute(connection)
    .await?;
    Ok(())
}
