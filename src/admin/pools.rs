//! Pools: GET /api/admin/pools, the dry run of picks, and the console's `PoolsPort`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use forebay_app::pools::api::{
    BreakerState as ShownState, BreakerView, LiveModel, LivePool, LiveView, MemberAccount, MemberEdit,
    MemberRow, MockPick, PickCount, PickRefusal, PoolCard, PoolDetail, PoolEdit,
};
use forebay_app::pools::port::PoolsPort;
use forebay_app::port::{Cooldown as ShownCooldown, PortError, PortFuture};
use forebay_app::session::api::Operator;
use forebay_engine::breaker::BreakerState;
use forebay_engine::cooldown::{Cooldown, Reason};
use forebay_engine::policy::BreakerPolicy;
use forebay_engine::select::Wish;
use forebay_engine::{GroupKey, Member, ModelId, Moment, Needs, Pool};
use forebay_wire::import::{Cell, Section};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Admin;
use super::body::Body;
use super::breakers::cause_text;
use super::error::AdminError;
use super::operator::Viewer;
use super::times::{moment_rfc3339, ms, shown};
use crate::catalog::{ConfigRow, Snapshot, export_row};

/// Picks of one dry run at most.
const PICKS: u32 = 10_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Probe {
    n: Option<u32>,
    /// The body of a request, as far as picking heeds it.
    #[serde(default)]
    request: Value,
}

/// GET /pools
pub(super) async fn list(_: Viewer, State(admin): State<Admin>) -> Json<Value> {
    let snapshot = admin.catalog.snapshot();
    let pools: Vec<Value> = snapshot.rows.pools.iter().map(|row| admin.pool_json(&snapshot, row)).collect();
    Json(json!({ "pools": pools, "problems": admin.problem_texts() }))
}

/// GET /pools/{group_key}
pub(super) async fn show(
    _: Viewer,
    State(admin): State<Admin>,
    Path(key): Path<String>,
) -> Result<Json<Value>, AdminError> {
    let snapshot = admin.catalog.snapshot();
    Ok(Json(admin.pool_json(&snapshot, pool_row(&snapshot, &key)?)))
}

/// POST /pools/{group_key}/mock-generate-probe
pub(super) async fn probe(
    _: Viewer,
    State(admin): State<Admin>,
    Path(key): Path<String>,
    Body(probe): Body<Probe>,
) -> Result<Json<Value>, AdminError> {
    let n = probe.n.unwrap_or(1_000);
    let input = probe.request.get("input").unwrap_or(&probe.request);
    let needs = Needs {
        stream: probe.request["stream"] == true,
        tools: input["tools"].as_array().is_some_and(|tools| !tools.is_empty()),
        structured: input["response_format"]["type"] == "json_schema",
        thinking: probe.request["thinking"] == true,
        ..Needs::default()
    };
    let picked = admin.dry_picks(&key, n, &needs)?;
    let counts: Map<String, Value> =
        picked.picked.iter().map(|count| (count.model.clone(), count.picks.into())).collect();
    let excluded: Map<String, Value> = picked
        .excluded
        .iter()
        .map(|refusal| (refusal.model.clone(), refusal.reason.clone().into()))
        .collect();
    Ok(Json(json!({ "n": n, "picked": counts, "excluded": excluded })))
}

impl Admin {
    fn problem_texts(&self) -> Vec<String> {
        self.catalog.problems().iter().map(ToString::to_string).collect()
    }

    fn pool_json(&self, snapshot: &Snapshot, row: &ConfigRow) -> Value {
        let mut pool = export_row(Section::Pools, row, &snapshot.rows);
        let members: Vec<Value> =
            models_of(snapshot, row).into_iter().map(|model| self.member_json(snapshot, model)).collect();
        pool["members"] = members.into();
        pool["active_channels"] = row
            .name
            .parse::<GroupKey>()
            .ok()
            .and_then(|key| snapshot.pools.get(&key))
            .map_or(0, |pool| pool.active_channels(self.now()))
            .into();
        pool
    }

