//! The configuration: imported, edited, exported, written by hand; and what a running server makes of it.

use std::sync::Arc;
use std::time::Duration;

use forebay::auth::KeyRing;
use forebay::catalog::{Author, Catalog, CatalogError};
use forebay_engine::breaker::BreakerState;
use forebay_engine::clock::TokioClock;
use forebay_engine::policy::BreakerPolicy;
use forebay_engine::{Clock, Directory, GroupKey, LocalState, ModelId, Moment, Priority, State};
use forebay_wire::import::{self, Section};
use secrecy::ExposeSecret;
use serde_json::json;

use crate::databases::{Database, on_both};

const KEY: &str = "sk-canary-0123456789";
const BY: Author<'static> = Author("story");

/// The example of the contract.
pub(super) const FILE: &str = r#"
providers:
  - {key: sim, name: Simulator, protocol: openai, base_url: "http://127.0.0.1:9100/v1", tier: other, allow_private_network: true}
accounts:
  - {label: sim-a, provider: sim, account_key: "${SIM_KEY}", max_rps: 50, max_concurrency: 20, daily_limit: 100000, region: cn-beijing}
pools:
  - {group_key: main_text, name: Main text, capability: text, strategy: weighted_random, public_alias: chat,
     circuit_failure_threshold: 5, circuit_recovery_seconds: 60,
     price: {input_per_1m: "0.50", output_per_1m: "1.50"}}
models:
  - {name: sim-fast, provider: sim, upstream_model: fast, capability: text, pool: main_text, weight: 6, priority: 0,
     max_concurrency: 20, features: {stream: true, thinking: false, max_context: 128000, max_output: 512},
     routing: {fallback_on_failure: false, fallback_candidate: true},
     prices: {input_per_1m: "0.10", output_per_1m: "0.30"}, accounts: [{label: sim-a, priority: 0}]}
callers:
  - {name: team-a, plan: {concurrent_tasks: 10}, credits: "100", pools: []}
settings: {default_pool: {text: main_text}}
"#;

pub(super) fn file(text: &str) -> import::Document {
    let environment = |name: &str| (name == "SIM_KEY").then(|| KEY.to_owned());
    import::parse(text, &environment).unwrap_or_else(|problems| panic!("{problems:?}"))
}

pub(super) fn keys() -> KeyRing {
    KeyRing::parse("1:MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=").expect("a key")
}

pub(super) struct Opened {
    pub(super) catalog: Arc<Catalog>,
    pub(super) state: Arc<LocalState>,
    pub(super) clock: Arc<TokioClock>,
}

pub(super) async fn open(database: &Database, keys: KeyRing) -> Opened {
    let state = Arc::new(LocalState::new());
    let clock = Arc::new(TokioClock::new());
    let store = database.open().await;
    let catalog = Catalog::open(store, keys, state.clone(), clock.clone(), None).await;
    Opened { catalog: catalog.unwrap_or_else(|error| panic!("{}: {error}", database.name)), state, clock }
}

fn key(text: &str) -> GroupKey {
    text.parse().expect("a key")
}

