//! The group-commit writer: one loop that commits everything waiting, then answers it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sqlx::AnyConnection;
use tokio::sync::{mpsc, oneshot};

use super::entry::{AttemptBegin, AttemptEnd, Refused, TaskBegin, TaskEnd, TaskStatus};
use super::rows::{self, AttemptEndRow, AttemptRow, BeginRow, IdRow, RefusedRow, RequestsRow};
use super::{Command, Commit, Ledger, Options, Shared};
use crate::store::batch::{self, Batch, BatchRows};
use crate::store::checkpoint::Checkpointer;
use crate::store::tasks::KEY_KEPT_MS;
use crate::store::{Store, StoreError};

/// How often a batch is run again because another transaction was in its way.
const RERUNS: u32 = 5;
/// How often a database that is away is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

pub(super) fn spawn(ledger: &Ledger, inbox: mpsc::UnboundedReceiver<Command>, options: Options) {
    let writer = Writer {
        batch: Batch::new(ledger.store.dialect()),
        checkpointer: Checkpointer::start(&ledger.store),
        store: ledger.store.clone(),
        node: ledger.node.clone(),
        shared: ledger.shared.clone(),
        connection: None,
        unfinished: HashSet::new(),
        again: Vec::new(),
        kept: Vec::new(),
        requests: HashMap::new(),
        flushes: Vec::new(),
        options,
    };
    tokio::spawn(writer.run(inbox));
}

struct Writer {
    batch: Batch,
    checkpointer: Option<Checkpointer>,
    store: Store,
    node: Arc<str>,
    shared: Arc<Shared>,
    connection: Option<AnyConnection>,
    /// Tasks that begun here and have not ended: each holds a place.
    unfinished: HashSet<String>,
    /// Begins that fitted the credits but came after others in their batch: they go first, once.
    again: Vec<Begin>,
    /// Ends that the database did not take yet.
    kept: Vec<End>,
    /// Requests by account that are not counted yet, less those of begins that were refused.
    requests: HashMap<Arc<str>, i64>,
    /// Who waits until it has.
    flushes: Vec<oneshot::Sender<()>>,
    options: Options,
}

struct Begin {
    task: Box<TaskBegin>,
    attempt: Box<AttemptBegin>,
    done: oneshot::Sender<Result<(), Refused>>,
    retried: bool,
}

struct Next {
    ended: Option<Box<AttemptEnd>>,
    next: Box<AttemptBegin>,
    done: oneshot::Sender<Result<(), Refused>>,
}

struct End {
    end: Box<TaskEnd>,
    done: Option<oneshot::Sender<()>>,
}

/// One batch, sorted by what is done with it.
#[derive(Default)]
struct Work {
    begins: Vec<Begin>,
    nexts: Vec<Next>,
    ends: Vec<End>,
    refused: Vec<(Box<TaskBegin>, TaskStatus, String)>,
    flushes: Vec<oneshot::Sender<()>>,
}

impl Writer {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Command>) {
        let mut waiting = Vec::with_capacity(self.options.batch);
        loop {
            let more = inbox.recv_many(&mut waiting, self.options.batch);
            if self.shared.is_down.load(Ordering::Relaxed) {
                // Handles refuse begins meanwhile, so nothing may come: the database is asked anyway.
                if tokio::time::timeout(LOOK_AGAIN, more).await == Ok(0) {
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
            } else if self.again.is_empty() && self.kept.is_empty() {
                if more.await == 0 {
                    return;
                }
            } else {
                drop(more);
                while waiting.len() < self.options.batch
                    && let Ok(command) = inbox.try_recv()
                {
                    waiting.push(command);
                }
            }
            self.shared.queue.fetch_sub(waiting.len(), Ordering::Relaxed);
            let work = self.sort(waiting.drain(..));
            self.commit(work).await;
        }
    }