    fn member_json(&self, snapshot: &Snapshot, row: &ConfigRow) -> Value {
        let now = self.now();
        let id = ModelId(row.id.as_str().into());
        let state = self.state.model(&id, BreakerPolicy::default());
        let breaker = state.breaker.view(now);
        let recent = state.recent(now);
        let accounts: Vec<Value> = match solo(snapshot, &id) {
            Some(member) => member
                .accounts
                .iter()
                .map(|binding| {
                    let cooldown =
                        binding.account.state.cooldown.reason(now).or_else(|| binding.cooldown.reason(now));
                    json!({
                        "label": &*binding.account.label,
                        "priority": binding.priority.get(),
                        "is_enabled": binding.account.is_enabled,
                        "in_flight": binding.account.state.in_flight.taken(),
                        "cooldown": cooldown.map(|reason| reason_json(&reason, now)),
                        "problem": snapshot.account_problems.get(&binding.account.id),
                    })
                })
                .collect(),
            None => Vec::new(),
        };
        json!({
            "name": row.name,
            "provider": row.text("provider"),
            "upstream_model": row.text("upstream_model"),
            "weight": row.whole("weight"),
            "effective_weight": effective_weight(snapshot, row, now),
            "priority": row.whole("priority"),
            "max_concurrency": row.whole("max_concurrency"),
            "is_active": row.flag("is_active"),
            "in_flight": state.in_flight.taken(),
            "breaker": {
                "state": breaker.state.as_str(),
                "consecutive_failures": breaker.consecutive_failures,
                "error_rate": recent.error_rate(),
                "calls": recent.calls,
                "open_until": breaker.open_until.map(moment_rfc3339),
                "forced": breaker.forced,
                "generation": breaker.generation,
            },
            "cooldown": state.cooldown.reason(now).map(|reason| reason_json(&reason, now)),
            "accounts": accounts,
        })
    }

    fn dry_picks(&self, key: &str, n: u32, needs: &Needs) -> Result<MockPick, AdminError> {
        if !(1..=PICKS).contains(&n) {
            return Err(AdminError::invalid("n", format!("must be between 1 and {PICKS}")));
        }
        let snapshot = self.catalog.snapshot();
        let row = pool_row(&snapshot, key)?;
        let pool = key.parse::<GroupKey>().ok().and_then(|key| snapshot.pools.get(&key).cloned());
        let mut counts: BTreeMap<Arc<str>, u32> = BTreeMap::new();
        let mut why: BTreeMap<String, String> = BTreeMap::new();
        if let Some(pool) = &pool {
            let now = self.now();
            let wish = Wish::any(needs);
            for _ in 0..n {
                match pool.dry_pick(&wish, &*self.random, now) {
                    Ok(member) => *counts.entry(member.name.clone()).or_default() += 1,
                    Err(_) => break,
                }
            }
            for (name, reason) in pool.no_pick(&wish, now).why {
                why.insert(name.to_string(), reason.describe(now));
            }
            // Whoever could have been picked but was not: in the tier that was drawn from, by chance.
            let drawn = pool.members().filter(|member| counts.contains_key(&member.name)).map(|m| m.priority);
            let drawn = drawn.min();
            for member in pool.members().filter(|member| !counts.contains_key(&member.name)) {
                let reason =
                    if Some(member.priority) == drawn { "not drawn" } else { "a higher tier has room" };
                why.entry(member.name.to_string()).or_insert_with(|| reason.to_owned());
            }
        }
        for model in models_of(&snapshot, row) {
            let id = ModelId(model.id.as_str().into());
            let reason = match snapshot.models.get(&id) {
                _ if pool.is_none() => "the pool is inactive",
                Some(model) if !model.is_active => "inactive",
                Some(model) if !model.provider.is_enabled => "its provider is disabled",
                _ => continue,
            };
            why.insert(model.name.clone(), reason.to_owned());
        }
        let mut picked: Vec<PickCount> =
            counts.into_iter().map(|(model, picks)| PickCount { model: model.to_string(), picks }).collect();
        picked.sort_by_key(|count| std::cmp::Reverse(count.picks));
        let excluded = why.into_iter().map(|(model, reason)| PickRefusal { model, reason }).collect();
        Ok(MockPick { n, picked, excluded })
    }

