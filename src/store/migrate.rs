//! Migrations: forward only, all that are due in one transaction, under a lock.

use sqlx::{AssertSqlSafe, Executor, Row};

use super::{Store, StoreError};

/// Every migration, in order; a migration that was ever released is never edited.
const MIGRATIONS: [(i64, &str, &str); 4] = [
    (1, "0001_configuration", include_str!("../../migrations/0001_configuration.sql")),
    (2, "0002_tasks", include_str!("../../migrations/0002_tasks.sql")),
    (3, "0003_operations", include_str!("../../migrations/0003_operations.sql")),
    (4, "0004_providers", include_str!("../../migrations/0004_providers.sql")),
];

/// Tables whose every change is a new configuration version.
const CONFIGURATION: [&str; 11] = [
    "ai_model_groups",
    "ai_providers",
    "ai_models",
    "ai_model_api_accounts",
    "ai_model_account_bindings",
    "ai_model_api_keys",
    "callers",
    "caller_tokens",
    "caller_pools",
    "member_plans",
    "settings",
];

pub(super) async fn run(store: &Store) -> Result<(), StoreError> {
    let mut transaction = store.write().await?;
    if let Some(lock) = store.dialect().migration_lock() {
        transaction.execute(lock).await?;
    }
    transaction
        .execute(
            "CREATE TABLE IF NOT EXISTS migrations (version BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL)",
        )
        .await?;
    let found: i64 = sqlx::query("SELECT COALESCE(MAX(version), 0) AS found FROM migrations")
        .fetch_one(&mut *transaction)
        .await?
        .try_get("found")?;
    let known = MIGRATIONS.len() as i64;
    if found > known {
        return Err(StoreError::Newer { found, known });
    }
    let due = MIGRATIONS.iter().filter(|(version, ..)| *version > found);
    for (version, name, text) in due {
        let failed = |source| StoreError::Migration { name, source };
        sqlx::raw_sql(*text).execute(&mut *transaction).await.map_err(failed)?;
        sqlx::query("INSERT INTO migrations (version, name) VALUES ($1, $2)")
            .bind(version)
            .bind(*name)
            .execute(&mut *transaction)
            .await
            .map_err(failed)?;
        tracing::info!(migration = name, "database migrated");
    }
    if found < known {
        for statement in CONFIGURATION.iter().flat_map(|table| store.dialect().version_trigger(table)) {
            sqlx::raw_sql(AssertSqlSafe(statement))
                .execute(&mut *transaction)
                .await
                .map_err(|source| StoreError::Migration { name: "triggers", source })?;
        }
    }
    transaction.commit().await?;
    Ok(())
}
