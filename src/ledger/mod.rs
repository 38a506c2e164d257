//! Tasks, attempts and credits: written by one group-commit writer per process.
//!
//! A task costs two waits: *begin* (task, hold and first attempt) before the upstream is called, and
//! *end* (attempt, settlement and result) before the answer ends. Everything that waits is committed
//! together; each command is answered after its commit. [`writer`] is that loop, [`crate::store::batch`]
//! the SQL, [`sweeper`] what happens to the tasks of a node that died.

pub mod entry;
pub mod money;
mod rows;
mod sweeper;
mod writer;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot};

pub use entry::{
    AttemptBegin, AttemptEnd, AttemptKind, AttemptStatus, Refused, TaskBegin, TaskEnd, TaskStatus,
};
pub use money::{Micros, Prices};

use crate::store::Store;
pub use crate::store::StoreError;
pub use crate::store::callers::Grant;
pub use crate::store::events::{BreakerEvent, BreakerEvents};
pub use crate::store::tasks::{AttemptRow, KeyedTask, TaskFilter, TaskPage, TaskRow};

/// How long [`Ledger::end`] waits for its commit before the answer ends without it.
const END_WAIT: Duration = Duration::from_secs(5);

/// One commit, as [`Options::on_commit`] hears of it.
#[derive(Clone, Copy, Debug)]
pub struct Commit {
    /// From the first statement to the end of the commit, reruns included.
    pub took: Duration,
    /// Commands in it.
    pub commands: usize,
}

/// How the ledger is run.
#[derive(Clone)]
pub struct Options {
    /// Unfinished tasks that there is room for; beyond it a begin is [`Refused::Overloaded`].
    pub places: usize,
    /// Commands in one commit at most.
    pub batch: usize,
    /// A commit that takes longer is given up: the database is as good as away.
    pub commit_within: Duration,
    /// FOREBAY_TIME_ZONE: whose day an account's request is counted in.
    pub time_zone: jiff::tz::TimeZone,
    /// Called after every commit, by the writer: must be quick.
    pub on_commit: Option<Arc<dyn Fn(Commit) + Send + Sync>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            places: 65_536,
            batch: 512,
            commit_within: Duration::from_secs(5),
            time_zone: jiff::tz::TimeZone::UTC,
            on_commit: None,
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("places", &self.places)
            .field("batch", &self.batch)
            .finish_non_exhaustive()
    }
}

/// What the ledger is doing now, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerReading {
    /// Commands that wait for their commit.
    pub queue: usize,
    /// Tasks that have begun and not ended.
    pub unfinished: usize,
    /// Records of refused tasks that were dropped because the queue was long.
    pub dropped: u64,
    /// The database takes nothing at the moment.
    pub is_down: bool,
}

/// The handle to the writer; clones share it.
#[derive(Clone)]
pub struct Ledger {
    store: Store,
    node: Arc<str>,
    commands: mpsc::UnboundedSender<Command>,
    shared: Arc<Shared>,
    places: usize,
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").field("node", &self.node).finish_non_exhaustive()
    }
}

/// What the handles and the writer share.
struct Shared {
    /// One permit a task that may begin; taken by its begin, given back by the commit of its end.
    places: Semaphore,
    queue: AtomicUsize,
    dropped: AtomicU64,
    is_down: std::sync::atomic::AtomicBool,
}

/// What the writer is told.
enum Command {
    Begin {
        task: Box<TaskBegin>,
        attempt: Box<AttemptBegin>,
        done: oneshot::Sender<Result<(), Refused>>,
    },
    Attempt {
        ended: Option<Box<AttemptEnd>>,
        next: Box<AttemptBegin>,
        done: oneshot::Sender<Result<(), Refused>>,
    },
    End {
        end: Box<TaskEnd>,
        done: Option<oneshot::Sender<()>>,
    },
    Refuse {
        task: Box<TaskBegin>,
        status: TaskStatus,
        error: String,
    },
    /// Tasks that the tables say are under way here: those that are not are released.
    Audit {
        held: Vec<String>,
    },
    Flush {
        done: oneshot::Sender<()>,
    },
}

/// Records of refused tasks are dropped while more commands than this wait.
const REFUSALS_UP_TO: usize = 4_096;

