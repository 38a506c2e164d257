//! `/admin/tasks`: newest first, filtered by the URL, following what comes.

use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::components::A;
use leptos_router::hooks::use_query_map;
use leptos_router::params::ParamsMap;

use super::api::{LoadTasks, TaskChoices, TaskFilter, TaskPage, TaskRow, TaskStatus, TasksView, WatchTasks};
use crate::port::Capability;
use crate::ui::ask::{ask, ask_json};
use crate::ui::badge::{ErrorClass, TaskBadge, Time};
use crate::ui::copy::CopyButton;
use crate::ui::field::Select;
use crate::ui::filter::FilterForm;
use crate::ui::format;
use crate::ui::icon::{Glyph, Icon};
use crate::ui::load::{load, show};
use crate::ui::notice::{ConnectionBanner, Empty};
use crate::ui::poll::Poll;
use crate::ui::text::use_text;
use crate::ui::when::when;

const PATH: &str = "/admin/tasks";

/// The list. Its first page follows what comes; older ones stand still.
#[component]
pub(crate) fn TasksPage() -> impl IntoView {
    let t = use_text();
    let query = use_query_map();
    let filter = Memo::new(move |_| query.with(filter_of));
    let cursor =
        Memo::new(move |_| query.with(|query| query.get("cursor")).filter(|cursor| !cursor.is_empty()));
    let list = load(
        move || query.with(ParamsMap::to_query_string),
        move |_| ask_json(LoadTasks { filter: filter.get_untracked(), cursor: cursor.get_untracked() }),
    );
    let poll = Poll::new(move || ask(WatchTasks { filter: filter.get_untracked() }));
    Effect::new(move || poll.following.set(cursor.with(Option::is_none)));
    let tasks = show(list, move |TasksView { page, choices }| {
        poll.seed(page);
        view! {
            <Filters filter=filter.get_untracked() choices/>
            <List poll filter/>
            <Pages poll query/>
        }
        .into_any()
    });
    view! {
        <Title text=t.tasks.title/>
        <ConnectionBanner trouble=poll.trouble age=poll.age/>
        <header class="page-head">
            <h1>{t.tasks.title}</h1>
            {when(move || cursor.with(Option::is_none), move || view! { <Follow poll/> }.into_any())}
        </header>
        {tasks}
    }
    .into_any()
}

/// Whether new tasks come in by themselves, and the switch for it.
#[component]
fn Follow(poll: Poll<TaskPage>) -> impl IntoView {
    let t = use_text();
    let following = poll.following;
    let state = move || {
        if following.get() { t.tasks.live } else { t.tasks.paused }
    };
    let label = move || {
        if following.get() { t.tasks.pause } else { t.tasks.resume }
    };
    let turn = move |_| {
        following.update(|following| *following = !*following);
        if following.get_untracked() {
            poll.now();
        }
    };
    view! {
        <div class="follow">
            <span class="pulse" class:pulse-on=move || following.get()></span>
            <span class="muted">{move || state()}</span>
            <button type="button" class="button button-small" on:click=turn>
                {move || label()}
            </button>
        </div>
    }
}