    fn live_pool(&self, snapshot: &Snapshot, row: &ConfigRow) -> LivePool {
        let now = self.now();
        let mut live = LivePool {
            key: row.name.clone(),
            closed: 0,
            half_open: 0,
            open: 0,
            cooling: 0,
            in_flight: 0,
            calls: 0,
            failed: 0,
        };
        let pool: Option<&Arc<Pool>> =
            row.name.parse().ok().and_then(|key: GroupKey| snapshot.pools.get(&key));
        for member in pool.into_iter().flat_map(|pool| pool.members()) {
            match member.state.breaker.view(now).state {
                BreakerState::Closed => live.closed += 1,
                BreakerState::HalfOpen => live.half_open += 1,
                BreakerState::Open => live.open += 1,
            }
            let recent = member.state.recent(now);
            live.cooling += u32::from(is_cooling(member, now));
            live.in_flight += u64::from(member.state.in_flight.taken());
            live.calls += recent.calls;
            live.failed += recent.failures;
        }
        live
    }

    fn live_model(&self, snapshot: &Snapshot, pool: &str, row: &ConfigRow) -> LiveModel {
        let now = self.now();
        let id = ModelId(row.id.as_str().into());
        let state = self.state.model(&id, BreakerPolicy::default());
        let view = state.breaker.view(now);
        let event = self.breaker_events.newest(&row.id);
        let recent = state.recent(now);
        let mut cooldowns: Vec<ShownCooldown> =
            shown_cooldown(&state.cooldown, None, Some(&row.name), now).into_iter().collect();
        for binding in solo(snapshot, &id).into_iter().flat_map(|member| &member.accounts) {
            let label = &*binding.account.label;
            cooldowns.extend(shown_cooldown(&binding.account.state.cooldown, Some(label), None, now));
            cooldowns.extend(shown_cooldown(&binding.cooldown, Some(label), Some(&row.name), now));
        }
        LiveModel {
            model: row.name.clone(),
            pool: pool.to_owned(),
            breaker: BreakerView {
                state: match view.state {
                    BreakerState::Closed => ShownState::Closed,
                    BreakerState::HalfOpen => ShownState::HalfOpen,
                    BreakerState::Open => ShownState::Open,
                },
                forced: view.forced,
                consecutive_failures: view.consecutive_failures,
                open_left_ms: view.open_until.map(|until| left_ms(until, now)),
                since: event.as_ref().map(|event| shown(event.at, &self.time_zone)),
                cause: event.as_ref().map(cause_text),
                generation: view.generation,
            },
            in_flight: state.in_flight.taken().into(),
            effective_weight_milli: (effective_weight(snapshot, row, now) * 1_000.0).round() as u64,
            calls: recent.calls,
            failed: recent.failures,
            cooldowns,
            last_error: state.last_failure().map(|(at, failure)| self.last_error(at, failure)),
        }
    }

    fn live_view(&self, members_of: &[String]) -> LiveView {
        let snapshot = self.catalog.snapshot();
        let rows = &snapshot.rows.pools;
        let named = rows.iter().filter(|row| members_of.contains(&row.name));
        let models = named.flat_map(|row| {
            let models = models_of(&snapshot, row);
            models.into_iter().map(|model| self.live_model(&snapshot, &row.name, model)).collect::<Vec<_>>()
        });
        LiveView {
            at: shown(ms(self.now()), &self.time_zone),
            models: models.collect(),
            pools: rows.iter().map(|row| self.live_pool(&snapshot, row)).collect(),
        }
    }
}