impl Ledger {
    /// Settles what an earlier process of this `node` left behind (its `sent` attempts become
    /// `outcome_unknown`, the holds are released, exactly once), then starts the writer, the
    /// heartbeat and the sweeper. Call it only once no other process of this node can be alive: after
    /// the listening socket is bound.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn start(
        store: Store,
        node: impl Into<Arc<str>>,
        options: Options,
    ) -> Result<Self, StoreError> {
        let node = node.into();
        sweeper::recover(&store, &node).await?;
        store.heartbeat(&node, env!("CARGO_PKG_VERSION")).await?;
        let (commands, inbox) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            places: Semaphore::new(options.places),
            queue: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
            is_down: false.into(),
        });
        let ledger = Self { store, node, commands, shared, places: options.places };
        writer::spawn(&ledger, inbox, options);
        sweeper::spawn(&ledger);
        Ok(ledger)
    }

    /// The id of this node, as attempts carry it.
    pub fn node(&self) -> &Arc<str> {
        &self.node
    }

    /// Writes down a task, its hold and its first attempt, which are durable when this returns. A
    /// future that is dropped before its answer ends the task as cancelled, if it was begun at all.
    ///
    /// # Errors
    /// Nothing is kept of a refused task, its idempotency key neither.
    pub async fn begin(&self, task: TaskBegin, attempt: AttemptBegin) -> Result<(), Refused> {
        if self.shared.is_down.load(Ordering::Relaxed) {
            return Err(Refused::Unavailable);
        }
        // Given back by the writer once the task's end is committed.
        self.shared.places.try_acquire().map_err(|_| Refused::Overloaded)?.forget();
        let (done, answer) = oneshot::channel();
        self.send(Command::Begin { task: Box::new(task), attempt: Box::new(attempt), done });
        answer.await.unwrap_or(Err(Refused::Unavailable))
    }

    /// Writes down how an attempt ended and that the next one is about to be sent.
    ///
    /// # Errors
    /// `Unavailable` when the database does not take it, or when the task was given up meanwhile
    /// because this node had been silent: in both cases nothing may be sent.
    pub async fn attempt(&self, ended: Option<AttemptEnd>, next: AttemptBegin) -> Result<(), Refused> {
        let (done, answer) = oneshot::channel();
        self.send(Command::Attempt { ended: ended.map(Box::new), next: Box::new(next), done });
        answer.await.unwrap_or(Err(Refused::Unavailable))
    }

    /// Writes down the end of a task: result, settlement or release, and its last attempt. Waits at
    /// most five seconds; `false` means that it is still kept in memory and tried again.
    pub async fn end(&self, end: TaskEnd) -> bool {
        let (done, answer) = oneshot::channel();
        self.send(Command::End { end: Box::new(end), done: Some(done) });
        matches!(tokio::time::timeout(END_WAIT, answer).await, Ok(Ok(())))
    }

    /// The same without waiting.
    pub fn end_soon(&self, end: TaskEnd) {
        self.send(Command::End { end: Box::new(end), done: None });
    }

    /// Records a task that got no attempt: one row, no hold, no idempotency key. Best effort: while
    /// much else waits to be written it is counted and dropped.
    pub fn refuse(&self, task: TaskBegin, status: TaskStatus, error: String) {
        if self.shared.queue.load(Ordering::Relaxed) > REFUSALS_UP_TO
            || self.shared.is_down.load(Ordering::Relaxed)
        {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.send(Command::Refuse { task: Box::new(task), status, error });
    }

    /// Returns once everything said before is committed.
    pub async fn flush(&self) {
        let (done, answer) = oneshot::channel();
        self.send(Command::Flush { done });
        // A writer that is gone has nothing left to commit.
        let _ = answer.await;
    }

    /// The task that has this idempotency key of the caller, for 24 hours after it came.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn keyed(&self, caller_id: &str, key: &str) -> Result<Option<KeyedTask>, StoreError> {
        self.store.keyed_task(caller_id, key).await
    }

    /// A task by id; with `caller_id` only if it is that caller's.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn task(&self, id: &str, caller_id: Option<&str>) -> Result<Option<TaskRow>, StoreError> {
        self.store.task(id, caller_id).await
    }

    /// The attempts of a task, in order.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn attempts(&self, task_id: &str) -> Result<Vec<AttemptRow>, StoreError> {
        self.store.attempts(task_id).await
    }

    /// Tasks, newest first, from behind `cursor` (the last page's `next_cursor`).
    ///
    /// # Errors
    /// When the database fails.
    pub async fn list(
        &self,
        filter: &TaskFilter,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<TaskPage, StoreError> {
        self.store.tasks(filter, cursor, limit).await
    }

    /// Gives a caller credits, or with a negative amount takes some back; returns the new balance.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn grant(
        &self,
        caller_id: &str,
        amount: Micros,
        reason: Option<&str>,
        by: &str,
    ) -> Result<Micros, StoreError> {
        self.store.grant(caller_id, amount.0, reason, by).await.map(Micros)
    }

    /// What a caller was granted, newest first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn grants(&self, caller_id: &str, limit: u32) -> Result<Vec<Grant>, StoreError> {
        self.store.grants(caller_id, limit.into()).await
    }

    /// The balance of every caller that has one, by id.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn balances(&self) -> Result<HashMap<String, Micros>, StoreError> {
        let balances = self.store.balances().await?;
        Ok(balances.into_iter().map(|(caller, balance)| (caller, Micros(balance))).collect())
    }

    /// Requests sent on a day (`2026-11-30`, in FOREBAY_TIME_ZONE), by account id.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn requests_on(&self, day: &str) -> Result<HashMap<String, i64>, StoreError> {
        self.store.account_requests(day).await
    }

    /// Whether the database answers and takes writes.
    pub async fn is_reachable(&self) -> bool {
        !self.shared.is_down.load(Ordering::Relaxed)
            && matches!(tokio::time::timeout(Duration::from_secs(2), self.store.ping()).await, Ok(Ok(())))
    }

    /// What it is doing now.
    pub fn reading(&self) -> LedgerReading {
        LedgerReading {
            queue: self.shared.queue.load(Ordering::Relaxed),
            unfinished: self.places.saturating_sub(self.shared.places.available_permits()),
            dropped: self.shared.dropped.load(Ordering::Relaxed),
            is_down: self.shared.is_down.load(Ordering::Relaxed),
        }
    }

    fn send(&self, command: Command) {
        self.shared.queue.fetch_add(1, Ordering::Relaxed);
        // The writer lives as long as any handle; at the end of the runtime nobody waits any more.
        let _ = self.commands.send(command);
    }
}