    fn sort(&mut self, commands: impl Iterator<Item = Command>) -> Work {
        let mut work = Work {
            begins: std::mem::take(&mut self.again),
            ends: std::mem::take(&mut self.kept),
            flushes: std::mem::take(&mut self.flushes),
            ..Work::default()
        };
        for command in commands {
            match command {
                Command::Begin { task, attempt, done } => {
                    // Whoever waited for it is gone: nothing was promised, nothing is begun.
                    if done.is_closed() {
                        self.shared.places.add_permits(1);
                    } else {
                        work.begins.push(Begin { task, attempt, done, retried: false });
                    }
                }
                Command::Attempt { ended, next, done } => work.nexts.push(Next { ended, next, done }),
                Command::End { end, done } => work.ends.push(End { end, done }),
                Command::Refuse { task, status, error } => work.refused.push((task, status, error)),
                Command::Flush { done } => work.flushes.push(done),
                Command::Audit { held } => {
                    let lost = held.into_iter().filter(|id| !self.unfinished.contains(id));
                    work.ends.extend(lost.map(|id| End { end: Box::new(abandoned(id)), done: None }));
                }
            }
        }
        work
    }

    async fn commit(&mut self, mut work: Work) {
        let mut seen = HashSet::new();
        work.ends.retain(|end| seen.insert(end.end.task_id.clone()));
        if work.is_empty() && !self.shared.is_down.load(Ordering::Relaxed) {
            self.flushed(work.flushes);
            return;
        }
        let rows = self.rows(&work);
        let begun = Instant::now();
        let result = if work.is_empty() {
            // The database is down, and an empty batch would write nothing: a heartbeat is a write.
            self.probe().await
        } else {
            self.run_batch(&rows).await
        };
        if let (Ok(_), Some(on_commit)) = (&result, &self.options.on_commit) {
            on_commit(Commit { took: begun.elapsed(), commands: work.len() });
        }
        match result {
            Ok(missing) => {
                if let Some(checkpointer) = &mut self.checkpointer {
                    checkpointer.committed(work.len());
                }
                if self.shared.is_down.swap(false, Ordering::Relaxed) {
                    tracing::info!("the ledger's database takes writes again");
                }
                self.answer(work, missing).await;
            }
            Err(error) => {
                if !self.shared.is_down.swap(true, Ordering::Relaxed) {
                    tracing::error!(%error, "the ledger's database takes no writes; new tasks are refused");
                }
                self.give_up(work);
            }
        }
    }

    fn rows(&mut self, work: &Work) -> BatchRows {
        let node = &*self.node;
        let first = work.begins.iter().map(|begin| &*begin.attempt);
        let attempts = first.chain(work.nexts.iter().map(|next| &*next.next));
        let ended = work.nexts.iter().filter_map(|next| next.ended.as_deref());
        let ended = ended.chain(work.ends.iter().filter_map(|end| end.end.attempt.as_ref()));
        let mut running: HashMap<&str, i64> = HashMap::new();
        let begins = work.begins.iter().map(|begin| {
            let running = running.entry(&begin.task.caller_id).or_default();
            *running = running.saturating_add(begin.task.hold.0.max(0));
            BeginRow::new(&begin.task, &begin.attempt, *running, node)
        });
        for attempt in attempts.clone() {
            if let Some((account, _)) = &attempt.account {
                *self.requests.entry(account.0.clone()).or_default() += 1;
            }
        }
        let day = jiff::Timestamp::now().to_zoned(self.options.time_zone.clone()).date().to_string();
        let counts = self.requests.iter();
        let requests =
            rows::array(counts.map(|(account, count)| RequestsRow { account, day: &day, count: *count }));
        self.requests.clear();
        BatchRows {
            requests,
            attempt_count: attempts.clone().count() as u64,
            attempts: rows::array(attempts.map(|attempt| AttemptRow::new(attempt, node))),
            ended: rows::array(ended.map(AttemptEndRow::new)),
            begun: rows::array(work.begins.iter().map(|begin| IdRow { id: &begin.task.id })),
            refused: rows::array(
                work.refused.iter().map(|(task, status, error)| RefusedRow::new(task, *status, error, node)),
            ),
            begins: rows::array(begins),
            ..rows::ends_only(work.ends.iter().map(|end| &*end.end))
        }
    }

