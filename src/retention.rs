//! What is older than its retention goes, in small batches with pauses, while the server serves.

use std::sync::Arc;
use std::time::Duration;

use crate::catalog::Catalog;
use crate::results::Results;
use crate::store::{Store, StoreError};

/// How often something is looked for.
const EVERY: Duration = Duration::from_secs(3_600);
/// After the start, so that a restart is not also a clean-up.
const FIRST: Duration = Duration::from_secs(60);
/// Rows of one batch.
const BATCH: i64 = 200;
/// Between two batches, for whoever else wants to write.
const PAUSE: Duration = Duration::from_millis(100);

const DAY: Duration = Duration::from_secs(86_400);

/// Sweeps for as long as the server lives.
pub(crate) async fn watch(store: Store, catalog: Arc<Catalog>, results: Results) {
    tokio::time::sleep(FIRST).await;
    loop {
        if let Err(error) = sweep(&store, &catalog).await {
            tracing::warn!(%error, "old rows could not be removed");
        }
        let kept = DAY * catalog.snapshot().settings.retention.results_days;
        match results.sweep(kept).await {
            Ok(0) => {}
            Ok(files) => tracing::info!(files, "removed old results"),
            Err(error) => tracing::warn!(%error, "old results could not be removed"),
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Removes every row that is past its retention; returns how many.
pub async fn sweep(store: &Store, catalog: &Catalog) -> Result<u64, StoreError> {
    let retention = catalog.snapshot().settings.retention;
    let before = |days: u32| Store::now_ms() - i64::from(days) * DAY.as_millis() as i64;
    let mut removed = 0;
    loop {
        let batch = store.remove_old_tasks(before(retention.tasks_days), BATCH).await?
            + store.remove_old_events(before(retention.events_days), BATCH).await?
            + store.remove_old_audit(before(retention.audit_days), BATCH).await?;
        removed += batch;
        if batch == 0 {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    if removed > 0 {
        tracing::info!(rows = removed, "removed old rows");
    }
    Ok(removed)
}
