//! `/admin/tasks/:id`: one task with its attempt chain.

use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::components::A;
use leptos_router::hooks::use_params_map;

use super::api::{LoadTask, TaskDetail, TaskStatus};
use super::chain::Chain;
use crate::port::Presence;
use crate::ui::ask::{ask, ask_json};
use crate::ui::badge::{TaskBadge, Time};
use crate::ui::copy::CopyId;
use crate::ui::format;
use crate::ui::load::{load, show};
use crate::ui::notice::ConnectionBanner;
use crate::ui::poll::Poll;
use crate::ui::text::use_text;

/// The page. It follows a task until the task has ended.
#[component]
pub(crate) fn TaskPage() -> impl IntoView {
    let t = use_text();
    let params = use_params_map();
    let id = Memo::new(move |_| params.with(|params| params.get("id")).unwrap_or_default());
    let task = load(move || id.get(), |id| ask_json(LoadTask { id, presence: Presence::Acting }));
    let poll = Poll::new(move || ask(LoadTask { id: id.get_untracked(), presence: Presence::Watching }));
    Effect::new(move || {
        let going = poll.latest.with(|task| task.as_ref().is_some_and(is_going));
        poll.following.set(going);
    });
    let detail = show(task, move |task: TaskDetail| {
        poll.seed(task);
        let shown = Memo::new(move |_| poll.latest.get());
        view! { {move || shown.get().map(|task| view! { <Detail task/> }.into_any())} }.into_any()
    });
    view! {
        <Title text=t.tasks.task/>
        <ConnectionBanner trouble=poll.trouble age=poll.age/>
        <p class="crumb">
            <A href="/admin/tasks">{t.tasks.back}</A>
        </p>
        {detail}
    }
    .into_any()
}

fn is_going(task: &TaskDetail) -> bool {
    matches!(task.status, TaskStatus::Queued | TaskStatus::Running)
}

#[component]
fn Detail(task: TaskDetail) -> impl IntoView {
    let t = use_text();
    let error = task.error.clone().map(|error| {
        view! {
            <section class="told">
                <h2>{t.tasks.told}</h2>
                <p>
                    <code>{error.code}</code>
                    " "
                    {error.message}
                </p>
            </section>
        }
        .into_any()
    });
    let request = task.request_summary.clone().map(|request| {
        view! {
            <details>
                <summary>{t.tasks.request}</summary>
                <pre>{request}</pre>
            </details>
        }
        .into_any()
    });
    view! {
        <header class="page-head task-head">
            <h1>{t.tasks.task}</h1>
            <CopyId id=task.id.clone()/>
            <TaskBadge status=task.status/>
        </header>
        <div class="columns task-columns">
            <Summary task=task.clone()/>
            <Money task=task.clone()/>
        </div>
        {error}
        <Chain task/>
        {request}
    }
    .into_any()
}

#[component]
fn Summary(task: TaskDetail) -> impl IntoView {
    let t = use_text();
    let capability = match &task.operation {
        Some(operation) => format!("{} · {operation}", (t.common.capability)(task.capability)),
        None => (t.common.capability)(task.capability).to_owned(),
    };
    let form = if task.stream { t.tasks.stream } else { t.tasks.whole };
    view! {
        <section>
            <h2>{t.tasks.summary}</h2>
            <dl class="facts">
                <Fact name=t.tasks.capability value=capability/>
                <Fact name=t.tasks.pool value=task.pool/>
                <Fact name=t.tasks.asked_model value=task.model/>
                <Fact name=t.tasks.final_model value=task.final_model/>
                <Fact name=t.tasks.caller value=task.caller/>
                <Fact name=t.tasks.form value=form.to_owned()/>
                <Fact name=t.tasks.task_type value=task.task_type/>
                <Fact name=t.tasks.idempotency_key value=task.idempotency_key/>
            </dl>
        </section>
    }
    .into_any()
}

#[component]
fn Money(task: TaskDetail) -> impl IntoView {
    let t = use_text();
    let money = task.money;
    let platform_cost = money.platform_cost.unwrap_or_else(|| t.tasks.unknown_cost.to_owned());
    view! {
        <section>
            <h2>{t.tasks.money}</h2>
            <dl class="facts">
                <Fact name=t.tasks.held value=money.held/>
                <Fact name=t.tasks.charged value=money.charged/>
                <Fact name=t.tasks.platform_cost value=platform_cost/>
            </dl>
            <dl class="facts">
                <div>
                    <dt>{t.tasks.created}</dt>
                    <dd>
                        <Time at=task.created_at/>
                    </dd>
                </div>
                {task.started_at.map(|at| view! { <div><dt>{t.tasks.started}</dt><dd><Time at/></dd></div> }.into_any())}
                {task.finished_at.map(|at| view! { <div><dt>{t.tasks.finished}</dt><dd><Time at/></dd></div> }.into_any())}
                <Fact name=t.tasks.duration value=task.duration_ms.map(format::duration)/>
            </dl>
        </section>
    }
    .into_any()
}

/// A name and its value; nothing where there is none.
#[component]
fn Fact(name: &'static str, #[prop(into)] value: Option<String>) -> impl IntoView {
    value.map(|value| {
        view! {
            <div>
                <dt>{name}</dt>
                <dd>{value}</dd>
            </div>
        }
        .into_any()
    })
}