    /// Whether the database takes a write.
    fn probe(&self) -> impl Future<Output = Result<Vec<(String, i64)>, sqlx::Error>> + Send + use<> {
        let (store, node, within) = (self.store.clone(), self.node.clone(), self.options.commit_within);
        async move { probe(&store, &node, within).await }
    }

    /// Runs the batch until it is committed or its time is over; a lost connection is made anew once.
    async fn run_batch(&mut self, rows: &BatchRows) -> Result<Vec<(String, i64)>, sqlx::Error> {
        let end = Instant::now() + self.options.commit_within;
        let mut reconnected = false;
        let mut reruns = 0;
        loop {
            let late = || sqlx::Error::PoolTimedOut;
            let left = end.saturating_duration_since(Instant::now());
            let mut connection = match self.connection.take() {
                Some(connection) => connection,
                None => {
                    reconnected = true;
                    tokio::time::timeout(left, self.store.connect()).await.map_err(|_| late())??
                }
            };
            // A connection that is dropped half-way may still commit: running again is right then, too.
            let run = tokio::time::timeout(left, self.batch.run(&mut connection, rows)).await;
            match run.map_err(|_| late())? {
                Ok(missing) => {
                    self.connection = Some(connection);
                    return Ok(missing);
                }
                Err(error) if is_in_the_way(&error) && reruns < RERUNS => {
                    self.connection = Some(connection);
                    reruns += 1;
                    tokio::time::sleep(Duration::from_millis(5 << reruns)).await;
                }
                Err(error) if reconnected => return Err(error),
                Err(_) => {}
            }
        }
    }

    async fn answer(&mut self, work: Work, missing: Vec<(String, i64)>) {
        let missing: HashSet<(String, i64)> = missing.into_iter().collect();
        let is_missing = |attempt: &AttemptBegin| {
            !missing.is_empty() && missing.contains(&(attempt.task_id.clone(), i64::from(attempt.seq)))
        };
        for end in work.ends {
            if self.unfinished.remove(&end.end.task_id) {
                self.shared.places.add_permits(1);
            }
            if let Some(done) = end.done {
                let _ = done.send(());
            }
        }
        for next in work.nexts {
            let answer = if is_missing(&next.next) { Err(Refused::Unavailable) } else { Ok(()) };
            let _ = next.done.send(answer);
        }
        let mut refused = Vec::new();
        for begin in work.begins {
            if is_missing(&begin.attempt) {
                if let Some((account, _)) = &begin.attempt.account {
                    *self.requests.entry(account.0.clone()).or_default() -= 1;
                }
                refused.push(begin);
                continue;
            }
            self.unfinished.insert(begin.task.id.clone());
            if begin.done.send(Ok(())).is_err() {
                let end = End { end: Box::new(abandoned(begin.task.id)), done: None };
                self.kept.push(end);
            }
        }
        if !refused.is_empty() {
            self.judge(refused).await;
        }
        self.flushed(work.flushes);
    }

    /// Says why begins were refused, and gives those another try whose caller can pay for them: they
    /// were refused only because of what came before them in the batch.
    async fn judge(&mut self, refused: Vec<Begin>) {
        let mut left = match self.balances(&refused).await {
            Ok(left) => left,
            Err(error) => {
                tracing::warn!(%error, "refused tasks could not be looked at");
                for begin in refused {
                    self.refuse(begin, Refused::Unavailable);
                }
                return;
            }
        };
        for begin in refused {
            if let Some(holder) = self.key_holder(&begin).await {
                self.refuse(begin, Refused::DuplicateKey { task_id: holder });
                continue;
            }
            let left = left.entry(begin.task.caller_id.to_string()).or_default();
            if begin.retried || begin.task.hold.0 > *left {
                self.refuse(begin, Refused::InsufficientCredits);
            } else {
                *left -= begin.task.hold.0;
                self.again.push(Begin { retried: true, ..begin });
            }
        }
    }

