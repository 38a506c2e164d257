//! One pool: its figures, and when it is open its members, settings and dry run.

use leptos::prelude::*;
use leptos_router::components::A;
use leptos_router::hooks::use_query_map;

use super::api::{LivePool, PoolCard, PoolDetail};
use super::dry_run::DryRun;
use super::members::Members;
use super::page::PoolActs;
use super::settings::Settings;
use crate::ui::copy::CopyButton;
use crate::ui::format;
use crate::ui::icon::{Glyph, Icon};
use crate::ui::meter::Strip;
use crate::ui::text::use_text;
use crate::ui::when::when;

/// A card; `detail` makes it the open one.
#[component]
pub(super) fn Card(card: PoolCard, detail: Option<PoolDetail>) -> impl IntoView {
    let t = use_text();
    let is_open = detail.is_some();
    let query = use_query_map();
    let href = {
        let key = card.key.clone();
        move || card_href(&key, is_open, query.with(|query| query.get("q")))
    };
    let inactive = (!card.is_active)
        .then(|| view! { <span class="badge"><Icon glyph=Glyph::Ban/>{t.pools.inactive}</span> }.into_any());
    let (key, name, capability) = (card.key.clone(), card.name.clone(), card.capability);
    view! {
        <article class="card" class:card-open=is_open id=key.clone()>
            <header class="card-head">
                <h2>
                    <A href=href attr:class="card-link" attr:aria-expanded=is_open.to_string() scroll=false>
                        <Icon glyph=Glyph::Chevron/>
                        {name}
                    </A>
                </h2>
                <span class="id">
                    <code>{key.clone()}</code>
                    <CopyButton text=key.clone()/>
                </span>
                <span class="muted">{(t.common.capability)(capability)}</span>
                {inactive}
            </header>
            <Figures card/>
            {detail.map(|detail| view! { <Open detail/> }.into_any())}
        </article>
    }
    .into_any()
}

/// What stands still and what moves about a pool.
#[component]
fn Figures(card: PoolCard) -> impl IntoView {
    let t = use_text();
    let poll = expect_context::<PoolActs>().poll;
    let key = card.key;
    let live = Memo::new(move |_| {
        poll.latest.with(|live| live.as_ref()?.pools.iter().find(|pool| pool.key == key).cloned())
    });
    let figure = move |read: fn(&LivePool) -> String| {
        view! { {move || live.with(|pool| pool.as_ref().map_or_else(|| "–".to_owned(), read))} }.into_any()
    };
    let states = Signal::derive(move || {
        live.with(|pool| {
            pool.as_ref().map_or_else(Vec::new, |pool| {
                vec![("strip-good", pool.closed), ("strip-warn", pool.half_open), ("strip-bad", pool.open)]
            })
        })
    });
    let none = move |read: fn(&LivePool) -> u32| {
        move || live.with(|pool| pool.as_ref().is_none_or(|pool| read(pool) == 0))
    };
    let bad = move || live.with(|pool| pool.as_ref().is_some_and(|pool| pool.open > 0));
    let errors_high = move || {
        live.with(|pool| pool.as_ref().is_some_and(|pool| pool.calls > 0 && pool.failed * 10 >= pool.calls))
    };
    let cooling = move || live.with(|pool| pool.as_ref().map_or(0, |pool| pool.cooling));
    let cooling_item = move || {
        view! {
            <li class="cool">
                <Icon glyph=Glyph::Snow/>
                {move || cooling().to_string()}
                " "
                {t.pools.cooling}
            </li>
        }
        .into_any()
    };
    view! {
        <div class="states">
            <Strip parts=states/>
            <ul class="state-counts">
                <li class="good" class:none=none(|pool| pool.closed)>
                    <Icon glyph=Glyph::Check/>
                    {figure(|pool| pool.closed.to_string())}
                    " "
                    {(t.common.breaker)(super::api::BreakerState::Closed)}
                </li>
                <li class="warn" class:none=none(|pool| pool.half_open)>
                    <Icon glyph=Glyph::Half/>
                    {figure(|pool| pool.half_open.to_string())}
                    " "
                    {(t.common.breaker)(super::api::BreakerState::HalfOpen)}
                </li>
                <li class="bad" class:loud=bad class:none=none(|pool| pool.open)>
                    <Icon glyph=Glyph::Cross/>
                    {figure(|pool| pool.open.to_string())}
                    " "
                    {(t.common.breaker)(super::api::BreakerState::Open)}
                </li>
                {when(move || cooling() != 0, cooling_item)}
            </ul>
        </div>
        <dl class="figures">
            <div>
                <dt>{t.pools.members}</dt>
                <dd>{(t.pools.members_count)(card.active_members, card.members)}</dd>
            </div>
            <div>
                <dt>{t.pools.concurrency}</dt>
                <dd>{card.total_concurrency.map_or_else(|| t.common.unlimited.to_owned(), format::count)}</dd>
            </div>
            <div>
                <dt>{t.pools.threshold}</dt>
                <dd>{card.circuit_failure_threshold}</dd>
            </div>
            <div>
                <dt>{t.pools.recovery}</dt>
                <dd>{format::seconds(i64::from(card.circuit_recovery_seconds))}</dd>
            </div>
            <div>
                <dt>{t.pools.in_flight}</dt>
                <dd>{figure(|pool| format::count(pool.in_flight))}</dd>
            </div>
            <div>
                <dt title=t.pools.five_minutes>{t.pools.calls}</dt>
                <dd>{figure(|pool| format::count(pool.calls))}</dd>
            </div>
            <div>
                <dt title=t.pools.five_minutes>{t.pools.errors}</dt>
                <dd class:loud=errors_high>{figure(|pool| format::percent(pool.failed, pool.calls))}</dd>
            </div>
        </dl>
    }
}

