//! States at a glance: always an icon and a word, the colour only helps.

use leptos::prelude::*;

use super::format;
use super::icon::{Glyph, Icon};
use super::text::use_text;
use crate::pools::api::{BreakerState, BreakerView};
use crate::port::{Cooldown, Moment};
use crate::tasks::api::{AttemptKind, AttemptStatus, TaskStatus};

/// The state of a breaker; Open counts down to its probe.
#[component]
pub(crate) fn BreakerBadge(
    /// The breaker.
    breaker: BreakerView,
    /// Seconds since that was so.
    age: RwSignal<u32>,
) -> impl IntoView {
    let t = use_text();
    let (class, glyph, state) = match breaker.state {
        BreakerState::Closed => ("badge badge-good", Glyph::Check, "closed"),
        BreakerState::HalfOpen => ("badge badge-warn", Glyph::Half, "half_open"),
        BreakerState::Open => ("badge badge-bad", Glyph::Cross, "open"),
    };
    let since = breaker.since.as_ref().map(|at| at.text.clone()).unwrap_or_default();
    let title = [breaker.cause.clone().unwrap_or_default(), since].join(" ").trim().to_owned();
    let forced = (breaker.forced && breaker.state == BreakerState::Open)
        .then(|| view! { <span class="badge-note">{t.common.forced}</span> }.into_any());
    let countdown = breaker.open_left_ms.filter(|_| breaker.state == BreakerState::Open).map(|left| {
        let text = move || match format::seconds_left(left, age.get()) {
            0 => t.common.probe_due.to_owned(),
            s => (t.common.probe_in)(&format::seconds(s)),
        };
        view! { <span class="badge-note">{move || text()}</span> }.into_any()
    });
    view! {
        <span class=class data-state=state title=title>
            <Icon glyph/>
            {(t.common.breaker)(breaker.state)}
            {forced}
            {countdown}
        </span>
    }
}

/// What is set aside, why, and for how long still.
#[component]
pub(crate) fn CooldownBadge(
    /// The cooldown.
    cooldown: Cooldown,
    /// Seconds since that was so.
    age: RwSignal<u32>,
) -> impl IntoView {
    let t = use_text();
    let left_ms = cooldown.left_ms;
    let reason = cooldown.reason.clone();
    let text =
        move || (t.common.cooling)(&reason, &format::seconds(format::seconds_left(left_ms, age.get())));
    view! {
        <span class="badge badge-cool" title=(t.common.class)(&cooldown.reason)>
            <Icon glyph=Glyph::Snow/>
            {move || text()}
        </span>
    }
}

/// Where a task stands.
#[component]
pub(crate) fn TaskBadge(
    /// Its status.
    status: TaskStatus,
) -> impl IntoView {
    let t = use_text();
    let (class, glyph) = match status {
        TaskStatus::Queued => ("badge", Glyph::Clock),
        TaskStatus::Running => ("badge badge-live", Glyph::Play),
        TaskStatus::Succeeded => ("badge badge-good", Glyph::Check),
        TaskStatus::Failed => ("badge badge-bad", Glyph::Cross),
        TaskStatus::OutcomeUnknown => ("badge badge-unknown", Glyph::Question),
        TaskStatus::DeadLettered => ("badge badge-bad", Glyph::Envelope),
        TaskStatus::Cancelled => ("badge", Glyph::Ban),
    };
    view! {
        <span class=class data-state=status.as_str()>
            <Icon glyph/>
            {(t.tasks.status_word)(status)}
        </span>
    }
}

/// How an attempt ended.
#[component]
pub(crate) fn AttemptBadge(
    /// Its status.
    status: AttemptStatus,
) -> impl IntoView {
    let t = use_text();
    let (class, glyph) = match status {
        AttemptStatus::Sent => ("badge badge-live", Glyph::Play),
        AttemptStatus::Succeeded => ("badge badge-good", Glyph::Check),
        AttemptStatus::Failed => ("badge badge-bad", Glyph::Cross),
        AttemptStatus::OutcomeUnknown => ("badge badge-unknown", Glyph::Question),
        AttemptStatus::Cancelled => ("badge", Glyph::Ban),
    };
    view! {
        <span class=class>
            <Icon glyph/>
            {(t.tasks.attempt_status)(status)}
        </span>
    }
}

/// Why an attempt was made.
#[component]
pub(crate) fn KindBadge(
    /// Its kind.
    kind: AttemptKind,
) -> impl IntoView {
    let t = use_text();
    let glyph = match kind {
        AttemptKind::Initial => Glyph::Play,
        AttemptKind::Retry => Glyph::Retry,
        AttemptKind::Fallback => Glyph::Fork,
    };
    view! {
        <span class="badge badge-plain">
            <Icon glyph/>
            {(t.tasks.kind)(kind)}
        </span>
    }
}

/// An instant in the console's zone, with UTC on hover.
#[component]
pub(crate) fn Time(
    /// The instant.
    at: Moment,
) -> impl IntoView {
    view! {
        <time datetime=at.utc.clone() title=at.utc>
            {at.text}
        </time>
    }
}

/// An error class, explained on hover.
#[component]
pub(crate) fn ErrorClass(
    /// The class.
    class: String,
) -> impl IntoView {
    let t = use_text();
    view! {
        <code class="class" title=(t.common.class)(&class)>
            {class.clone()}
        </code>
    }
}