    async fn balances(&mut self, refused: &[Begin]) -> Result<HashMap<String, i64>, sqlx::Error> {
        let Some(connection) = &mut self.connection else {
            return Ok(HashMap::new());
        };
        let callers: HashSet<&str> = refused.iter().map(|begin| &*begin.task.caller_id).collect();
        let callers = rows::array(callers.into_iter().map(|caller| HashMap::from([("caller", caller)])));
        Ok(batch::balances(connection, self.store.dialect(), &callers).await?.into_iter().collect())
    }

    /// The task that has the begin's key; a key older than it is kept is taken away instead.
    async fn key_holder(&mut self, begin: &Begin) -> Option<String> {
        let (key, _) = begin.task.idempotency.as_ref()?;
        let connection = self.connection.as_mut()?;
        let (holder, came) = batch::key_holder(connection, &begin.task.caller_id, key).await.ok()??;
        if begin.task.created_at - came < KEY_KEPT_MS || begin.retried {
            return Some(holder);
        }
        batch::free_key(connection, &holder).await.ok();
        None
    }

    fn refuse(&self, begin: Begin, why: Refused) {
        self.shared.places.add_permits(1);
        let _ = begin.done.send(Err(why));
    }

    /// The database is away: begins are refused, ends are kept. A begin may have been committed all
    /// the same, when only the answer was lost: it gets an end, which does nothing if it was not.
    fn give_up(&mut self, work: Work) {
        for begin in work.begins {
            self.unfinished.insert(begin.task.id.clone());
            self.kept.push(End { end: Box::new(abandoned(begin.task.id)), done: None });
            let _ = begin.done.send(Err(Refused::Unavailable));
        }
        for next in work.nexts {
            let _ = next.done.send(Err(Refused::Unavailable));
        }
        self.shared.dropped.fetch_add(work.refused.len() as u64, Ordering::Relaxed);
        self.kept.extend(work.ends);
        self.flushes = work.flushes;
    }

    /// Everything said before is committed, unless something came back to be said again.
    fn flushed(&mut self, flushes: Vec<oneshot::Sender<()>>) {
        if !self.again.is_empty() || !self.kept.is_empty() {
            self.flushes = flushes;
            return;
        }
        for done in flushes {
            let _ = done.send(());
        }
    }
}

/// Whether the database takes a write within that time.
async fn probe(store: &Store, node: &str, within: Duration) -> Result<Vec<(String, i64)>, sqlx::Error> {
    match tokio::time::timeout(within, store.heartbeat(node, env!("CARGO_PKG_VERSION"))).await {
        Ok(Ok(())) => Ok(Vec::new()),
        Ok(Err(StoreError::Database(error))) => Err(error),
        Ok(Err(_)) | Err(_) => Err(sqlx::Error::PoolTimedOut),
    }
}

impl Work {
    fn len(&self) -> usize {
        self.begins.len() + self.nexts.len() + self.ends.len() + self.refused.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The end of a task that nobody waits for any more and that sent nothing.
fn abandoned(task_id: String) -> TaskEnd {
    TaskEnd {
        task_id,
        status: TaskStatus::Cancelled,
        attempt: None,
        charge: None,
        output: None,
        usage: None,
        error: Some(
            r#"{"code":"shutting_down","message":"the task was given up before anything was sent"}"#.into(),
        ),
        final_model: None,
        finished_at: Store::now_ms(),
    }
}

/// Another transaction was in the way: the same batch may pass at once.
fn is_in_the_way(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(said) = error else {
        return false;
    };
    // PostgreSQL: serialisation failure, deadlock, lock not available. SQLite: busy, locked, snapshot.
    said.code().is_some_and(|code| {
        ["40001", "40P01", "55P03", "5", "6", "261", "262", "517", "773"].contains(&code.as_ref())
    })
}
