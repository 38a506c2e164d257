//! What happens to the tasks of a process that is gone: at its own next start, or once its node has
//! been silent for 15 seconds. Never while it lives.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::entry::{TaskEnd, TaskStatus};
use super::rows;
use super::{Command, Ledger};
use crate::store::batch::Batch;
use crate::store::{Store, StoreError};

/// How often a node says that it lives.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// A node that said nothing for so long is dead.
const SILENT_MS: i64 = 15_000;
/// Heartbeats between two looks at what should not be: holds without a task under way, old keys.
const TIDY_EVERY: u32 = 15;
/// Tasks settled in one go.
const AT_ONCE: i64 = 500;

/// Ends every task that `node` has under way. `sent` means that the upstream may have done the work.
pub(super) async fn recover(store: &Store, node: &str) -> Result<u64, StoreError> {
    let batch = Batch::new(store.dialect());
    let mut recovered = 0;
    loop {
        let held = store.held_tasks(node, i64::MAX, AT_ONCE).await?;
        if held.is_empty() {
            break;
        }
        let sent: HashSet<String> = store.with_sent_attempt(&held).await?.into_iter().collect();
        let ends: Vec<TaskEnd> = held.iter().map(|id| orphaned(id, sent.contains(id))).collect();
        let rows = rows::ends_only(ends.iter());
        batch.run(&mut store.connect().await?, &rows).await?;
        recovered += held.len() as u64;
    }
    if recovered > 0 {
        tracing::warn!(node, tasks = recovered, "ended the tasks that a stopped process left under way");
    }
    Ok(recovered)
}

/// Nothing is out: the work was certainly not done, and the caller's key is free for another try.
fn orphaned(id: &str, sent: bool) -> TaskEnd {
    let (status, error) = if sent {
        (
            TaskStatus::OutcomeUnknown,
            r#"{"code":"outcome_unknown","message":"the gateway stopped while the request was out; it may have been done"}"#,
        )
    } else {
        (
            TaskStatus::Failed,
            r#"{"code":"shutting_down","message":"the gateway stopped before the request could be served"}"#,
        )
    };
    TaskEnd {
        task_id: id.to_owned(),
        status,
        attempt: None,
        charge: None,
        output: None,
        usage: None,
        error: Some(error.to_owned()),
        final_model: None,
        finished_at: Store::now_ms(),
    }
}

/// The heartbeat, and the looks at others'. Ends with the last handle of the ledger.
pub(super) fn spawn(ledger: &Ledger) {
    let store = ledger.store.clone();
    let node = ledger.node.clone();
    let commands = ledger.commands.downgrade();
    let shared = ledger.shared.clone();
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(HEARTBEAT);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        for beat in 1_u32.. {
            ticks.tick().await;
            let Some(commands) = commands.upgrade() else {
                return;
            };
            if let Err(error) = tend(&store, &node).await {
                tracing::warn!(%error, "no heartbeat");
            } else if beat % TIDY_EVERY == 0 {
                match store.held_tasks(&node, Store::now_ms() - 60_000, AT_ONCE).await {
                    Ok(held) if !held.is_empty() => {
                        shared.queue.fetch_add(1, Ordering::Relaxed);
                        let _ = commands.send(Command::Audit { held });
                    }
                    Ok(_) => {}
                    Err(error) => tracing::warn!(%error, "holds could not be looked at"),
                }
                if let Err(error) = store.tidy_tasks().await {
                    tracing::warn!(%error, "old idempotency keys could not be freed");
                }
            }
        }
    });
}

async fn tend(store: &Store, node: &str) -> Result<(), StoreError> {
    store.heartbeat(node, env!("CARGO_PKG_VERSION")).await?;
    for silent in store.silent_nodes(SILENT_MS).await? {
        recover(store, &silent).await?;
        store.forget_node(&silent, SILENT_MS).await?;
    }
    Ok(())
}