fn model_id(catalog: &Catalog, name: &str) -> ModelId {
    catalog.snapshot().model_id(name).expect("the model is there")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_is_live_whole_and_idempotent() {
    on_both(async |database| {
        let Opened { catalog, .. } = open(&database, keys()).await;
        let dry = catalog.import(&file(FILE), BY, true).await.expect("it holds together");
        assert_eq!(dry.changes.len(), 6);
        assert!(catalog.snapshot().pools.is_empty(), "a dry run changes nothing");

        let done = catalog.import(&file(FILE), BY, false).await.expect("it holds together");
        assert_eq!(done, dry);
        let snapshot = catalog.snapshot();
        let pool = catalog.pool(&key("main_text")).expect("the pool is live");
        let member = pool.members().next().expect("its member").clone();
        assert_eq!((&*member.name, member.weight.get(), member.max_concurrency), ("sim-fast", 6, Some(20)));
        assert_eq!(&*member.accounts[0].account.label, "sim-a");
        assert_eq!(snapshot.accounts[&member.accounts[0].account.id].key.expose_secret(), KEY);
        let config = snapshot.pool_named("chat").expect("by its alias");
        assert_eq!((config.key.as_str(), config.max_output), ("main_text", Some(512)));
        assert_eq!(snapshot.model_named("sim-fast").expect("by name").pool, Some(key("main_text")));
        assert_eq!(snapshot.settings.default_pool["text"], "main_text");
        assert_eq!(database.number("SELECT balance FROM credit_accounts").await, 100_000_000);
        assert_eq!(database.number("SELECT COUNT(*) FROM audit_log").await, 6);
        let clear = format!("SELECT COUNT(*) FROM ai_model_api_accounts WHERE account_key LIKE '%{KEY}%'");
        assert_eq!(database.number(&clear).await, 0, "sealed in the table");

        let again = catalog.import(&file(FILE), BY, false).await.expect("the same again");
        assert_eq!(again.changes, [], "on {}", database.name);
        let exported = catalog.export();
        assert!(!exported.to_string().contains("canary"), "keys are masked");
        let exported = import::parse_value(&exported).expect("an export is an import file");
        assert_eq!(catalog.import(&exported, BY, false).await.expect("the same").changes, []);
        assert_eq!(database.number("SELECT balance FROM credit_accounts").await, 100_000_000);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_with_one_wrong_row_changes_nothing() {
    on_both(async |database| {
        let Opened { catalog, .. } = open(&database, keys()).await;
        let wrong = "
providers: [{key: sim, base_url: 'http://sim'}]
pools: [{group_key: images, capability: image}]
models: [{name: a, provider: sim, capability: text, pool: images}, {name: b, provider: nobody, public_alias: a}]";
        let error = catalog.import(&file(wrong), BY, false).await.expect_err("it does not hold together");
        let CatalogError::Invalid(problems) = error else { panic!("{error:?}") };
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            problems,
            [
                "model b: provider: there is no provider nobody; create it first, or put it in the same file",
                "model a: pool: pool images is for image, the model for text",
                "model b: public_alias: a is taken by model a",
            ]
        );
        assert_eq!(database.number("SELECT COUNT(*) FROM ai_providers WHERE key = 'sim'").await, 0);
        assert_eq!(database.number("SELECT COUNT(*) FROM audit_log").await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_edited_bound_and_deleted_one_by_one() {
    on_both(async |database| {
        let Opened { catalog, state, clock } = open(&database, keys()).await;
        catalog.import(&file(FILE), BY, false).await.expect("imported");
        let put = async |section, name: &str, row| {
            let item =
                import::parse_row(section, name, &row).unwrap_or_else(|problems| panic!("{problems:?}"));
            catalog.put(item, BY).await
        };
        put(Section::Models, "sim-fast", json!({ "weight": 2, "max_concurrency": null }))
            .await
            .expect("edited");
        let member =
            catalog.pool(&key("main_text")).expect("live").members().next().expect("a member").clone();
        assert_eq!((member.weight.get(), member.max_concurrency), (2, None));

        put(Section::Accounts, "sim-b", json!({ "provider": "sim", "account_key": "sk-another" }))
            .await
            .expect("new");
        catalog
            .bind("sim-fast", "sim-b", Priority::try_new(1).expect("a priority"), BY)
            .await
            .expect("bound");
        let bound = |catalog: &Catalog| {
            let pool = catalog.pool(&key("main_text")).expect("live");
            pool.members()
                .flat_map(|member| &member.accounts)
                .map(|b| b.account.label.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(bound(&catalog), ["sim-a", "sim-b"]);
        catalog.unbind("sim-fast", "sim-a", BY).await.expect("unbound");
        assert_eq!(bound(&catalog), ["sim-b"]);
        assert!(matches!(catalog.unbind("sim-fast", "sim-a", BY).await, Err(CatalogError::Missing(_))));

        let in_use = catalog.remove(Section::Providers, "sim", BY).await.expect_err("it is in use");
        assert_eq!(
            in_use.to_string(),
            "provider sim is in use by model sim-fast, account sim-a, account sim-b"
        );
        catalog.remove(Section::Accounts, "sim-a", BY).await.expect("nobody uses it");
        let in_use = catalog.remove(Section::Pools, "main_text", BY).await.expect_err("it is in use");
        assert_eq!(
            in_use.to_string(),
            "pool main_text is in use by model sim-fast, setting default_pool.text"
        );

        // Out of rotation and back: the breaker starts closed.
        let id = model_id(&catalog, "sim-fast");
        let breaker = &state.model(&id, BreakerPolicy::default()).breaker;
        breaker.force_open(Moment::NEVER, clock.now());
        put(Section::Models, "sim-fast", json!({ "is_active": false })).await.expect("edited");
        assert_eq!(catalog.pool(&key("main_text")).expect("live").members().count(), 0);
        assert!(catalog.snapshot().model_named("sim-fast").is_none());
        assert_eq!(breaker.view(clock.now()).state, BreakerState::Open);
        put(Section::Models, "sim-fast", json!({ "is_active": true })).await.expect("edited");
        assert_eq!(breaker.view(clock.now()).state, BreakerState::Closed);

        let caller = catalog.snapshot().callers.values().next().expect("a caller").clone();
        assert!(caller.in_flight.try_take(None));
        put(Section::Pools, "other", json!({ "name": "Other" })).await.expect("created");
        put(Section::Callers, "team-a", json!({ "plan": { "concurrent_tasks": 3 }, "pools": ["other"] }))
            .await
            .expect("edited");
        let now = catalog.snapshot().callers.values().next().expect("a caller").clone();
        assert_eq!((now.concurrent_tasks, now.in_flight.taken()), (3, 1), "what is under way stays counted");
        assert!(!now.may_use(&key("main_text")) && now.may_use(&key("other")));

        let settings =
            import::parse_settings(&json!({ "routing": { "text": { "waits_ms": [7] } } })).expect("right");
        catalog.set_settings(settings, BY).await.expect("set");
        let text = catalog.routing().retry(forebay_engine::Capability::Text).clone();
        assert_eq!(text.waits, [Duration::from_millis(7)]);
    })
    .await;
}

async fn within_two_seconds(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + Duration::from_millis(2_500);
    while !is_so() {
        assert!(std::time::Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hand_written_sql_is_live_within_two_seconds() {
    on_both(async |database| {
        let Opened { catalog, .. } = open(&database, keys()).await;
        catalog.import(&file(FILE), BY, false).await.expect("imported");
        let watch = catalog.watch();
        let uuid = if database.name == "postgres" { "gen_random_uuid()" } else { "lower(hex(randomblob(16)))" };
        database
            .sql(&format!(
                "INSERT INTO ai_model_groups (id, group_key, name, circuit_failure_threshold, circuit_recovery_seconds)
                     VALUES ({uuid}, 'by_hand', 'By hand', 3, 30);
                 INSERT INTO ai_model_api_accounts (id, account_key, label, provider, max_rps)
                     VALUES ({uuid}, 'sk-in-the-clear', 'hand-a', 'sim', 25);
                 INSERT INTO ai_model_account_bindings (model_id, account_id, priority)
                     SELECT m.id, a.id, 1 FROM ai_models m, ai_model_api_accounts a
                     WHERE m.name = 'sim-fast' AND a.label = 'hand-a';
                 UPDATE ai_models SET group_id = (SELECT id FROM ai_model_groups WHERE group_key = 'by_hand'),
                     weight = 4, priority = 1 WHERE name = 'sim-fast'"
            ))
            .await;
        within_two_seconds("the new pool is live with its member", || {
            catalog.pool(&key("by_hand")).is_some_and(|pool| pool.members().count() == 1)
        })
        .await;
        let pool = catalog.pool(&key("by_hand")).expect("live");
        assert_eq!(pool.policy.breaker.failure_threshold, 3);
        let member = pool.members().next().expect("a member").clone();
        assert_eq!((member.weight.get(), member.priority.get(), member.accounts.len()), (4, 1, 2));
        let credential = &catalog.snapshot().accounts[&member.accounts[1].account.id];
        assert_eq!(credential.key.expose_secret(), "sk-in-the-clear");
        let clear = "SELECT COUNT(*) FROM ai_model_api_accounts WHERE key_version = 0 OR account_key LIKE '%clear%'";
        assert_eq!(database.number(clear).await, 0, "sealed by the reload");

        database.sql("UPDATE ai_models SET weight = 0").await;
        within_two_seconds("the wrong edit is noticed", || !catalog.problems().is_empty()).await;
        assert!(catalog.problems()[0].to_string().starts_with("model sim-fast: weight: must be between 1 and"));
        assert_eq!(catalog.pool(&key("by_hand")).expect("still live").members().count(), 1, "the old one stays");
        database.sql("UPDATE ai_models SET weight = 9").await;
        within_two_seconds("the right edit is taken", || catalog.problems().is_empty()).await;
        within_two_seconds("and live", || {
            catalog.pool(&key("by_hand")).is_some_and(|pool| pool.members().any(|member| member.weight.get() == 9))
        })
        .await;
        watch.abort();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_does_not_open_disables_its_account_and_nothing_else() {
    on_both(async |database| {
        let Opened { catalog, .. } = open(&database, keys()).await;
        catalog.import(&file(FILE), BY, false).await.expect("imported");
        let other = KeyRing::parse("1:YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODk=").expect("another key");
        let Opened { catalog, .. } = open(&database, other).await;
        let pool = catalog.pool(&key("main_text")).expect("the pool is live");
        let account = &pool.members().next().expect("its member").accounts[0].account;
        assert!(!account.is_enabled);
        let problem = &catalog.snapshot().account_problems[&account.id];
        assert!(problem.contains("enter the key again"), "{problem}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_master_key_seals_every_key_anew_and_the_old_one_may_go() {
    use base64::Engine;
    on_both(async |database| {
        let key = |n: u8| format!("{n}:{}", base64::engine::general_purpose::STANDARD.encode([n; 32]));
        let ring = |text: &str| KeyRing::parse(text).expect("a ring");
        let Opened { catalog, .. } = open(&database, ring(&key(1))).await;
        catalog.import(&file(FILE), BY, false).await.expect("imported");
        let own = r#"{"models": [{"name": "sim-fast", "api_keys": ["sk-own"]}]}"#;
        catalog.import(&file(own), BY, false).await.expect("imported");
        let sealed = catalog.snapshot().accounts.len();

        let both = format!("{},{}", key(1), key(2));
        let Opened { catalog, .. } = open(&database, ring(&both)).await;
        let rotated = catalog.rotate_keys().await.expect("rotated");
        assert_eq!((rotated.resealed, rotated.lost.len()), (sealed, 0), "on {}", database.name);
        assert_eq!(
            catalog.rotate_keys().await.expect("again").resealed,
            0,
            "running it twice changes nothing"
        );

        let Opened { catalog, .. } = open(&database, ring(&key(2))).await;
        assert_eq!(catalog.snapshot().accounts.len(), sealed, "every key opens without the old one");
        assert!(catalog.snapshot().account_problems.is_empty());
        let Opened { catalog, .. } = open(&database, ring(&key(3))).await;
        let rotated = catalog.rotate_keys().await.expect("nothing to open");
        assert_eq!((rotated.resealed, rotated.lost.len()), (0, sealed));
    })
    .await;
}
