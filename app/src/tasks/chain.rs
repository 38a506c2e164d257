//! The attempt chain as a time line: one row a real upstream request, the wait before it apart.

use leptos::prelude::*;

use super::api::{AttemptStatus, AttemptView, BreakerEventView, TaskDetail};
use crate::ui::badge::{AttemptBadge, ErrorClass, KindBadge, Time};
use crate::ui::format;
use crate::ui::icon::{Glyph, Icon};
use crate::ui::notice::Empty;
use crate::ui::text::use_text;

/// The time that the line shows: from the task's coming to the last end known.
#[derive(Clone, Copy)]
struct Span {
    start: i64,
    length: i64,
}

impl Span {
    fn of(task: &TaskDetail) -> Self {
        let start = task.created_at.ms;
        let ends = task.attempts.iter().map(|a| a.started_at.ms + a.duration_ms.unwrap_or(0));
        let end = ends.chain(task.finished_at.iter().map(|at| at.ms)).max().unwrap_or(start);
        Self { start, length: (end - start).max(1) }
    }

    /// Where on the line, 0 to 1.
    fn place(self, ms: i64) -> f64 {
        ((ms - self.start) as f64 / self.length as f64).clamp(0.0, 1.0)
    }
}

/// The chain.
#[component]
pub(super) fn Chain(task: TaskDetail) -> impl IntoView {
    let t = use_text();
    let span = Span::of(&task);
    if task.attempts.is_empty() {
        return view! {
            <section class="chain">
                <h2>{t.tasks.chain}</h2>
                <Empty title=t.tasks.chain_empty/>
            </section>
        }
        .into_any();
    }
    let capped =
        task.attempts_capped.then(|| view! { <p class="notice">{t.tasks.chain_capped}</p> }.into_any());
    let events = task.breaker_events;
    let attempts = task
        .attempts
        .into_iter()
        .map(|attempt| {
            let events: Vec<_> =
                events.iter().filter(|event| event.seq == Some(attempt.seq)).cloned().collect();
            view! { <Attempt attempt span events/> }.into_any()
        })
        .collect_view();
    let others: Vec<_> = events.iter().filter(|event| event.seq.is_none()).cloned().collect();
    view! {
        <section class="chain">
            <h2>{t.tasks.chain}</h2>
            <p class="muted small">
                {t.tasks.chain_help}
                <span class="legend">
                    <span class="key key-wait"></span>
                    {t.tasks.legend_wait}
                    <span class="key key-first"></span>
                    {t.tasks.legend_first}
                    <span class="key key-rest"></span>
                    {t.tasks.legend_rest}
                </span>
            </p>
            <ol>{attempts}</ol>
            <Events events=others/>
            {capped}
        </section>
    }
    .into_any()
}

#[component]
fn Attempt(attempt: AttemptView, span: Span, events: Vec<BreakerEventView>) -> impl IntoView {
    let t = use_text();
    let after = format::duration(attempt.started_at.ms - span.start);
    let times = [
        (attempt.waited_ms > 0).then(|| (t.tasks.waited)(&format::duration(attempt.waited_ms))),
        attempt.first_content_ms.map(|ms| (t.tasks.first_content)(&format::duration(ms))),
        Some(match attempt.duration_ms {
            Some(ms) => (t.tasks.took)(&format::duration(ms)),
            None => t.tasks.still_out.to_owned(),
        }),
    ];
    let times = times.into_iter().flatten().collect::<Vec<_>>().join(" · ");
    let class = attempt.error_class.clone().map(|class| view! { <ErrorClass class/> }.into_any());
    let status = attempt.http_status.map(|status| (t.tasks.upstream_status)(status));
    let message = attempt
        .error_message
        .clone()
        .map(|message| view! { <p class="attempt-message">{message}</p> }.into_any());
    let unknown = (attempt.outcome_unknown || attempt.status == AttemptStatus::OutcomeUnknown).then(|| {
        view! {
            <p class="attempt-unknown">
                <Icon glyph=Glyph::Question/>
                {t.tasks.maybe_billed}
            </p>
        }
        .into_any()
    });
    let seq = attempt.seq;
    view! {
        <li class="attempt" data-seq=seq.to_string()>
            <div class="attempt-head">
                <span class="seq">{seq}</span>
                <KindBadge kind=attempt.kind/>
                <strong>{attempt.model.clone()}</strong>
                <span class="muted">{attempt.provider.clone()}</span>
                <AttemptBadge status=attempt.status/>
                {class}
                <span class="muted small">{status}</span>
                <span class="attempt-times small">{times}</span>
            </div>
            <div class="lane-row">
                <span class="small muted nowrap">{(t.tasks.started_after)(&after)}</span>
                <Lane attempt=attempt.clone() span/>
            </div>
            {message}
            {unknown}
            <Events events/>
            <Facts attempt/>
        </li>
    }
    .into_any()
}

