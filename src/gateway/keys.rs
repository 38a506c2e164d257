//! Idempotency-Keys: the same key with the same request is the same task.
//!
//! A running task is awaited before any permit is taken: in this process by its end's announcement,
//! on another node by looking at its row.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::answer::{Answer, Finished};
use super::error::ApiError;
use crate::ledger::Ledger;

/// How often another node's task is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// A caller's id and its key.
type Name = (Arc<str>, String);

/// The keys whose tasks run in this process.
#[derive(Debug, Default)]
pub(super) struct Keys(Mutex<HashMap<Name, Known>>);

#[derive(Debug)]
struct Known {
    hash: String,
    end: watch::Receiver<Option<Finished>>,
}

/// What a key comes to.
#[derive(Debug)]
pub(super) enum Entry {
    /// Nobody has used it: run the task.
    Mine(KeyGuard),
    /// Its task has ended like this.
    Finished(Finished),
}

/// The key of a task that runs here; dropping it lets the key go.
#[derive(Debug)]
pub(super) struct KeyGuard {
    keys: Arc<Keys>,
    name: Name,
    end: watch::Sender<Option<Finished>>,
}

impl KeyGuard {
    /// Tells those who wait how the task ended.
    pub(super) fn publish(&self, finished: Finished) {
        self.end.send_replace(Some(finished));
    }
}

impl Drop for KeyGuard {
    fn drop(&mut self) {
        self.keys.lock().remove(&self.name);
    }
}

impl Keys {
    /// Takes the key, or waits for the end of the task that has it. Another request under the same
    /// key is a conflict.
    pub(super) async fn enter(
        self: &Arc<Self>,
        ledger: &Ledger,
        caller_id: &Arc<str>,
        key: &str,
        hash: &str,
    ) -> Result<Entry, ApiError> {
        loop {
            let guard = match self.claim(caller_id, key, hash)? {
                Ok(guard) => guard,
                Err(mut end) => match end.wait_for(Option::is_some).await {
                    Ok(finished) => match &*finished {
                        Some(finished) => return Ok(Entry::Finished(finished.clone())),
                        None => continue,
                    },
                    // It ended without a word: the key is free, or its row tells.
                    Err(_) => continue,
                },
            };
            let Some(keyed) = ledger.keyed(caller_id, key).await.map_err(|_| ApiError::overloaded())? else {
                return Ok(Entry::Mine(guard));
            };
            if keyed.request_hash != hash {
                return Err(ApiError::idempotency_conflict());
            }
            if !matches!(keyed.task.status.as_str(), "running" | "queued") {
                return Ok(Entry::Finished(Answer::of_task(&keyed)));
            }
            drop(guard);
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The key's guard, or the end that is waited for.
    fn claim(
        self: &Arc<Self>,
        caller_id: &Arc<str>,
        key: &str,
        hash: &str,
    ) -> Result<Result<KeyGuard, watch::Receiver<Option<Finished>>>, ApiError> {
        let name = (caller_id.clone(), key.to_owned());
        let mut keys = self.lock();
        match keys.get(&name) {
            Some(known) if known.hash != hash => Err(ApiError::idempotency_conflict()),
            Some(known) => Ok(Err(known.end.clone())),
            None => {
                let (end, announced) = watch::channel(None);
                keys.insert(name.clone(), Known { hash: hash.to_owned(), end: announced });
                Ok(Ok(KeyGuard { keys: self.clone(), name, end }))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