impl PoolsPort for Admin {
    fn list(&self) -> PortFuture<'_, Vec<PoolCard>> {
        Box::pin(async {
            let snapshot = self.catalog.snapshot();
            snapshot.rows.pools.iter().map(|row| card(&snapshot, row)).collect()
        })
    }

    fn live<'a>(&'a self, members_of: &'a [String]) -> PortFuture<'a, LiveView> {
        Box::pin(async move { Ok(self.live_view(members_of)) })
    }

    fn pool<'a>(&'a self, key: &'a str) -> PortFuture<'a, PoolDetail> {
        Box::pin(async move {
            let snapshot = self.catalog.snapshot();
            let row = pool_row(&snapshot, key)?;
            let members =
                models_of(&snapshot, row).into_iter().map(|model| member_row(&snapshot, model)).collect();
            Ok(PoolDetail { card: card(&snapshot, row)?, settings: settings(&snapshot, row)?, members })
        })
    }

    fn edit<'a>(&'a self, by: &'a Operator, key: &'a str, edit: &'a PoolEdit) -> PortFuture<'a, ()> {
        Box::pin(async move {
            pool_row(&self.catalog.snapshot(), key)?;
            let row =
                serde_json::to_value(edit).map_err(|error| PortError::invalid("form", error.to_string()))?;
            self.put_row(&by.name, Section::Pools, key, &row).await?;
            Ok(())
        })
    }

    fn reset_breaker<'a>(&'a self, by: &'a Operator, model: &'a str) -> PortFuture<'a, ()> {
        Box::pin(async move {
            Admin::reset_breaker(self, &by.name, model).await?;
            Ok(())
        })
    }

    fn reset_all<'a>(&'a self, by: &'a Operator, key: &'a str) -> PortFuture<'a, u32> {
        Box::pin(async move {
            let snapshot = self.catalog.snapshot();
            let key = pool_row(&snapshot, key)?.name.parse::<GroupKey>();
            let key = key.map_err(|error| PortError::invalid("key", error.to_string()))?;
            Ok(self.reset_breakers(&by.name, Some(&key)).await?)
        })
    }

    fn force_open<'a>(&'a self, by: &'a Operator, model: &'a str, seconds: u32) -> PortFuture<'a, ()> {
        Box::pin(async move {
            self.force_breaker(&by.name, model, seconds).await?;
            Ok(())
        })
    }

    fn set_member<'a>(&'a self, by: &'a Operator, model: &'a str, edit: MemberEdit) -> PortFuture<'a, ()> {
        Box::pin(async move {
            self.model(model)?;
            let row =
                json!({ "weight": edit.weight, "priority": edit.priority, "is_active": edit.is_active });
            self.put_row(&by.name, Section::Models, model, &row).await?;
            Ok(())
        })
    }

    fn mock_pick<'a>(&'a self, key: &'a str, n: u32) -> PortFuture<'a, MockPick> {
        Box::pin(async move { Ok(self.dry_picks(key, n, &Needs::default())?) })
    }
}

fn pool_row<'a>(snapshot: &'a Snapshot, key: &str) -> Result<&'a ConfigRow, AdminError> {
    snapshot.rows.find(Section::Pools, key).ok_or_else(|| AdminError::not_found(format!("pool {key}")))
}

/// The weight by which a model is drawn in its pool now.
fn effective_weight(snapshot: &Snapshot, row: &ConfigRow, now: Moment) -> f64 {
    let id = ModelId(row.id.as_str().into());
    let pool = snapshot.models.get(&id).and_then(|model| snapshot.pools.get(model.pool.as_ref()?));
    let member = pool.and_then(|pool| Some((pool, pool.members().find(|member| member.model == id)?)));
    member.map_or_else(
        || row.whole("weight").unwrap_or(1) as f64,
        |(pool, member)| pool.effective_weight(member, now),
    )
}

/// The models of a pool, by priority, then name; inactive ones too.
fn models_of<'a>(snapshot: &'a Snapshot, pool: &ConfigRow) -> Vec<&'a ConfigRow> {
    let members = snapshot.rows.models.iter().filter(|model| model.group_id.as_deref() == Some(&pool.id));
    let mut members: Vec<_> = members.collect();
    members.sort_by_key(|model| (model.whole("priority"), &model.name));
    members
}

/// A usable model as the only member of itself.
fn solo<'a>(snapshot: &'a Snapshot, id: &ModelId) -> Option<&'a Arc<Member>> {
    snapshot.alone.get(id).and_then(|pool| pool.members().next())
}