#[component]
fn Filters(filter: TaskFilter, choices: TaskChoices) -> impl IntoView {
    let t = use_text();
    let any = || (String::new(), t.common.any.to_owned());
    let named = move |names: Vec<String>| -> Vec<(String, String)> {
        std::iter::once(any()).chain(names.into_iter().map(|name| (name.clone(), name))).collect()
    };
    let statuses: Vec<_> = std::iter::once(any())
        .chain(TaskStatus::ALL.map(|s| (s.as_str().to_owned(), (t.tasks.status_word)(s).to_owned())))
        .collect();
    let capabilities: Vec<_> = std::iter::once(any())
        .chain(Capability::ALL.map(|c| (c.as_str().to_owned(), (t.common.capability)(c).to_owned())))
        .collect();
    let filtered = filter != TaskFilter::default();
    let status = filter.status.map(TaskStatus::as_str).map(str::to_owned);
    let capability = filter.capability.map(Capability::as_str).map(str::to_owned);
    view! {
        <FilterForm path=PATH>
            <FilterSelect name="status" label=t.tasks.status choices=statuses value=status/>
            <FilterSelect name="capability" label=t.tasks.capability choices=capabilities value=capability/>
            <FilterSelect name="pool" label=t.tasks.pool choices=named(choices.pools) value=filter.pool/>
            <FilterSelect name="model" label=t.tasks.model choices=named(choices.models) value=filter.model/>
            <FilterSelect name="caller" label=t.tasks.caller choices=named(choices.callers) value=filter.caller/>
            <span title=t.tasks.error_class_help>
                <FilterSelect
                    name="error_class"
                    label=t.tasks.error_class
                    choices=named(choices.error_classes)
                    value=filter.error_class
                />
            </span>
            <FilterInput name="from" label=t.tasks.from kind="datetime-local" value=filter.from/>
            <FilterInput name="to" label=t.tasks.to kind="datetime-local" value=filter.to/>
            <FilterInput name="q" label=t.tasks.id_text kind="search" value=filter.q/>
            <div class="filter-buttons">
                <button class="button">{t.common.filter}</button>
                {filtered.then(|| view! { <A href=PATH>{t.common.clear_filters}</A> }.into_any())}
            </div>
        </FilterForm>
    }
    .into_any()
}

#[component]
fn FilterSelect(
    name: &'static str,
    label: &'static str,
    mut choices: Vec<(String, String)>,
    value: Option<String>,
) -> impl IntoView {
    let value = value.unwrap_or_default();
    // A link may name what no list holds any more: it must not be dropped in silence.
    if choices.iter().all(|(choice, _)| *choice != value) {
        choices.push((value.clone(), value.clone()));
    }
    view! {
        <div class="filter">
            <label for=name>{label}</label>
            <Select id=name.to_owned() name choices value=RwSignal::new(value)/>
        </div>
    }
}

#[component]
fn FilterInput(
    name: &'static str,
    label: &'static str,
    kind: &'static str,
    value: Option<String>,
) -> impl IntoView {
    let value = value.unwrap_or_default();
    view! {
        <div class="filter">
            <label for=name>{label}</label>
            <input id=name name=name type=kind value=value.clone() prop:value=value/>
        </div>
    }
}

#[component]
fn List(poll: Poll<TaskPage>, filter: Memo<TaskFilter>) -> impl IntoView {
    let t = use_text();
    let rows = Memo::new(move |_| {
        poll.latest.with(|page| page.as_ref().map(|page| page.tasks.clone()).unwrap_or_default())
    });
    let some = move || rows.with(|rows| !rows.is_empty());
    let filtered = move || filter.with(|filter| *filter != TaskFilter::default());
    let nothing =
        when(move || !some() && filtered(), move || view! { <Empty title=t.tasks.no_match/> }.into_any());
    let nothing_yet = when(
        move || !some() && !filtered(),
        move || view! { <Empty title=t.tasks.empty next=t.tasks.empty_next/> }.into_any(),
    );
    let table = when(some, move || view! { <Table rows/> }.into_any());
    view! {
        {nothing}
        {nothing_yet}
        {table}
    }
    .into_any()
}

#[component]
fn Table(rows: Memo<Vec<TaskRow>>) -> impl IntoView {
    let t = use_text();
    view! {
        <div class="table-frame">
            <table class="tasks">
                <thead>
                    <tr>
                        <th scope="col">{t.tasks.id}</th>
                        <th scope="col">{t.tasks.status}</th>
                        <th scope="col">{t.tasks.pool}</th>
                        <th scope="col">{t.tasks.model}</th>
                        <th scope="col">{t.tasks.caller}</th>
                        <th scope="col" class="number">
                            {t.tasks.attempts}
                        </th>
                        <th scope="col" class="number">
                            {t.tasks.duration}
                        </th>
                        <th scope="col" class="number">
                            {t.tasks.charged}
                        </th>
                    </tr>
                </thead>
                <tbody>
                    <For each=move || rows.get() key=row_key let(task)>
                        <Row task/>
                    </For>
                </tbody>
            </table>
        </div>
    }
    .into_any()
}