/// The bar of one attempt: wait, until the first content, until the end.
#[component]
fn Lane(attempt: AttemptView, span: Span) -> impl IntoView {
    let start = attempt.started_at.ms;
    let wait = span.place(start - attempt.waited_ms);
    let sent = span.place(start);
    let end = attempt.duration_ms.map_or(1.0, |ms| span.place(start + ms)).max(sent + 0.004);
    let first = attempt.first_content_ms.map_or(sent, |ms| span.place(start + ms).clamp(sent, end));
    let tone = match attempt.status {
        AttemptStatus::Succeeded => "lane-good",
        AttemptStatus::Failed => "lane-bad",
        AttemptStatus::OutcomeUnknown => "lane-unknown",
        AttemptStatus::Sent | AttemptStatus::Cancelled => "lane-plain",
    };
    let bar = |class: &'static str, from: f64, to: f64| {
        (to > from).then(|| {
            view! {
                <rect class=class x=format::length(from) width=format::length(to - from) height="100%"></rect>
            }
            .into_any()
        })
    };
    view! {
        <svg class=format!("lane {tone}") aria-hidden="true">
            <rect class="lane-track" width="100%" height="100%"></rect>
            {bar("lane-wait", wait, sent)}
            {bar("lane-first", sent, first)}
            {bar("lane-rest", first, end)}
        </svg>
    }
}

/// What breakers did because of it.
#[component]
fn Events(events: Vec<BreakerEventView>) -> impl IntoView {
    let t = use_text();
    events
        .into_iter()
        .map(|event| {
            let text = (t.tasks.breaker_did)(&event.model, (t.common.breaker)(event.to));
            view! {
                <p class="attempt-event">
                    <Icon glyph=Glyph::Warning/>
                    {text}
                    <span class="muted">{format!(" – {} ", event.cause)} <Time at=event.at/></span>
                </p>
            }
            .into_any()
        })
        .collect_view()
}

/// Everything else that is known, folded away.
#[component]
fn Facts(attempt: AttemptView) -> impl IntoView {
    let t = use_text();
    let fact = |name: &'static str, value: Option<String>| {
        value.map(|value| view! { <div><dt>{name}</dt><dd>{value}</dd></div> }.into_any())
    };
    let json = |name: &'static str, value: Option<String>| {
        value.map(|value| view! { <div><dt>{name}</dt><dd><pre>{value}</pre></dd></div> }.into_any())
    };
    let account = attempt.account.clone().unwrap_or_else(|| t.common.none.to_owned());
    view! {
        <details>
            <summary>
                {t.tasks.account} " " <strong>{account}</strong> <span class="muted">
                    {format!(" · {} {}", t.tasks.why, attempt.reason)}
                </span>
            </summary>
            <dl class="facts">
                <div>
                    <dt>{t.tasks.started}</dt>
                    <dd>
                        <Time at=attempt.started_at/>
                    </dd>
                </div>
                {fact(t.tasks.provider_task_id, attempt.provider_task_id)}
                {fact(t.tasks.cost, Some(attempt.cost.unwrap_or_else(|| t.tasks.unknown_cost.to_owned())))}
                {json(t.tasks.usage, attempt.usage)}
                {json(t.tasks.request, attempt.request_summary)}
                {json(t.tasks.response, attempt.response_summary)}
            </dl>
        </details>
    }
    .into_any()
}