fn is_cooling(member: &Member, now: Moment) -> bool {
    let accounts_cool = !member.accounts.is_empty()
        && member.accounts.iter().all(|binding| {
            binding.cooldown.is_cooling(now) || binding.account.state.cooldown.is_cooling(now)
        });
    member.state.cooldown.is_cooling(now) || accounts_cool
}

fn reason_json(reason: &Reason, now: Moment) -> Value {
    json!({
        "reason": reason.class.as_str(),
        "message": reason.message,
        "until": moment_rfc3339(reason.until),
        "left_ms": left_ms(reason.until, now),
    })
}

pub(super) fn shown_cooldown(
    cooldown: &Cooldown,
    account: Option<&str>,
    model: Option<&str>,
    now: Moment,
) -> Option<ShownCooldown> {
    let reason = cooldown.reason(now)?;
    Some(ShownCooldown {
        account: account.map(str::to_owned),
        model: model.map(str::to_owned),
        reason: reason.class.to_string(),
        left_ms: left_ms(reason.until, now),
    })
}

fn left_ms(until: Moment, now: Moment) -> i64 {
    i64::try_from(now.until(until).as_millis()).unwrap_or(i64::MAX)
}

/// A word of a table as the console's type.
pub(super) fn word<T: serde::de::DeserializeOwned>(text: &str, field: &str) -> Result<T, PortError> {
    serde_json::from_value(text.into()).map_err(|error| PortError::invalid(field, error.to_string()))
}

fn card(snapshot: &Snapshot, row: &ConfigRow) -> Result<PoolCard, PortError> {
    let members = models_of(snapshot, row);
    let active: Vec<_> = members.iter().filter(|model| model.flag("is_active")).collect();
    let small = |column: &str| u32::try_from(row.whole(column).unwrap_or_default()).unwrap_or(u32::MAX);
    Ok(PoolCard {
        key: row.name.clone(),
        name: row.text("name").to_owned(),
        capability: word(row.text("capability"), "capability")?,
        is_active: row.flag("is_active"),
        strategy: word(row.text("strategy"), "strategy")?,
        members: members.len() as u32,
        active_members: active.len() as u32,
        total_concurrency: active
            .iter()
            .map(|model| model.whole("max_concurrency").and_then(|limit| u64::try_from(limit).ok()))
            .sum(),
        circuit_failure_threshold: small("circuit_failure_threshold"),
        circuit_recovery_seconds: small("circuit_recovery_seconds"),
    })
}

/// The fields of the form are those of the import file.
fn settings(snapshot: &Snapshot, row: &ConfigRow) -> Result<PoolEdit, PortError> {
    let Value::Object(mut fields) = export_row(Section::Pools, row, &snapshot.rows) else {
        return Err(PortError::unavailable("the pool can't be read"));
    };
    let known = serde_json::to_value(PoolEdit::default()).unwrap_or_default();
    fields.retain(|name, _| known.get(name).is_some());
    serde_json::from_value(Value::Object(fields))
        .map_err(|error| PortError::invalid("settings", error.to_string()))
}

fn member_row(snapshot: &Snapshot, row: &ConfigRow) -> MemberRow {
    let accounts = &snapshot.rows.accounts;
    let bindings = snapshot.rows.bindings.iter().filter(|binding| binding.model_id == row.id);
    let limit = match row.cells.get("max_concurrency") {
        Some(Cell::Whole(limit)) => u32::try_from(*limit).ok(),
        _ => None,
    };
    MemberRow {
        model: row.name.clone(),
        provider: row.text("provider").to_owned(),
        upstream_model: row.text("upstream_model").to_owned(),
        weight: u32::try_from(row.whole("weight").unwrap_or(1)).unwrap_or(1),
        priority: row.whole("priority").unwrap_or_default(),
        is_active: row.flag("is_active"),
        max_concurrency: limit,
        accounts: bindings
            .filter_map(|binding| {
                let account = accounts.iter().find(|account| account.id == binding.account_id)?;
                Some(MemberAccount {
                    label: account.name.clone(),
                    priority: binding.priority,
                    is_enabled: account.flag("is_enabled"),
                })
            })
            .collect(),
    }
}