/// A row is drawn anew when anything in it that can change has changed.
fn row_key(task: &TaskRow) -> (String, TaskStatus, u32, Option<i64>) {
    (task.id.clone(), task.status, task.attempts, task.duration_ms)
}

#[component]
fn Row(task: TaskRow) -> impl IntoView {
    let t = use_text();
    let href = format!("{PATH}/{}", task.id);
    let more = task.attempts > 1;
    let (id, shown) = (task.id.clone(), task.id);
    view! {
        <tr data-task=id>
            <th scope="row" class="nowrap">
                <span class="id">
                    <A href=href>
                        <code>{shown}</code>
                    </A>
                    <CopyButton text=id.clone()/>
                </span>
                <span class="small muted">
                    <Time at=task.created_at/>
                </span>
            </th>
            <td>
                <TaskBadge status=task.status/>
                {task.error_class.map(|class| view! { <span class="small"><ErrorClass class/></span> }.into_any())}
            </td>
            <td>
                {task.pool.unwrap_or_else(|| "–".to_owned())}
                <span class="small muted">{(t.common.capability)(task.capability)}</span>
            </td>
            <td>{task.model.unwrap_or_else(|| "–".to_owned())}</td>
            <td class="nowrap">{task.caller}</td>
            <td class="number" class:strong=more>
                {task.attempts}
            </td>
            <td class="number nowrap">{task.duration_ms.map_or_else(|| "–".to_owned(), format::duration)}</td>
            <td class="number">{task.charged}</td>
        </tr>
    }
    .into_any()
}

/// On to older tasks, and back to the newest.
#[component]
fn Pages(poll: Poll<TaskPage>, query: Memo<ParamsMap>) -> impl IntoView {
    let t = use_text();
    let next = Memo::new(move |_| poll.latest.with(|page| page.as_ref()?.next_cursor.clone()));
    let on_older_page = move || query.with(|query| query.get_str("cursor").is_some());
    let older = move || {
        next.get().map(|cursor| {
            let href = query.with(|query| page_href(query, Some(&cursor)));
            view! {
                <A href=href attr:class="button">
                    {t.tasks.older}
                    <Icon glyph=Glyph::Chevron/>
                </A>
            }
            .into_any()
        })
    };
    let newest = move || {
        on_older_page().then(|| {
            let href = query.with(|query| page_href(query, None));
            view! {
                <A href=href attr:class="button">
                    {t.tasks.newest}
                </A>
            }
            .into_any()
        })
    };
    view! {
        <nav class="pages" aria-label=t.tasks.paging>
            {move || newest()}
            {move || older()}
        </nav>
    }
}

/// The same filters on another page of the list.
fn page_href(query: &ParamsMap, cursor: Option<&str>) -> String {
    let mut query = query.clone();
    query.remove("cursor");
    if let Some(cursor) = cursor {
        query.insert("cursor", cursor.to_owned());
    }
    format!("{PATH}{}", query.to_query_string())
}

fn filter_of(query: &ParamsMap) -> TaskFilter {
    let text = |name| query.get(name).filter(|text: &String| !text.trim().is_empty());
    TaskFilter {
        status: query.get_str("status").and_then(TaskStatus::parse),
        capability: query.get_str("capability").and_then(Capability::parse),
        pool: text("pool"),
        model: text("model"),
        caller: text("caller"),
        error_class: text("error_class"),
        from: text("from"),
        to: text("to"),
        q: text("q"),
    }
}
