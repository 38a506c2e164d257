//! The ledger: begin, attempt, end; refusals; exactly once, whatever happens.

use std::sync::Arc;

use forebay::ledger::{
    AttemptBegin, AttemptEnd, AttemptKind, AttemptStatus, Ledger, Micros, Options, Prices, Refused,
    TaskBegin, TaskEnd, TaskFilter, TaskStatus,
};
use forebay::store::{Store, new_id};
use forebay_engine::{AccountId, Capability, Class, ModelId, Usage};

use crate::app::eventually;
use crate::databases::{Database, on_both, sqlite};

fn task(caller: &str, hold: i64) -> TaskBegin {
    TaskBegin {
        id: new_id(),
        caller_id: caller.into(),
        idempotency: None,
        task_type: None,
        asked: "main_text".into(),
        alias: "main_text".into(),
        pool: Some("main_text".into()),
        capability: Capability::Text,
        operation: "generate",
        stream: false,
        request_summary: r#"{"messages":1}"#.into(),
        metadata: Some(r#"{"who":"a \"quoted\" 名"}"#.into()),
        hold: Micros(hold),
        prices: Prices::default(),
        created_at: Store::now_ms(),
    }
}

fn keyed(caller: &str, hold: i64, key: &str) -> TaskBegin {
    TaskBegin { idempotency: Some((key.into(), "hash".into())), ..task(caller, hold) }
}

fn attempt(task_id: &str, seq: u32) -> AttemptBegin {
    AttemptBegin {
        task_id: task_id.into(),
        seq,
        kind: if seq == 1 { AttemptKind::Initial } else { AttemptKind::Fallback },
        reason: "weight 6 of 10".into(),
        provider: "sim".into(),
        model_id: ModelId(format!("model-{seq}").into()),
        model: format!("sim-{seq}").into(),
        account: Some((AccountId("a".into()), "sim-a".into())),
        started_at: Store::now_ms(),
        waited_ms: 0,
        breaker_generation: 1,
    }
}

fn ended(task_id: &str, seq: u32, status: AttemptStatus) -> AttemptEnd {
    let failed = status != AttemptStatus::Succeeded;
    AttemptEnd {
        task_id: task_id.into(),
        seq,
        status,
        outcome_unknown: status == AttemptStatus::OutcomeUnknown,
        http_status: Some(if failed { 503 } else { 200 }),
        error_class: failed.then_some(Class::Upstream),
        error_message: failed.then(|| "overloaded".into()),
        first_content_ms: None,
        duration_ms: 12,
        provider_task_id: None,
        usage: (!failed).then(|| Usage { input_tokens: 12, output_tokens: 16, ..Usage::default() }),
        cost: (!failed).then_some(Micros(7)),
    }
}

fn end(task_id: &str, status: TaskStatus, charge: Option<i64>) -> TaskEnd {
    TaskEnd {
        task_id: task_id.into(),
        status,
        attempt: None,
        charge: charge.map(Micros),
        output: charge.map(|_| r#"{"choices":[]}"#.into()),
        usage: None,
        error: None,
        final_model: charge.map(|_| "sim-1".into()),
        finished_at: Store::now_ms(),
    }
}

async fn caller(database: &Database, id: &str, credits: i64) {
    let sql = format!(
        "INSERT INTO callers (id, name) VALUES ('{id}', 'team {id}');
         INSERT INTO credit_accounts (caller_id, balance) VALUES ('{id}', {credits});
         INSERT INTO credit_ledger (caller_id, kind, amount, balance_after) VALUES ('{id}', 'grant', {credits}, {credits})"
    );
    database.sql(&sql).await;
}

async fn balance(database: &Database, id: &str) -> i64 {
    database.number(&format!("SELECT balance FROM credit_accounts WHERE caller_id = '{id}'")).await
}

async fn assert_sums(store: &Store, database: &Database) {
    let differences = store.credit_differences().await.expect("sums");
    assert_eq!(differences, [], "Σ ledger = balance on {}", database.name);
    let twice = "SELECT COUNT(*) FROM (SELECT task_id FROM credit_ledger WHERE kind <> 'reserve' AND task_id IS NOT NULL
                 GROUP BY task_id HAVING COUNT(*) > 1) AS twice";
    assert_eq!(database.number(twice).await, 0, "settled or released once on {}", database.name);
}

async fn ledger(store: &Store) -> Ledger {
    Ledger::start(store.clone(), "node-1", Options::default()).await.expect("the ledger starts")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_reserved_once_and_settled_once() {
    on_both(async |database| {
        let store = database.open().await;
        caller(&database, "c", 1_000).await;
        let ledger = ledger(&store).await;

        let begin = task("c", 400);
        let id = begin.id.clone();
        ledger.begin(begin, attempt(&id, 1)).await.expect("it is paid for");
        assert_eq!(balance(&database, "c").await, 600);
        let running = ledger.task(&id, Some("c")).await.expect("read").expect("there");
        assert_eq!((running.status.as_str(), running.hold_state.as_str()), ("running", "held"));
        assert!(ledger.task(&id, Some("other")).await.expect("read").is_none(), "of nobody else");

        let failed = ended(&id, 1, AttemptStatus::Failed);
        ledger.attempt(Some(failed), attempt(&id, 2)).await.expect("a second attempt");
        let last = TaskEnd {
            attempt: Some(ended(&id, 2, AttemptStatus::Succeeded)),
            usage: Some(Usage { input_tokens: 12, output_tokens: 16, ..Usage::default() }),
            ..end(&id, TaskStatus::Succeeded, Some(150))
        };
        assert!(ledger.end(last.clone()).await);
        assert!(ledger.end(last).await, "an end said twice is one end");
        assert_eq!(balance(&database, "c").await, 850);

        let done = ledger.task(&id, None).await.expect("read").expect("there");
        assert_eq!(done.status, "succeeded");
        assert_eq!(done.caller, "team c");
        assert_eq!((done.credits_held, done.credits_charged), (400, Some(150)));
        assert_eq!((done.attempts, done.error_class.as_deref()), (2, Some("upstream")));
        assert_eq!(done.output.as_deref(), Some(r#"{"choices":[]}"#));
        assert_eq!(done.metadata.as_deref(), Some(r#"{"who":"a \"quoted\" 名"}"#));
        let attempts = ledger.attempts(&id).await.expect("read");
        assert_eq!(attempts.iter().map(|a| a.status.as_str()).collect::<Vec<_>>(), ["failed", "succeeded"]);
        assert_eq!((attempts[1].cost, attempts[1].http_status), (Some(7), Some(200)));

        // More than the hold is never taken; nothing is taken for what failed.
        for (charge, status, left) in
            [(Some(9_999), TaskStatus::Succeeded, 450), (None, TaskStatus::Failed, 450)]
        {
            let begin = task("c", 400);
            let id = begin.id.clone();
            ledger.begin(begin, attempt(&id, 1)).await.expect("it is paid for");
            assert!(ledger.end(end(&id, status, charge)).await);
            assert_eq!(balance(&database, "c").await, left);
        }
        assert_eq!(
            database.number("SELECT COUNT(*) FROM ai_model_attempts WHERE status = 'sent'").await,
            1,
            "only a success may leave its attempt to be recorded later"
        );
        assert_sums(&store, &database).await;
        assert_eq!(ledger.reading().unfinished, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_leaves_nothing_behind() {
    on_both(async |database| {
        let store = database.open().await;
        caller(&database, "poor", 100).await;
        let ledger = ledger(&store).await;

        let begin = keyed("poor", 101, "k");
        let id = begin.id.clone();
        assert_eq!(ledger.begin(begin, attempt(&id, 1)).await, Err(Refused::InsufficientCredits));
        assert!(ledger.keyed("poor", "k").await.expect("read").is_none(), "402 frees the key");
        assert_eq!(database.number("SELECT COUNT(*) FROM ai_tasks").await, 0);
        assert_eq!(database.number("SELECT COUNT(*) FROM ai_model_attempts").await, 0);

        let first = keyed("poor", 60, "k");
        let first_id = first.id.clone();
        ledger.begin(first, attempt(&first_id, 1)).await.expect("it is paid for");
        let again = keyed("poor", 10, "k");
        let again_id = again.id.clone();
        let refused = ledger.begin(again, attempt(&again_id, 1)).await;
        assert_eq!(refused, Err(Refused::DuplicateKey { task_id: first_id.clone() }));
        let found = ledger.keyed("poor", "k").await.expect("read").expect("there");
        assert_eq!((found.task.id.as_str(), found.request_hash.as_str()), (first_id.as_str(), "hash"));

        // An end with a code that frees it lets the key be used again.
        let congested = TaskEnd {
            error: Some(r#"{"code":"congested","message":"later"}"#.into()),
            ..end(&first_id, TaskStatus::Failed, None)
        };
        assert!(ledger.end(congested).await);
        assert!(ledger.keyed("poor", "k").await.expect("read").is_none());

        // So does a key's age.
        let old = TaskBegin { created_at: Store::now_ms() - 25 * 3_600_000, ..keyed("poor", 10, "old") };
        let old_id = old.id.clone();
        ledger.begin(old, attempt(&old_id, 1)).await.expect("begun");
        assert!(ledger.keyed("poor", "old").await.expect("read").is_none(), "kept for 24 hours");
        let new = keyed("poor", 10, "old");
        let new_id = new.id.clone();
        ledger.begin(new, attempt(&new_id, 1)).await.expect("the old key is free");

        let nobody = task("poor", 0);
        ledger.refuse(nobody.clone(), TaskStatus::Failed, r#"{"code":"no_available_model"}"#.into());
        ledger.flush().await;
        let refused = ledger.task(&nobody.id, None).await.expect("read").expect("there");
        assert_eq!(
            (refused.status.as_str(), refused.hold_state.as_str(), refused.attempts),
            ("failed", "none", 0)
        );
        assert_sums(&store, &database).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_spends_exactly_what_there_is() {
    on_both(async |database| {
        let store = database.open().await;
        caller(&database, "rich", 1_000_000).await;
        caller(&database, "poor", 1_000).await;
        let ledger = ledger(&store).await;
        let crowd: Vec<_> = (0..400)
            .map(|n| {
                let ledger = ledger.clone();
                tokio::spawn(async move {
                    let begin = task(if n % 2 == 0 { "rich" } else { "poor" }, 100);
                    let (id, caller) = (begin.id.clone(), begin.caller_id.clone());
                    let begun = ledger.begin(begin, attempt(&id, 1)).await;
                    (id, caller, begun)
                })
            })
            .collect();
        let mut begun = Vec::new();
        for one in crowd {
            let (id, caller, result) = one.await.expect("no panic");
            match result {
                Ok(()) => begun.push((id, caller)),
                Err(error) => assert_eq!((&*caller, error), ("poor", Refused::InsufficientCredits)),
            }
        }
        let poor = begun.iter().filter(|(_, caller)| &**caller == "poor").count();
        assert_eq!((begun.len(), poor), (210, 10), "on {}", database.name);
        assert_eq!(balance(&database, "poor").await, 0);
        let ends = begun.into_iter().map(|(id, _)| {
            let ledger = ledger.clone();
            tokio::spawn(async move { ledger.end(end(&id, TaskStatus::Succeeded, Some(30))).await })
        });
        for one in ends.collect::<Vec<_>>() {
            assert!(one.await.expect("no panic"));
        }
        assert_eq!(balance(&database, "poor").await, 700);
        assert_eq!(balance(&database, "rich").await, 1_000_000 - 200 * 30);
        assert_sums(&store, &database).await;
        let mixed = "SELECT COUNT(*) FROM credit_ledger WHERE balance_after < 0";
        assert_eq!(database.number(mixed).await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_stopped_process_left_is_ended_once() {
    on_both(async |database| {
        let store = database.open().await;
        caller(&database, "c", 1_000).await;
        let first = ledger(&store).await;
        let (out, between, alive) = (keyed("c", 100, "k"), task("c", 100), task("c", 100));
        let ids = [out.id.clone(), between.id.clone(), alive.id.clone()];
        for begin in [out, between] {
            let id = begin.id.clone();
            first.begin(begin, attempt(&id, 1)).await.expect("begun");
        }
        database
            .sql(&format!("UPDATE ai_model_attempts SET status = 'failed' WHERE task_id = '{}'", ids[1]))
            .await;
        let other = Ledger::start(store.clone(), "node-2", Options::default()).await.expect("another node");
        other.begin(alive, attempt(&ids[2], 1)).await.expect("begun");

        // As after kill −9: a second process of the same node starts while the first one's rows stand.
        let second = ledger(&store).await;
        let statuses: Vec<String> = {
            let mut statuses = Vec::new();
            for id in &ids {
                statuses.push(second.task(id, None).await.expect("read").expect("there").status);
            }
            statuses
        };
        assert_eq!(statuses, ["outcome_unknown", "failed", "running"], "on {}", database.name);
        assert_eq!(balance(&database, "c").await, 900);
        let attempts = second.attempts(&ids[0]).await.expect("read");
        assert_eq!((attempts[0].status.as_str(), attempts[0].outcome_unknown()), ("outcome_unknown", true));
        assert!(second.keyed("c", "k").await.expect("read").is_some(), "an unknown outcome keeps its key");

        // The first process lived after all: its result is recorded, and charges nothing.
        let late = TaskEnd {
            attempt: Some(ended(&ids[0], 1, AttemptStatus::Succeeded)),
            ..end(&ids[0], TaskStatus::Succeeded, Some(50))
        };
        assert!(first.end(late).await);
        let late = second.task(&ids[0], None).await.expect("read").expect("there");
        assert_eq!((late.status.as_str(), late.credits_charged), ("succeeded", Some(0)));
        let refused = first.attempt(None, attempt(&ids[1], 2)).await;
        assert_eq!(refused, Err(Refused::Unavailable), "nothing is sent for a task that was given up");
        assert_eq!(balance(&database, "c").await, 900);
        assert_sums(&store, &database).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_begin_that_nobody_waits_for_is_taken_back() {
    on_both(async |database| {
        let store = database.open().await;
        caller(&database, "c", 10_000).await;
        let ledger = ledger(&store).await;
        for _ in 0..50 {
            let begin = task("c", 100);
            let id = begin.id.clone();
            let waiting = ledger.begin(begin, attempt(&id, 1));
            let _ = tokio::time::timeout(std::time::Duration::from_micros(200), waiting).await;
        }
        ledger.flush().await;
        // What did get its answer in time is ended by its own caller.
        let held = "SELECT COUNT(*) FROM ai_tasks WHERE hold_state = 'held'";
        let begun = database.number(held).await;
        assert_eq!(i64::try_from(ledger.reading().unfinished).ok(), Some(begun), "on {}", database.name);
        assert_sums(&store, &database).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_paged_and_filtered() {
    on_both(async |database| {
        let store = database.open().await;
        caller(&database, "c", 0).await;
        caller(&database, "d", 0).await;
        let ledger = ledger(&store).await;
        let mut ids = Vec::new();
        for n in 0..7_u32 {
            let begin = TaskBegin {
                pool: (n != 6).then(|| "main_text".into()),
                ..task(if n < 5 { "c" } else { "d" }, 0)
            };
            let begin = if n == 6 { TaskBegin { asked: "solo".into(), ..begin } } else { begin };
            let id = begin.id.clone();
            ledger.begin(begin, attempt(&id, 1)).await.expect("begun");
            if n == 3 {
                ledger
                    .attempt(Some(ended(&id, 1, AttemptStatus::Failed)), attempt(&id, 2))
                    .await
                    .expect("again");
            }
            if n != 5 {
                let status = if n == 4 { TaskStatus::OutcomeUnknown } else { TaskStatus::Succeeded };
                assert!(ledger.end(end(&id, status, Some(0))).await);
            }
            ids.push(id);
        }
        ids.reverse();
        let list = async |filter: TaskFilter| -> Vec<usize> {
            let page =
                ledger.list(&filter, None, 100).await.unwrap_or_else(|error| panic!("{filter:?}: {error}"));
            page.tasks
                .iter()
                .map(|task| 6 - ids.iter().position(|id| *id == task.id).expect("known"))
                .collect()
        };
        let none = TaskFilter::default;
        assert_eq!(list(none()).await, [6, 5, 4, 3, 2, 1, 0]);
        assert_eq!(list(TaskFilter { caller_id: Some("d".into()), ..none() }).await, [6, 5]);
        assert_eq!(list(TaskFilter { status: Some("running".into()), ..none() }).await, [5]);
        assert_eq!(list(TaskFilter { status: Some("outcome_unknown".into()), ..none() }).await, [4]);
        assert_eq!(
            list(TaskFilter { status: Some("succeeded".into()), pool: Some("main_text".into()), ..none() })
                .await,
            [3, 2, 1, 0]
        );
        assert_eq!(list(TaskFilter { error_class: Some("upstream".into()), ..none() }).await, [3]);
        assert_eq!(list(TaskFilter { model: Some("sim-2".into()), ..none() }).await, [3]);
        assert_eq!(list(TaskFilter { model: Some("solo".into()), ..none() }).await, [6]);
        assert_eq!(
            list(TaskFilter { model: Some("sim-2".into()), error_class: Some("upstream".into()), ..none() })
                .await,
            [3]
        );
        assert_eq!(list(TaskFilter { capability: Some("image".into()), ..none() }).await, [0; 0]);
        assert_eq!(list(TaskFilter { q: Some(ids[2][20..36].into()), ..none() }).await.first(), Some(&4));
        let now = Store::now_ms();
        assert_eq!(list(TaskFilter { from: Some(now - 60_000), to: Some(now + 1), ..none() }).await.len(), 7);
        assert_eq!(list(TaskFilter { to: Some(now - 60_000), ..none() }).await.len(), 0);

        let mut seen = Vec::new();
        let mut cursor = None;
        loop {
            let page = ledger.list(&none(), cursor.as_deref(), 3).await.expect("a page");
            seen.extend(page.tasks.into_iter().map(|task| task.id));
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen, ids);
        assert!(ledger.list(&none(), Some("nonsense"), 3).await.is_err());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readings_and_commits_are_told() {
    on_both(async |database| {
        let store = database.open().await;
        caller(&database, "c", 0).await;
        let commits = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = commits.clone();
        let options = Options {
            places: 1,
            on_commit: Some(Arc::new(move |commit| {
                counted.fetch_add(commit.commands, std::sync::atomic::Ordering::Relaxed);
            })),
            ..Options::default()
        };
        let ledger = Ledger::start(store.clone(), "node-1", options).await.expect("the ledger starts");
        let (one, two) = (task("c", 0), task("c", 0));
        let (one_id, two_id) = (one.id.clone(), two.id.clone());
        ledger.begin(one, attempt(&one_id, 1)).await.expect("there is one place");
        assert_eq!(ledger.begin(two.clone(), attempt(&two_id, 1)).await, Err(Refused::Overloaded));
        assert_eq!(ledger.reading().unfinished, 1);
        ledger.end_soon(end(&one_id, TaskStatus::Succeeded, Some(0)));
        ledger.flush().await;
        ledger.begin(two, attempt(&two_id, 1)).await.expect("the place is free again");
        assert_eq!(commits.load(std::sync::atomic::Ordering::Relaxed), 3);
        assert!(ledger.is_reachable().await);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_takes_no_writes_refuses_tasks_and_loses_no_end() {
    on_both(async |database| {
        let store = database.open().await;
        caller(&database, "c", 1_000).await;
        let options = Options { commit_within: std::time::Duration::from_millis(300), ..Options::default() };
        let ledger = Ledger::start(store.clone(), "node-1", options).await.expect("the ledger starts");
        let (first, second, third) = (task("c", 100), task("c", 100), task("c", 100));
        let ids = [first.id.clone(), second.id.clone(), third.id.clone()];
        ledger.begin(first, attempt(&ids[0], 1)).await.expect("begun");

        let mut other =
            <sqlx::AnyConnection as sqlx::Connection>::connect(&database.url).await.expect("connected");
        let lock = match database.name {
            "sqlite" => "BEGIN IMMEDIATE",
            _ => "BEGIN; LOCK TABLE ai_tasks IN ACCESS EXCLUSIVE MODE",
        };
        sqlx::raw_sql(lock).execute(&mut other).await.expect("locked");
        ledger.end_soon(end(&ids[0], TaskStatus::Succeeded, Some(30)));
        assert_eq!(ledger.begin(second, attempt(&ids[1], 1)).await, Err(Refused::Unavailable));
        while !ledger.reading().is_down {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            ledger.begin(third.clone(), attempt(&ids[2], 1)).await,
            Err(Refused::Unavailable),
            "at once"
        );
        assert!(!ledger.is_reachable().await);

        sqlx::raw_sql("ROLLBACK").execute(&mut other).await.expect("unlocked");
        ledger.flush().await;
        let done = ledger.task(&ids[0], None).await.expect("read").expect("there");
        assert_eq!(
            (done.status.as_str(), done.credits_charged),
            ("succeeded", Some(30)),
            "on {}",
            database.name
        );
        let held = "SELECT COUNT(*) FROM ai_tasks WHERE hold_state = 'held'";
        assert_eq!(database.number(held).await, 0, "what was refused is held by nobody");
        ledger.begin(third, attempt(&ids[2], 1)).await.expect("the database takes writes again");
        assert_eq!(balance(&database, "c").await, 870);
        assert_eq!(ledger.reading().unfinished, 1);
        assert_sums(&store, &database).await;
    })
    .await;
}

/// Each commit waits for another writer, as on a disk that takes its time: a lock that is let go only to
/// be taken again.
async fn slow_down(database: &Database, stop: Arc<std::sync::atomic::AtomicBool>) {
    let mut other =
        <sqlx::AnyConnection as sqlx::Connection>::connect(&database.url).await.expect("connected");
    let lock = match database.name {
        "sqlite" => "BEGIN IMMEDIATE",
        _ => "BEGIN; LOCK TABLE ai_tasks IN ACCESS EXCLUSIVE MODE",
    };
    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
        sqlx::raw_sql(lock).execute(&mut other).await.expect("locked");
        tokio::time::sleep(std::time::Duration::from_millis(400)).await;
        sqlx::raw_sql("COMMIT").execute(&mut other).await.expect("unlocked");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn o3_a_slow_database_bounds_what_is_begun_and_loses_nothing_answered() {
    on_both(async |database| {
        let store = database.open().await;
        caller(&database, "c", 1_000_000).await;
        let options = Options { places: 64, ..Options::default() };
        let ledger = Ledger::start(store.clone(), "node-1", options).await.expect("the ledger starts");
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let slow = slow_down(&database, stop.clone());
        let flood = async {
            let tasks = (0..600).map(|_| {
                let ledger = ledger.clone();
                async move {
                    let task = task("c", 10);
                    let id = task.id.clone();
                    match ledger.begin(task, attempt(&id, 1)).await {
                        Ok(()) => {
                            ledger.end(end(&id, TaskStatus::Succeeded, Some(5))).await;
                            Some(id)
                        }
                        Err(Refused::Overloaded) => None,
                        Err(other) => panic!("{other}"),
                    }
                }
            });
            let answered = futures::future::join_all(tasks).await;
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            answered
        };
        let (answered, ()) = futures::join!(flood, slow);
        ledger.flush().await;
        let answered: Vec<String> = answered.into_iter().flatten().collect();
        assert!(!answered.is_empty() && answered.len() <= 64, "{} on {}", answered.len(), database.name);
        for id in &answered {
            let row = ledger.task(id, None).await.expect("read").expect("an answered task is there");
            assert_eq!(row.status, "succeeded");
        }
        assert_eq!(ledger.reading().unfinished, 0);
        assert_eq!(balance(&database, "c").await, 1_000_000 - 5 * answered.len() as i64);
        assert_sums(&store, &database).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlites_log_is_copied_while_the_ledger_goes_on_writing() {
    let database = sqlite();
    let store = database.open().await;
    caller(&database, "c", 1_000_000).await;
    let ledger = ledger(&store).await;
    let file = store.sqlite_file().expect("a file");
    let length = || std::fs::metadata(&file).expect("it is there").len();
    let before = length();
    let one = async || {
        let begin = task("c", 100);
        let id = begin.id.clone();
        ledger.begin(begin, attempt(&id, 1)).await.expect("begun");
        ledger.end(end(&id, TaskStatus::Succeeded, Some(30))).await;
    };
    for _ in 0..14 {
        futures::future::join_all((0..100).map(|_| one())).await;
    }
    // Nothing tells of a copy but the file itself, which is written to by nothing else.
    eventually("a copy of the log", || length() >= before + 500_000).await;
    assert_sums(&store, &database).await;
}