/// The parts of an open card.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Members,
    Settings,
    DryRun,
}

impl Part {
    const ALL: [Self; 3] = [Self::Members, Self::Settings, Self::DryRun];

    fn word(self) -> &'static str {
        match self {
            Self::Members => "members",
            Self::Settings => "settings",
            Self::DryRun => "dry-run",
        }
    }

    fn parse(word: Option<&str>) -> Self {
        Self::ALL.into_iter().find(|part| Some(part.word()) == word).unwrap_or(Self::Members)
    }
}

#[component]
fn Open(detail: PoolDetail) -> impl IntoView {
    let t = use_text();
    let query = use_query_map();
    let part = Memo::new(move |_| query.with(|query| Part::parse(query.get_str("part"))));
    let key = detail.card.key.clone();
    let tabs = Part::ALL
        .into_iter()
        .map(|this| {
            let label = match this {
                Part::Members => t.pools.members,
                Part::Settings => t.pools.settings,
                Part::DryRun => t.pools.dry_run,
            };
            let href = {
                let key = key.clone();
                move || part_href(&key, this, query.with(|query| query.get("q")))
            };
            let current = move || (part.get() == this).then_some("true");
            view! {
                <li>
                    <a href=href aria-current=current data-noscroll=true>
                        {label}
                    </a>
                </li>
            }
            .into_any()
        })
        .collect_view();
    let detail = StoredValue::new(detail);
    view! {
        <nav class="tabs">
            <ul>{tabs}</ul>
        </nav>
        {move || {
            let detail = detail.get_value();
            match part.get() {
                Part::Members => view! { <Members detail/> }.into_any(),
                Part::Settings => view! { <Settings detail/> }.into_any(),
                Part::DryRun => view! { <DryRun pool=detail.card.key/> }.into_any(),
            }
        }}
    }
}

/// Where a click on a card leads: to it open, or back to all closed.
fn card_href(key: &str, is_open: bool, q: Option<String>) -> String {
    let pool = (!is_open).then(|| format!("pool={key}"));
    let q = q.filter(|q| !q.is_empty()).map(|q| format!("q={q}"));
    let query = pool.into_iter().chain(q).collect::<Vec<_>>().join("&");
    if query.is_empty() { "/admin/model-pools".to_owned() } else { format!("/admin/model-pools?{query}") }
}

fn part_href(key: &str, part: Part, q: Option<String>) -> String {
    let href = card_href(key, false, q);
    if part == Part::Members { href } else { format!("{href}&part={}", part.word()) }
}
